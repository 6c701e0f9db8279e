//! Rows of containers that are gone, as a catalog put back from an older copy has them.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_types::ids::{ContainerClass, NamespaceId, SessionId};
use holdfast_volume::{BlobName, MemoryVolume, Volume as _};

use super::agent::{backup, request, restore, send_disk, starter};
use super::{Bench, namespace, noise};
use crate::check::CheckOptions;
use crate::container::{ContainerName, list_containers};
use crate::engine::Engine;
use crate::ingest::StartBackup;
use crate::jobs::NoProgress;
use crate::{DroppedRows, OnLoss, Work};

/// Backups given up, each of which leaves two containers: more than are believed to be lost.
const GIVEN_UP: u64 = 12;

fn give_up(engine: &Engine, namespace: NamespaceId, seed: u64) {
    let disk = noise(seed, 20_000);
    let asked = StartBackup { namespace, request: request("late", &[("root", &disk)]), starter: starter(1) };
    let session: SessionId = engine.start_backup(&asked).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(engine, session, &stream, 0, &disk).unwrap();
    drop(stream);
    engine.abort(session, "given up").unwrap();
}

/// Two namespaces with a restore point each and what backups left that were given up. Which containers these left.
struct Scene {
    bench: Bench,
    volume: MemoryVolume,
    kept: (String, Vec<u8>),
    berlin: NamespaceId,
    left: BTreeSet<BlobName>,
}

fn blobs(volume: &MemoryVolume) -> BTreeSet<BlobName> {
    list_containers(volume).unwrap().containers.into_iter().map(|(name, _)| name.blob()).collect()
}

fn scene() -> Scene {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let berlin = engine.catalog().ensure_namespace("berlin").unwrap().id;
    let disk = noise(1, 1 << 20);
    let kept = (backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id, disk);
    let needed = blobs(&volume);
    for seed in 100..100 + GIVEN_UP {
        give_up(&engine, namespace(&engine), seed);
        give_up(&engine, berlin, seed);
    }
    engine.shutdown().unwrap();
    let left = blobs(&volume).difference(&needed).cloned().collect();
    // Spoils the mark of the clean stop, so that the next start looks at everything, as after a recovery.
    volume.replace(&BlobName::new("index/clean-stop").unwrap(), &b"spoilt"[..]);
    Scene { bench, volume, kept, berlin, left }
}

impl Scene {
    fn recover(&self) -> DroppedRows {
        let mut parts = self.bench.parts(Arc::new(self.volume.clone())).unwrap();
        parts.options.on_loss = OnLoss::Hold;
        let engine = Engine::assemble(parts).unwrap();
        engine.drop_lost_rows(&NoProgress).unwrap()
    }

    fn start(&self) -> Engine {
        let engine = self.bench.open(Arc::new(self.volume.clone()));
        engine.audit(&NoProgress).unwrap();
        engine
    }
}

#[test]
fn rows_that_nothing_needs_are_dropped_by_a_recovery() {
    let scene = scene();
    for blob in &scene.left {
        scene.volume.remove(blob).unwrap();
    }
    let count = scene.left.len() as u64;
    assert!(count > 2 * 16, "{count}");
    assert_eq!(scene.recover(), DroppedRows { dropped: count, kept: 0 });
    let engine = scene.start();
    assert_eq!((engine.not_ready(), engine.catalog().damaged().unwrap()), (vec![], vec![]));
    assert_eq!(engine.catalog().all_containers().count(), blobs(&scene.volume).len());
    assert_eq!(engine.catalog().condemned_containers().unwrap(), []);
    assert!(restore(&engine, &scene.kept.0, "root").unwrap() == scene.kept.1);
    // Chunks that only the deleted containers held are sent again.
    let disk = noise(100, 20_000);
    let id = backup(&engine, "late", &[("root", &disk)]).unwrap().backup_id;
    assert!(restore(&engine, &id, "root").unwrap() == disk);
    assert!(engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap().is_sound());
}

