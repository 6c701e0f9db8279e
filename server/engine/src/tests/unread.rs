//! Points and containers that cannot be read: what they may say or need is kept, across restarts, until they can be.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_catalog::{AuditEntry, PageRequest};
use holdfast_types::clock::Clock as _;
use holdfast_types::ids::BackupId;
use holdfast_volume::testing::list;
use holdfast_volume::{Blob, BlobName, MemoryVolume, Volume, VolumeError};
use parking_lot::Mutex;

use super::agent::{backup, restore};
use super::{Bench, namespace, noise};
use crate::CheckOptions;
use crate::container::ContainerName;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::format::crc32c;
use crate::health::Obstacle;
use crate::jobs::NoProgress;
use crate::reclaim::{Control, ReclaimOptions};

const SIZE: usize = 200_000;
const YEAR_MS: i64 = 365 * 24 * 3600 * 1000;

/// Reason for which a blob is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Disk,
    Access,
    Archive,
    Key,
    Away,
}

const ALL: [Why; 5] = [Why::Disk, Why::Access, Why::Archive, Why::Key, Why::Away];

/// A volume on which the named blobs exist and cannot be read.
#[derive(Debug, Clone)]
struct Refusing {
    inner: Arc<MemoryVolume>,
    refused: Arc<Mutex<BTreeMap<BlobName, Why>>>,
}

impl Refusing {
    fn new() -> (Self, MemoryVolume) {
        let memory = MemoryVolume::new();
        (Self { inner: Arc::new(memory.clone()), refused: Arc::default() }, memory)
    }

    fn refuse(&self, names: &[BlobName], why: Why) {
        self.refused.lock().extend(names.iter().map(|name| (name.clone(), why)));
    }

    fn give(&self) {
        self.refused.lock().clear();
    }
}

impl Volume for Refusing {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let (action, text) = ("open", name.to_string());
        Err(match self.refused.lock().get(name) {
            None => return self.inner.open(name),
            Some(Why::Disk) => VolumeError::Io { action, name: text, source: "a bad sector".into() },
            Some(Why::Access) => VolumeError::NotReadableNow { name: text, source: "EACCES".into() },
            Some(Why::Archive) => VolumeError::archived(name, "in an archive"),
            Some(Why::Key) => VolumeError::without_key(name, "data key 7 is not among the keys"),
            Some(Why::Away) => VolumeError::Unavailable { action, name: text, source: "away".into() },
        })
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, space, handles_outlive_removal to inner);
}

fn made(engine: &Engine, vm: &str, seed: u64) -> BackupId {
    backup(engine, vm, &[("root", &noise(seed, SIZE))]).unwrap().backup_id.parse().unwrap()
}

/// The points of a restore point.
fn points_of(memory: &MemoryVolume, id: BackupId) -> Vec<BlobName> {
    let id = id.to_string().to_ascii_lowercase();
    list(memory, "points")
        .into_iter()
        .map(|one| one.name)
        .filter(|name| name.as_str().contains(&id))
        .collect()
}

fn copy_of_catalog(engine: &Engine) -> Vec<u8> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut *engine.catalog().snapshot(&Arc::default()).unwrap(), &mut bytes)
        .unwrap();
    bytes
}

fn put_back(bench: &Bench, catalog: &[u8]) {
    for file in ["catalog.db-wal", "catalog.db-shm"] {
        let _ = std::fs::remove_file(bench.folder.path().join(file));
    }
    std::fs::write(bench.folder.path().join("catalog.db"), catalog).unwrap();
}

fn reclaim(engine: &Engine) -> Result<u64, EngineError> {
    let options = ReclaimOptions { live_share_pct: 0, merge: false, ..ReclaimOptions::default() };
    Ok(engine.reclaim(&options, &Arc::new(Control::default()))?.containers_deleted)
}

