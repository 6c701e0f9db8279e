//! Containers in the archive of a bucket: no one relies on them, reads them or calls them damaged.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use holdfast_types::clock::Clock as _;
use holdfast_types::ids::{BackupId, ContainerClass};
use holdfast_volume::{Blob, BlobName, ColdPlace, Ends, MemoryVolume, Space, Volume, VolumeError};
use parking_lot::Mutex;

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::container::{RecentDirectories, list_containers};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::reclaim::{Control, Freezing, FreezingRule, Moving, ReclaimOptions, ReclaimReport};

const MIB: usize = 1 << 20;
const DAY_MS: i64 = 24 * 3600 * 1000;

#[derive(Debug, Default)]
struct Places {
    far: BTreeSet<BlobName>,
    cold: BTreeSet<BlobName>,
    /// Blobs of `cold` that may not be cold.
    unsure: BTreeSet<BlobName>,
    /// Answers to freezing that fail, and what becomes of what was asked for.
    failures: Vec<(VolumeError, bool)>,
    thawed: bool,
    ends: Option<Ends>,
    /// Reads of what is cold that were tried.
    refused: u64,
}

/// A volume whose containers can lie far away but for their ends, and there in an archive.
#[derive(Debug, Clone)]
struct Tiered {
    inner: MemoryVolume,
    places: Arc<Mutex<Places>>,
}

#[derive(Debug)]
struct FarBlob {
    name: BlobName,
    inner: Arc<dyn Blob>,
    places: Arc<Mutex<Places>>,
}

impl Blob for FarBlob {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let mut places = self.places.lock();
        let end = offset + buffer.len() as u64;
        let ends = places.ends.unwrap();
        let is_here = end <= ends.head || offset >= self.len().saturating_sub(ends.tail);
        if !is_here && places.cold.contains(&self.name) && !places.thawed {
            places.refused += 1;
            return Err(VolumeError::archived(&self.name, "thaw it"));
        }
        drop(places);
        self.inner.read_at(offset, buffer)
    }

    fn is_at_hand(&self) -> bool {
        false
    }

    fn drop_cached(&self) {
        self.inner.drop_cached();
    }

    fn cold(&self) -> Option<ColdPlace> {
        let places = self.places.lock();
        let is_certain = !places.unsure.contains(&self.name);
        let place =
            ColdPlace { name: self.name.clone(), len: self.len(), is_readable: places.thawed, is_certain };
        places.cold.contains(&self.name).then_some(place)
    }
}

impl Volume for Tiered {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let inner = self.inner.open(name)?;
        if !self.places.lock().far.contains(name) {
            return Ok(inner);
        }
        Ok(Arc::new(FarBlob { name: name.clone(), inner, places: Arc::clone(&self.places) }))
    }

    fn evict(&self, name: &BlobName, ends: Ends) -> Result<bool, VolumeError> {
        let mut places = self.places.lock();
        let most = places.ends.map_or(ends, |known| Ends { tail: known.tail.max(ends.tail), ..ends });
        places.ends = Some(most);
        Ok(places.far.insert(name.clone()))
    }

    fn freeze(&self, name: &BlobName) -> Result<bool, VolumeError> {
        let mut places = self.places.lock();
        assert!(places.far.contains(name), "{name} is here");
        if let Some((error, may_be_cold)) = places.failures.pop() {
            if may_be_cold {
                places.cold.insert(name.clone());
                places.unsure.insert(name.clone());
            }
            return Err(error);
        }
        let was_unsure = places.unsure.remove(name);
        Ok(places.cold.insert(name.clone()) || was_unsure)
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        Ok(Some(Space { total_bytes: 100 << 33, free_bytes: 50 << 33 }))
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, handles_outlive_removal to inner);
}

struct Scene {
    bench: Bench,
    volume: Tiered,
    engine: Engine,
    rules: Vec<FreezingRule>,
    /// Restore points that will be deleted soon.
    leaving: Arc<HashSet<BackupId>>,
}

impl Scene {
    fn new() -> Self {
        let bench = Bench::new();
        let volume = Tiered { inner: MemoryVolume::new(), places: Arc::default() };
        let engine = bench.open(Arc::new(volume.clone()));
        Self { bench, volume, engine, rules: Vec::new(), leaving: Arc::default() }
    }

    fn backup(&self, vm: &str, disk: &[u8]) -> String {
        backup(&self.engine, vm, &[("root", disk)]).unwrap().backup_id
    }

