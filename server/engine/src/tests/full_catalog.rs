//! (S8) A start whose catalog has no room, after a kill: it reads, and goes on once there is room.

use std::fmt;
use std::sync::Arc;

use holdfast_catalog::Catalog;
use holdfast_proto::ErrorCode;
use holdfast_types::ids::{BackupId, SessionId};
use holdfast_volume::{Blob, BlobName, MemoryVolume, Volume, VolumeError};
use parking_lot::Mutex;

use super::agent::{backup, request, restore, send_disk, start};
use super::{Bench, noise};
use crate::container::list_containers;
use crate::engine::Engine;
use crate::health::{Health, Obstacle};
use crate::jobs::Budget;
use crate::jobs::NoProgress;

const SIZE: usize = 1 << 20;

/// An engine, and the catalog it works with.
fn open(bench: &Bench, volume: &MemoryVolume, prepare: impl Fn(&Catalog)) -> (Engine, Arc<Catalog>) {
    let health = Arc::<Health>::default();
    let catalog = Arc::new(bench.catalog(&health).unwrap());
    prepare(&catalog);
    let shared: Arc<Catalog> = Arc::<Catalog>::clone(&catalog);
    let parts = bench.parts_with(Arc::new(volume.clone()), shared, health);
    (Engine::assemble(parts).unwrap(), catalog)
}

fn send(engine: &Engine, vm: &str, disk: &[u8]) -> SessionId {
    let session = start(engine, request(vm, &[("root", disk)])).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(engine, session, &stream, 0, disk).unwrap();
    session
}

/// Restore points that only the volume knows.
const SEALED: u64 = 40;

/// A repository whose server was killed: the restore point `done`, which the catalog knows; `sealed`, of which only
/// the volume knows; and containers of other backups, some noted by the catalog and some not.
struct Killed {
    bench: Bench,
    volume: MemoryVolume,
    done: (String, Vec<u8>),
    sealed: Vec<(SessionId, Vec<u8>)>,
}

fn killed() -> Killed {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, catalog) = open(&bench, &volume, |_| {});
    let disk = noise(1, SIZE);
    let done = (backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id, disk);
    for seed in 10..12 {
        send(&engine, &format!("late-{seed}"), &noise(seed, SIZE));
        // The second is noted together with the first; what comes after waits for the next batch.
        bench.clock.advance_ms(10_000);
    }
    let seal = |seed| {
        let disk = noise(1000 + seed, 20_000);
        let session = send(&engine, &format!("db-{seed}"), &disk);
        catalog.answer_busy(true);
        engine.commit(session).unwrap_err();
        catalog.answer_busy(false);
        (session, disk)
    };
    let sealed = (0..SEALED).map(seal).collect();
    assert!(catalog.sealed_containers().unwrap() > 0);
    Killed { bench, volume, done, sealed }
}

fn assert_all(engine: &Engine, sealed: &[(SessionId, Vec<u8>)]) {
    for (session, disk) in sealed {
        let id = engine.catalog().backup_by_session(*session).unwrap().unwrap().id.to_string();
        assert!(restore(engine, &id, "root").unwrap() == *disk);
    }
}

fn check_that_it_reads_and_goes_on(killed: Killed, prepare: impl Fn(&Catalog), undo: impl Fn(&Catalog)) {
    let Killed { bench, volume, done, sealed } = killed;
    let (engine, catalog) = open(&bench, &volume, prepare);
    assert!(restore(&engine, &done.0, "root").unwrap() == done.1);
    let opened = *engine.opened();
    assert_eq!(opened.waiting_points + opened.entered_points, SEALED);
    assert!(opened.waiting_points > 0, "{opened:?}");
    let refused = start(&engine, request("new", &[("root", &[1; SIZE])])).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Full, "{refused}");
    let found = engine.not_ready();
    assert!(matches!(found.as_slice(), [one] if one.obstacle == Obstacle::Catalog), "{found:?}");
    let (points, audit) = (engine.points_job(), engine.audit_job());
    points.step(&Budget::unlimited()).unwrap_err();
    audit.step(&Budget::unlimited()).unwrap_err();
    assert!(!engine.audit_finished());
    assert_eq!(catalog.settled_containers().unwrap(), 0);

    undo(&catalog);
    points.step(&Budget::unlimited()).unwrap();
    assert_eq!(engine.not_ready(), []);
    assert_all(&engine, &sealed);
    engine.audit(&NoProgress).unwrap();
    let rows = engine.catalog().all_containers().count();
    assert_eq!(rows, list_containers(&volume).unwrap().containers.len());
    assert!(catalog.settled_containers().unwrap() > 0);
    let next = noise(5, SIZE);
    let newest = backup(&engine, "db-7", &[("root", &next)]).unwrap().backup_id;
    let latest = engine.catalog().latest_backup(super::namespace(&engine), "db-7").unwrap().unwrap();
    assert_eq!(latest.id.to_string(), newest, "numbered above what was entered late");
    assert!(engine.check(crate::CheckOptions { read_data: true }, &NoProgress).unwrap().is_sound());
    engine.shutdown().unwrap();
    drop((points, audit, engine, catalog));
    assert!(bench.open(Arc::new(volume)).opened().clean);
}

#[test]
fn nothing_can_be_changed() {
    check_that_it_reads_and_goes_on(killed(), |c| c.answer_full(true), |c| c.answer_full(false));
}