/// (P6) Asserts that nothing is freed or destroyed, and readiness says so; backups go on.
fn assert_held(engine: &Engine, count: u64, what: &str) {
    assert_eq!(engine.opened().unreadable_points, count, "{what}");
    let error = reclaim(engine).unwrap_err();
    assert!(matches!(error, EngineError::NotReclaimable(_)), "{what}: {error}");
    let error = engine.empty_namespace(namespace(engine), "admin", "x").unwrap_err();
    assert!(matches!(error, EngineError::UnreadPoint(_)), "{what}: {error}");
    let obstacles: Vec<_> = engine.not_ready().iter().map(|found| found.obstacle).collect();
    assert_eq!(obstacles, [Obstacle::PointsUnread], "{what}");
}

/// (P6) An acknowledged restore point whose point cannot be read is neither forgotten by a clean stop nor freed.
#[test]
fn a_point_that_was_not_read_is_looked_for_until_it_is() {
    for why in ALL {
        let (bench, (volume, memory)) = (Bench::new(), Refusing::new());
        let engine = bench.open(Arc::new(volume.clone()));
        let first = made(&engine, "web", 1);
        let copy = copy_of_catalog(&engine);
        let id = made(&engine, "db", 2);
        engine.lock_backups(&[id], bench.clock.now_ms() + YEAR_MS, "admin").unwrap();
        drop(engine);
        put_back(&bench, &copy);
        volume.refuse(&points_of(&memory, id), why);
        for stop in 0..3 {
            let engine = bench.open(Arc::new(volume.clone()));
            let what = format!("{why:?}, start {stop}");
            assert_held(&engine, 1, &what);
            engine.write_points().unwrap();
            assert_held(&engine, 1, &what);
            let report = engine.check(CheckOptions::default(), &NoProgress).unwrap();
            let point = points_of(&memory, id).remove(0);
            assert!(report.problems.iter().any(|one| one.object == point.as_str()), "{what}: {report:?}");
            made(&engine, "web", 3 + stop);
            engine.shutdown().unwrap();
        }
        let engine = bench.open(Arc::new(volume.clone()));
        volume.give();
        assert!(engine.catalog().backup(id).unwrap().is_none());
        engine.write_points().unwrap();
        let row = engine.catalog().backup(id).unwrap().expect("read at last");
        assert!(row.lock.until_ms.is_some(), "{why:?}");
        assert!(restore(&engine, &id.to_string(), "root").unwrap() == noise(2, SIZE));
        assert_eq!(engine.not_ready(), []);
        reclaim(&engine).unwrap();
        for id in [first, id] {
            restore(&engine, &id.to_string(), "root").unwrap();
        }
        engine.shutdown().unwrap();
        drop(engine);
        let engine = bench.open(Arc::new(volume));
        assert!(engine.opened().clean, "{why:?}");
    }
}

