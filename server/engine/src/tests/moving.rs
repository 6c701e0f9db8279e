//! Containers that only old restore points need may be kept only in the bucket.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_types::ids::ContainerClass;
use holdfast_volume::{Blob, BlobName, Ends, MemoryVolume, Space, Volume, VolumeError};
use parking_lot::Mutex;

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::container::{ContainerName, list_containers};
use crate::engine::Engine;
use crate::jobs::Budget;
use crate::jobs::NoProgress;
use crate::reclaim::{Control, Moving, ReclaimOptions, ReclaimReport};

const MIB: usize = 1 << 20;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// A volume whose containers can lie far away but for their ends, and that counts what is read there.
#[derive(Debug, Clone)]
struct Tiered {
    inner: MemoryVolume,
    far: Arc<Mutex<BTreeSet<BlobName>>>,
    ends: Arc<Mutex<Ends>>,
    read_far: Arc<Mutex<u64>>,
    /// Number of moves that still succeed.
    works: Arc<Mutex<usize>>,
    /// A container whose copy in the bucket differs.
    differs: Arc<Mutex<Option<BlobName>>>,
    /// The volume does not say whether what it wrote is durable.
    is_unsure: Arc<Mutex<bool>>,
    free_pct: u64,
}

#[derive(Debug)]
struct FarBlob {
    inner: Arc<dyn Blob>,
    ends: Ends,
    read_far: Arc<Mutex<u64>>,
}

impl Blob for FarBlob {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let end = offset + buffer.len() as u64;
        let is_here = end <= self.ends.head || offset >= self.len().saturating_sub(self.ends.tail);
        *self.read_far.lock() += u64::from(!is_here);
        self.inner.read_at(offset, buffer)
    }

    fn is_at_hand(&self) -> bool {
        false
    }

    fn drop_cached(&self) {
        self.inner.drop_cached();
    }
}

impl Volume for Tiered {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let inner = self.inner.open(name)?;
        if !self.far.lock().contains(name) {
            return Ok(inner);
        }
        Ok(Arc::new(FarBlob { inner, ends: *self.ends.lock(), read_far: Arc::clone(&self.read_far) }))
    }

    fn evict(&self, name: &BlobName, ends: Ends) -> Result<bool, VolumeError> {
        if self.differs.lock().as_ref() == Some(name) {
            return Err(VolumeError::BadAnswer {
                action: "move",
                name: name.to_string(),
                found: "another".into(),
            });
        }
        if *self.is_unsure.lock() {
            return Err(VolumeError::NotDurable { name: name.to_string(), source: "a test".into() });
        }
        let mut works = self.works.lock();
        let Some(left) = works.checked_sub(1) else {
            return Err(VolumeError::Unavailable {
                action: "move",
                name: name.to_string(),
                source: "away".into(),
            });
        };
        *works = left;
        *self.ends.lock() = ends;
        Ok(self.far.lock().insert(name.clone()))
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        Ok(Some(Space { total_bytes: 100 << 33, free_bytes: self.free_pct << 33 }))
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, handles_outlive_removal to inner);
}

struct Scene {
    bench: Bench,
    volume: Tiered,
    engine: Engine,
}

impl Scene {
    fn new() -> Self {
        let bench = Bench::new();
        let volume = Tiered {
            inner: MemoryVolume::new(),
            far: Arc::default(),
            ends: Arc::new(Mutex::new(Ends { head: 0, tail: 0 })),
            read_far: Arc::default(),
            works: Arc::new(Mutex::new(usize::MAX)),
            differs: Arc::default(),
            is_unsure: Arc::default(),
            free_pct: 50,
        };
        let engine = bench.open(Arc::new(volume.clone()));
        Self { bench, volume, engine }
    }

    fn backup(&self, vm: &str, disk: &[u8]) -> String {
        backup(&self.engine, vm, &[("root", disk)]).unwrap().backup_id
    }

    fn reclaim(&self, until_free_pct: u8) -> ReclaimReport {
        let moving = Some(Moving { min_age_days: 30, until_free_pct });
        let options = ReclaimOptions { moving, ..ReclaimOptions::default() };
        self.engine.reclaim(&options, &Arc::new(Control::default())).unwrap()
    }