/// Small changes fit, as on a disk that is almost full.
#[test]
fn the_database_cannot_grow() {
    let grow = |pages| move |catalog: &Catalog| catalog.limit_growth(pages);
    check_that_it_reads_and_goes_on(killed(), grow(0), grow(1 << 20));
}

/// The next start has to look for what was left out, whatever happened to the disk meanwhile.
#[test]
fn a_stop_before_there_was_room_is_not_clean() {
    let Killed { bench, volume, done, sealed } = killed();
    let (engine, catalog) = open(&bench, &volume, |catalog| catalog.answer_full(true));
    assert_eq!(engine.opened().waiting_points, SEALED);
    catalog.answer_full(false);
    engine.shutdown().unwrap();
    assert_eq!(catalog.settled_containers().unwrap(), 0);
    drop((engine, catalog));
    let engine = bench.open(Arc::new(volume));
    assert!(!engine.opened().clean);
    assert_eq!((engine.opened().entered_points, engine.opened().waiting_points), (SEALED, 0));
    assert_all(&engine, &sealed);
    assert!(restore(&engine, &done.0, "root").unwrap() == done.1);
}

/// The catalog is an older copy, so it would hand out numbers that are in use.
#[test]
fn no_number_is_used_twice_while_the_catalog_knows_less_than_the_volume() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let database = bench.folder.path().join("catalog.db");
    let engine = bench.open(Arc::new(volume.clone()));
    engine.shutdown().unwrap();
    drop(engine);
    let copy = std::fs::read(&database).unwrap();
    let engine = bench.open(Arc::new(volume.clone()));
    let disks: Vec<Vec<u8>> = (0..40).map(|seed| noise(seed, 20_000)).collect();
    for (vm, disk) in disks.iter().enumerate() {
        backup(&engine, &format!("vm-{vm}"), &[("root", disk)]).unwrap();
    }
    drop(engine);
    for file in ["catalog.db-wal", "catalog.db-shm"] {
        let _ = std::fs::remove_file(bench.folder.path().join(file));
    }
    std::fs::write(&database, copy).unwrap();
    let (engine, catalog) = open(&bench, &volume, |catalog| catalog.answer_full(true));
    assert_eq!(engine.opened().waiting_points, 40);
    assert_eq!(engine.opened().waiting_containers, 80);
    catalog.answer_full(false);
    // There is room again, and nothing was entered yet.
    let refused = start(&engine, request("new", &[("root", &[1; SIZE])])).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Full, "{refused}");
    engine.points_job().step(&Budget::unlimited()).unwrap();
    let disk = noise(100, SIZE);
    let id = backup(&engine, "new", &[("root", &disk)]).unwrap().backup_id;
    assert!(restore(&engine, &id, "root").unwrap() == disk);
    engine.audit(&NoProgress).unwrap();
    assert!(engine.check(crate::CheckOptions { read_data: true }, &NoProgress).unwrap().is_sound());
}

/// A volume with which something is done right after the next blob was opened.
struct Interrupted {
    inner: MemoryVolume,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Volume for Interrupted {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let opened = self.inner.open(name)?;
        let then = self.then.lock().take();
        then.into_iter().for_each(|then| then());
        Ok(opened)
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, space, handles_outlive_removal to inner);
}

/// (L1) The catalog has taken nothing of the start yet. A restore point whose point says more than its row is deleted just
/// after that point was read: it must not come back by what was read.
#[test]
fn what_is_deleted_while_the_rest_of_a_start_is_entered_stays_deleted() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let database = bench.folder.path().join("catalog.db");
    let engine = bench.open(Arc::new(volume.clone()));
    let id: BackupId =
        backup(&engine, "web", &[("root", &noise(1, SIZE))]).unwrap().backup_id.parse().unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let copy = std::fs::read(&database).unwrap();
    let engine = bench.open(Arc::new(volume.clone()));
    engine.rename_vm(super::namespace(&engine), "web", "www", "op").unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    std::fs::write(&database, copy).unwrap();

    let health = Arc::<Health>::default();
    let catalog = Arc::new(bench.catalog(&health).unwrap());
    catalog.answer_full(true);
    let shared: Arc<Catalog> = Arc::<Catalog>::clone(&catalog);
    let interrupted = Arc::new(Interrupted { inner: volume.clone(), then: Mutex::default() });
    let data: Arc<dyn Volume> = Arc::<Interrupted>::clone(&interrupted);
    let engine = Arc::new(Engine::assemble(bench.parts_with(data, shared, health)).unwrap());
    assert_eq!(engine.opened().waiting_points, 1, "{:?}", engine.opened());
    catalog.answer_full(false);
    let (other, asked) = (Arc::clone(&engine), Arc::new(Mutex::new(false)));
    let noted = Arc::clone(&asked);
    *interrupted.then.lock() = Some(Box::new(move || {
        *noted.lock() = true;
        // A deletion waits for the lock on changes of points, which this thread cannot; another process begins at
        // least.
        if other.parts().0.changing_points.try_lock().is_some() {
            other.delete_backups(&[id], "op", "not needed").unwrap();
        } else {
            other.catalog().begin_deletion(&[id], "op", "not needed").unwrap();
        }
    }));
    engine.points_job().step(&Budget::unlimited()).unwrap();
    assert!(*asked.lock(), "its point was read");
    assert!(engine.catalog().backup(id).unwrap().is_none());
    engine.retention_job().step(&Budget::unlimited()).unwrap();
    drop(engine);
    let engine = bench.open(Arc::new(volume));
    assert_eq!(engine.catalog().all_backup_ids().count(), 0);
}
