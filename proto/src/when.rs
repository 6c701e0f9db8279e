//! Points in time as people and programs write them, the same on the command line and in the REST API.

use jiff::civil::Date;
use jiff::tz::TimeZone;

/// A time ago (`7d`), a day (`2026-01-31`, in UTC) or an instant (RFC 3339), as Unix milliseconds.
///
/// # Errors
/// Says how to write one. A time without a zone is none: it would be another moment on another machine.
pub fn point_in_time(text: &str, now_ms: i64) -> Result<i64, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        let ago = i64::try_from(ago.as_millis()).map_err(|_| format!("{text:?} is too long ago"))?;
        return Ok(now_ms.saturating_sub(ago).max(1));
    }
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        return Ok(instant.as_millisecond());
    }
    day(text)
        .map(|(start_ms, _)| start_ms)
        .ok_or_else(|| format!("{text:?} is no time; write 7d, 2026-01-31 or 2026-01-31T12:00:00Z"))
}

/// Characters of a day.
const DAY_CHARS: usize = 10;

/// The first millisecond of a day (`2026-01-31`) in UTC, and that of the next one. `None`: the text is no day.
pub fn day(text: &str) -> Option<(i64, i64)> {
    // A date is also read out of a time without a zone, whose hours would be lost.
    let date: Date = text.parse().ok().filter(|_| text.len() == DAY_CHARS)?;
    let start_ms =
        |date: Date| date.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp().as_millisecond());
    Some((start_ms(date)?, start_ms(date.tomorrow().ok()?)?))
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
    fn hours_without_a_zone_are_refused_not_dropped() {
        for bad in ["2023-11-15T12:00", "2023-11-15T12:00:00", "2023-11-15 12:00", "20231115"] {
            assert!(point_in_time(bad, 0).is_err() && day(bad).is_none(), "{bad}");
        }
        assert_eq!(day("2023-11-15"), Some((1_700_006_400_000, 1_700_092_800_000)));
    }

    #[test]
    fn timestamps_read_back() {
        for ms in [1, 1_700_000_000_123, -5] {
            assert_eq!(point_in_time(&timestamp(ms), 0), Ok(ms));
        }
        assert_eq!(timestamp(0), "");
    }
}
