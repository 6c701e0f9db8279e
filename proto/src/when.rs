//! Points in time as people and programs write them, the same on the command line and in the REST API.

/// A time ago (`7d`), a day (`2026-01-31`, in UTC) or an instant (RFC 3339), as Unix milliseconds.
///
/// # Errors
/// Says how to write one.
pub fn point_in_time(text: &str, now_ms: i64) -> Result<i64, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        let ago = i64::try_from(ago.as_millis()).map_err(|_| format!("{text:?} is too long ago"))?;
        return Ok(now_ms.saturating_sub(ago).max(1));
    }
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        return Ok(instant.as_millisecond());
    }
    text.parse::<jiff::civil::Date>()
        .and_then(|date| date.to_zoned(jiff::tz::TimeZone::UTC))
        .map(|zoned| zoned.timestamp().as_millisecond())
        .map_err(|_| format!("{text:?} is no time; write 7d, 2026-01-31 or 2026-01-31T12:00:00Z"))
}

/// RFC 3339 in UTC with milliseconds; empty for 0.
pub fn timestamp(unix_ms: i64) -> String {
    if unix_ms == 0 {
        return String::new();
    }
    jiff::Timestamp::from_millisecond(unix_ms).map(|t| format!("{t:.3}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ago_or_absolute() {
        let at = |text| point_in_time(text, 1_700_000_000_000);
        assert_eq!(at("7d"), Ok((1_700_000_000 - 7 * 86400) * 1000));
        assert_eq!(at("2023-11-14T22:13:20Z"), Ok(1_700_000_000_000));
        assert_eq!(at("2023-11-15"), Ok(1_700_006_400_000));
        assert!(at("yesterday").is_err());
    }

    #[test]
    fn timestamps_read_back() {
        for ms in [1, 1_700_000_000_123, -5] {
            assert_eq!(point_in_time(&timestamp(ms), 0), Ok(ms));
        }
        assert_eq!(timestamp(0), "");
    }
}