/// It cannot be determined which of the missing containers held the needed chunks.
#[test]
fn rows_stay_where_a_restore_point_lacks_anything() {
    let scene = scene();
    let files = blobs(&scene.volume);
    for blob in &files {
        scene.volume.remove(blob).unwrap();
    }
    let in_berlin = scene.left.len() as u64 / 2;
    assert_eq!(scene.recover(), DroppedRows { dropped: in_berlin, kept: files.len() as u64 - in_berlin });
    let engine = scene.bench.open(Arc::new(scene.volume.clone()));
    let _ = engine.audit(&NoProgress);
    assert!(engine.catalog().all_containers().all(|row| row.unwrap().namespace != scene.berlin));
    assert!(engine.stopped().iter().any(|stopped| stopped.work == Work::Writing), "taken for absent");
    let (core, _) = engine.parts();
    assert!(core.store.has_open_damage(namespace(&engine)));
}

/// No file that was only away is remembered as lost, or has its row dropped.
#[test]
fn a_recovery_of_a_volume_that_is_not_complete_does_no_harm() {
    let scene = scene();
    let whole = scene.volume.snapshot();
    for blob in blobs(&scene.volume) {
        scene.volume.remove(&blob).unwrap();
    }
    scene.recover();
    let engine = scene.bench.open(Arc::new(whole));
    engine.audit(&NoProgress).unwrap();
    assert_eq!((engine.not_ready(), engine.catalog().damaged().unwrap()), (vec![], vec![]));
    assert!(restore(&engine, &scene.kept.0, "root").unwrap() == scene.kept.1);
}

/// A lost container that parity could reconstruct would be lost for good with its row.
#[test]
fn a_row_stays_whose_container_only_parity_can_make_again() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let disks: Vec<Vec<u8>> = (0..3).map(|vm| noise(vm, 2 << 20)).collect();
    let ids: Vec<String> = (0..)
        .zip(&disks)
        .map(|(vm, disk)| backup(&engine, &format!("vm-{vm}"), &[("root", disk)]).unwrap().backup_id)
        .collect();
    super::parity::work(&bench, &engine, super::parity::scheme(3, 1));
    for class in [ContainerClass::Data, ContainerClass::Recipe] {
        let of_class = |name: &&ContainerName| name.class == class;
        let all: Vec<ContainerName> =
            list_containers(&volume).unwrap().containers.into_iter().map(|(name, _)| name).collect();
        volume.remove(&all.iter().find(of_class).unwrap().blob()).unwrap();
    }
    drop(engine);
    let scene = Scene {
        kept: (String::new(), vec![]),
        berlin: NamespaceId(ulid::Ulid::nil()),
        left: BTreeSet::new(),
        bench,
        volume,
    };
    assert_eq!(scene.recover(), DroppedRows { dropped: 0, kept: 2 });
    let engine = scene.start();
    assert_eq!(engine.catalog().parity_totals().unwrap().groups, 2);
    super::parity::work(&scene.bench, &engine, super::parity::scheme(3, 1));
    assert!(engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap().is_sound());
    for (id, disk) in ids.iter().zip(&disks) {
        assert!(restore(&engine, id, "root").unwrap() == *disk);
    }
}

/// Chunks that only a damaged container has need that container; for rows without a file it cannot be determined what
/// they had.
#[test]
fn rows_stay_where_a_restore_point_lives_on_what_is_left_of_a_damaged_container() {
    let scene = scene();
    for blob in &scene.left {
        scene.volume.remove(blob).unwrap();
    }
    let needed = blobs(&scene.volume).into_iter().next().unwrap();
    let mut bytes = scene.volume.get(&needed).unwrap().to_vec();
    bytes[33] ^= 2;
    scene.volume.replace(&needed, bytes);
    let in_berlin = scene.left.len() as u64 / 2;
    assert_eq!(scene.recover(), DroppedRows { dropped: in_berlin, kept: in_berlin });
}
