//! Usual figures of a VM or job: robust statistics over its past runs, on a log scale, by the time of the week where
//! there is enough of it.

use std::collections::VecDeque;

use holdfast_engine::catalog::{Amounts, RunSums};
use holdfast_proto::api::Figures;

use super::super::ratio;

const DAY_MS: i64 = 86_400_000;
const WEEK_MS: i64 = 7 * DAY_MS;

/// Runs looked back on: what comes once a month comes four times in them.
pub(crate) const PAST_RUNS: u32 = 120;

/// The last of them, over which medians are taken: five weeks of nightly runs and some, so that each day of the week is there
/// five times, and growth does not matter.
pub(super) const RECENT_RUNS: usize = 40;

/// Runs without which nothing is usual, …
const RUNS_MIN: usize = 5;

/// … nor before each day of the week was seen once …
const SPAN_MIN_MS: i64 = WEEK_MS - DAY_MS / 2;

/// … or a VM that is backed up by the hour was for a day.
const RUNS_ENOUGH: usize = 24;

/// Runs at the same time of the week that make it one of its own.
const SLOT_MIN: usize = 3;

/// New bytes below this do not matter, and would make a logarithm of next to nothing.
const NEW_FLOOR_BYTES: u64 = 64 << 20;

/// The compression of less new data, and how much of it was known, is chance.
const TELLING_BYTES: u64 = 16 << 20;

/// A run after missed ones has their data, too: of so many at most.
const MISSED_MAX: f64 = 8.0;

/// Noise of a night that is as any other: a night with twice as much as ever, at both ends of a noise of 30 %, is
/// 2 × 1.3 ÷ 0.7 = 3.7 times another; the rest is for growth since.
const NEW_TIMES: f64 = 5.0;

/// Where the time of the week is not known yet, the largest run before counts as usual: out of line is so many times that.
const NEW_TIMES_LARGEST: f64 = 4.0;

/// An amount reached this often recurs, by weeks that move with holidays, or by months: it counts as the largest.
const RECURRING: usize = 3;

/// Several runs in a row are out of line at fewer times the usual new bytes, but more than ever.
const NEW_TIMES_IN_A_ROW: f64 = 2.5;
const NEW_TIMES_EVER: f64 = 1.15;

/// Median absolute deviations (as standard deviations) that noise does not reach …
const DEVIATIONS: f64 = 5.0;

/// … but a VM that is never the same twice is out of line at so many times its median.
const WILD_TIMES: f64 = 16.0;

/// Data compresses worse when its local factor falls to this share, in one run or in several, …
const LOCAL_SHARE: f64 = 0.6;
const LOCAL_SHARE_IN_A_ROW: f64 = 0.9;

/// … and to this share of the worst before.
const LOCAL_SHARE_OF_WORST: f64 = 0.85;
const LOCAL_SHARE_OF_WORST_IN_A_ROW: f64 = 0.97;

/// Changed data deduplicates at all when at least this share of it did in each run before; it no longer does at a
/// quarter of that.
const DUP_MIN: f64 = 0.1;
const DUP_SHARE: f64 = 0.25;

/// Past runs of a VM, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    /// Runs that were as usual.
    runs: VecDeque<RunSums>,
    /// Logarithms of the new bytes of single runs that were not.
    peaks: VecDeque<f64>,
    /// Start of the last run, usual or not.
    last_ms: Option<i64>,
}

/// Medians, and where what is out of line begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usual {
    pub(super) bytes: u64,
    /// Bytes that changed: new ones and duplicates.
    changed_bytes: u64,
    pub(super) figures: Figures,
    /// Logarithms of the new bytes up to which runs are in line.
    new_max: Limit,
    /// Logarithms of the local factors down to which runs are in line. `None`: too few runs have enough new data.
    local_min: Option<Limit>,
    /// Share of duplicates in what changed down to which runs in a row are in line.
    dup_min: f64,
    /// The largest share of duplicates in all data.
    pub(super) dup_of_all_max: f64,
}

/// Limits beyond which one run, or each of several in a row, is out of line.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Limit {
    alone: f64,
    in_a_row: f64,
}

/// Comparison of a run with the past: out of line alone, or only as one of several in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compared {
    InLine,
    InARow,
    Alone,
}

