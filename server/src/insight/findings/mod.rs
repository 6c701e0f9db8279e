//! Finds runs that are out of line with the history of their VM. Sizes alone are compared; data is not looked into.
//!
//! A [`Detector`] is given the runs of one VM, oldest first, and says of each what is out of line with those before. Runs that
//! were found are kept apart from what is usual until they have become so. What several VMs of a job have in common is
//! [told once](Found::together).
//!
//! Read in this order: here → [`usual`] (where it begins) → [`wording`] (what is said) → [`rows`] (of single disks).

mod rows;
mod usual;
mod wording;

use holdfast_engine::catalog::{Amounts, RunSums};
use holdfast_proto::api::{Figures, FindingKind};
use serde::{Deserialize, Serialize};

use super::ratio;
use usual::{Compared, Past, Usual, local_factor, total_factor};

pub(crate) use rows::{DiskPast, of_row};
pub(crate) use usual::PAST_RUNS;
pub(crate) use wording::{Subject, finding};

/// Bytes stored beyond what is usual that matter.
const MORE_MIN_BYTES: u64 = 128 << 20;

/// Data with a lower local factor does not compress …
const INCOMPRESSIBLE: f64 = 1.15;

/// … where data with this one did before.
const COMPRESSIBLE: f64 = 1.3;

/// Data compresses as before down to this share of the local factor.
const AS_BEFORE: f64 = 0.7;

/// Least data whose reading again is worth telling.
const READ_AGAIN_MIN_BYTES: u64 = 1 << 30;

/// Duplicates from this share on mean that data came from elsewhere, …
const MANY_DUPS: f64 = 0.5;

/// … unless there were always many: so much of what was none before must be one.
const DUPS_MORE: f64 = 0.6;

/// VMs of a job that are backed up for the first time together.
const CLONES_MIN: u64 = 3;

/// Share of their data that others have.
const CLONED: f64 = 0.6;

/// So many runs in a row are out of line where one would be chance.
const IN_A_ROW: usize = 3;

/// A finding becomes the usual after two weeks of at least a run each two days.
const ADOPT_MS: i64 = 14 * 86_400_000;
const ADOPT_RUNS: usize = 7;

/// What is out of line, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) kind: FindingKind,
    pub(crate) since_ms: i64,
    pub(crate) until_ms: i64,
    pub(crate) runs: u64,
    /// VMs it applies to.
    vms: u64,
    /// By how much the disks hold more than usual, where that is most of what is new.
    grown_bytes: u64,
    usual: Option<Figures>,
    /// All its runs together.
    sum: Amounts,
    pub(crate) more_bytes: u64,
    /// Set if there is a later run.
    #[serde(skip)]
    pub(crate) is_over: bool,
}

impl Found {
    fn of_run(kind: FindingKind, run: &RunSums, sum: Amounts, more_bytes: u64) -> Self {
        Self {
            kind,
            since_ms: run.started_ms,
            until_ms: run.finished_ms,
            runs: 1,
            vms: 1,
            grown_bytes: 0,
            usual: None,
            sum,
            more_bytes,
            is_over: false,
        }
    }

    /// Adds up what was found of the same kind of several VMs of a job.
    pub(crate) fn together(found: &[Self]) -> Option<Self> {
        let (first, others) = found.split_first()?;
        let mut all = *first;
        for other in others {
            all.usual = all.usual.zip(other.usual).map(|(a, b)| added((&all.sum, &a), (&other.sum, &b)));
            all.sum.add(&other.sum);
            all.since_ms = all.since_ms.min(other.since_ms);
            all.until_ms = all.until_ms.max(other.until_ms);
            all.runs = all.runs.max(other.runs);
            all.vms = all.vms.saturating_add(other.vms);
            all.grown_bytes = all.grown_bytes.saturating_add(other.grown_bytes);
            all.more_bytes = all.more_bytes.saturating_add(other.more_bytes);
            all.is_over &= other.is_over;
        }
        let are_clones = all.vms >= CLONES_MIN && ratio(all.sum.dup_bytes, all.sum.bytes) >= CLONED;
        if all.kind == FindingKind::FirstFull && are_clones {
            all.kind = FindingKind::Clones;
        }
        Some(all)
    }

    fn now(&self) -> Figures {
        Figures {
            new_bytes: self.sum.new_bytes,
            stored_bytes: self.sum.stored_bytes,
            total_factor: total_factor(&self.sum),
            local_factor: local_factor(&self.sum),
        }
    }

