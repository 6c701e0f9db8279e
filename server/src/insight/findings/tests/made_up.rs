//! Histories made up by a generator that was written without knowledge of the detector.

use super::super::super::ratio;
use super::histories::{Event, Life, Loud, Quiet, Rng, Status, fair_from, loud, quiet, quiet_kind};
use super::*;

/// The runs of a life, as the catalog tells them; `None` for one that failed.
fn runs(life: &Life) -> impl Iterator<Item = Option<RunSums>> {
    let mut retried = Amounts::default();
    life.rows.iter().map(move |row| {
        if row.status == Status::Failed {
            let (new_bytes, stored_bytes) = (row.new_bytes, row.post_lc);
            retried.add(&Amounts {
                new_bytes,
                stored_bytes,
                retried_bytes: stored_bytes,
                ..Amounts::default()
            });
            return None;
        }
        let mut sum = Amounts {
            bytes: row.bytes,
            read_bytes: row.dup_bytes + row.new_bytes,
            dup_bytes: row.dup_bytes,
            new_bytes: row.new_bytes,
            stored_bytes: row.post_lc,
            retried_bytes: 0,
        };
        sum.add(&std::mem::take(&mut retried));
        let (known, first) =
            if row.first_full { (Amounts::default(), sum) } else { (sum, Amounts::default()) };
        Some(RunSums { started_ms: row.time, finished_ms: row.time + 3_600_000, known, first })
    })
}

/// Finding for each row. Attempts in vain are found where there were some.
fn found(life: &Life) -> Vec<Option<Found>> {
    let mut detector = Detector::default();
    let take = |run: Option<RunSums>| detector.take(&run?).filter(|found| found.kind != FindingKind::Retried);
    runs(life).map(take).collect()
}

#[test]
fn nothing_is_found_in_ten_thousand_quiet_lives() {
    for seed in 0..10_000 {
        let (life, fair) = (quiet(seed), fair_from(quiet_kind(seed), seed));
        for (row, found) in found(&life).iter().enumerate().skip(fair) {
            assert_eq!(*found, None, "row {row} of {} in {}", life.name, life.job);
        }
    }
}

/// Weekdays with three times as much as the weekend, a noise of 30 %, and one night in thirty with twice as much, all at once.
#[test]
fn nothing_is_found_where_all_that_comes_together() {
    for seed in 0..1_000 {
        let mut rng = Rng::seed_from_u64(seed);
        let usual = rng.random_range(0.001..0.02);
        let doubled = rng.random_index(0..30);
        let mut detector = Detector::default();
        for day in 0..90 {
            let weekday = if day % 7 < 5 { 3.0 } else { 1.0 };
            let times = if day % 30 == doubled { 2.0 } else { 1.0 } * weekday * rng.random_range(0.7..1.3);
            let mut run = night(i64::try_from(day).unwrap());
            run.known.new_bytes = divided(run.known.bytes, 1.0 / (usual * times));
            run.known.stored_bytes = divided(run.known.new_bytes, rng.random_range(1.9..2.1));
            assert_eq!(detector.take(&run), None, "night {day} of {seed}");
        }
    }
}

/// An event, and what is found from it on.
struct Lived {
    life: Life,
    event: Event,
    from: Vec<Option<Found>>,
}

impl Lived {
    /// Lives with an event of which there is history enough before it; nothing is found in that.
    fn all(kind: Loud) -> Vec<Self> {
        let mut lived = Vec::new();
        for life in (0..200).flat_map(|seed| loud(kind, seed)) {
            let mut found = found(&life);
            let Some(event) = life.truth.first().cloned() else {
                assert!(found.iter().all(Option::is_none), "{} is a quiet neighbour", life.name);
                continue;
            };
            let from = found.split_off(event.run);
            assert!(found.iter().all(Option::is_none), "before it in {}", life.name);
            // A day of hourly runs, without those that may have failed.
            if event.run == 0 || event.run >= 30 || !life.job.starts_with("hourly") {
                lived.push(Self { life, event, from });
            }
        }
        assert!(lived.len() >= 150);
        lived
    }

    /// No noise explains it: six times as much new as ever before.
    fn is_clear(&self) -> bool {
        let before = self.life.rows[..self.event.run].iter().map(|row| row.new_bytes).max();
        self.life.rows[self.event.run].new_bytes > 6 * before.unwrap_or(0)
    }