impl Past {
    /// Returns true if others of the last runs had as much new, compressed as badly and so on: a quick look that spares the
    /// rest of [`Past::usual`].
    pub(super) fn has_seen(&self, run: &Amounts) -> bool {
        let mut seen = [false; 4];
        let (local, dup_of_all, dup) =
            (local_factor(run), ratio(run.dup_bytes, run.bytes), dup_of_changed(run));
        for RunSums { known, .. } in self.recent() {
            seen[0] |= known.new_bytes >= run.new_bytes;
            seen[1] |= local.is_none() || (known.new_bytes >= TELLING_BYTES && local_factor(known) <= local);
            seen[2] |= ratio(known.dup_bytes, known.bytes) >= dup_of_all;
            seen[3] |= dup_of_changed(known) <= dup;
        }
        seen == [true; 4]
    }

    fn recent(&self) -> impl Iterator<Item = &RunSums> {
        self.runs.iter().rev().take(RECENT_RUNS)
    }

    /// A run began: others will be as long after it as usual, or longer.
    pub(super) const fn saw(&mut self, run: &RunSums) {
        self.last_ms = Some(run.started_ms);
    }

    pub(super) fn push(&mut self, run: RunSums) {
        self.runs.push_back(run);
        if self.runs.len() > PAST_RUNS as usize {
            self.runs.pop_front();
        }
    }

    /// A single run that was out of line: the next one like it may be, too, but not the fourth.
    pub(super) fn push_peak(&mut self, run: &RunSums) {
        self.peaks.push_back(ln_new(&run.known));
        if self.peaks.len() > PAST_RUNS as usize {
            self.peaks.pop_front();
        }
    }

    /// Lets `runs` alone be the past.
    pub(super) fn replace(&mut self, runs: Vec<RunSums>) {
        *self = Self { last_ms: self.last_ms, ..Self::default() };
        runs.into_iter().for_each(|run| self.push(run));
    }

    /// `None`: there is too little to say.
    pub(super) fn usual(&self, at_ms: i64) -> Option<Usual> {
        let span_ms = at_ms.saturating_sub(self.runs.front()?.started_ms);
        if self.runs.len() < RUNS_MIN || (span_ms < SPAN_MIN_MS && self.runs.len() < RUNS_ENOUGH) {
            return None;
        }
        let recent: Vec<&RunSums> = self.recent().collect();
        let same_time = |run: &&&RunSums| is_same_time_of_week(run.started_ms, at_ms);
        let rhythm = recent.iter().filter(same_time).count() >= SLOT_MIN;
        let alike: Vec<Amounts> =
            recent.iter().filter(|run| !rhythm || same_time(run)).map(|run| run.known).collect();
        let missed = missed(&recent, self.last_ms.map_or(0, |last_ms| at_ms.saturating_sub(last_ms)));
        let recent: Vec<Amounts> = recent.into_iter().map(|run| run.known).collect();
        let bytes = |of: fn(&Amounts) -> u64| median(alike.iter().map(of).collect(), u64::cmp).unwrap_or(0);
        // A run that stored nothing has no factor; it counts as the best possible.
        let factors = alike.iter().map(|run| total_factor(run).unwrap_or(f64::INFINITY)).collect();
        let locals = recent.iter().filter_map(telling_local_factor).collect();
        let dup_least = recent.iter().map(dup_of_changed).fold(1.0, f64::min);
        Some(Usual {
            bytes: bytes(|run| run.bytes),
            changed_bytes: bytes(changed),
            figures: Figures {
                new_bytes: bytes(|run| run.new_bytes),
                stored_bytes: bytes(|run| run.stored_bytes),
                total_factor: median(factors, f64::total_cmp).filter(|factor| factor.is_finite()),
                local_factor: median(locals, f64::total_cmp),
            },
            new_max: self.new_max(&recent, &alike, rhythm)?.beyond(missed),
            local_min: local_min(&recent),
            dup_min: if dup_least >= DUP_MIN { dup_least * DUP_SHARE } else { 0.0 },
            dup_of_all_max: recent.iter().map(|run| ratio(run.dup_bytes, run.bytes)).fold(0.0, f64::max),
        })
    }

