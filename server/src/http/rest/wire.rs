//! Types that several answers share, and the form of times in them.

pub(super) use holdfast_proto::api::Items;
use holdfast_proto::when::timestamp;

use crate::error::ServiceError;

/// RFC 3339 in UTC with milliseconds.
pub(super) fn time(unix_ms: i64) -> String {
    timestamp(unix_ms)
}

/// Formats a time that may not exist.
pub(super) fn maybe_time(unix_ms: Option<i64>) -> Option<String> {
    unix_ms.map(timestamp)
}

/// Milliseconds of a day.
pub(super) const DAY_MS: i64 = 86_400_000;

/// The day that is so many days after 1970-01-01, as `2026-11-21`.
///
/// # Errors
/// `Invalid` for a day that is not in the years −9999 to 9999.
pub(super) fn day_text(day: i32) -> Result<String, ServiceError> {
    let span = jiff::Span::new().try_days(day);
    let date = span.and_then(|span| jiff::civil::date(1970, 1, 1).checked_add(span));
    date.map(|date| date.to_string()).map_err(|_| ServiceError::invalid(format!("day {day} has no date")))
}

/// The day of a time, as days after 1970-01-01.
///
/// # Errors
/// `Invalid` for a time more than five million years away.
pub(super) fn day_of(unix_ms: i64) -> Result<i32, ServiceError> {
    let day = unix_ms.div_euclid(DAY_MS);
    i32::try_from(day).map_err(|_| ServiceError::invalid(format!("day {day} has no date")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates_and_others_are_refused() {
        for (day, text) in [(0, "1970-01-01"), (-1, "1969-12-31"), (20_000, "2024-10-04")] {
            assert_eq!(day_text(day).unwrap(), text);
            assert_eq!(day_of(i64::from(day) * DAY_MS).unwrap(), day);
            assert_eq!(day_of(i64::from(day) * DAY_MS + DAY_MS - 1).unwrap(), day);
        }
        assert!(day_text(i32::MAX).is_err() && day_text(i32::MIN).is_err());
        assert!(day_of(i64::MAX).is_err() && day_of(i64::MIN).is_err());
    }
}
