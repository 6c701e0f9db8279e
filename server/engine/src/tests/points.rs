//! The volume knows its restore points, whatever happens to the catalog.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_catalog::{Catalog, RowStatus};
use holdfast_types::ids::{BackupId, NamespaceId, SessionId};
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};
use holdfast_volume::{MemoryVolume, Volume as _, list_all};

use super::agent::{backup, request, restore, send_disk, starter};
use super::{Bench, noise};
use crate::check::CheckOptions;
use crate::engine::Engine;
use crate::ingest::StartBackup;
use crate::jobs::NoProgress;
use crate::points::folder;
use crate::recover::{enter_points, repository_on, traces_of_repository};

const SIZE: usize = 1 << 20;

fn database(bench: &Bench) -> PathBuf {
    bench.folder.path().join("catalog.db")
}

/// Takes the catalog's files away.
fn lose_catalog(bench: &Bench) {
    for file in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let _ = std::fs::remove_file(bench.folder.path().join(file));
    }
}

/// Backs up `count` VMs, and gives what each must restore to.
fn filled(engine: &Engine, seed: u64, count: u64) -> Vec<(String, Vec<u8>)> {
    let one = |n| {
        let disk = noise(seed + n, SIZE);
        (backup(engine, &format!("vm-{}", n % 3), &[("root", &disk)]).unwrap().backup_id, disk)
    };
    (0..count).map(one).collect()
}

/// A backup that only needs its commit.
fn sent(engine: &Engine, vm: &str, disk: &[u8]) -> SessionId {
    sent_in(engine, super::namespace(engine), vm, disk)
}

fn sent_in(engine: &Engine, namespace: NamespaceId, vm: &str, disk: &[u8]) -> SessionId {
    let asked = StartBackup { namespace, request: request(vm, &[("root", disk)]), starter: starter(1) };
    let session: SessionId = engine.start_backup(&asked).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(engine, session, &stream, 0, disk).unwrap();
    session
}

fn assert_all(engine: &Engine, backups: &[(String, Vec<u8>)]) {
    for (id, disk) in backups {
        assert!(restore(engine, id, "root").unwrap() == *disk, "{id}");
    }
    assert_eq!(engine.catalog().all_backup_ids().count(), backups.len());
    let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!(report.points, backups.len() as u64);
}

fn points_of(volume: &MemoryVolume) -> usize {
    list_all(volume, &folder()).count()
}

#[test]
fn an_older_catalog_gets_back_every_restore_point() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let mut backups = filled(&engine, 0, 3);
    engine.shutdown().unwrap();
    drop(engine);
    let copy = std::fs::read(database(&bench)).unwrap();
    let engine = bench.open(Arc::new(volume.clone()));
    // In a namespace that the copy does not know, too.
    let berlin = engine.catalog().ensure_namespace("berlin").unwrap();
    backups.extend(filled(&engine, 100, 5));
    let disk = noise(500, SIZE);
    let session = sent_in(&engine, berlin.id, "far", &disk);
    let far = engine.commit(session).unwrap().backup_id;
    engine.shutdown().unwrap();
    drop(engine);
    lose_catalog(&bench);
    std::fs::write(database(&bench), copy).unwrap();

    let engine = bench.open(Arc::new(volume.clone()));
    let opened = *engine.opened();
    assert_eq!((opened.entered_points, opened.unreadable_points, opened.missing_points), (6, 0, 0));
    assert_eq!(engine.catalog().namespace(berlin.id).unwrap(), Some(berlin.clone()));
    let found = engine.catalog().latest_backup(berlin.id, "far").unwrap().unwrap();
    assert_eq!(found.id.to_string(), far);
    for (id, disk) in &backups {
        assert!(restore(&engine, id, "root").unwrap() == *disk, "{id}");
    }
    let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    // The latest of each VM is the one committed last, and the next backup is above all.
    for n in 0..3 {
        let latest = backups.iter().enumerate().rfind(|(at, _)| *at >= 3 && (at - 3) % 3 == n);
        let latest = latest.unwrap().1;
        let vm = format!("vm-{n}");
        let of = engine.catalog().latest_backup(super::namespace(&engine), &vm).unwrap().unwrap();
        assert_eq!(of.id.to_string(), latest.0, "{vm}");
    }
    let disk = noise(900, SIZE);
    let next = backup(&engine, "vm-0", &[("root", &disk)]).unwrap().backup_id;
    let of = engine.catalog().latest_backup(super::namespace(&engine), "vm-0").unwrap().unwrap();
    assert_eq!(of.id.to_string(), next);
    assert!(restore(&engine, &next, "root").unwrap() == disk);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = bench.open(Arc::new(volume));
    assert!(engine.opened().clean && engine.opened().entered_points == 0);
}