/// The point's bytes, as a newer version would begin them.
fn of_newer_version(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[4] = 9;
    let crc = crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A lock that only the second revision of a point has, and a catalog that is older.
fn behind(bench: &Bench, volume: &Refusing, memory: &MemoryVolume) -> (BackupId, BlobName, i64) {
    let engine = bench.open(Arc::new(volume.clone()));
    let id = made(&engine, "web", 1);
    let copy = copy_of_catalog(&engine);
    let until_ms = bench.clock.now_ms() + 10 * YEAR_MS;
    engine.lock_backups(&[id], until_ms, "admin").unwrap();
    drop(engine);
    put_back(bench, &copy);
    let [name] = points_of(memory, id).try_into().unwrap();
    assert!(name.as_str().ends_with(".2"));
    (id, name, until_ms)
}

/// (P7) An unread point may lock the restore point: nothing replaces the point, and nothing deletes the restore point.
fn assert_kept(engine: &Engine, memory: &MemoryVolume, id: BackupId, name: &BlobName, what: &str) {
    assert_held(engine, 1, what);
    let refused = |done: Result<(), EngineError>| {
        let error = done.unwrap_err();
        assert!(matches!(error, EngineError::UnreadPoint(_)), "{what}: {error}");
    };
    refused(engine.delete_backups(&[id], "op", "x").map(drop));
    refused(engine.remove_vm(namespace(engine), "web", true, "op").map(drop));
    engine.rename_vm(namespace(engine), "web", "www", "op").unwrap();
    engine.rename_vm(namespace(engine), "www", "web", "op").unwrap();
    let _ = engine.retention_job().step(&crate::jobs::Budget::unlimited()).unwrap();
    engine.write_points().unwrap();
    engine.check(CheckOptions::default(), &NoProgress).unwrap();
    assert_eq!(points_of(memory, id), std::slice::from_ref(name), "{what}");
}

#[test]
fn a_revision_that_was_not_read_is_not_replaced() {
    for why in ALL {
        let (bench, (volume, memory)) = (Bench::new(), Refusing::new());
        let (id, name, until_ms) = behind(&bench, &volume, &memory);
        volume.refuse(std::slice::from_ref(&name), why);
        for start in 0..2 {
            let engine = bench.open(Arc::new(volume.clone()));
            assert_kept(&engine, &memory, id, &name, &format!("{why:?}, start {start}"));
            // (P8) Never what is not damaged for sure.
            engine.give_up_points(&[name.to_string()], "admin").unwrap_err();
            assert_kept(&engine, &memory, id, &name, &format!("{why:?}, not given up"));
            engine.shutdown().unwrap();
        }
        volume.give();
        let engine = bench.open(Arc::new(volume));
        assert_eq!(engine.catalog().backup(id).unwrap().unwrap().lock.until_ms, Some(until_ms), "{why:?}");
        assert!(matches!(engine.delete_backups(&[id], "op", "x"), Err(EngineError::Locked(_))));
    }
}

#[test]
fn a_revision_of_a_newer_version_is_neither_replaced_nor_given_up() {
    let (bench, (volume, memory)) = (Bench::new(), Refusing::new());
    let (id, name, _) = behind(&bench, &volume, &memory);
    let bytes = of_newer_version(&memory.get(&name).unwrap());
    memory.replace(&name, bytes);
    let engine = bench.open(Arc::new(volume));
    assert_kept(&engine, &memory, id, &name, "newer");
    let error = engine.give_up_points(&[name.to_string()], "admin").unwrap_err();
    assert!(matches!(error, EngineError::Unsupported(_)), "{error}");
    assert_kept(&engine, &memory, id, &name, "not given up");
}

/// (P8) A point proved damaged is removed when an administrator says so, and in no other way.
#[test]
fn a_damaged_revision_is_given_up_by_name_only() {
    let (bench, (volume, memory)) = (Bench::new(), Refusing::new());
    let (id, name, _) = behind(&bench, &volume, &memory);
    memory.replace(&name, &b"garbage"[..]);
    let engine = bench.open(Arc::new(volume.clone()));
    assert_kept(&engine, &memory, id, &name, "damaged");
    for other in ["no name", "points/n/v/01hf000000000000000000000z.1", "containers/0000000/0000000001.data"]
    {
        let error = engine.give_up_points(&[other.to_owned()], "admin").unwrap_err();
        assert!(matches!(error, EngineError::Invalid(_)), "{other}: {error}");
    }
    engine.give_up_points(&[name.to_string()], "admin").unwrap();
    let [left] = points_of(&memory, id).try_into().unwrap();
    assert_ne!(left, name);
    let entries = engine.catalog().list_audit(PageRequest { size: 0, token: "" }).unwrap().items;
    let entries: Vec<_> = entries.into_iter().map(|one| one.entry).collect();
    let told = |one: &&AuditEntry| one.action == "point.give-up" && one.object == name.as_str();
    assert_eq!(entries.iter().find(told).map(|one| one.who.as_str()), Some("admin"), "{entries:?}");
    assert_eq!(engine.not_ready(), []);
    engine.delete_backups(&[id], "op", "x").unwrap();
    reclaim(&engine).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    assert!(bench.open(Arc::new(volume)).opened().clean);
}

/// (P8) A restore point that only a damaged point knew.
#[test]
fn a_damaged_point_without_a_row_is_given_up_by_name() {
    let (bench, (volume, memory)) = (Bench::new(), Refusing::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let copy = copy_of_catalog(&engine);
    let id = made(&engine, "web", 1);
    drop(engine);
    put_back(&bench, &copy);
    let [name] = points_of(&memory, id).try_into().unwrap();
    memory.replace(&name, &b"garbage"[..]);
    let engine = bench.open(Arc::new(volume));
    assert_held(&engine, 1, "damaged");
    engine.give_up_points(&[name.to_string()], "admin").unwrap();
    assert_eq!((points_of(&memory, id), engine.not_ready()), (vec![], vec![]));
    reclaim(&engine).unwrap();
}

/// (P8) Two revisions: sealing the point anew would replace the other, too.
#[test]
fn a_point_is_not_given_up_while_another_of_it_cannot_be_read() {
    let (bench, (volume, memory)) = (Bench::new(), Refusing::new());
    let (id, second, _) = behind(&bench, &volume, &memory);
    let third = BlobName::new(second.as_str().replace(".2", ".3")).unwrap();
    memory.replace(&third, &b"garbage"[..]);
    volume.refuse(std::slice::from_ref(&second), Why::Disk);
    let engine = bench.open(Arc::new(volume.clone()));
    let error = engine.give_up_points(&[third.to_string()], "admin").unwrap_err();
    assert!(
        matches!(error, EngineError::Invalid(_)) && error.to_string().contains(second.as_str()),
        "{error}"
    );
    assert_eq!(points_of(&memory, id), [second.clone(), third.clone()]);
    volume.give();
    engine.give_up_points(&[third.to_string()], "admin").unwrap();
    assert!(
        matches!(engine.delete_backups(&[id], "op", "x"), Err(EngineError::Locked(_))),
        "the lock is known"
    );
}

/// (P8) The same of a restore point that the catalog does not know.
#[test]
fn a_point_without_a_row_is_not_given_up_while_another_of_it_cannot_be_read() {
    let (bench, (volume, memory)) = (Bench::new(), Refusing::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let copy = copy_of_catalog(&engine);
    let id = made(&engine, "web", 1);
    let [first] = points_of(&memory, id).try_into().unwrap();
    let before = memory.get(&first).unwrap();
    engine.lock_backups(&[id], bench.clock.now_ms() + YEAR_MS, "op").unwrap();
    let [second] = points_of(&memory, id).try_into().unwrap();
    drop(engine);
    put_back(&bench, &copy);
    memory.replace(&first, before);
    let third = BlobName::new(second.as_str().replace(".2", ".3")).unwrap();
    memory.replace(&third, &b"garbage"[..]);
    volume.refuse(std::slice::from_ref(&second), Why::Disk);
    let engine = bench.open(Arc::new(volume.clone()));
    engine.give_up_points(&[third.to_string()], "admin").unwrap_err();
    assert_eq!(points_of(&memory, id), [first, second, third.clone()]);
    volume.give();
    engine.give_up_points(&[third.to_string()], "admin").unwrap();
    assert!(
        matches!(engine.delete_backups(&[id], "op", "x"), Err(EngineError::Locked(_))),
        "the lock is known"
    );
}

/// (S12) A container that cannot be read now ends no start, whatever else has to be looked for, and is looked at again.
#[test]
fn containers_that_cannot_be_read_now_end_no_start() {
    for why in [Why::Access, Why::Archive, Why::Key] {
        let (bench, (volume, memory)) = (Bench::new(), Refusing::new());
        let engine = bench.open(Arc::new(volume.clone()));
        let one = made(&engine, "web", 1);
        let copy = copy_of_catalog(&engine);
        let two = made(&engine, "db", 2);
        let of_second: Vec<BlobName> = {
            let all = engine.catalog().all_containers().map(Result::unwrap);
            all.skip(2).map(|one| ContainerName { id: one.id, class: one.class }.blob()).collect()
        };
        assert!(!of_second.is_empty());
        drop(engine);
        // (K7) Neither row nor key: numbers that were handed out, and an index that does not know them.
        put_back(&bench, &copy);
        for name in list(&memory, "index") {
            memory.remove(&name.name).unwrap();
        }
        volume.refuse(&of_second, why);
        for start in 0..2 {
            let engine = bench.open(Arc::new(volume.clone()));
            let opened = *engine.opened();
            let skipped = opened.unreadable_containers + opened.containers_without_key;
            assert_eq!(skipped, of_second.len() as u64, "{why:?}, start {start}: {opened:?}");
            assert_eq!((opened.damaged_containers, opened.clean), (0, false), "{why:?}, start {start}");
            engine.audit(&NoProgress).unwrap();
            assert!(restore(&engine, &one.to_string(), "root").unwrap() == noise(1, SIZE));
            restore(&engine, &two.to_string(), "root").unwrap_err();
            engine.shutdown().unwrap();
        }
        let engine = bench.open(Arc::new(volume.clone()));
        volume.give();
        engine.write_points().unwrap();
        assert!(restore(&engine, &two.to_string(), "root").unwrap() == noise(2, SIZE), "{why:?}");
        engine.shutdown().unwrap();
        drop(engine);
        let engine = bench.open(Arc::new(volume));
        assert!(engine.opened().clean, "{why:?}");
        assert!(restore(&engine, &two.to_string(), "root").unwrap() == noise(2, SIZE), "{why:?}");
        assert!(engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap().is_sound());
    }
}

/// (K7, S12) With rows, too: the next start after a clean stop would not look for what the index lacks.
#[test]
fn an_older_key_table_hides_nothing_once_the_newer_is_back() {
    let (bench, (volume, memory)) = (Bench::new(), Refusing::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let id = made(&engine, "web", 1);
    let all: Vec<BlobName> = {
        let all = engine.catalog().all_containers().map(Result::unwrap);
        all.map(|one| ContainerName { id: one.id, class: one.class }.blob()).collect()
    };
    drop(engine);
    for name in list(&memory, "index") {
        memory.remove(&name.name).unwrap();
    }
    volume.refuse(&all, Why::Key);
    let engine = bench.open(Arc::new(volume.clone()));
    assert_eq!(engine.opened().containers_without_key, all.len() as u64);
    engine.audit(&NoProgress).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    volume.give();
    let engine = bench.open(Arc::new(volume));
    assert!(restore(&engine, &id.to_string(), "root").unwrap() == noise(1, SIZE));
}

/// (P6) Beside backups, a comparison of everything would enter a backup that has its point and is about to get its row; the
/// commit would fail, and take the point away.
#[test]
fn looking_again_enters_no_backup_that_is_being_committed() {
    let (bench, (volume, memory)) = (Bench::new(), Refusing::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let copy = copy_of_catalog(&engine);
    let id = made(&engine, "db", 2);
    drop(engine);
    put_back(&bench, &copy);
    volume.refuse(&points_of(&memory, id), Why::Disk);
    let engine = bench.open(Arc::new(volume.clone()));
    // Its point, as it is between the seal and the transaction.
    let committing = made(&engine, "web", 1);
    let points = points_of(&memory, committing);
    let raw = rusqlite::Connection::open(bench.folder.path().join("catalog.db")).unwrap();
    let as_blob = committing.to_bytes();
    raw.execute("PRAGMA foreign_keys = ON", []).unwrap();
    raw.execute("DELETE FROM backups WHERE id = ?", [as_blob]).unwrap();
    assert_eq!(points.len(), 1);
    volume.give();
    engine.write_points().unwrap();
    assert!(engine.catalog().backup(id).unwrap().is_some());
    assert!(engine.catalog().backup(committing).unwrap().is_none(), "entered beside its commit");
}
