//! Calendar expressions in a time zone.
//!
//! Five fields as in cron: minute, hour, day of the month, month, day of the week; names of months and days, ranges,
//! lists, steps, `L` (last), `#` (such as the second Friday of the month) and `W` (the nearest working day), and
//! `@hourly` to `@yearly`.
//!
//! When clocks change: a skipped time of day runs at once, when the clocks were put forward; one that comes twice runs
//! the first time only. If minute or hour is a wildcard or a step, work runs by elapsed time: not in the skipped hour,
//! and in both of the repeated ones.

#[cfg(test)]
mod tests;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Longest calendar expression; the longest sensible one is a list of a dozen times.
pub const EXPRESSION_MAX_BYTES: usize = 200;

/// Longest name of a time zone; the longest in use has 32 bytes.
pub const ZONE_MAX_BYTES: usize = 64;

/// Why a schedule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Not a calendar expression.
    #[error(
        "{expression:?} is not a calendar expression ({reason}); write minute, hour, day of the month, month and day of the week, such as \"30 2 * * MON-FRI\", or @daily"
    )]
    Expression { expression: String, reason: String },
    /// The expression never matches.
    #[error("the calendar expression {expression:?} names no day that there is")]
    Never { expression: String },
    /// The time zone is unknown.
    #[error("there is no time zone {name:?}; write a name such as Europe/Berlin or UTC")]
    Zone { name: String },
}

/// A schedule: a calendar expression in a time zone.
#[derive(Debug, Clone)]
pub struct Schedule {
    expression: String,
    zone_name: String,
    cron: Cron,
    zone: TimeZone,
}

/// The time zone called `name`; empty is UTC.
///
/// # Errors
/// [`ScheduleError::Zone`].
pub fn zone(name: &str) -> Result<TimeZone, ScheduleError> {
    if name.is_empty() || name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let unknown = || ScheduleError::Zone { name: name.chars().take(ZONE_MAX_BYTES).collect() };
    if name.len() > ZONE_MAX_BYTES || !name.is_ascii() {
        return Err(unknown());
    }
    TimeZone::get(name).map_err(|_| unknown())
}

/// The state of a schedule at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It is its time, or was while no one looked: however often, once.
    Now,
    /// Nothing is known of it before this moment: what is due is what comes from now on.
    Begin,
    Later,
}

/// A mark that is this far ahead is from before the clock was set back. Less than that may be a correction of the clock
/// just after something was started, which must not start it again.
const AHEAD_MAX_MS: i64 = 3_600_000;

impl Schedule {
    /// Parses `expression` for the time zone `zone_name` (empty: UTC).
    ///
    /// # Errors
    /// [`ScheduleError`]; also for an expression that never matches, such as the 30th of February.
    pub fn parse(expression: &str, zone_name: &str) -> Result<Self, ScheduleError> {
        let expression: String = expression.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let wrong = |reason: String| ScheduleError::Expression {
            expression: expression.chars().take(EXPRESSION_MAX_BYTES).collect(),
            reason,
        };
        if expression.len() > EXPRESSION_MAX_BYTES {
            return Err(wrong(format!("it is longer than {EXPRESSION_MAX_BYTES} bytes")));
        }
        if !expression.is_ascii() {
            return Err(wrong("it has letters that none has".to_owned()));
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(&expression).map_err(|error| wrong(error.to_string()))?;
        let schedule = Self { zone: zone(zone_name)?, zone_name: zone_name.to_owned(), cron, expression };
        if schedule.next_after_ms(0).is_none() {
            return Err(ScheduleError::Never { expression: schedule.expression });
        }
        Ok(schedule)
    }

    /// The expression as written, with single spaces.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The time zone's name as written; empty is UTC.
    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }

    /// The time zone.
    pub const fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Returns the first time after `after_ms`, both in Unix milliseconds. `None` beyond the end of the calendar.
    pub fn next_after_ms(&self, after_ms: i64) -> Option<i64> {
        let after = Timestamp::from_millisecond(after_ms).ok()?.to_zoned(self.zone.clone());
        let next = self.cron.find_next_occurrence(&after, false).ok()?;
        // A search that does not advance must not make its caller loop forever.
        Some(next.timestamp().as_millisecond()).filter(|next_ms| *next_ms > after_ms)
    }

    /// Tells if it is time, everything up to `mark_ms` done or left out; `None`: nothing is known of it before now.
    pub fn due(&self, mark_ms: Option<i64>, now_ms: i64) -> Due {
        let Some(mark_ms) = mark_ms.filter(|mark_ms| mark_ms.saturating_sub(now_ms) <= AHEAD_MAX_MS) else {
            return Due::Begin;
        };
        if self.next_after_ms(mark_ms).is_some_and(|next| next <= now_ms) { Due::Now } else { Due::Later }
    }

    /// All times after `after_ms`, in order.
    pub fn times_after_ms(&self, after_ms: i64) -> impl Iterator<Item = i64> + '_ {
        std::iter::successors(self.next_after_ms(after_ms), |last| self.next_after_ms(*last))
    }
}
