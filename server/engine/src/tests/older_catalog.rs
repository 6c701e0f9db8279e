//! (S10, G10) An older copy of the catalog is put back: what was deleted since stays so, and nothing is taken for lost.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_types::ids::{BackupId, ContainerClass};
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};
use holdfast_volume::{BlobName, MemoryVolume, Volume as _, list_all};

use super::agent::{backup, restore, restore_past_damage};
use super::reclaim::reclaim;
use super::{Bench, noise};
use crate::check::CheckOptions;
use crate::container::ContainerName;
use crate::engine::Engine;
use crate::jobs::Budget;
use crate::jobs::NoProgress;

const SIZE: usize = 100_000;

struct Scene {
    bench: Bench,
    volume: MemoryVolume,
    /// Restore points by the number of their VM.
    points: Vec<(u64, BackupId)>,
}

impl Scene {
    /// `count` VMs, a restore point each, and the catalog as it is after that.
    fn new(count: u64) -> (Self, Vec<u8>) {
        let mut scene = Self { bench: Bench::new(), volume: MemoryVolume::new(), points: Vec::new() };
        let engine = scene.open();
        scene.points = (0..count).map(|vm| (vm, made(&engine, vm))).collect();
        engine.shutdown().unwrap();
        drop(engine);
        let copy = std::fs::read(scene.database()).unwrap();
        (scene, copy)
    }

    fn open(&self) -> Engine {
        self.bench.open(Arc::new(self.volume.clone()))
    }

    fn database(&self) -> PathBuf {
        self.bench.folder.path().join("catalog.db")
    }

    fn put_back(&self, copy: &[u8]) {
        for file in ["catalog.db-wal", "catalog.db-shm"] {
            let _ = std::fs::remove_file(self.bench.folder.path().join(file));
        }
        std::fs::write(self.database(), copy).unwrap();
    }

    fn is_whole(&self, engine: &Engine) {
        let mut ids: Vec<BackupId> = engine.catalog().all_backup_ids().map(Result::unwrap).collect();
        let mut expected: Vec<BackupId> = self.points.iter().map(|(_, id)| *id).collect();
        ids.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ids, expected);
        for (vm, id) in &self.points {
            assert!(restore(engine, &id.to_string(), "root").unwrap() == noise(*vm, SIZE), "{id}");
        }
        assert_eq!((engine.read_only_reason(), engine.not_ready().as_slice()), (None, [].as_slice()));
        let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
        assert!(report.is_sound() && report.healed.is_empty(), "{report:?}");
    }
}

fn made(engine: &Engine, vm: u64) -> BackupId {
    let disk = noise(vm, SIZE);
    backup(engine, &format!("vm-{vm}"), &[("root", &disk)]).unwrap().backup_id.parse().unwrap()
}

fn forget_generation(volume: &MemoryVolume) -> usize {
    let names: Vec<BlobName> =
        list_all(volume, &BlobName::new("generation").unwrap()).map(|entry| entry.unwrap().name).collect();
    names.iter().for_each(|name| volume.remove(name).unwrap());
    names.len()
}

/// Forty containers go: more than a start takes for lost.
#[test]
fn what_was_deleted_and_reclaimed_stays_deleted() {
    for restarted in [false, true] {
        let (mut scene, copy) = Scene::new(24);
        let engine = scene.open();
        let gone: Vec<BackupId> = scene.points.drain(4..).map(|(_, id)| id).collect();
        engine.delete_backups(&gone, "op", "not needed").unwrap();
        assert_eq!(reclaim(&engine).containers_deleted, 40);
        if restarted {
            engine.shutdown().unwrap();
        }
        drop(engine);
        scene.put_back(&copy);
        let engine = scene.open();
        assert_eq!(engine.opened().dropped_points, 20);
        scene.is_whole(&engine);
        scene.points.push((50, made(&engine, 50)));
        assert_eq!(reclaim(&engine).containers_deleted, 0);
        engine.shutdown().unwrap();
        drop(engine);
        // They agree from here on.
        let engine = scene.open();
        assert!(engine.opened().clean && engine.opened().dropped_points == 0);
        scene.is_whole(&engine);
    }
}