    /// Data containers, and how many of them lie far away.
    fn data(&self) -> (usize, usize) {
        let all = list_containers(&self.volume.inner).unwrap().containers;
        let data = all.into_iter().map(|(name, _)| name).filter(|name| name.class == ContainerClass::Data);
        let names: Vec<BlobName> = data.map(ContainerName::blob).collect();
        let far = self.volume.far.lock();
        (names.len(), names.iter().filter(|name| far.contains(name)).count())
    }

    fn reads_far(&self) -> u64 {
        std::mem::take(&mut *self.volume.read_far.lock())
    }
}

#[test]
fn what_only_old_restore_points_need_is_moved_and_comes_back_when_it_is_read() {
    let scene = Scene::new();
    let (web, db) = (noise(1, 9 * MIB), noise(2, 9 * MIB));
    let old_web = scene.backup("web", &web);
    let old_db = scene.backup("db", &db);
    assert_eq!(scene.reclaim(100).moved_containers, 0, "all of it is young");
    scene.bench.clock.advance_ms(40 * DAY_MS);
    let changed = [&web[..5 * MIB], &noise(3, 4 * MIB)[..]].concat();
    let new_web = scene.backup("web", &changed);
    let before = scene.data();
    assert_eq!(before, (3, 0));

    assert_eq!(scene.reclaim(0).moved_containers, 0, "there is room enough");
    let report = scene.reclaim(100);
    assert_eq!((report.moved_containers, &report.moving_failed), (1, &None), "what the new one needs stays");
    assert!(report.moved_bytes >= 9 * MIB as u64);
    assert_eq!(scene.data(), (3, 1));
    assert_eq!(scene.reclaim(100).moved_containers, 0, "once");

    // Young ones are read here, old ones from there; looking for chunks asks nothing of it.
    assert_eq!(scene.reads_far(), 0);
    assert_eq!(restore(&scene.engine, &new_web, "root").unwrap(), changed);
    assert_eq!(restore(&scene.engine, &old_web, "root").unwrap(), web);
    assert_eq!(scene.reads_far(), 0);
    assert_eq!(restore(&scene.engine, &old_db, "root").unwrap(), db);
    assert!(scene.reads_far() > 0);
}

#[test]
fn upkeep_reads_nothing_far_away() {
    let scene = Scene::new();
    let (first, second) = (noise(1, 9 * MIB), noise(2, 9 * MIB));
    let old = scene.backup("web", &first);
    scene.backup("db", &second);
    scene.bench.clock.advance_ms(40 * DAY_MS);
    assert_eq!(scene.reclaim(100).moved_containers, 2);
    let found = scene.engine.scrub(&Budget::unlimited(), &NoProgress).unwrap();
    assert_eq!((found.far_containers, found.far_restore_points), (2, 2), "{found:?}");
    assert_eq!((found.containers, found.restore_points), (2, 2), "recipes are here: {found:?}");
    assert_eq!((found.unsound_restore_points, found.unclear), (0, 0), "{found:?}");
    let summary = scene.engine.catalog().proof_summary().unwrap();
    assert_eq!(
        (summary.backups_unproven, summary.containers_unproven),
        (2, 2),
        "no one says that what was not read is sound"
    );
    assert_eq!(scene.reads_far(), 0);

    // Half of it is dead: it stays until all is.
    let changed = [&first[..4 * MIB], &noise(3, 5 * MIB)[..]].concat();
    scene.backup("web", &changed);
    scene.engine.delete_backups(&[old.parse().unwrap()], "test", "not needed").unwrap();
    let report = scene.reclaim(0);
    assert_eq!(scene.data(), (3, 2), "{report:?}");
    assert!(report.dead_bytes > 4 * MIB as u64 && report.cleanable_bytes < MIB as u64, "{report:?}");
    assert_eq!(scene.reads_far(), 0);
    for backup in scene.engine.catalog().all_backup_ids() {
        scene.engine.delete_backups(&[backup.unwrap()], "test", "not needed").unwrap();
    }
    scene.reclaim(0);
    assert_eq!(scene.data(), (0, 0));
    assert_eq!(scene.reads_far(), 0);
}