#[test]
fn a_lost_log_loses_no_restore_point() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let mut backups = filled(&engine, 0, 2);
    engine.catalog().checkpoint().unwrap();
    backups.extend(filled(&engine, 50, 5));
    // As a power failure leaves it that takes the log: the database without what was not folded in.
    let bare = std::fs::read(database(&bench)).unwrap();
    std::mem::forget(engine);
    let other = Bench::new();
    std::fs::write(database(&other), bare).unwrap();
    let engine = other.open(Arc::new(volume));
    assert_eq!(engine.opened().entered_points, 5);
    assert_all(&engine, &backups);
}

#[test]
fn a_volume_alone_makes_a_catalog() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    assert_eq!(traces_of_repository(&volume).unwrap(), None);
    assert_eq!(repository_on(&volume).unwrap(), None);
    let engine = bench.open(Arc::new(volume.clone()));
    let backups = filled(&engine, 0, 7);
    let id = engine.repository_id();
    drop(engine);
    lose_catalog(&bench);
    assert!(traces_of_repository(&volume).unwrap().unwrap().contains(&id.to_string()));
    for without in ["repository", "points", "snapshots", ""] {
        // The mark, points, snapshots: each tells whose the volume is when those before it are lost.
        let copy = MemoryVolume::new();
        for folder in ["points", "snapshots", "containers"] {
            if folder == without {
                continue;
            }
            let name = holdfast_volume::BlobName::new(folder).unwrap();
            for entry in list_all(&volume, &name) {
                let name = entry.unwrap().name;
                copy.replace(&name, volume.get(&name).unwrap());
            }
        }
        assert_eq!(repository_on(&copy).unwrap(), Some(id), "without {without}");
        assert!(traces_of_repository(&copy).unwrap().is_some());
    }
    let clock = Arc::clone(&bench.clock);
    let catalog = Catalog::create_for(&database(&bench), clock, id).unwrap();
    let found = enter_points(&volume, &catalog, &NoProgress).unwrap();
    assert_eq!((found.entered_count, found.entered.len(), found.problem_count()), (7, 7, 0));
    assert!(found.catalog_is_older);
    drop(catalog);
    let engine = bench.open(Arc::new(volume));
    assert_eq!(engine.opened().entered_points, 0);
    assert_all(&engine, &backups);
}

#[test]
fn restore_points_of_an_earlier_version_get_their_points() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let backups = filled(&engine, 0, 4);
    engine.shutdown().unwrap();
    drop(engine);
    forget_points(&bench, &volume);
    let engine = bench.open(Arc::new(volume.clone()));
    assert!(engine.opened().clean, "there was a clean stop");
    assert_eq!(engine.opened().missing_points, 4);
    assert!(!engine.catalog().commits().unwrap().points_written);
    engine.write_points().unwrap();
    assert_eq!(points_of(&volume), 4);
    assert!(engine.catalog().commits().unwrap().points_written);
    engine.write_points().unwrap();
    assert_eq!(points_of(&volume), 4, "again is nothing");
    drop(engine);
    lose_catalog(&bench);
    let id = repository_on(&volume).unwrap().unwrap();
    drop(Catalog::create_for(&database(&bench), bench.clock.clone(), id).unwrap());
    let engine = bench.open(Arc::new(volume));
    assert_eq!(engine.opened().entered_points, 4);
    assert_all(&engine, &backups);
}

/// Leaves the repository as a version without points did.
fn forget_points(bench: &Bench, volume: &MemoryVolume) {
    let names: Vec<_> = list_all(volume, &folder()).map(|entry| entry.unwrap().name).collect();
    for name in names {
        volume.remove(&name).unwrap();
    }
    let raw = rusqlite::Connection::open(database(bench)).unwrap();
    raw.execute_batch("UPDATE repository SET points_written = 0").unwrap();
}