    fn new_max(&self, recent: &[Amounts], alike: &[Amounts], rhythm: bool) -> Option<Limit> {
        let logs = |runs: &[Amounts]| -> Vec<f64> { runs.iter().map(ln_new).collect() };
        let recent = logs(recent);
        let largest = recent.iter().copied().fold(f64::MIN, f64::max);
        let usual = median(logs(alike), f64::total_cmp)?;
        let wild =
            median(recent.clone(), f64::total_cmp)? + (DEVIATIONS * spread(&recent)?).min(WILD_TIMES.ln());
        let mut ever: Vec<f64> = self.runs.iter().map(|run| ln_new(&run.known)).collect();
        ever.extend(&self.peaks);
        ever.sort_unstable_by(|a, b| b.total_cmp(a));
        let recurring = ever.get(RECURRING - 1).copied().unwrap_or(f64::MIN);
        let known = if rhythm { recurring } else { largest.max(recurring) };
        let alone = (usual + NEW_TIMES.ln()).max(known + NEW_TIMES_LARGEST.ln()).max(wild);
        let in_a_row = (usual + NEW_TIMES_IN_A_ROW.ln()).max(largest + NEW_TIMES_EVER.ln());
        Some(Limit { alone, in_a_row })
    }
}

impl Usual {
    pub(super) fn new_bytes(&self, run: &Amounts) -> Compared {
        compared(ln_new(run) - self.new_max.alone, ln_new(run) - self.new_max.in_a_row)
    }

    /// `None`: that cannot be said.
    pub(super) fn compression(&self, run: &Amounts) -> Option<Compared> {
        let (local, min) = (ln_local(run)?, self.local_min?);
        Some(compared(min.alone - local, min.in_a_row - local))
    }

    /// No more changed than usual, but nearly nothing of it was known, where much always was.
    pub(super) fn lacks_dups(&self, run: &Amounts) -> bool {
        run.new_bytes >= TELLING_BYTES
            && ratio(changed(run), self.changed_bytes) < NEW_TIMES
            && dup_of_changed(run) < self.dup_min
    }
}

impl Limit {
    fn beyond(self, times: f64) -> Self {
        Self { alone: self.alone + times.ln(), in_a_row: self.in_a_row + times.ln() }
    }
}

fn compared(beyond: f64, beyond_in_a_row: f64) -> Compared {
    match () {
        () if beyond > 0.0 => Compared::Alone,
        () if beyond_in_a_row > 0.0 => Compared::InARow,
        () => Compared::InLine,
    }
}

/// Compression depends on the data and the level, and hardly varies: what varies of itself has a larger spread.
fn local_min(recent: &[Amounts]) -> Option<Limit> {
    let recent: Vec<f64> = recent.iter().filter_map(ln_local).collect();
    if recent.len() < RUNS_MIN {
        return None;
    }
    let (usual, noise) = (median(recent.clone(), f64::total_cmp)?, DEVIATIONS * spread(&recent)?);
    let worst = recent.iter().copied().fold(f64::MAX, f64::min);
    let min = |share: f64, of_worst: f64| (usual - noise.max(-share.ln())).min(worst + of_worst.ln());
    Some(Limit {
        alone: min(LOCAL_SHARE, LOCAL_SHARE_OF_WORST),
        in_a_row: min(LOCAL_SHARE_IN_A_ROW, LOCAL_SHARE_OF_WORST_IN_A_ROW),
    })
}

/// Time since the last run, in multiples of the usual.
fn missed(recent: &[&RunSums], since_ms: i64) -> f64 {
    let apart = recent.windows(2).filter_map(|pair| match pair {
        [later, earlier] => Some(later.started_ms.saturating_sub(earlier.started_ms)),
        _ => None,
    });
    let usual_ms = median(apart.collect(), i64::cmp).unwrap_or(0);
    let [since, usual] = [since_ms, usual_ms].map(|ms| u64::try_from(ms).unwrap_or(0));
    ratio(since, usual).clamp(1.0, MISSED_MAX)
}

/// Returns true for the same day of the week, wherever the day begins and though a run begins some hours earlier or
/// later.
const fn is_same_time_of_week(a_ms: i64, b_ms: i64) -> bool {
    let apart_ms = a_ms.saturating_sub(b_ms).rem_euclid(WEEK_MS);
    apart_ms < DAY_MS / 2 || apart_ms > WEEK_MS - DAY_MS / 2
}

fn ln_new(run: &Amounts) -> f64 {
    // As a number of floors.
    (ratio(run.new_bytes, NEW_FLOOR_BYTES) + 1.0).ln()
}

/// `None`: too little is new.
fn telling_local_factor(run: &Amounts) -> Option<f64> {
    local_factor(run).filter(|_| run.new_bytes >= TELLING_BYTES)
}

