//! A page of the index that cannot be read: never a silent miss, and rebuilt while everything goes on.

use std::sync::Arc;

use holdfast_volume::testing::{CrashPoint, FaultyVolume, InFlight};
use holdfast_volume::{BlobName, MemoryVolume, Volume};

use super::agent::{backup, restore};
use super::bad_sector::{Bad, BadSector};
use super::{Bench, noise};
use crate::engine::Engine;
use crate::health::Obstacle;
use crate::jobs::{Budget, Step, StepLimits, StopFlag};

const MIB: usize = 1 << 20;

/// The index's sorted runs.
fn runs(volume: &MemoryVolume) -> Vec<BlobName> {
    let all = holdfast_volume::testing::list(volume, "index").into_iter().map(|entry| entry.name);
    all.filter(|name| name.as_str().contains("run-")).collect()
}

/// Flips a bit in the first pages of entries of every run.
pub(super) fn spoil(volume: &MemoryVolume, pages_max: usize) {
    for name in runs(volume) {
        let mut bytes = volume.get(&name).unwrap().to_vec();
        // A header page, then pages of entries; filters and fences come after them and are in memory.
        let pages = bytes.len() / 4096 - 1;
        assert!(pages > 0);
        for page in 1..=pages.min(pages_max) {
            bytes[page * 4096 + 40] ^= 1;
        }
        volume.replace(&name, bytes);
    }
}

/// One backup, in an index that lies on the volume.
fn stored(bench: &Bench, volume: &Arc<dyn Volume>) -> (Engine, String, Vec<u8>) {
    let engine = bench.open(Arc::clone(volume));
    let disk = noise(1, 12 * MIB);
    let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    engine.core_index_checkpoint().unwrap();
    (engine, id, disk)
}

fn repair(engine: &Engine) {
    let job = engine.index_repair_job();
    assert!(matches!(job.step(&Budget::unlimited()).unwrap(), Step::Idle(_)));
}

/// Returns true while readiness reports a damaged index.
fn under_repair(engine: &Engine) -> bool {
    engine.parts().0.health.reported().iter().any(|(obstacle, _)| *obstacle == Obstacle::IndexDamaged)
}

fn is_sound(engine: &Engine) -> bool {
    engine.parts().0.store.index.verify().is_ok()
}

#[test]
fn a_backup_goes_on_and_is_sent_again_what_bad_pages_hold() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, id, disk) = stored(&bench, &(Arc::new(volume.clone()) as Arc<dyn Volume>));
    // Open files stay as they were, so the damage is met after a start.
    engine.shutdown().unwrap();
    drop(engine);
    // All of them: with a page that can be read, one chunk found leads to its neighbours' directory.
    spoil(&volume, usize::MAX);
    let engine = bench.open(Arc::new(volume.clone()));
    let copy = backup(&engine, "copy", &[("root", &disk)]).unwrap();
    assert_eq!(copy.details[0].new_bytes, disk.len() as u64, "what cannot be looked up is sent again");
    assert!(under_repair(&engine));
    assert_eq!(engine.stopped(), [], "nothing stops");

    assert!(restore(&engine, &id, "root").unwrap() == disk, "either copy serves");
    repair(&engine);
    assert!(!under_repair(&engine));
    assert!(is_sound(&engine));
    assert_eq!(backup(&engine, "third", &[("root", &disk)]).unwrap().details[0].new_bytes, 0);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = bench.open(Arc::new(volume));
    assert!(engine.opened().clean && is_sound(&engine), "for good");
    assert!(restore(&engine, &id, "root").unwrap() == disk);
}

#[test]
fn a_restore_waits_for_the_repair() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, id, disk) = stored(&bench, &(Arc::new(volume.clone()) as Arc<dyn Volume>));
    engine.shutdown().unwrap();
    drop(engine);
    spoil(&volume, usize::MAX);
    let engine = bench.open(Arc::new(volume));
    assert!(restore(&engine, &id, "root").unwrap() == disk);
    assert!(!under_repair(&engine) && is_sound(&engine), "it did the repair itself");
}

#[test]
fn the_background_work_repairs_in_steps_and_says_how_far_it_is() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, id, disk) = stored(&bench, &(Arc::new(volume.clone()) as Arc<dyn Volume>));
    engine.shutdown().unwrap();
    drop(engine);
    spoil(&volume, 3);
    let engine = bench.open(Arc::new(volume));
    let job = engine.index_repair_job();
    assert!(matches!(job.step(&Budget::unlimited()).unwrap(), Step::Idle(_)) && job.progress().is_none());
    backup(&engine, "copy", &[("root", &disk)]).unwrap();
    let timer = Arc::new(holdfast_volume::testing::ManualTimer::default());
    let one = StepLimits { items: 1, ..StepLimits::DEFAULT };
    let mut steps = 0;
    while job.step(&Budget::new(one, timer.clone(), StopFlag::default())).unwrap() == Step::More {
        let at = job.progress().unwrap();
        assert!(at.done > 0 && at.done <= at.total && at.unit == "containers", "{at:?}");
        steps += 1;
        assert!(steps < 100);
    }
    assert!(steps > 0 && is_sound(&engine));
    assert!(restore(&engine, &id, "root").unwrap() == disk);
}

