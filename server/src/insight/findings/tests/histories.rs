//! Made-up backup histories for property tests of "which job dedupes badly".
//!
//! A `Life` is what the server would know of one VM: a row for each run of its job, oldest first, and
//! the truth: what really happened. Quiet lives have an empty truth; in them nothing may be found.
//! Everything follows from the seed. Written without knowledge of any detector.
//!
//! How a night comes about:
//!   changed = size * daily rate * (nights since the last good backup, each with its weight) / nights^0.3
//!             * noise. Thus two nights change 1.6 times what one does, an hour 0.11, a week 3.9.
//!   new     = share of new * changed (+ what the disk grew); dup = changed - new
//!   post_lc = new / compression + small overhead
//! `unchanged` is rounded down to whole 4 MiB extents, the rest is dup. A missed or failed night is
//! made up for by the next good one; what a failed run had already stored is dup there. Loud lives are
//! made twice from the same dice, with and without the event: `Event` has the exact difference.
#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::too_many_lines,
    reason = "made-up numbers are far from any end, and the generator tells more than is asked"
)]

mod vms;

use std::ops::Range;

pub(crate) use vms::Rng;
use vms::{Dice, Slot, Trend, Vm, dice, plan, vm};

pub(crate) const MIB: f64 = 1_048_576.0;
pub(crate) const GIB: f64 = 1024.0 * MIB;
pub(crate) const EXTENT: u64 = 4 << 20;
/// Lives whose event is a ratio of the usual night (SlowBurn, CompressionLevel, DedupeBroken) have at
/// least this much new data in a usual run, else the event would drown in the extents.
pub(crate) const MIN_NEW: f64 = 256.0 * MIB;
const HOUR_MS: f64 = 3_600_000.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    Failed,
}

/// One VM in one run. A failed run has read a part of the disk only; the sum holds for it, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) time: i64,  // unix ms
    pub(crate) bytes: u64, // = unchanged + dup + new
    pub(crate) unchanged_bytes: u64,
    pub(crate) dup_bytes: u64,
    pub(crate) new_bytes: u64,
    pub(crate) post_lc: u64,
    pub(crate) first_full: bool,
    pub(crate) status: Status,
}

/// An event as it really happened. `more_*` are of the run `rows[run]` in which it begins, against the same night
/// without the event; for first fulls (and clones) that is the whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: Loud,
    pub(crate) run: usize,
    pub(crate) more_changed: i64, // dup + new: what was sent
    pub(crate) more_new: i64,
    pub(crate) more_stored: i64,  // post_lc
    pub(crate) total_stored: i64, // post_lc, from that run to the end of the rows
}