    fn restore(&self, backup: &str) -> Result<Vec<u8>, EngineError> {
        restore(&self.engine, backup, "root")
    }

    fn reclaim(&self) -> ReclaimReport {
        let moving = Some(Moving { min_age_days: 30, until_free_pct: 100 });
        let (rules, leaving) = (self.rules.clone(), Arc::clone(&self.leaving));
        let freezing = Some(Freezing { min_age_days: 30, rules, leaving });
        let options = ReclaimOptions { moving, freezing, ..ReclaimOptions::default() };
        self.engine.reclaim(&options, &Arc::new(Control::default())).unwrap()
    }

    fn cold_bytes(&self, backup: &str) -> u64 {
        let id = backup.parse().unwrap();
        let namespace = self.engine.catalog().backup(id).unwrap().unwrap().namespace;
        let parts = self.engine.cold_parts(namespace, id, "root", &mut || true).unwrap().unwrap();
        parts.iter().map(|part| part.len).sum()
    }
}

/// Plain bytes of a restore point here, far away and in the archive, as of now.
fn places(scene: &Scene, backup: &str) -> (u64, u64, u64) {
    scene.engine.note_places(&Control::default()).unwrap();
    let found = scene.engine.catalog().backup_places(&[backup.parse().unwrap()]).unwrap().pop().unwrap();
    assert_eq!(found.at_ms, scene.bench.clock.now_ms());
    (found.here_bytes, found.bucket_bytes, found.archive_bytes)
}

/// Holes and zeros lie nowhere; what restore points share lies in one place for all of them.
#[test]
fn a_restore_point_knows_where_its_data_lies() {
    let scene = Scene::new();
    let all = 9 * MIB as u64;
    let mut disk = noise(7, 9 * MIB);
    disk.resize(14 * MIB, 0);
    let old = scene.backup("web", &disk);
    assert_eq!(places(&scene, &old), (all, 0, 0));
    scene.bench.clock.advance_ms(40 * DAY_MS);
    let moving = Some(Moving { min_age_days: 30, until_free_pct: 100 });
    let options = ReclaimOptions { moving, ..ReclaimOptions::default() };
    scene.engine.reclaim(&options, &Arc::new(Control::default())).unwrap();
    assert_eq!(places(&scene, &old), (0, all, 0));
    // Containers that are only in the bucket and warm can be relied on.
    let mut changed = disk.clone();
    changed[..4 * MIB].copy_from_slice(&noise(8, 4 * MIB));
    let young = scene.backup("web", &changed);
    assert_eq!(places(&scene, &young), (4 << 20, 5 << 20, 0));
    scene.bench.clock.advance_ms(40 * DAY_MS);
    assert!(scene.reclaim().frozen_containers > 0);
    assert_eq!(places(&scene, &old), (0, 0, all));
    // A backup stores the cold chunks that it needs again, and the old restore point is read from the new copies, too.
    let again = scene.backup("web", &disk);
    assert_eq!((places(&scene, &again), places(&scene, &old)), ((all, 0, 0), (all, 0, 0)));
    scene.engine.forget_places().unwrap();
    assert_eq!(scene.engine.catalog().backup_places(&[old.parse().unwrap()]).unwrap(), []);
}

/// (T10) Neither as chunks, nor as extents that did not change.
#[test]
fn no_backup_counts_on_what_is_cold() {
    let scene = Scene::new();
    let disk = noise(1, 9 * MIB);
    let old = scene.backup("web", &disk);
    assert_eq!(scene.reclaim().frozen_containers, 0, "it is young");
    scene.bench.clock.advance_ms(40 * DAY_MS);
    let report = scene.reclaim();
    assert_eq!((report.frozen_containers, &report.freezing_failed), (1, &None));
    assert!(report.frozen_bytes >= 9 * MIB as u64);
    assert_eq!(scene.reclaim().frozen_containers, 0, "once");

    assert!(scene.cold_bytes(&old) >= 9 * MIB as u64);
    let refused = scene.restore(&old).unwrap_err();
    assert!(matches!(refused, EngineError::Archived(_)), "{refused:?}");
    assert!(scene.engine.catalog().damaged().unwrap().is_empty());

    let again = scene.backup("web", &disk);
    assert_eq!(scene.cold_bytes(&again), 0);
    assert!(scene.restore(&again).unwrap() == disk);
    // Warm copies are read, where there is a choice.
    assert_eq!(scene.cold_bytes(&old), 0);
    assert!(scene.restore(&old).unwrap() == disk);
    let other = scene.backup("db", &disk);
    assert!(scene.restore(&other).unwrap() == disk);
    // A readable copy stays, an archived one goes.
    let report = scene.reclaim();
    assert!(report.deleted_bytes >= 9 * MIB as u64, "{report:?}");
    for backup in [&old, &again, &other] {
        assert!(scene.restore(backup).unwrap() == disk);
    }
}

