//! Forecasts which restore points rules will have deleted after some time, if backups go on as before.
//!
//! The interval of a VM's backups is taken from its last restore points. A VM whose backups have stopped keeps what it
//! has, as rules count from its newest. It is a forecast: people change rules, delete, lock, and start or stop backups.

#[cfg(test)]
mod tests;

use holdfast_proto::api::Rules;
use jiff::tz::TimeZone;

use crate::decide::{RestorePoint, decide};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Restore points from which the interval is computed.
const RHYTHM_POINTS: usize = 31;

/// Bounds of the interval between backups: then half a year has at most 4,320 of them.
const GAP_MIN_MS: i64 = HOUR_MS;
const GAP_MAX_MS: i64 = 31 * DAY_MS;

/// Backups count as stopped after this many intervals without one.
const MISSED_MAX: i64 = 3;

/// Longest forecast: twice the longest minimum duration that any storage class bills.
pub const FORECAST_DAYS_MAX: u32 = 366;

/// Returns the restore points of one VM that will have been deleted in `days`, at most [`FORECAST_DAYS_MAX`].
pub fn leaving<Id: Copy + Ord>(
    points: &[RestorePoint<Id>],
    rules: &Rules,
    zone: &TimeZone,
    now_ms: i64,
    days: u32,
) -> Vec<Id> {
    let horizon_ms = now_ms.saturating_add(i64::from(days.min(FORECAST_DAYS_MAX)) * DAY_MS);
    // Future restore points have ids of their own.
    let known = points.iter().map(|point| RestorePoint {
        id: (Some(point.id), 0),
        at_ms: point.at_ms,
        commit: point.commit,
        whole: point.whole,
        locked_until_ms: point.locked_until_ms.filter(|until_ms| *until_ms > horizon_ms),
        held: point.held,
    });
    let last_commit = points.iter().map(|point| point.commit).max().unwrap_or(0);
    let to_come = (1_u64..).zip(times_to_come(points, now_ms, horizon_ms)).map(|(number, at_ms)| {
        let commit = last_commit.saturating_add(number);
        RestorePoint { id: (None, number), at_ms, commit, whole: true, locked_until_ms: None, held: false }
    });
    let all: Vec<RestorePoint<(Option<Id>, u64)>> = known.chain(to_come).collect();
    let decided = decide(&all, rules, zone, horizon_ms).into_iter();
    decided.filter(|point| !point.keep()).filter_map(|point| point.id.0).collect()
}

/// Times of future backups, extrapolated from the past.
fn times_to_come<Id>(
    points: &[RestorePoint<Id>],
    now_ms: i64,
    until_ms: i64,
) -> impl Iterator<Item = i64> + use<Id> {
    let mut times: Vec<i64> =
        points.iter().map(|point| point.at_ms).filter(|at_ms| *at_ms <= now_ms).collect();
    times.sort_unstable_by_key(|at_ms| std::cmp::Reverse(*at_ms));
    times.truncate(RHYTHM_POINTS);
    let gap_ms = match (times.first(), times.last(), i64::try_from(times.len())) {
        (Some(newest), Some(oldest), Ok(count)) if count > 1 => newest.saturating_sub(*oldest) / (count - 1),
        // A single backup tells no interval: most run every day.
        _ => DAY_MS,
    };
    let gap_ms = gap_ms.clamp(GAP_MIN_MS, GAP_MAX_MS);
    let newest_ms = times.first().copied();
    let goes_on = |newest_ms: &i64| now_ms.saturating_sub(*newest_ms) <= gap_ms.max(DAY_MS) * MISSED_MAX;
    let first_ms = newest_ms.filter(goes_on).map(|newest_ms| newest_ms.saturating_add(gap_ms).max(now_ms));
    std::iter::successors(first_ms, move |at_ms| Some(at_ms.saturating_add(gap_ms)))
        .take_while(move |at_ms| *at_ms <= until_ms)
}