    /// How many times as large the usual total factor is, of a regression. Where usually nothing is stored, a byte stands for it.
    pub(crate) fn times_worse(&self) -> Option<f64> {
        let usual = self.usual?.total_factor.unwrap_or_else(|| ratio(self.sum.bytes, 1));
        let now = total_factor(&self.sum)?;
        (self.kind.is_regression() && now > 0.0).then(|| (usual / now).max(1.0))
    }
}

/// In what way a run is out of line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ReadAgain,
    MuchNew,
    LacksDups,
    CompressesWorse,
}

/// Runs in a row that are out of line in the same way.
#[derive(Debug)]
struct Streak {
    way: Way,
    /// One of its runs is out of line by itself.
    is_clear: bool,
    runs: Vec<RunSums>,
    sum: Amounts,
    usual_stored_bytes: u64,
    usual: Usual,
}

/// Compares each run with those before it.
#[derive(Debug, Default)]
pub(crate) struct Detector {
    past: Past,
    streak: Option<Streak>,
}

impl Detector {
    /// Takes the next run, and says what is out of line with it.
    pub(crate) fn take(&mut self, run: &RunSums) -> Option<Found> {
        let known = &run.known;
        let out_of_line = (known.bytes > 0).then(|| self.compare(run)).flatten();
        self.past.saw(run);
        out_of_line.or_else(|| first(run)).or_else(|| retried(run))
    }

    fn compare(&mut self, run: &RunSums) -> Option<Found> {
        if self.streak.is_none() && self.past.has_seen(&run.known) {
            self.past.push(*run);
            return None;
        }
        let Some(usual) = self.past.usual(run.started_ms) else {
            self.past.push(*run);
            return None;
        };
        match way(&run.known, &usual) {
            Some((way, is_clear)) => self.go_on(run, usual, way, is_clear),
            // With too little new data to tell, it may go on.
            None if self.is_compression() && usual.compression(&run.known).is_none() => None,
            None => {
                self.end();
                self.past.push(*run);
                None
            }
        }
    }

    fn is_compression(&self) -> bool {
        self.streak.as_ref().is_some_and(|streak| streak.way == Way::CompressesWorse)
    }

    /// The run is out of line, perhaps in the same way as those before it.
    fn go_on(&mut self, run: &RunSums, usual: Usual, way: Way, is_clear: bool) -> Option<Found> {
        if self.streak.as_ref().is_some_and(|streak| streak.way != way) {
            self.end();
        }
        let streak = self.streak.get_or_insert_with(|| Streak::new(way, usual));
        streak.add(run, usual, is_clear);
        let found = streak.found();
        if streak.is_usual_now() {
            self.past.replace(std::mem::take(&mut streak.runs));
            self.streak = None;
        }
        found
    }

    /// What was not enough to be found was as usual.
    fn end(&mut self) {
        let Some(streak) = self.streak.take() else { return };
        match streak.runs.as_slice() {
            runs if streak.found().is_none() => runs.iter().for_each(|run| self.past.push(*run)),
            [run] => self.past.push_peak(run),
            _ => {}
        }
    }
}

impl Streak {
    fn new(way: Way, usual: Usual) -> Self {
        Self { way, is_clear: false, runs: Vec::new(), sum: Amounts::default(), usual_stored_bytes: 0, usual }
    }

    fn add(&mut self, run: &RunSums, usual: Usual, is_clear: bool) {
        self.is_clear |= is_clear;
        self.runs.push(*run);
        self.sum.add(&run.known);
        // As much new data as there was, compressed as usual; or the usual amount.
        let stored_bytes = match (self.way, usual.figures.local_factor) {
            (Way::CompressesWorse, Some(local)) => divided(run.known.new_bytes, local),
            _ => usual.figures.stored_bytes,
        };
        self.usual_stored_bytes = self.usual_stored_bytes.saturating_add(stored_bytes);
        self.usual = usual;
    }

    /// `None`: it may be nothing yet.
    fn found(&self) -> Option<Found> {
        let (first, last) = (self.runs.first()?, self.runs.last()?);
        let more_bytes = self.sum.stored_bytes.saturating_sub(self.usual_stored_bytes);
        let is_enough = match self.way {
            Way::ReadAgain => true,
            _ if more_bytes < MORE_MIN_BYTES => false,
            _ => self.is_clear || self.runs.len() >= IN_A_ROW,
        };
        is_enough.then(|| Found {
            kind: self.kind(),
            since_ms: first.started_ms,
            until_ms: last.finished_ms,
            runs: self.runs.len() as u64,
            vms: 1,
            grown_bytes: self.grown_bytes(),
            usual: Some(self.usual.figures),
            sum: self.sum,
            more_bytes,
            is_over: false,
        })
    }