/// (P4) A point says that a restore point is whole.
#[test]
fn a_restore_point_whose_recipe_is_lost_gets_no_point() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let lost = backup(&engine, "lost", &[("root", &noise(1, SIZE))]).unwrap().backup_id;
    let recipe = engine
        .catalog()
        .all_containers()
        .map(Result::unwrap)
        .find(|container| container.class == holdfast_types::ids::ContainerClass::Recipe);
    let id = recipe.unwrap().id;
    let kept = backup(&engine, "kept", &[("root", &noise(2, SIZE))]).unwrap().backup_id;
    drop(engine);
    forget_points(&bench, &volume);
    let class = holdfast_types::ids::ContainerClass::Recipe;
    volume.remove(&crate::container::ContainerName { id, class }.blob()).unwrap();
    let engine = bench.open(Arc::new(volume.clone()));
    assert_eq!(engine.opened().missing_points, 2);
    engine.write_points().unwrap();
    let names: Vec<String> =
        list_all(&volume, &folder()).map(|entry| entry.unwrap().name.as_str().to_owned()).collect();
    assert!(names.len() == 1 && names[0].contains(&kept.to_ascii_lowercase()), "{names:?} without {lost}");
    assert!(!engine.catalog().commits().unwrap().points_written, "looked at again");
}

#[test]
fn check_names_points_that_are_lost_or_damaged_and_writes_them_again() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let backups = filled(&engine, 0, 3);
    let names: Vec<_> = list_all(&volume, &folder()).map(|entry| entry.unwrap().name).collect();
    volume.remove(&names[0]).unwrap();
    let mut bytes = volume.get(&names[1]).unwrap().to_vec();
    bytes[80] ^= 1;
    volume.replace(&names[1], bytes);
    let report = engine.check(CheckOptions::default(), &NoProgress).unwrap();
    assert_eq!(report.problems.len(), 2, "{:?}", report.problems);
    assert!(report.problems.iter().any(|problem| problem.what.starts_with("it is missing; written again")));
    assert!(report.problems.iter().any(|problem| problem.what.contains(names[1].as_str())));
    let again = engine.check(CheckOptions::default(), &NoProgress).unwrap();
    assert!(again.is_sound(), "{:?}", again.problems);
    drop(engine);
    lose_catalog(&bench);
    let id = repository_on(&volume).unwrap().unwrap();
    drop(Catalog::create_for(&database(&bench), bench.clock.clone(), id).unwrap());
    let engine = bench.open(Arc::new(volume));
    assert_eq!(engine.opened().entered_points, 3);
    for (id, disk) in &backups {
        assert!(restore(&engine, id, "root").unwrap() == *disk);
    }
}

/// The answer to sealing the point is lost: the next try finds it, and it is the same.
#[test]
fn a_commit_whose_point_was_sealed_can_be_tried_again() {
    let bench = Bench::new();
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let disk = noise(1, SIZE);
    let session = sent(&engine, "web", &disk);
    volume.fail_next(OpKind::Seal, 1, Fault::OutcomeUnknown { applied: true });
    engine.commit(session).unwrap_err();
    assert_eq!(engine.catalog().all_backup_ids().count(), 0);
    bench.clock.advance_ms(5000);
    let done = engine.commit(session).unwrap();
    assert!(restore(&engine, &done.backup_id, "root").unwrap() == disk);
    assert!(engine.check(CheckOptions::default(), &NoProgress).unwrap().is_sound());
}

/// (P2) If it is unknown whether the point was sealed, it is removed before a failure is recorded.
#[test]
fn a_point_in_doubt_is_removed_when_its_session_fails() {
    let bench = Bench::new();
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let session = sent(&engine, "web", &noise(1, SIZE));
    volume.fail_next(OpKind::Seal, 1, Fault::OutcomeUnknown { applied: true });
    engine.commit(session).unwrap_err();
    engine.abort(session, "given up").unwrap();
    assert_eq!(engine.catalog().session_details(session).unwrap()[0].status, RowStatus::Aborted);
    drop(engine);
    let engine = bench.open(volume.survivor());
    assert_eq!(engine.opened().entered_points, 0);
    assert_eq!(engine.catalog().all_backup_ids().count(), 0);
}

