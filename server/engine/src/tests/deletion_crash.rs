//! Power fails after every single write operation of a life in which restore points are deleted, locked, held and
//! renamed: what was acknowledged holds after, and all of it agrees.

use std::sync::Arc;

use holdfast_catalog::Catalog;
use holdfast_types::clock::{Clock as _, ManualClock};
use holdfast_types::ids::BackupId;
use holdfast_volume::testing::{CrashPoint, FaultyVolume};
use holdfast_volume::{MemoryVolume, list_all};

use super::agent::{backup, restore};
use super::crash::outcomes;
use super::{Bench, namespace, noise};
use crate::check::CheckOptions;
use crate::engine::Engine;
use crate::jobs::NoProgress;
use crate::points::folder;

const SIZE: usize = 100_000;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// Operations that were acknowledged.
#[derive(Debug, Default)]
struct Facts {
    made: Vec<BackupId>,
    /// The restore point asked to be deleted; true once that was acknowledged.
    deleted: Option<(BackupId, bool)>,
    locked: Option<BackupId>,
    held: Option<BackupId>,
    renamed: bool,
}

/// Ends at the first failure.
fn live(bench: &Bench, engine: &Engine) -> Facts {
    let mut facts = Facts::default();
    let _ = try_live(bench, engine, &mut facts);
    facts
}

fn try_live(bench: &Bench, engine: &Engine, facts: &mut Facts) -> Result<(), crate::EngineError> {
    for (seed, vm) in [(0, "web"), (1, "web"), (2, "db")] {
        let done = backup(engine, vm, &[("root", &noise(seed, SIZE))])?;
        facts.made.push(done.backup_id.parse().unwrap());
    }
    let (gone, lock, hold) = (facts.made[0], facts.made[1], facts.made[2]);
    engine.lock_backups(&[lock], bench.clock.now_ms() + 7 * DAY_MS, "admin")?;
    facts.locked = Some(lock);
    facts.deleted = Some((gone, false));
    engine.delete_backups(&[gone], "op", "x")?;
    facts.deleted = Some((gone, true));
    engine.hold_backups(&[hold], "case", "admin")?;
    facts.held = Some(hold);
    engine.rename_vm(namespace(engine), "web", "www", "admin")?;
    facts.renamed = true;
    Ok(())
}

fn verify(bench: &Bench, volume: &MemoryVolume, facts: &Facts, at: &str) {
    let engine = bench.open(Arc::new(volume.clone()));
    let catalog = engine.catalog();
    for (seed, id) in (0..).zip(&facts.made) {
        let is_there = catalog.backup(*id).unwrap().is_some();
        match facts.deleted {
            Some((gone, true)) if gone == *id => assert!(!is_there, "{at}: {id} came back"),
            Some((gone, false)) if gone == *id => {}
            _ => assert!(is_there, "{at}: {id} is lost"),
        }
        if is_there {
            assert!(restore(&engine, &id.to_string(), "root").unwrap() == noise(seed, SIZE), "{at}");
        }
    }
    for id in facts.locked.iter().chain(&facts.held) {
        assert!(engine.delete_backups(&[*id], "admin", "x").is_err(), "{at}: {id} was locked");
    }
    if facts.renamed {
        assert!(catalog.named_vm(namespace(&engine), "www").unwrap().is_some(), "{at}: not renamed");
    }
    // One point for each restore point, which says what its row says.
    assert_eq!(catalog.deletions(None, 10).unwrap(), [], "{at}");
    assert_eq!(catalog.stale_points(None, 10).unwrap(), [], "{at}");
    let report = engine.check(CheckOptions::default(), &NoProgress).unwrap();
    assert!(report.is_sound(), "{at}: {:?}", report.problems);
    assert_eq!(list_all(volume, &folder()).count() as u64, report.backups, "{at}");
}

#[test]
fn what_was_acknowledged_holds_wherever_power_fails() {
    let operations = {
        let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
        let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
        assert!(live(&bench, &engine).renamed);
        volume.mutations()
    };
    assert!(operations > 20, "{operations} operations are too few to mean anything");
    for after in 0..=operations {
        for &in_flight in outcomes(after) {
            let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
            volume.crash_at(CrashPoint { after_mutations: after, in_flight });
            let facts = match bench.try_open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume)) {
                Ok(engine) => live(&bench, &engine),
                Err(_) => Facts::default(),
            };
            let at = format!("crash after {after}, {in_flight:?}");
            let survivor = volume.survivor();
            verify(&bench, &survivor, &facts, &at);
            lose_the_catalog(&bench);
            recover(&bench, &survivor, &facts, &at);
        }
    }
}

fn lose_the_catalog(bench: &Bench) {
    for file in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let _ = std::fs::remove_file(bench.folder.path().join(file));
    }
}

/// Recovers from the volume alone: deleted restore points stay so, and no lock is lost.
fn recover(bench: &Bench, volume: &MemoryVolume, facts: &Facts, at: &str) {
    let clock = Arc::<ManualClock>::clone(&bench.clock);
    let Some(repository) = crate::recover::repository_on(volume).unwrap() else { return };
    let path = bench.folder.path().join("catalog.db");
    let catalog = Catalog::create_for(&path, clock, repository).unwrap();
    crate::recover::enter_points(volume, &catalog, &NoProgress).unwrap();
    if let Some((gone, true)) = facts.deleted {
        assert!(catalog.backup(gone).unwrap().is_none(), "{at}: {gone} came back");
    }
    for id in facts.locked.iter().chain(&facts.held) {
        let lock = catalog.backup(*id).unwrap().unwrap().lock;
        assert!(lock.is_in_force(Some(bench.clock.now_ms())), "{at}: the lock of {id} is lost");
    }
}
