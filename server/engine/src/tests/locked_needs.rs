//! The blobs that locked restore points need are all that a recovery of them needs.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_catalog::Catalog;
use holdfast_types::clock::{Clock as _, ManualClock};
use holdfast_types::ids::BackupId;
use holdfast_volume::testing::list;
use holdfast_volume::{BlobName, MemoryVolume, Volume as _};

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::jobs::NoProgress;
use crate::recover::{enter_points, repository_on};

const MIB: usize = 1 << 20;
const DAY_MS: i64 = 24 * 3600 * 1000;

fn needed(engine: &Engine, id: &str) -> Vec<BlobName> {
    let mut needs = engine.locked_needs().unwrap();
    let needed = needs.of(id.parse().unwrap(), &mut |_| true).unwrap().unwrap();
    assert!(needed.is_whole);
    needed.blobs
}

#[test]
fn what_is_named_is_enough_to_restore_and_no_more() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let web = noise(1, 4 * MIB);
    let changed = [&web[..2 * MIB], &noise(3, 2 * MIB)[..]].concat();
    let first = backup(&engine, "web", &[("root", &web)]).unwrap().backup_id;
    backup(&engine, "db", &[("root", &noise(2, 4 * MIB))]).unwrap();
    let second = backup(&engine, "web", &[("root", &changed)]).unwrap().backup_id;
    let named: BTreeSet<BlobName> = needed(&engine, &second).into_iter().collect();
    let shared = named.intersection(&needed(&engine, &first).into_iter().collect()).count();
    assert!(shared > 0, "the first one's container");
    assert_eq!(named.iter().filter(|name| name.as_str().starts_with("points/")).count(), 1);
    let all = list(&volume, "containers").len() + list(&volume, "points").len();
    assert!(named.len() < all, "not those of others: {named:?}");
    engine.shutdown().unwrap();
    drop(engine);

    // A volume that has these, and whose it is.
    let recovered = MemoryVolume::new();
    for name in named.into_iter().chain(BlobName::new("repository")) {
        recovered.replace(&name, volume.get(&name).unwrap());
    }
    let bench = Bench::new();
    let repository = repository_on(&recovered).unwrap().unwrap();
    let clock = Arc::<ManualClock>::clone(&bench.clock);
    let catalog = Catalog::create_for(&bench.folder.path().join("catalog.db"), clock, repository).unwrap();
    assert_eq!(enter_points(&recovered, &catalog, &NoProgress).unwrap().problems, []);
    drop(catalog);
    let engine = bench.open(Arc::new(recovered.clone()));
    assert_eq!(restore(&engine, &second, "root").unwrap(), changed);
    assert!(restore(&engine, &first, "root").is_err(), "its point was not among them");
}

#[test]
fn a_point_that_changes_is_named_when_it_is_sealed_anew() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let id = backup(&engine, "web", &[("root", &noise(1, MIB))]).unwrap().backup_id;
    let backup: BackupId = id.parse().unwrap();
    assert!(engine.locked_backups(None, 9).unwrap().is_empty());
    let before = needed(&engine, &id);
    engine.lock_backups(&[backup], bench.clock.now_ms() + DAY_MS, "admin").unwrap();
    let locked = engine.locked_backups(None, 9).unwrap();
    assert_eq!((locked.len(), locked[0].0), (1, backup));
    let after = needed(&engine, &id);
    assert_ne!(before.last(), after.last(), "the point says that it is locked");
    assert_eq!(before[..before.len() - 1], after[..after.len() - 1]);
    assert!(volume.get(after.last().unwrap()).is_some());
    // While it is stale no name is right.
    engine.catalog().mark_point_stale(backup, 0).unwrap();
    let mut needs = engine.locked_needs().unwrap();
    assert_eq!(needs.of(backup, &mut |_| true).unwrap(), None);
    engine.catalog().note_point_sealed(backup, 9).unwrap();
    assert!(matches!(needs.of(backup, &mut |_| false), Err(EngineError::Stopped)));
}

/// (T18) A copy elsewhere of what is left of a restore point does not keep it.
#[test]
fn what_is_lost_is_told_whatever_it_is() {
    for (class, takes_the_first) in [(".data", true), (".data", false), (".recipe", true)] {
        let (bench, volume) = (Bench::new(), MemoryVolume::new());
        let engine = bench.open(Arc::new(volume.clone()));
        let first = backup(&engine, "web", &[("root", &noise(1, 4 * MIB))]).unwrap().backup_id;
        let changed = [noise(1, 4 * MIB), noise(3, 2 * MIB)].concat();
        let second = backup(&engine, "web", &[("root", &changed)]).unwrap().backup_id;
        engine.shutdown().unwrap();
        drop(engine);
        let of_class = list(&volume, "containers").into_iter().map(|entry| entry.name);
        let mut of_class = of_class.filter(|name| name.as_str().ends_with(class)).collect::<Vec<_>>();
        assert_eq!(of_class.len(), 2);
        if !takes_the_first {
            of_class.reverse();
        }
        volume.remove(&of_class[0]).unwrap();
        let engine = bench.open(Arc::new(volume.clone()));
        let mut needs = engine.locked_needs().unwrap();
        let mut is_whole = |id: &str| needs.of(id.parse().unwrap(), &mut |_| true).unwrap().unwrap().is_whole;
        assert_eq!((is_whole(&first), is_whole(&second)), (!takes_the_first, false), "{class}");
        // Also when answered from nodes that were read for the first one.
        assert!(!is_whole(&second));
    }
}