#[test]
fn a_page_the_disk_cannot_read_twice_is_rebuilt_and_one_it_reads_again_is_not() {
    for times in [1, u32::MAX] {
        let (bench, memory) = (Bench::new(), MemoryVolume::new());
        let bad = Bad::default();
        let volume: Arc<dyn Volume> = Arc::new(BadSector { inner: memory.clone(), bad: Arc::clone(&bad) });
        let (engine, id, disk) = stored(&bench, &volume);
        let run = runs(&memory).pop().unwrap();
        *bad.lock() = Some((run.clone(), 4096..16_384, times));
        assert!(restore(&engine, &id, "root").unwrap() == disk, "{times}");
        assert_eq!(engine.stopped(), []);
        repair(&engine);
        assert!(!under_repair(&engine));
        assert_eq!(runs(&memory).contains(&run), times == 1, "{times}");
        assert!(is_sound(&engine));
    }
}

#[test]
fn a_file_of_the_index_the_disk_cannot_open_or_read_does_not_stop_a_start() {
    let mut file = 0;
    loop {
        let (bench, memory) = (Bench::new(), MemoryVolume::new());
        let bad = Bad::default();
        let volume: Arc<dyn Volume> = Arc::new(BadSector { inner: memory.clone(), bad: Arc::clone(&bad) });
        let (engine, id, disk) = stored(&bench, &volume);
        engine.shutdown().unwrap();
        drop(engine);
        let files = holdfast_volume::testing::list(&memory, "index");
        let Some(hurt) = files.get(file) else { break };
        *bad.lock() = Some((hurt.name.clone(), 0..64, u32::MAX));
        let engine = bench.open(Arc::clone(&volume));
        assert!(restore(&engine, &id, "root").unwrap() == disk, "{}", hurt.name);
        file += 1;
    }
    assert!(file > 2, "a run, a manifest and the mark of a clean stop");
}

#[test]
fn a_merge_leaves_a_run_with_a_bad_page_alone() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, id, disk) = stored(&bench, &(Arc::new(volume.clone()) as Arc<dyn Volume>));
    engine.shutdown().unwrap();
    drop(engine);
    spoil(&volume, 3);
    let engine = bench.open(Arc::new(volume));
    // Enough runs for a merge, however it is decided: all of them stay.
    for seed in 10..40 {
        backup(&engine, "more", &[("root", &noise(seed, MIB))]).unwrap();
        engine.core_index_checkpoint().unwrap();
    }
    assert_eq!(engine.stopped(), [], "writing goes on");
    repair(&engine);
    engine.core_index_checkpoint().unwrap();
    assert!(is_sound(&engine) && !under_repair(&engine));
    assert!(restore(&engine, &id, "root").unwrap() == disk);
}

#[test]
fn wherever_power_fails_in_a_repair_the_index_is_whole_or_repaired_next_time() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, id, disk) = stored(&bench, &(Arc::new(volume.clone()) as Arc<dyn Volume>));
    engine.shutdown().unwrap();
    drop(engine);
    spoil(&volume, 3);
    let catalog = bench.folder.path().join("catalog.db");
    let before = std::fs::read(&catalog).unwrap();
    let mut after = 0;
    loop {
        for file in ["catalog.db-wal", "catalog.db-shm"] {
            let _ = std::fs::remove_file(bench.folder.path().join(file));
        }
        std::fs::write(&catalog, &before).unwrap();
        let faulty = Arc::new(FaultyVolume::new(volume.snapshot()));
        let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&faulty));
        let mutations = faulty.mutations();
        faulty.crash_at(CrashPoint { after_mutations: mutations + after, in_flight: InFlight::Lost });
        let repaired = restore(&engine, &id, "root").is_ok() && !faulty.has_crashed();
        drop(engine);
        let engine = bench.open(faulty.survivor());
        match restore(&engine, &id, "root") {
            Ok(read) => assert!(read == disk, "crash after {after}"),
            Err(error) => panic!("crash after {after}: {error}"),
        }
        // Pages that the restore did not meet are met by reading everything.
        if !is_sound(&engine) {
            repair(&engine);
        }
        assert!(is_sound(&engine), "crash after {after}");
        drop(engine);
        if repaired {
            break;
        }
        after += 1;
        assert!(after < 100);
    }
    assert!(after > 2, "a repair changes something: {after}");
}