#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) name: String, // has kind and seed in it, for the message of a failing test
    pub(crate) job: String,
    pub(crate) rows: Vec<Run>,
    pub(crate) truth: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quiet {
    Stable,
    Weekly,
    Growth,
    DoubledNight,
    Idle,
    PatchNight,
    Shrinking,
}
impl Quiet {
    pub(crate) const ALL: [Quiet; 7] = [
        Quiet::Stable,
        Quiet::Weekly,
        Quiet::Growth,
        Quiet::DoubledNight,
        Quiet::Idle,
        Quiet::PatchNight,
        Quiet::Shrinking,
    ];
    /// The largest weight a night can have; these three are on nightly schedules only.
    fn peak(self) -> f64 {
        match self {
            Quiet::Weekly => 4.0,
            Quiet::DoubledNight => 2.0,
            Quiet::PatchNight => 5.0,
            _ => 1.0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loud {
    /// From `run` on everything that changes is new and does not compress. On that night 30-100 % of
    /// the disk changes; afterwards as much as ever (3 of 4 lives) or 30-100 % night after night.
    /// Compression was 1.5 or better before.
    Encryption,
    /// Once 20-80 % of the disk is new; compression as before.
    Repack,
    /// Six times the change from `run` on for good.
    SlowBurn,
    /// Once everything is read again: nothing unchanged, nearly all dup (0.1-1 % more new).
    Migration,
    /// New as usual, the compression factor falls by 25-60 % for good (never below 1: starts at 1.6 or more).
    CompressionLevel,
    /// The first row of a new VM, 40-100 % new; comes with 1-3 quiet neighbours in its job.
    FirstFull,
    /// 20 new VMs in one night, fulls 0.2-2 % new; each has this event (not FirstFull) at row 0.
    /// Comes with 3-8 quiet neighbours, which were in the job before (and come first in the Vec).
    CloneStorm,
    /// The same change, but 97-100 % of it new from `run` on; the share was 20-50 % before.
    DedupeBroken,
}
impl Loud {
    pub(crate) const ALL: [Loud; 8] = [
        Loud::Encryption,
        Loud::Repack,
        Loud::SlowBurn,
        Loud::Migration,
        Loud::CompressionLevel,
        Loud::FirstFull,
        Loud::CloneStorm,
        Loud::DedupeBroken,
    ];
    fn is_full(self) -> bool {
        matches!(self, Loud::FirstFull | Loud::CloneStorm)
    }
    /// See `MIN_NEW`.
    fn is_ratio(self) -> bool {
        matches!(self, Loud::SlowBurn | Loud::CompressionLevel | Loud::DedupeBroken)
    }
}

#[derive(Clone, Copy)] // what happens to a VM; `part`: how strong, 0..1 between the bounds named at `Loud`
struct Effect {
    kind: Loud,
    at: usize,
    part: f64,
    rolling: bool,
}

fn rows(v: &Vm, slots: &[Slot], dice: &[Dice], effect: Option<Effect>) -> Vec<Run> {
    let (mut owed_days, mut owed_weight, mut stored, mut size_before) = (0.0, 0.0, 0.0, None); // of failed runs
    let mut out = Vec::new();
    for (i, (s, d)) in slots.iter().zip(dice).enumerate() {
        // size of the disk, the size that the change is a part of, and what the disk grew
        let weeks = (s.age - slots[0].age) / 7.0;
        let then = v.size * if let Trend::Week(f) = v.trend { f.powf(weeks).max(0.2) } else { 1.0 };
        let (size, live, last) = match v.trend {
            Trend::Week(f) => (then, then, then / f.powf(s.days / 7.0)),
            Trend::Drop { run, left } => (if i < run { then } else { then * left }, then, then),
        };
        let size = size.floor();
        let grown = (size - size_before.unwrap_or(last)).max(0.0);
        // is it going on, does it begin now, and what it is from these bounds
        let lasts = |k: Loud| effect.is_some_and(|e| e.kind == k && i >= e.at);
        let begins = |k: Loud| effect.is_some_and(|e| e.kind == k && i == e.at);
        let of = |r: Range<f64>| r.start + (r.end - r.start) * effect.map_or(0.0, |e| e.part);
        let (days, weight) = (s.days + owed_days, s.weight + owed_weight);
        let usual = v.idle.unwrap_or(live * v.rate * weight * f64::powf(days, -0.3)) * d.volume;
        let times = if lasts(Loud::SlowBurn) { 6.0 } else { 1.0 };
        let mut changed = (times * (usual + grown)).min(0.95 * size);
        let mut new = (times * (usual * (v.share + d.share).clamp(0.02, 0.99) + grown)).min(changed);
        let mut comp = (v.comp * d.comp).max(1.0);
        // what a failed run had stored is in the repository already
        if !lasts(Loud::DedupeBroken) {
            new -= f64::min(stored, 0.9 * new);
        }
        if lasts(Loud::Encryption) {
            if begins(Loud::Encryption) {
                changed = changed.max(size * of(0.3..1.0));
            } else if effect.unwrap().rolling {
                changed = changed.max(size * (0.3 + 0.7 * d.event));
            }
            (new, comp) = (changed, 0.995 + 0.03 * d.event);
        }
        if begins(Loud::Repack) {
            let (dup, all) = (changed - new, new.max(size * of(0.2..0.8)));
            (new, changed) = (all, (all + dup).min(size));
        }
        if lasts(Loud::CompressionLevel) {
            comp = (comp * (1.0 - of(0.25..(1.0 - 1.06 / v.comp).min(0.6)))).max(1.0);
        }
        if lasts(Loud::DedupeBroken) {
            new = new.max(changed * (0.97 + 0.03 * d.event));
        }
        let full = begins(Loud::FirstFull) || begins(Loud::CloneStorm);
        if full || begins(Loud::Migration) {
            changed = size;
        }
        if begins(Loud::FirstFull) {
            new = size * of(0.4..1.0);
        }
        if begins(Loud::CloneStorm) {
            new = size * of(0.002..0.02);
        }
        if begins(Loud::Migration) {
            new += (size - new) * of(0.001..0.01);
        }
        // to whole bytes and extents; a failed run got through a part of the disk only
        let part = if s.failed { d.partial } else { 1.0 };
        let bytes = (size * part) as u64;
        let unchanged = ((size - changed) * part / EXTENT as f64) as u64 * EXTENT;
        let new_bytes = ((new * part) as u64).min(bytes - unchanged);
        out.push(Run {
            time: s.time + v.offset,
            bytes,
            new_bytes,
            unchanged_bytes: unchanged,
            dup_bytes: bytes - unchanged - new_bytes,
            post_lc: (new_bytes as f64 / comp + new_bytes as f64 / 1024.0 + v.fixed) as u64,
            first_full: full,
            status: if s.failed { Status::Failed } else { Status::Done },
        });
        (owed_days, owed_weight, stored, size_before) = if s.failed {
            (days, weight, stored + new * part, size_before.or(Some(last)))
        } else {
            (0.0, 0.0, 0.0, Some(size))
        };
    }
    out
}

/// The life of a VM in a job, and the truth from the difference to the life without the effect.
fn life(rng: &mut Rng, name: String, job: &str, v: &Vm, slots: &[Slot], effect: Option<Effect>) -> Life {
    let dice: Vec<Dice> = slots.iter().map(|_| dice(rng, v)).collect();
    let without = rows(v, slots, &dice, None);
    let rows = rows(v, slots, &dice, effect);
    let truth = effect.map(|e| {
        let diff = |i: usize, f: fn(&Run) -> u64| {
            f(&rows[i]) as i64 - if rows[i].first_full { 0 } else { f(&without[i]) as i64 }
        };
        Event {
            kind: e.kind,
            run: e.at,
            more_stored: diff(e.at, |r| r.post_lc),
            more_changed: diff(e.at, |r| r.dup_bytes + r.new_bytes),
            more_new: diff(e.at, |r| r.new_bytes),
            total_stored: (e.at..rows.len()).map(|i| diff(i, |r| r.post_lc)).sum(),
        }
    });
    Life { name, job: job.to_string(), rows, truth: truth.into_iter().collect() }
}

/// A life in which nothing may be found, of a kind that follows from the seed (`quiet_kind`).
/// Its rows begin somewhere in the middle of the VM's life: no row is a first full.
pub(crate) fn quiet(seed: u64) -> Life {
    quiet_of(quiet_kind(seed), seed)
}
pub(crate) fn quiet_kind(seed: u64) -> Quiet {
    Quiet::ALL[Rng::split(seed, 1).random_index(0..7)]
}
pub(crate) fn quiet_of(kind: Quiet, seed: u64) -> Life {
    let mut rng = Rng::split(seed, 2 + kind as u64);
    let plan = plan(&mut rng, kind);
    let v = vm(&mut rng, kind, &plan, None);
    let job = format!("{}-{seed:x}", plan.schedule);
    life(&mut rng, format!("{kind:?}-{seed:x}").to_lowercase(), &job, &v, &plan.slots, None)
}

/// From which row on silence may be asked of a detector that judges each row by those before it:
/// Weekly after two weeks, PatchNight after the third patch night, else 0 (all rows).
pub(crate) fn fair_from(kind: Quiet, seed: u64) -> usize {
    plan(&mut Rng::split(seed, 2 + kind as u64), kind).fair
}

/// Lives with one event of this kind (neighbours have none) on a stable or growing VM.
pub(crate) fn loud(kind: Loud, seed: u64) -> Vec<Life> {
    loud_over(kind, if Rng::split(seed, 20).random_bool(0.2) { Quiet::Growth } else { Quiet::Stable }, seed)
}

/// The same on a VM of another kind. The event begins at run 8 or later (and not before `fair_from`'s
/// row); neither that run nor the one before it failed. Ratio kinds on an idle VM make no sense: panics.
pub(crate) fn loud_over(kind: Loud, base: Quiet, seed: u64) -> Vec<Life> {
    let mut rng = Rng::split(seed, 100 + 10 * kind as u64 + base as u64);
    let mut plan = plan(&mut rng, base);
    let n = plan.slots.len();
    let at = rng.random_index(plan.fair.max(8)..n);
    for s in &mut plan.slots[at - 1..=at] {
        s.failed = false;
    }
    let (job, name) = (format!("{}-{seed:x}", plan.schedule), format!("{kind:?}-{seed:x}").to_lowercase());
    let mut effect = Effect { kind, at, part: rng.random_range(0.0..1.0), rolling: rng.random_bool(0.25) };
    if !kind.is_full() {
        let v = vm(&mut rng, base, &plan, Some(kind));
        return vec![life(&mut rng, name, &job, &v, &plan.slots, Some(effect))];
    }
    // VMs that were there before, then the new ones from run `at` of the job on, which is their row 0
    let storm = kind == Loud::CloneStorm;
    let there = if storm { rng.random_index(3..9) } else { rng.random_index(1..4) };
    let mut lives: Vec<Life> = (0..there)
        .map(|i| {
            let v = vm(&mut rng, base, &plan, None);
            life(&mut rng, format!("{name}-there{i}"), &job, &v, &plan.slots, None)
        })
        .collect();
    let slots = &plan.slots[at..];
    let template = vm(&mut rng, base, &plan, Some(kind));
    effect.at = 0;
    for i in 0..if storm { 20 } else { 1 } {
        let mut v = vm(&mut rng, base, &plan, Some(kind));
        if storm {
            (v.size, v.comp) = (template.size * rng.random_range(0.98..1.02), template.comp);
        }
        effect.part = rng.random_range(0.0..1.0);
        lives.push(life(&mut rng, format!("{name}-{i}"), &job, &v, slots, Some(effect)));
    }
    lives
}