/// Nor can it be removed, because writing has stopped: then the next start finds it, and it is a restore point.
#[test]
fn a_point_in_doubt_that_cannot_be_removed_becomes_a_restore_point() {
    let bench = Bench::new();
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let disk = noise(1, SIZE);
    let session = sent(&engine, "web", &disk);
    volume.fail_next(OpKind::Seal, 1, Fault::NotDurable { applied: true });
    engine.commit(session).unwrap_err();
    engine.abort(session, "given up").unwrap();
    assert_eq!(engine.catalog().session_details(session).unwrap()[0].status, RowStatus::Aborted);
    drop(engine);
    let engine = bench.open(volume.survivor());
    assert_eq!(engine.opened().entered_points, 1);
    assert_eq!(engine.catalog().session_details(session).unwrap()[0].status, RowStatus::Done);
    let id: BackupId = engine.catalog().all_backup_ids().next().unwrap().unwrap();
    assert!(restore(&engine, &id.to_string(), "root").unwrap() == disk);
}

/// The catalog fails after the point is sealed: the backup exists, and no failure may be recorded of it.
#[test]
fn a_backup_whose_catalog_failed_is_entered_by_the_next_start() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(1, SIZE);
    let session: SessionId = sent(&engine, "web", &disk);
    let raw = rusqlite::Connection::open(database(&bench)).unwrap();
    raw.execute_batch("ALTER TABLE disks RENAME TO hidden").unwrap();
    engine.commit(session).unwrap_err();
    assert_eq!(points_of(&volume), 1, "sealed before the transaction");
    engine.abort(session, "given up").unwrap_err();
    raw.execute_batch("ALTER TABLE hidden RENAME TO disks").unwrap();
    drop(raw);
    assert_eq!(engine.catalog().session_details(session).unwrap(), []);
    drop(engine);
    let engine = bench.open(Arc::new(volume));
    assert_eq!(engine.opened().entered_points, 1);
    let id = engine.catalog().backup_by_session(session).unwrap().unwrap().id;
    assert!(restore(&engine, &id.to_string(), "root").unwrap() == disk);
}

/// (P2) Given up or not: what is sealed is a restore point, and no record may call it a failure.
#[test]
fn a_backup_that_was_sealed_cannot_end_as_a_failure() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let health = Arc::<crate::health::Health>::default();
    let catalog = Arc::new(bench.catalog(&health).unwrap());
    let shared: Arc<holdfast_catalog::Catalog> = Arc::<Catalog>::clone(&catalog);
    let engine = Engine::assemble(bench.parts_with(Arc::new(volume), shared, health)).unwrap();
    let disk = noise(1, SIZE);
    let session = sent(&engine, "web", &disk);
    catalog.answer_busy(true);
    engine.commit(session).unwrap_err();
    catalog.answer_busy(false);
    engine.abort(session, "the agent gave up").unwrap();
    let rows = engine.catalog().session_details(session).unwrap();
    assert_eq!(rows[0].status, RowStatus::Done);
    let id = engine.commit(session).unwrap().backup_id;
    assert!(restore(&engine, &id, "root").unwrap() == disk);
}

/// A point that the catalog will never accept must not come back at the next start.
#[test]
fn a_backup_that_the_catalog_refuses_leaves_no_point() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let session = sent(&engine, "web", &noise(1, SIZE));
    let raw = rusqlite::Connection::open(database(&bench)).unwrap();
    raw.execute_batch(
        "CREATE TRIGGER never BEFORE INSERT ON backups BEGIN SELECT RAISE(ABORT, 'refused'); END",
    )
    .unwrap();
    engine.commit(session).unwrap_err();
    assert_eq!(points_of(&volume), 0);
    raw.execute_batch("DROP TRIGGER never").unwrap();
    drop(raw);
    engine.abort(session, "given up").unwrap();
    assert_eq!(engine.catalog().session_details(session).unwrap()[0].status, RowStatus::Aborted);
}