    /// It is found in the run it happened in, and said so.
    fn is_told(&self, kind: FindingKind, cause: &str) -> bool {
        let Some(found) = self.from[0] else { return false };
        let said = said(&found, found.until_ms);
        found.kind == kind && said.cause.contains(cause)
    }

    /// It is found later, when it has lasted for some runs.
    fn is_told_in_time(&self, kind: FindingKind) -> bool {
        self.from.iter().flatten().any(|found| found.kind == kind)
    }

    /// Good runs from the event on, before which what lasts need not be found.
    fn has_lasted(&self) -> bool {
        self.life.rows[self.event.run..].iter().filter(|row| row.status == Status::Done).count() >= 8
    }
}

/// All of which `of` holds are told, but for one in a hundred.
#[track_caller]
fn assert_told(lived: &[Lived], of: impl Fn(&Lived) -> bool, is_told: impl Fn(&Lived) -> bool) {
    let (of, mut silent) = (lived.iter().filter(|lived| of(lived)).collect::<Vec<_>>(), Vec::new());
    silent.extend(of.iter().filter(|lived| !is_told(lived)).map(|lived| lived.life.name.as_str()));
    assert!(of.len() >= 50, "{}", of.len());
    assert!(silent.len() * 100 <= of.len(), "{} of {}: {silent:?}", silent.len(), of.len());
}

#[test]
fn encryption_is_told_that_night() {
    let is_told = |lived: &Lived| lived.is_told(FindingKind::Incompressible, "hardly compresses");
    assert_told(&Lived::all(Loud::Encryption), Lived::is_clear, is_told);
}

#[test]
fn a_repack_is_told_that_night_and_only_then() {
    let lived = Lived::all(Loud::Repack);
    assert_told(&lived, Lived::is_clear, |lived| {
        lived.is_told(FindingKind::Rewritten, "compresses as before")
    });
    for lived in &lived {
        assert!(lived.from[1..].iter().all(Option::is_none), "{}", lived.life.name);
    }
}

#[test]
fn a_migration_is_told_that_night() {
    let is_told = |lived: &Lived| lived.is_told(FindingKind::ReadAgain, "moved");
    assert_told(&Lived::all(Loud::Migration), |_| true, is_told);
}

#[test]
fn a_first_full_is_told_that_night() {
    let is_told = |lived: &Lived| lived.is_told(FindingKind::FirstFull, "no restore point");
    assert_told(&Lived::all(Loud::FirstFull), |_| true, is_told);
}

#[test]
fn a_storm_of_clones_is_told_as_one() {
    let lived = Lived::all(Loud::CloneStorm);
    for storm in lived.chunk_by(|a, b| a.life.job == b.life.job) {
        let found: Vec<Found> = storm.iter().filter_map(|lived| lived.from[0]).collect();
        let together = Found::together(&found).unwrap();
        let text = said(&together, together.until_ms).text;
        assert_eq!(together.kind, FindingKind::Clones, "{text}");
        assert!(text.contains("first backups of 20 VMs") && text.contains("9"), "{text}");
        assert!(ratio(together.sum.new_bytes, together.sum.bytes) < 0.02);
    }
}

#[test]
fn what_lasts_is_told_in_time() {
    for (event, kind) in [
        (Loud::SlowBurn, FindingKind::MoreNew),
        (Loud::CompressionLevel, FindingKind::Compression),
        (Loud::DedupeBroken, FindingKind::NoDuplicates),
    ] {
        assert_told(&Lived::all(event), Lived::has_lasted, |lived| lived.is_told_in_time(kind));
    }
}

/// Bytes more than usual are those that the event brought, as far as noise allows.
#[test]
fn bytes_more_than_usual_are_those_of_the_event() {
    let is_right = |lived: &Lived| {
        let (Some(found), Ok(stored)) = (lived.from[0], u64::try_from(lived.event.more_stored)) else {
            return false;
        };
        (0.8..1.25).contains(&ratio(found.more_bytes, stored))
    };
    for event in [Loud::Encryption, Loud::Repack] {
        assert_told(&Lived::all(event), Lived::is_clear, is_right);
    }
}

#[test]
fn every_kind_of_quiet_life_is_among_the_ten_thousand() {
    for kind in Quiet::ALL {
        assert!((0..100).any(|seed| quiet_kind(seed) == kind), "{kind:?}");
    }
}