#[test]
fn what_was_thawed_is_read() {
    let scene = Scene::new();
    let disk = noise(2, 9 * MIB);
    let old = scene.backup("web", &disk);
    scene.bench.clock.advance_ms(40 * DAY_MS);
    assert_eq!(scene.reclaim().frozen_containers, 1);
    scene.volume.places.lock().thawed = true;
    assert!(scene.restore(&old).unwrap() == disk);
    assert!(scene.cold_bytes(&old) > 0, "it is there still");
    // Thawed or not, it will be cold again.
    let again = scene.backup("db", &disk);
    scene.volume.places.lock().thawed = false;
    assert!(scene.restore(&again).unwrap() == disk);
}

/// (T10) Containers that young restore points refer to stay, and so do those that a backup in progress relies on.
#[test]
fn what_is_counted_on_stays_warm() {
    let scene = Scene::new();
    let (web, db) = (noise(3, 9 * MIB), noise(4, 9 * MIB));
    scene.backup("web", &web);
    scene.backup("db", &db);
    scene.bench.clock.advance_ms(40 * DAY_MS);
    let core = scene.engine.core();
    let holds = &mut core.store.leftovers.holds();
    let namespace = scene.engine.catalog().namespace_by_name("default").unwrap().unwrap().id;
    let domain = core.store.domain(namespace);
    let all = list_containers(&scene.volume).unwrap().containers;
    let data = all.into_iter().map(|(name, _)| name).find(|name| name.class == ContainerClass::Data).unwrap();
    let (class, recent) = (ContainerClass::Data, &mut RecentDirectories::default());
    let chunk = *core.store.containers.get(data.id, class).unwrap().directory().fingerprint(0).unwrap();
    assert!(core.store.find_and_hold(&domain, class, &chunk, recent, holds).unwrap().is_some());
    assert_eq!(scene.reclaim().frozen_containers, 1, "the other one");
    holds.release();
    assert_eq!(scene.reclaim().frozen_containers, 1);
    assert!(core.store.find_and_hold(&domain, class, &chunk, recent, holds).unwrap().is_none());
}

/// (T10) After an answer that was lost a container counts as cold until the next round has asked again.
#[test]
fn what_may_be_cold_is_asked_for_again() {
    let scene = Scene::new();
    let disk = noise(6, 9 * MIB);
    let old = scene.backup("web", &disk);
    scene.bench.clock.advance_ms(40 * DAY_MS);
    let lost =
        VolumeError::OutcomeUnknown { action: "move", name: "it".to_owned(), source: "no answer".into() };
    scene.volume.places.lock().failures.push((lost, true));
    let report = scene.reclaim();
    assert_eq!((report.frozen_containers, report.freezing_failed.is_some()), (0, true));
    assert!(scene.cold_bytes(&old) > 0);
    assert_eq!(scene.reclaim().frozen_containers, 1);
    assert_eq!(scene.reclaim().frozen_containers, 0, "once");
    let again = scene.backup("db", &disk);
    assert_eq!(scene.cold_bytes(&again), 0, "nothing counts on it");
    assert!(scene.restore(&again).unwrap() == disk);
}

/// One object with which something is wrong does not keep the others, and goes on being counted on.
#[test]
fn what_is_wrong_with_one_keeps_no_other() {
    let scene = Scene::new();
    for (number, vm) in (7..).zip(["web", "db", "mail"]) {
        scene.backup(vm, &noise(number, 9 * MIB));
    }
    scene.bench.clock.advance_ms(40 * DAY_MS);
    let wrong = VolumeError::BadAnswer { action: "move", name: "it".to_owned(), found: "9 bytes".to_owned() };
    let gone = VolumeError::NotFound { name: BlobName::new("it").unwrap() };
    scene.volume.places.lock().failures.extend([(wrong, false), (gone, false)]);
    let report = scene.reclaim();
    assert_eq!((report.frozen_containers, report.freezing_failed.is_some()), (1, true));
    assert_eq!(scene.reclaim().frozen_containers, 2);
}