/// (V3) A container is lost together with its row: nothing says that it ever was, but the restore point that lacks it.
#[test]
fn what_is_lost_with_its_row_is_named() {
    let (mut scene, copy) = Scene::new(2);
    let before: Vec<BlobName> = containers(&scene.volume);
    let engine = scene.open();
    scene.points.push((7, made(&engine, 7)));
    drop(engine);
    scene.put_back(&copy);
    for name in containers(&scene.volume).into_iter().filter(|name| !before.contains(name)) {
        if name.as_str().ends_with(".data") {
            scene.volume.remove(&name).unwrap();
        }
    }
    let lost = scene.points[2].1;
    let mut engine = scene.open();
    assert_eq!(named(&engine), [lost], "what only the volume knew is looked through");
    for _ in 0..2 {
        drop(engine);
        engine = scene.open();
        assert_eq!(named(&engine), [lost], "a restart does not take it back");
    }
    // Only one that has it heals it: nothing is taken over from what lacks it.
    scene.points.push((1, made(&engine, 1)));
    assert_eq!(named(&engine), [lost]);
    scene.points.push((7, made(&engine, 7)));
    assert_eq!(named(&engine), []);
    scene.is_whole(&engine);
}

/// (V3) The same, met by a read: of the containers' rows, too, nothing is left, and the restore point is not new. Another of its
/// VM has the same data, and is the next backup's parent.
#[test]
fn what_a_read_finds_nowhere_is_named() {
    let reads: [fn(&Engine, BackupId); 3] = [
        |engine, _| {
            assert!(engine.scrub(&Budget::unlimited(), &NoProgress).unwrap().unsound_restore_points > 0);
        },
        |engine, id| drop(restore(engine, &id.to_string(), "root").unwrap_err()),
        |engine, id| drop(restore_past_damage(engine, &id.to_string(), "root")),
    ];
    for class in [ContainerClass::Data, ContainerClass::Recipe] {
        for read in reads {
            let (mut scene, _) = Scene::new(2);
            let engine = scene.open();
            let before = containers(&scene.volume);
            let mut both = [made(&engine, 7), made(&engine, 7)];
            both.sort_unstable();
            assert_eq!(named(&engine), []);
            for name in containers(&scene.volume).into_iter().filter(|name| !before.contains(name)) {
                let Some(name) = ContainerName::parse(&name).filter(|name| name.class == class) else {
                    continue;
                };
                engine.catalog().condemn_containers(&[name.id]).unwrap();
                engine.catalog().remove_condemned(&[name.id]).unwrap();
                scene.volume.remove(&name.blob()).unwrap();
            }
            drop(engine);
            let engine = scene.open();
            assert_eq!(named(&engine), [], "nothing tells of it");
            read(&engine, both[0]);
            assert_eq!(named(&engine), both);
            scene.points.extend([(7, both[0]), (7, both[1]), (7, made(&engine, 7))]);
            assert_eq!(named(&engine), [], "{class:?}");
            scene.is_whole(&engine);
        }
    }
}

/// (V3) A restore point that cannot be read now hides no loss of another.
#[test]
fn a_restore_point_that_cannot_be_read_now_is_passed_by() {
    let (mut scene, copy) = Scene::new(1);
    let before = containers(&scene.volume);
    let engine = scene.open();
    let hidden = made(&engine, 3);
    let between = containers(&scene.volume);
    let lost = made(&engine, 7);
    drop(engine);
    scene.put_back(&copy);
    let mut recipes = Vec::new();
    for name in containers(&scene.volume).into_iter().filter(|name| !before.contains(name)) {
        match ContainerName::parse(&name).unwrap().class {
            ContainerClass::Recipe if between.contains(&name) => recipes.push(name),
            ContainerClass::Data if !between.contains(&name) => scene.volume.remove(&name).unwrap(),
            _ => {}
        }
    }
    let faulty = Arc::new(FaultyVolume::new(scene.volume.clone()));
    let engine = scene.bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&faulty));
    for name in &recipes {
        faulty.refuse(name, Fault::NotReadableNow);
        engine.parts().0.store.containers.remove(ContainerName::parse(name).unwrap().id);
    }
    assert_eq!(named(&engine), [lost]);
    faulty.give();
    assert_eq!(named(&engine), [lost]);
    scene.points.extend([(3, hidden), (7, lost), (7, made(&engine, 7))]);
    assert_eq!(named(&engine), []);
}

fn named(engine: &Engine) -> Vec<BackupId> {
    engine.name_damage(10).unwrap().into_iter().map(|disk| disk.backup).collect()
}

