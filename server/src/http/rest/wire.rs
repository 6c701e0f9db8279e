//! Types that several answers share, and the form of times in them.

pub(super) use holdfast_proto::api::Items;
use holdfast_proto::details::Totals;
use holdfast_proto::when::timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ServiceError;

/// RFC 3339 in UTC with milliseconds.
pub(super) fn time(unix_ms: i64) -> String {
    timestamp(unix_ms)
}

/// Formats a time that may not exist.
pub(super) fn maybe_time(unix_ms: Option<i64>) -> Option<String> {
    unix_ms.map(timestamp)
}

/// Rows of compression details added up
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Sums {
    /// Rows of compression details: one per run and disk
    pub(super) rows: u64,
    /// Rows whose status is not done
    pub(super) failed: u64,
    /// When the first of them began
    pub(super) started: String,
    /// When the last of them finished
    pub(super) finished: String,
    pub(super) virtual_bytes: u64,
    pub(super) bytes: u64,
    pub(super) read_bytes: u64,
    pub(super) unchanged_bytes: u64,
    pub(super) dup_bytes: u64,
    pub(super) new_bytes: u64,
    pub(super) post_lc: u64,
    pub(super) meta_bytes: u64,
    pub(super) wire_bytes: u64,
    pub(super) chunks: u64,
    pub(super) new_chunks: u64,
    /// bytes / new_bytes of the rows that are done and of the failed attempts before them; null: nothing was new
    pub(super) global_factor: Option<f64>,
    /// new_bytes / post_lc of the same rows; null: nothing was stored
    pub(super) local_factor: Option<f64>,
    /// The total factor: done_bytes / done_post_lc; null: nothing was stored
    #[serde(rename = "bytes/post_lc")]
    pub(super) total_factor: Option<f64>,
    /// 100 × (1 − done_post_lc / done_bytes)
    pub(super) reduction_pct: Option<f64>,
    /// bytes of the rows that are done
    pub(super) done_bytes: u64,
    /// Their post_lc, with that of the attempts before them that created no restore point
    pub(super) done_post_lc: u64,
}

impl From<&Totals> for Sums {
    fn from(totals: &Totals) -> Self {
        let factors = totals.factors();
        Self {
            rows: totals.rows,
            failed: totals.failed,
            started: timestamp(totals.started_ms),
            finished: timestamp(totals.finished_ms),
            virtual_bytes: totals.virtual_bytes,
            bytes: totals.bytes,
            read_bytes: totals.read_bytes,
            unchanged_bytes: totals.unchanged_bytes,
            dup_bytes: totals.dup_bytes,
            new_bytes: totals.new_bytes,
            post_lc: totals.post_lc,
            meta_bytes: totals.meta_bytes,
            wire_bytes: totals.wire_bytes,
            chunks: totals.chunks,
            new_chunks: totals.new_chunks,
            global_factor: factors.global,
            local_factor: factors.local,
            total_factor: factors.total,
            reduction_pct: factors.reduction_pct,
            done_bytes: totals.done_bytes,
            done_post_lc: totals.done_post_lc,
        }
    }
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