    fn kind(&self) -> FindingKind {
        let (now, before) = (local_factor(&self.sum), self.usual.figures.local_factor);
        match self.way {
            Way::ReadAgain => FindingKind::ReadAgain,
            Way::CompressesWorse => FindingKind::Compression,
            Way::MuchNew | Way::LacksDups if is_incompressible(now, &self.usual) => {
                FindingKind::Incompressible
            }
            Way::LacksDups if self.runs.len() >= IN_A_ROW => FindingKind::NoDuplicates,
            Way::MuchNew | Way::LacksDups if self.runs.len() == 1 && self.grown_bytes() == 0 => {
                let as_before = now.zip(before).is_none_or(|(now, before)| now >= before * AS_BEFORE);
                if as_before { FindingKind::Rewritten } else { FindingKind::MoreNew }
            }
            Way::MuchNew | Way::LacksDups => FindingKind::MoreNew,
        }
    }

    /// By how much the disks hold more than usual, where that is most of what is new.
    fn grown_bytes(&self) -> u64 {
        let grown = self.runs.last().map_or(0, |run| run.known.bytes.saturating_sub(self.usual.bytes));
        if grown >= self.sum.new_bytes / 2 { grown } else { 0 }
    }

    fn is_usual_now(&self) -> bool {
        let (Some(first), Some(last)) = (self.runs.first(), self.runs.last()) else { return false };
        let lasts_ms = last.started_ms.saturating_sub(first.started_ms);
        self.runs.len() >= ADOPT_RUNS && lasts_ms >= ADOPT_MS
    }
}

/// What is out of line with the last of a VM's runs.
pub(crate) fn latest(runs: &[RunSums]) -> Option<Found> {
    let mut detector = Detector::default();
    runs.iter().fold(None, |_, run| detector.take(run))
}

/// In what way it is out of line, and if one such run is enough.
fn way(run: &Amounts, usual: &Usual) -> Option<(Way, bool)> {
    let dup = ratio(run.dup_bytes, run.bytes);
    let dup_min = usual.dup_of_all_max + DUPS_MORE * (1.0 - usual.dup_of_all_max);
    if dup >= dup_min.max(MANY_DUPS) && run.bytes >= READ_AGAIN_MIN_BYTES {
        return Some((Way::ReadAgain, true));
    }
    let (new, compression) = (usual.new_bytes(run), usual.compression(run));
    let is_incompressible =
        is_incompressible(local_factor(run), usual) && compression != Some(Compared::InLine);
    let is_clear = new == Compared::Alone || (new == Compared::InARow && is_incompressible);
    if usual.lacks_dups(run) {
        return Some((Way::LacksDups, is_clear));
    }
    if new != Compared::InLine {
        return Some((Way::MuchNew, is_clear));
    }
    let compression = compression.filter(|compared| *compared != Compared::InLine)?;
    Some((Way::CompressesWorse, compression == Compared::Alone))
}

/// The new data does not compress, though it did before.
fn is_incompressible(local: Option<f64>, usual: &Usual) -> bool {
    local.is_some_and(|local| local <= INCOMPRESSIBLE)
        && usual.figures.local_factor.is_none_or(|before| before >= COMPRESSIBLE)
}

/// Disks that were backed up for the first time.
fn first(run: &RunSums) -> Option<Found> {
    (run.first.bytes > 0).then(|| Found::of_run(FindingKind::FirstFull, run, run.first, 0))
}

/// Attempts that stored something in vain.
fn retried(run: &RunSums) -> Option<Found> {
    let mut sum = run.known;
    sum.add(&run.first);
    (sum.retried_bytes > 0).then(|| Found::of_run(FindingKind::Retried, run, sum, sum.retried_bytes))
}

/// Usual figures of two VMs together: the factors that what they hold now would usually have.
fn added((a, of_a): (&Amounts, &Figures), (b, of_b): (&Amounts, &Figures)) -> Figures {
    let factor = |a: u64, of_a: Option<f64>, b: u64, of_b: Option<f64>| {
        let stored = of_a.map_or(0, |of| divided(a, of)).saturating_add(of_b.map_or(0, |of| divided(b, of)));
        (stored > 0).then(|| ratio(a.saturating_add(b), stored))
    };
    Figures {
        new_bytes: of_a.new_bytes.saturating_add(of_b.new_bytes),
        stored_bytes: of_a.stored_bytes.saturating_add(of_b.stored_bytes),
        total_factor: factor(a.bytes, of_a.total_factor, b.bytes, of_b.total_factor),
        local_factor: factor(a.new_bytes, of_a.local_factor, b.new_bytes, of_b.local_factor),
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size that is shown with three digits; a float that is too large becomes the largest number"
)]
fn divided(bytes: u64, by: f64) -> u64 {
    (bytes as f64 / by) as u64
}

#[cfg(test)]
mod tests;
