//! Decides which restore points a policy keeps, and why.
//!
//! Rules mean what `restic forget` means by them, so that people need not learn anew what deletes their data. Restore
//! points are visited from the newest to the oldest. Each rule has its number as a count: every restore point uses up
//! one of `keep-last`, the first (so the newest) of each period one of the others. If a rule has counts left when the
//! oldest restore point is reached, it keeps that one too: history begins where it began until the rule is full.
//! `keep-within` counts from the newest restore point that is not in the future, not from today, so that a VM which is
//! no longer backed up does not lose everything in time.
//!
//! Restore points in the future, by the caller's clock, are kept and use up no counts: the clock was wrong when they
//! were made, or is now, and restore points made since must not be deleted for them.
//!
//! Two things go beyond: an hour that clocks repeat is two hours, and three kinds are kept whatever the rules say (the
//! newest, the newest whole one, and those locked or held).

#[cfg(test)]
mod tests;

use holdfast_proto::api::Rules;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

use crate::period::Period;

/// Properties of a restore point of one VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestorePoint<Id> {
    pub id: Id,
    /// When its backup began, in Unix milliseconds.
    pub at_ms: i64,
    /// Its commit number, which orders the restore points of a VM whatever the clocks did.
    pub commit: u64,
    /// `true` if it has every disk and none of it is known to be damaged.
    pub whole: bool,
    /// End of its lock; `None` when it is not locked now.
    pub locked_until_ms: Option<i64>,
    /// `true` while it is under a legal hold.
    pub held: bool,
}

/// Why a restore point is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// There are no rules, so everything is kept.
    NoRules,
    /// One of the newest.
    Last,
    /// The newest of its period.
    Newest(Period),
    /// The oldest of all, while the rule has counts left.
    Oldest(Period),
    /// Made within this many days before the newest.
    Within { days: u32 },
    /// Made in the future, by the caller's clock.
    Future,
    /// The last one made: a VM never loses its newest restore point by rules.
    Latest,
    /// The last whole one: later ones lack disks or are damaged.
    LatestWhole,
    /// Locked until then.
    Locked { until_ms: i64 },
    /// Under a legal hold.
    Held,
}

/// A short text, for tables.
impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoRules => f.write_str("no rules"),
            Self::Last => f.write_str("last"),
            Self::Newest(period) => f.write_str(period.adverb()),
            Self::Oldest(period) => write!(f, "oldest {}", period.adverb()),
            Self::Within { days } => write!(f, "within {days}d"),
            Self::Future => f.write_str("in the future"),
            Self::Latest => f.write_str("latest"),
            Self::LatestWhole => f.write_str("latest whole one"),
            Self::Locked { until_ms } => match Timestamp::from_millisecond(*until_ms) {
                Ok(until) => write!(f, "locked until {}", until.strftime("%Y-%m-%d %H:%M:%SZ")),
                Err(_) => f.write_str("locked"),
            },
            Self::Held => f.write_str("legal hold"),
        }
    }
}

/// Decision about one restore point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<Id> {
    pub id: Id,
    pub at_ms: i64,
    /// Reasons to keep it; empty if it is to be deleted.
    pub reasons: Vec<Reason>,
}

impl<Id> Decision<Id> {
    /// Returns true if it is kept.
    pub const fn keep(&self) -> bool {
        !self.reasons.is_empty()
    }
}