/// A point that cannot be removed either keeps its containers until it is gone.
#[test]
fn a_refused_backup_whose_point_cannot_be_removed_keeps_its_containers() {
    let removes = |failing: u64| {
        let bench = Bench::new();
        let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
        let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
        let session = sent(&engine, "web", &noise(1, SIZE));
        let raw = rusqlite::Connection::open(database(&bench)).unwrap();
        raw.execute_batch(
            "CREATE TRIGGER never BEFORE INSERT ON backups BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        .unwrap();
        for nth in 1..=failing {
            volume.fail_next(OpKind::Remove, nth, Fault::OutcomeUnknown { applied: false });
        }
        engine.commit(session).unwrap_err();
        engine.abort(session, "given up").unwrap();
        assert_eq!(engine.catalog().session_details(session).unwrap()[0].status, RowStatus::Aborted);
        raw.execute_batch("DROP TRIGGER never").unwrap();
        drop(raw);
        let unused = engine.parts().0.store.leftovers.condemn().len();
        drop(engine);
        (unused > 0, bench.open(volume.survivor()).opened().entered_points)
    };
    assert_eq!(removes(0), (true, 0));
    assert_eq!(removes(1), (true, 0), "removed by the end of the session");
    assert_eq!(removes(2), (false, 1), "the next start finds it, and all it needs");
}

/// (P3) The mark of a clean stop would say that points and rows agree.
#[test]
fn a_sealed_backup_that_could_not_be_entered_is_not_forgotten_by_a_clean_stop() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let health = Arc::<crate::health::Health>::default();
    let catalog = Arc::new(bench.catalog(&health).unwrap());
    let shared: Arc<holdfast_catalog::Catalog> = Arc::<Catalog>::clone(&catalog);
    let engine = Engine::assemble(bench.parts_with(Arc::new(volume.clone()), shared, health)).unwrap();
    let disk = noise(1, SIZE);
    let session = sent(&engine, "web", &disk);
    catalog.answer_busy(true);
    engine.commit(session).unwrap_err();
    engine.abort(session, "the lease ran out").unwrap_err();
    catalog.answer_busy(false);
    engine.shutdown().unwrap();
    drop((engine, catalog));
    let engine = bench.open(Arc::new(volume));
    assert_eq!(engine.opened().entered_points, 1);
    let id = engine.catalog().backup_by_session(session).unwrap().unwrap().id;
    assert!(restore(&engine, &id.to_string(), "root").unwrap() == disk);
}

/// (P2) The end of a session that was sealed tries the catalog again; what it refuses then is a failure on record.
#[test]
fn a_sealed_backup_that_is_refused_at_its_end_is_recorded_as_a_failure() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let health = Arc::<crate::health::Health>::default();
    let catalog = Arc::new(bench.catalog(&health).unwrap());
    let shared: Arc<holdfast_catalog::Catalog> = Arc::<Catalog>::clone(&catalog);
    let engine = Engine::assemble(bench.parts_with(Arc::new(volume.clone()), shared, health)).unwrap();
    let session = sent(&engine, "web", &noise(1, SIZE));
    catalog.answer_busy(true);
    engine.commit(session).unwrap_err();
    catalog.answer_busy(false);
    let raw = rusqlite::Connection::open(database(&bench)).unwrap();
    raw.execute_batch(
        "CREATE TRIGGER never BEFORE INSERT ON backups BEGIN SELECT RAISE(ABORT, 'refused'); END",
    )
    .unwrap();
    engine.abort(session, "given up").unwrap();
    assert_eq!(points_of(&volume), 0);
    assert_eq!(engine.catalog().session_details(session).unwrap()[0].status, RowStatus::Aborted);
}

#[test]
fn a_commit_of_many_disks_seals_one_blob_more() {
    let seals = |disks: usize| {
        let bench = Bench::new();
        let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
        let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
        let bytes: Vec<(String, Vec<u8>)> =
            (0..disks).map(|n| (format!("disk-{n}"), noise(n as u64, 10_000))).collect();
        let disks: Vec<(&str, &[u8])> =
            bytes.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        backup(&engine, "web", &disks).unwrap();
        let containers = engine.catalog().all_containers().count();
        volume.count(OpKind::Seal) - u64::try_from(containers).unwrap()
    };
    // The mark of the volume and the index's manifest, whatever the number of disks.
    assert_eq!(seals(1), seals(8));
}
