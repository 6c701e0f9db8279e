//! When a calendar expression comes next.

use holdfast_retention::Schedule;

use crate::error::ServiceError;

/// The first time after `after_ms`; `None` beyond the end of the calendar.
///
/// # Errors
/// `Invalid`: the expression or the time zone cannot be read.
pub(super) fn next(expression: &str, time_zone: &str, after_ms: i64) -> Result<Option<i64>, ServiceError> {
    let schedule =
        Schedule::parse(expression, time_zone).map_err(|e| ServiceError::invalid(e.to_string()))?;
    Ok(schedule.next_after_ms(after_ms))
}