fn containers(volume: &MemoryVolume) -> Vec<BlobName> {
    list_all(volume, &BlobName::new("containers").unwrap()).map(|entry| entry.unwrap().name).collect()
}

/// (S10) Settling raises the catalog's own number, past what the deletions since the copy had raised the volume's to.
#[test]
fn a_start_that_ends_while_the_catalog_is_settled_is_begun_anew() {
    let (mut scene, copy) = Scene::new(24);
    let engine = scene.open();
    let gone: Vec<BackupId> = scene.points.drain(4..).map(|(_, id)| id).collect();
    engine.delete_backups(&gone, "op", "not needed").unwrap();
    assert_eq!(reclaim(&engine).containers_deleted, 40);
    drop(engine);
    let mut ended = 0;
    for nth in 1..=12 {
        scene.put_back(&copy);
        let faulty = FaultyVolume::new(scene.volume.clone());
        faulty.fail_next(OpKind::List, nth, Fault::Unavailable);
        ended += u32::from(Engine::assemble(scene.bench.parts(Arc::new(faulty)).unwrap()).is_err());
        scene.is_whole(&scene.open());
    }
    assert!(ended > 0);
}

/// Reclaimed, though no restore point was deleted since the copy was made.
#[test]
fn rows_of_what_was_reclaimed_since_go() {
    let (mut scene, _) = Scene::new(24);
    let engine = scene.open();
    let gone: Vec<BackupId> = scene.points.drain(4..).map(|(_, id)| id).collect();
    engine.delete_backups(&gone, "op", "not needed").unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let copy = std::fs::read(scene.database()).unwrap();
    let engine = scene.open();
    assert_eq!(reclaim(&engine).containers_deleted, 40);
    drop(engine);
    scene.put_back(&copy);
    let engine = scene.open();
    scene.is_whole(&engine);
}

/// The catalog raises it first, so that a crash between the two is none of this; nor is a volume that lost it.
#[test]
fn a_crash_and_a_lost_number_are_no_older_catalog() {
    let (mut scene, _) = Scene::new(3);
    let engine = scene.open();
    let (_, gone) = scene.points.remove(2);
    engine.catalog().begin_deletion(&[gone], "op", "x").unwrap();
    drop(engine);
    let engine = scene.open();
    assert_eq!((engine.opened().dropped_points, engine.catalog().deletions(None, 9).unwrap().len()), (0, 0));
    scene.is_whole(&engine);
    drop(engine);
    assert_eq!(forget_generation(&scene.volume), 1);
    // A row without its point gets it again.
    let names: Vec<BlobName> =
        list_all(&scene.volume, &crate::points::folder()).map(|entry| entry.unwrap().name).collect();
    scene.volume.remove(&names[0]).unwrap();
    let engine = scene.open();
    engine.write_points().unwrap();
    scene.is_whole(&engine);
}

/// (W8) A start reserves numbers only after it has seen those that points know.
#[test]
fn a_point_of_later_numbers_says_that_the_catalog_is_older() {
    let (mut scene, copy) = Scene::new(3);
    let engine = scene.open();
    scene.points.push((50, made(&engine, 50)));
    let (_, gone) = scene.points.remove(0);
    engine.delete_backups(&[gone], "op", "not needed").unwrap();
    drop(engine);
    forget_generation(&scene.volume);
    scene.put_back(&copy);
    let engine = scene.open();
    assert_eq!((engine.opened().entered_points, engine.opened().dropped_points), (1, 1));
    scene.is_whole(&engine);
}

/// A full volume keeps nothing from being deleted, and few of the numbers are left there.
#[test]
fn numbers_are_raised_once_a_batch_and_go() {
    let (mut scene, _) = Scene::new(20);
    let engine = scene.open();
    let volume = scene.volume.clone();
    let count = || list_all(&volume, &BlobName::new("generation").unwrap()).count();
    let gone: Vec<BackupId> = scene.points.drain(..9).map(|(_, id)| id).collect();
    engine.delete_backups(&gone, "op", "x").unwrap();
    assert_eq!(count(), 1);
    for (_, id) in std::mem::take(&mut scene.points) {
        engine.delete_backups(&[id], "op", "x").unwrap();
        assert!((1..=8).contains(&count()), "{}", count());
    }
}