/// Decides about the restore points of one VM, in any order. Returns the decisions newest first.
pub fn decide<Id: Copy + Ord>(
    points: &[RestorePoint<Id>],
    rules: &Rules,
    zone: &TimeZone,
    now_ms: i64,
) -> Vec<Decision<Id>> {
    let mut points = points.to_vec();
    points.sort_by_key(|point| std::cmp::Reverse((point.at_ms, point.commit, point.id)));
    let newest = |of: &dyn Fn(&RestorePoint<Id>) -> bool| {
        let of = points.iter().filter(|point| of(point));
        of.max_by_key(|point| (point.commit, point.at_ms, point.id)).map(|point| point.id)
    };
    let (latest, latest_whole) = (newest(&|_| true), newest(&|point| point.whole));
    let mut counts = Counts::new(rules);
    let within_from = within_from(&points, rules, zone, now_ms);
    let oldest = points.len().saturating_sub(1);
    let decide_one = |(number, point): (usize, &RestorePoint<Id>)| {
        let mut reasons = Vec::new();
        if rules.is_empty() {
            reasons.push(Reason::NoRules);
        }
        if point.at_ms > now_ms {
            // (L6)
            reasons.push(Reason::Future);
        } else {
            if within_from.as_ref().is_some_and(|from| from.keeps(point.at_ms)) {
                reasons.push(Reason::Within { days: rules.keep_within_days });
            }
            counts.take(&zoned(point.at_ms, zone), number == oldest, &mut reasons);
        }
        if point.held {
            reasons.push(Reason::Held);
        }
        if let Some(until_ms) = point.locked_until_ms {
            reasons.push(Reason::Locked { until_ms });
        }
        if reasons.is_empty() && latest == Some(point.id) {
            reasons.push(Reason::Latest);
        }
        if reasons.is_empty() && latest_whole == Some(point.id) {
            reasons.push(Reason::LatestWhole);
        }
        Decision { id: point.id, at_ms: point.at_ms, reasons }
    };
    points.iter().enumerate().map(decide_one).collect()
}

/// Converts a moment to a time zone. One out of any calendar's range (the year 9999) is clamped to the range's end.
fn zoned(at_ms: i64, zone: &TimeZone) -> Zoned {
    let end = if at_ms < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(at_ms).unwrap_or(end).to_zoned(zone.clone())
}

/// Start of `keep-within`.
enum Within {
    Everything,
    After { ms: i64 },
}

impl Within {
    const fn keeps(&self, at_ms: i64) -> bool {
        match self {
            Self::Everything => true,
            Self::After { ms } => at_ms > *ms,
        }
    }
}

/// Returns `None` without the rule.
fn within_from<Id>(
    points: &[RestorePoint<Id>],
    rules: &Rules,
    zone: &TimeZone,
    now_ms: i64,
) -> Option<Within> {
    if rules.keep_within_days == 0 {
        return None;
    }
    let latest_ms = points.iter().map(|point| point.at_ms).filter(|at_ms| *at_ms < now_ms).max();
    // Calendar days: one with 23 hours counts like any other. If the start cannot be computed, nothing is deleted.
    let from = latest_ms.and_then(|latest_ms| {
        let days = Span::new().try_days(rules.keep_within_days).ok()?;
        zoned(latest_ms, zone).checked_sub(days).ok()
    });
    Some(from.map_or(Within::Everything, |from| Within::After { ms: from.timestamp().as_millisecond() }))
}

/// Remaining counts of the rules that count.
struct Counts {
    last: u32,
    periods: [(Period, u32, Option<[i64; 3]>); 5],
}

impl Counts {
    const fn new(rules: &Rules) -> Self {
        Self {
            last: rules.keep_last,
            periods: [
                (Period::Hour, rules.keep_hourly, None),
                (Period::Day, rules.keep_daily, None),
                (Period::Week, rules.keep_weekly, None),
                (Period::Month, rules.keep_monthly, None),
                (Period::Year, rules.keep_yearly, None),
            ],
        }
    }

    fn take(&mut self, at: &Zoned, is_oldest: bool, reasons: &mut Vec<Reason>) {
        if self.last > 0 {
            self.last -= 1;
            reasons.push(Reason::Last);
        }
        for (period, left, seen) in self.periods.iter_mut().filter(|(_, left, _)| *left > 0) {
            let key = Some(period.key(at));
            let is_newest = key != *seen;
            if is_newest || is_oldest {
                *seen = key;
                *left -= 1;
                reasons.push(if is_newest { Reason::Newest(*period) } else { Reason::Oldest(*period) });
            }
        }
    }
}