/// Restore points that will be deleted before the archive has paid off keep their containers where they are, with the
/// sum reported; containers that others need as well are frozen.
#[test]
fn what_will_be_deleted_soon_is_kept_back() {
    let mut scene = Scene::new();
    let (shared, only) = (noise(10, 9 * MIB), noise(11, 9 * MIB));
    let stays = scene.backup("web", &shared);
    let leaves = [scene.backup("copy", &shared), scene.backup("db", &only)];
    scene.bench.clock.advance_ms(40 * DAY_MS);
    scene.leaving = Arc::new(leaves.iter().map(|id| id.parse().unwrap()).collect());
    let report = scene.reclaim();
    assert_eq!((report.frozen_containers, report.kept_back_containers), (1, 1));
    assert!(report.kept_back_bytes >= 9 * MIB as u64);
    assert!(scene.cold_bytes(&stays) > 0 && scene.cold_bytes(&leaves[1]) == 0);
    assert!(scene.restore(&leaves[1]).unwrap() == only);
    // A policy that keeps more.
    scene.leaving = Arc::default();
    let report = scene.reclaim();
    assert_eq!((report.frozen_containers, report.kept_back_containers), (1, 0));
    assert!(scene.cold_bytes(&leaves[1]) > 0);
}

#[test]
fn upkeep_and_verification_ask_nothing_of_it() {
    let scene = Scene::new();
    let disk = noise(5, 9 * MIB);
    let old = scene.backup("web", &disk);
    scene.bench.clock.advance_ms(40 * DAY_MS);
    assert_eq!(scene.reclaim().frozen_containers, 1);
    let found = scene.engine.scrub(&crate::jobs::Budget::unlimited(), &crate::jobs::NoProgress).unwrap();
    assert_eq!((found.far_containers, found.unsound_restore_points), (1, 0), "{found:?}");
    scene.reclaim();
    assert_eq!(scene.volume.places.lock().refused, 0);
    // A server knows after a restart what is cold.
    let id = old.parse().unwrap();
    scene.engine.shutdown().unwrap();
    drop(scene.engine);
    let engine = scene.bench.open(Arc::new(scene.volume.clone()));
    let cold: Vec<BlobName> = scene.volume.places.lock().cold.iter().cloned().collect();
    engine.note_cold(&cold);
    let again = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    assert!(restore(&engine, &again, "root").unwrap() == disk);
    engine.delete_backups(&[id], "test", "not needed").unwrap();
    let report = engine.reclaim(&ReclaimOptions::default(), &Arc::new(Control::default())).unwrap();
    assert!(report.deleted_bytes >= 9 * MIB as u64, "dead is dead, cold or not: {report:?}");
}

/// The first rule that covers a restore point says when what it needs may go; what others need as well stays.
#[test]
fn rules_name_other_days_for_some() {
    let mut scene = Scene::new();
    let namespace = scene.engine.catalog().namespace_by_name("default").unwrap().unwrap().id;
    let rule = |vm: Option<&str>, min_age_days| FreezingRule {
        namespace,
        vm: vm.map(str::to_owned),
        job: None,
        min_age_days,
    };
    let [early, late, plain] = [("early", 6), ("late", 7), ("plain", 8)].map(|(vm, seed)| {
        let disk = noise(seed, 9 * MIB);
        (scene.backup(vm, &disk), disk)
    });
    scene.backup("other", &early.1);
    scene.rules = vec![
        rule(Some("early"), Some(40)),
        rule(Some("late"), Some(100)),
        rule(Some("plain"), None),
        rule(None, Some(50)),
    ];
    let pass = |scene: &Scene, days| scene.bench.clock.advance_ms(days * DAY_MS);
    pass(&scene, 35);
    assert_eq!(scene.reclaim().frozen_containers, 1, "as those that no rule is about");
    assert!(scene.cold_bytes(&plain.0) > 0);
    pass(&scene, 10);
    assert_eq!(scene.reclaim().frozen_containers, 0, "another one needs it, too");
    pass(&scene, 10);
    assert_eq!(scene.reclaim().frozen_containers, 1);
    assert!(scene.cold_bytes(&early.0) > 0);
    pass(&scene, 40);
    assert_eq!(scene.reclaim().frozen_containers, 0);
    assert!(scene.restore(&late.0).unwrap() == late.1);
    pass(&scene, 10);
    assert_eq!(scene.reclaim().frozen_containers, 1);
    assert!(scene.cold_bytes(&late.0) > 0);
}