#[test]
fn moving_ends_when_the_far_place_is_away_and_goes_on_later() {
    let scene = Scene::new();
    let disks: Vec<Vec<u8>> = (1..=3).map(|seed| noise(seed, 9 * MIB)).collect();
    let backups: Vec<String> =
        ["a", "b", "c"].iter().zip(&disks).map(|(vm, disk)| scene.backup(vm, disk)).collect();
    scene.bench.clock.advance_ms(31 * DAY_MS);
    *scene.volume.works.lock() = 1;
    let report = scene.reclaim(100);
    assert_eq!(report.moved_containers, 1);
    assert!(report.moving_failed.is_some_and(|why| why.contains("away")));
    *scene.volume.works.lock() = usize::MAX;
    assert_eq!(scene.reclaim(100).moved_containers, 2);
    for (backup, disk) in backups.iter().zip(&disks) {
        assert_eq!(restore(&scene.engine, backup, "root").unwrap(), *disk);
    }
}

/// One container that is damaged here keeps no other from going, and is known to be damaged.
#[test]
fn what_is_not_the_same_here_and_there_stays_and_the_others_go() {
    let scene = Scene::new();
    let disks: Vec<Vec<u8>> = (1..=3).map(|seed| noise(seed, 9 * MIB)).collect();
    for (vm, disk) in ["a", "b", "c"].iter().zip(&disks) {
        scene.backup(vm, disk);
    }
    scene.bench.clock.advance_ms(31 * DAY_MS);
    let all = list_containers(&scene.volume.inner).unwrap().containers.into_iter().map(|(name, _)| name);
    let first = all.filter(|name| name.class == ContainerClass::Data).min_by_key(|name| name.id).unwrap();
    let mut bytes = scene.volume.inner.get(&first.blob()).unwrap().to_vec();
    bytes[1 << 20] ^= 1;
    scene.volume.inner.replace(&first.blob(), bytes);
    *scene.volume.differs.lock() = Some(first.blob());
    let report = scene.reclaim(100);
    assert_eq!(report.moved_containers, 2);
    assert!(report.moving_failed.is_some_and(|why| why.contains("another")));
    assert!(!scene.engine.core().store.known_damage(first.id).is_empty());
}

/// (W9) Moving writes, so what it does not know to be durable stops all writing, and nothing is moved after that.
#[test]
fn a_failed_flush_while_moving_stops_writing() {
    let scene = Scene::new();
    scene.backup("web", &noise(1, 9 * MIB));
    scene.bench.clock.advance_ms(31 * DAY_MS);
    *scene.volume.is_unsure.lock() = true;
    assert_eq!(scene.reclaim(100).moved_containers, 0);
    assert!(scene.engine.core().health.read_only_reason().is_some());
    *scene.volume.is_unsure.lock() = false;
    let names = list_containers(&scene.volume.inner).unwrap().containers;
    let (name, _) = names.into_iter().find(|(name, _)| name.class == ContainerClass::Data).unwrap();
    scene.engine.core().volume.evict(&name.blob(), Ends { head: 0, tail: 0 }).unwrap_err();
    assert_eq!(scene.data(), (1, 0));
}

/// Parity is made of what is here; what is not would have to be read as a whole.
#[test]
fn parity_is_made_of_what_is_here() {
    #[derive(Debug)]
    struct Never;
    impl crate::scrub::Load for Never {
        fn is_busy(&self) -> bool {
            false
        }
    }
    let scene = Scene::new();
    scene.backup("a", &noise(1, 3 * MIB));
    scene.backup("b", &noise(2, 3 * MIB));
    scene.bench.clock.advance_ms(40 * DAY_MS);
    assert_eq!(scene.reclaim(100).moved_containers, 2);
    scene.backup("c", &noise(3, 3 * MIB));
    scene.backup("d", &noise(4, 3 * MIB));
    scene.bench.clock.advance_ms(2 * DAY_MS);
    let job = scene.engine.parity_job(crate::parity_job::ParityScheme::new(2, 1), Arc::new(Never));
    while job.step(&Budget::unlimited()).unwrap() == crate::jobs::Step::More {}
    assert_eq!(scene.reads_far(), 0);
    let totals = scene.engine.catalog().parity_totals().unwrap();
    assert_eq!(totals.containers, 2 + 4, "data that is here, and recipes");
}