fn ln_local(run: &Amounts) -> Option<f64> {
    telling_local_factor(run).map(f64::ln)
}

const fn changed(run: &Amounts) -> u64 {
    run.dup_bytes.saturating_add(run.new_bytes)
}

fn dup_of_changed(run: &Amounts) -> f64 {
    ratio(run.dup_bytes, changed(run))
}

pub(super) fn total_factor(run: &Amounts) -> Option<f64> {
    (run.stored_bytes > 0).then(|| ratio(run.bytes, run.stored_bytes))
}

pub(super) fn local_factor(run: &Amounts) -> Option<f64> {
    (run.stored_bytes > 0 && run.new_bytes > 0).then(|| ratio(run.new_bytes, run.stored_bytes))
}

/// The lower of two middle values, so that the number shown is one that occurred.
fn median<T: Copy>(mut values: Vec<T>, order: fn(&T, &T) -> std::cmp::Ordering) -> Option<T> {
    values.sort_unstable_by(order);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// Median absolute deviation, scaled to the standard deviation of a normal distribution.
fn spread(values: &[f64]) -> Option<f64> {
    let middle = median(values.to_vec(), f64::total_cmp)?;
    let deviations = values.iter().map(|value| (value - middle).abs()).collect();
    median(deviations, f64::total_cmp).map(|deviation| 1.4826 * deviation)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn night(day: i64, new_mib: u64) -> RunSums {
        let known = Amounts {
            bytes: 10_240 * MIB,
            new_bytes: new_mib * MIB,
            stored_bytes: new_mib * MIB / 2,
            ..Amounts::default()
        };
        RunSums { started_ms: day * DAY_MS, known, ..RunSums::default() }
    }

    fn past(new_mib: impl IntoIterator<Item = u64>) -> Past {
        let mut past = Past::default();
        (0..).zip(new_mib).for_each(|(day, new)| past.push(night(day, new)));
        past
    }

    #[test]
    fn a_week_is_enough_and_less_is_not() {
        assert_eq!(past([100; 6]).usual(6 * DAY_MS), None);
        assert!(past([100; 7]).usual(7 * DAY_MS).is_some());
        let mut hourly = Past::default();
        for hour in 0..24 {
            assert_eq!(hourly.usual(hour * 3_600_000), None);
            hourly.push(RunSums { started_ms: hour * 3_600_000, ..night(0, 100) });
        }
        assert!(hourly.usual(DAY_MS).is_some());
    }

    #[test]
    fn one_odd_run_moves_no_median() {
        let usual = past([100, 102, 98, 5000, 100, 101, 99]).usual(7 * DAY_MS).unwrap();
        assert_eq!(usual.figures.new_bytes, 100 * MIB);
        assert_eq!(usual.figures.local_factor, Some(2.0));
    }

    /// Saturdays have ten times as much.
    #[test]
    fn a_day_of_the_week_has_medians_of_its_own() {
        let nights = (0..28).map(|day| if day % 7 == 5 { 1000 } else { 100 });
        let past = past(nights);
        let usual = |day: i64| past.usual(day * DAY_MS).unwrap().figures.new_bytes / MIB;
        assert_eq!([usual(32), usual(33), usual(34)], [100, 1000, 100]);
        let late = past.usual(33 * DAY_MS + DAY_MS / 3).unwrap();
        assert_eq!(late.figures.new_bytes, 1000 * MIB, "a run that begins late");
        let much = |day: i64, new: u64| {
            past.usual(day * DAY_MS).unwrap().new_bytes(&night(day, new).known) == Compared::Alone
        };
        assert!(!much(33, 4000) && much(33, 6000));
        assert!(!much(34, 3500), "a busy Saturday's work on a Sunday");
        assert!(much(34, 5000));
    }

    #[test]
    fn past_runs_are_bounded() {
        let past = past((0..200).map(|night| if night < 150 { 5000 } else { 10 }));
        assert_eq!(past.runs.len(), PAST_RUNS as usize);
        assert_eq!(past.usual(200 * DAY_MS).unwrap().figures.new_bytes, 10 * MIB);
    }

    #[test]
    fn runs_that_store_nothing_have_no_factor() {
        let usual = past([0; 8]).usual(8 * DAY_MS).unwrap();
        assert_eq!((usual.figures.total_factor, usual.figures.new_bytes), (None, 0));
        assert_eq!(usual.compression(&night(8, 100).known), None);
    }
}
