//! Simulates a policy on backups that run by a schedule, each succeeding.
//!
//! The policy is applied at the end of each day. Applying it at another time has the same result a few hours later:
//! deciding again about the kept restore points deletes nothing more.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use holdfast_proto::api::Rules;
use holdfast_proto::schedule::Schedule;
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan as _};

use crate::decide::{Reason, RestorePoint, decide};

/// Most days of one simulation: ten years.
pub const SIMULATED_DAYS_MAX: u32 = 3_660;

/// Most backups of one simulation: an hourly one for eleven years.
pub const SIMULATED_RUNS_MAX: usize = 100_000;

/// Most restore points summed over all days: two years with 273 restore points on every day.
pub const SIMULATED_ENTRIES_MAX: usize = 200_000;

/// Restore points that exist at the end of a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedDay {
    /// The day, in the schedule's time zone.
    pub date: Date,
    /// Newest first.
    pub points: Vec<SimulatedPoint>,
}

/// A restore point that a simulation keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedPoint {
    /// When it was made, in Unix milliseconds.
    pub at_ms: i64,
    pub reasons: Vec<Reason>,
}

/// Why a simulation fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulateError {
    #[error("a simulation is of 1 to {SIMULATED_DAYS_MAX} days, not {days}")]
    Days { days: u32 },
    #[error("a simulation cannot begin there, or reaches beyond the end of the calendar; begin it today")]
    From,
    #[error(
        "by the schedule {expression:?} more than {SIMULATED_RUNS_MAX} backups run in {days} days; simulate fewer days"
    )]
    Runs { expression: String, days: u32 },
    #[error(
        "the rules keep so many restore points that {days} days have more than {SIMULATED_ENTRIES_MAX} of them; simulate fewer days"
    )]
    Entries { days: u32 },
}

/// Simulates the restore points that exist at the end of each of `days` days, from the day of `from_ms` on,
/// beginning with none.
///
/// # Errors
/// [`SimulateError`]: one of the limits above is exceeded.
pub fn simulate(
    rules: &Rules,
    schedule: &Schedule,
    from_ms: i64,
    days: u32,
) -> Result<Vec<SimulatedDay>, SimulateError> {
    if !(1..=SIMULATED_DAYS_MAX).contains(&days) {
        return Err(SimulateError::Days { days });
    }
    let from = Timestamp::from_millisecond(from_ms).map_err(|_| SimulateError::From)?;
    let mut date = from.to_zoned(schedule.zone().clone()).date();
    let mut runs = schedule.times_after_ms(start_ms(schedule, date)?.saturating_sub(1)).peekable();
    let (mut kept, mut run_count, mut entry_count) = (Vec::<RestorePoint<u64>>::new(), 0_usize, 0_usize);
    let mut simulated = Vec::new();
    for _ in 0..days {
        let tomorrow = date.checked_add(1.day()).map_err(|_| SimulateError::From)?;
        let end_ms = start_ms(schedule, tomorrow)?;
        while let Some(at_ms) = runs.next_if(|at_ms| *at_ms < end_ms) {
            run_count += 1;
            if run_count > SIMULATED_RUNS_MAX {
                return Err(SimulateError::Runs { expression: schedule.expression().to_owned(), days });
            }
            kept.push(made_at(at_ms, run_count));
        }
        let mut decisions = decide(&kept, rules, schedule.zone(), end_ms);
        decisions.retain(|decision| decision.keep());
        let ids: HashSet<u64> = decisions.iter().map(|decision| decision.id).collect();
        kept.retain(|point| ids.contains(&point.id));
        entry_count += decisions.len();
        if entry_count > SIMULATED_ENTRIES_MAX {
            return Err(SimulateError::Entries { days });
        }
        let points = decisions.into_iter().map(|d| SimulatedPoint { at_ms: d.at_ms, reasons: d.reasons });
        simulated.push(SimulatedDay { date, points: points.collect() });
        date = tomorrow;
    }
    Ok(simulated)
}

/// Start of a day, in Unix milliseconds.
fn start_ms(schedule: &Schedule, date: Date) -> Result<i64, SimulateError> {
    let start = date.to_zoned(schedule.zone().clone()).map_err(|_| SimulateError::From)?;
    Ok(start.timestamp().as_millisecond())
}

fn made_at(at_ms: i64, number: usize) -> RestorePoint<u64> {
    let id = u64::try_from(number).unwrap_or(u64::MAX);
    RestorePoint { id, at_ms, commit: id, whole: true, locked_until_ms: None, held: false }
}
