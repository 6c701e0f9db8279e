//! (K7) Containers and points sealed with a key that is not here: passed by, named, and whole once the key is back.

use std::sync::Arc;

use holdfast_volume::{Blob, BlobName, MemoryVolume, Volume, VolumeError};
use parking_lot::Mutex;

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::container::ContainerName;
use crate::engine::Engine;
use crate::{CheckOptions, NoProgress};

const MIB: usize = 1 << 20;

/// The key of what is named is missing.
#[derive(Debug, Clone)]
struct Keyless {
    inner: Arc<MemoryVolume>,
    locked: Arc<Mutex<Vec<BlobName>>>,
}

impl Volume for Keyless {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        if self.locked.lock().contains(name) {
            return Err(VolumeError::without_key(name, "data key 7 is not among the keys"));
        }
        self.inner.open(name)
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, space, handles_outlive_removal to inner);
}

fn crash(engine: Engine) {
    drop(engine);
}

/// A container that no key opens does not hold the repair of the index up, and is whole once its key is back.
#[test]
fn a_repair_of_the_index_passes_by_what_no_key_opens() {
    let bench = Bench::new();
    let memory = MemoryVolume::new();
    let keyless = Keyless { inner: Arc::new(memory.clone()), locked: Arc::default() };
    let engine = bench.open(Arc::new(keyless.clone()));
    let (first, second) = (noise(1, 9 * MIB), noise(2, 9 * MIB));
    let one = backup(&engine, "web", &[("root", &first)]).unwrap();
    let of_first = containers(&engine);
    let two = backup(&engine, "db", &[("root", &second)]).unwrap();
    engine.core_index_checkpoint().unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    super::index_pages::spoil(&memory, usize::MAX);
    keyless.locked.lock().clone_from(&of_first);
    let engine = bench.open(Arc::new(keyless.clone()));
    assert!(engine.opened().clean, "nothing was looked for");
    assert!(restore(&engine, &two.backup_id, "root").unwrap() == second, "by a repair that ends");
    let (core, _) = engine.parts();
    assert!(core.store.index.verify().is_ok() && !core.store.has_damage());
    // With its key the next start reads its directory, also after a stop that was clean otherwise.
    engine.shutdown().unwrap();
    drop(engine);
    keyless.locked.lock().clear();
    let engine = bench.open(Arc::new(keyless));
    assert!(restore(&engine, &one.backup_id, "root").unwrap() == first);
    assert!(restore(&engine, &two.backup_id, "root").unwrap() == second);
    assert!(engine.check(CheckOptions::default(), &NoProgress).unwrap().is_sound());
}

/// A start that passed a container by leaves no mark: the one that has the key has to meet it.
#[test]
fn a_clean_stop_does_not_forget_what_was_passed_by() {
    let bench = Bench::new();
    let memory = MemoryVolume::new();
    let keyless = Keyless { inner: Arc::new(memory.clone()), locked: Arc::default() };
    let engine = bench.open(Arc::new(keyless.clone()));
    let disk = noise(1, 9 * MIB);
    let one = backup(&engine, "web", &[("root", &disk)]).unwrap();
    keyless.locked.lock().clone_from(&containers(&engine));
    crash(engine);
    for name in holdfast_volume::testing::list(&memory, "index") {
        memory.remove(&name.name).unwrap();
    }
    let engine = bench.open(Arc::new(keyless.clone()));
    assert!(engine.opened().containers_without_key > 0);
    engine.shutdown().unwrap();
    drop(engine);
    keyless.locked.lock().clear();
    let engine = bench.open(Arc::new(keyless));
    assert!(restore(&engine, &one.backup_id, "root").unwrap() == disk);
}

/// The files of all containers that the catalog knows.
fn containers(engine: &Engine) -> Vec<BlobName> {
    let (core, _) = engine.parts();
    let all = core.catalog.all_containers().map(Result::unwrap);
    all.map(|one| ContainerName { id: one.id, class: one.class }.blob()).collect()
}

#[test]
fn what_no_key_opens_keeps_nothing_else_from_being_read() {
    let bench = Bench::new();
    let memory = MemoryVolume::new();
    let keyless = Keyless { inner: Arc::new(memory.clone()), locked: Arc::default() };
    let engine = bench.open(Arc::new(keyless.clone()));
    let (first, second) = (noise(1, 9 * MIB), noise(2, 9 * MIB));
    let one = backup(&engine, "web", &[("root", &first)]).unwrap();
    let of_first = containers(&engine);
    let two = backup(&engine, "db", &[("root", &second)]).unwrap();
    crash(engine);
    // The index is gone, so that all containers are looked at.
    for name in holdfast_volume::testing::list(&memory, "index") {
        memory.remove(&name.name).unwrap();
    }
    keyless.locked.lock().clone_from(&of_first);
    let engine = bench.open(Arc::new(keyless.clone()));
    assert_eq!(engine.opened().containers_without_key, of_first.len() as u64);
    assert_eq!(engine.opened().damaged_containers, 0);
    let audited = engine.audit(&NoProgress).unwrap();
    assert_eq!((audited.containers_without_key, audited.damaged_containers), (of_first.len() as u64, 0));
    assert!(restore(&engine, &two.backup_id, "root").unwrap() == second);
    let report = engine.check(CheckOptions::default(), &NoProgress).unwrap();
    assert!(report.problems.iter().any(|problem| problem.what.contains("data key 7")), "{report:?}");
    crash(engine);
    // With its key all is as it was.
    keyless.locked.lock().clear();
    let engine = bench.open(Arc::new(keyless));
    assert!(restore(&engine, &one.backup_id, "root").unwrap() == first);
    assert!(restore(&engine, &two.backup_id, "root").unwrap() == second);
    assert!(engine.check(CheckOptions::default(), &NoProgress).unwrap().is_sound());
}
