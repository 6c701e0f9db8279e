//! Restore points that are deleted stay so; what is locked stays, whichever way round it is tried.

use std::io::Read as _;
use std::sync::Arc;

use holdfast_catalog::{
    AuditEntry, Catalog, CatalogError, LockChange, PageRequest, RetentionLock, RetentionPolicy,
};
use holdfast_proto::ErrorCode;
use holdfast_proto::api::Rules;
use holdfast_types::clock::{Clock as _, ManualClock};
use holdfast_types::ids::{BackupId, PolicyId};
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};
use holdfast_volume::{BlobName, MemoryVolume, Volume as _, list_all};
use ulid::Ulid;

use super::agent::{backup, restore};
use super::{Bench, namespace, noise};
use crate::check::CheckOptions;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::jobs::NoProgress;
use crate::jobs::{Budget, Step};
use crate::points::folder;
use crate::recover::enter_points;

pub(super) const SIZE: usize = 200_000;
const DAY_MS: i64 = 24 * 3600 * 1000;

pub(super) fn made(engine: &Engine, vm: &str, seed: u64) -> BackupId {
    backup(engine, vm, &[("root", &noise(seed, SIZE))]).unwrap().backup_id.parse().unwrap()
}

fn points(volume: &MemoryVolume) -> Vec<BlobName> {
    list_all(volume, &folder()).map(|entry| entry.unwrap().name).collect()
}

fn exists(engine: &Engine, id: BackupId) -> bool {
    engine.catalog().backup(id).unwrap().is_some()
}

fn lock_of(engine: &Engine, id: BackupId) -> RetentionLock {
    engine.catalog().backup(id).unwrap().unwrap().lock
}

/// Reads the points on the volume into a new catalog, as a recovery does.
pub(super) fn recovered(bench: &Bench, volume: &MemoryVolume) -> (Catalog, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::<ManualClock>::clone(&bench.clock);
    let repository = crate::recover::repository_on(volume).unwrap().unwrap();
    let catalog = Catalog::create_for(&folder.path().join("c.db"), clock, repository).unwrap();
    let found = enter_points(volume, &catalog, &NoProgress).unwrap();
    assert_eq!(found.problems, []);
    (catalog, folder)
}

/// The lock that the volume's point has.
fn sealed_lock(bench: &Bench, volume: &MemoryVolume, id: BackupId) -> RetentionLock {
    recovered(bench, volume).0.backup(id).unwrap().unwrap().lock
}

pub(super) fn sound(engine: &Engine, restore_points: u64) {
    let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!((report.backups, report.points), (restore_points, restore_points));
}

fn is_locked(outcome: &Result<Vec<BackupId>, EngineError>) -> bool {
    matches!(outcome, Err(EngineError::Locked(CatalogError::Locked { .. })))
}

pub(super) fn policy(engine: &Engine, lock_days: u32) -> RetentionPolicy {
    RetentionPolicy {
        id: PolicyId(Ulid(1)),
        name: "all".into(),
        namespace: namespace(engine),
        vm: None,
        job: None,
        rules: Rules { keep_last: 1, ..Rules::default() },
        schedule: String::new(),
        time_zone: "UTC".into(),
        lock_days,
        archive_after_days: None,
        enabled: true,
        resting_since_ms: None,
        updated_ms: 0,
        updated_by: String::new(),
    }
}

#[test]
fn a_deleted_restore_point_is_gone_and_the_others_are_whole() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let ids: Vec<BackupId> = (0..3).map(|n| made(&engine, "web", n)).collect();
    assert_eq!(engine.delete_backups(&ids[1..2], "op", "tidying").unwrap(), [ids[1]]);
    assert_eq!(points(&volume).len(), 2);
    assert!(matches!(restore(&engine, &ids[1].to_string(), "root"), Err(EngineError::NotFound { .. })));
    for (n, id) in [(0, ids[0]), (2, ids[2])] {
        assert!(restore(&engine, &id.to_string(), "root").unwrap() == noise(n, SIZE));
    }
    sound(&engine, 2);
    // Nor does any start or recovery bring it back.
    for clean in [true, false] {
        if clean {
            engine.shutdown().unwrap();
        }
        let engine = bench.open(Arc::new(volume.clone()));
        assert!(!exists(&engine, ids[1]));
        assert_eq!(engine.opened().entered_points, 0);
    }
    let (catalog, _folder) = recovered(&bench, &volume);
    let found: Vec<BackupId> = catalog.all_backup_ids().map(Result::unwrap).collect();
    assert!(found.len() == 2 && found.contains(&ids[0]) && found.contains(&ids[2]), "{found:?}");
    assert!(engine.delete_backups(&ids[1..2], "op", "again").is_err(), "there is no such restore point");
}

#[test]
fn a_deletion_that_failed_half_way_is_finished() {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let ids = [made(&engine, "web", 1), made(&engine, "db", 2)];
    volume.fail_next(OpKind::Remove, 2, Fault::Unavailable);
    engine.delete_backups(&ids, "op", "x").unwrap_err();
    assert!(!exists(&engine, ids[0]) && !exists(&engine, ids[1]), "they are deleted all the same");
    assert_eq!(engine.catalog().deletions(None, 10).unwrap().len(), 2);
    // The background work, the next deletion or the next start.
    let step = engine.retention_job().step(&Budget::unlimited()).unwrap();
    assert!(matches!(step, Step::Idle(_)), "{step:?}");
    assert_eq!(engine.catalog().deletions(None, 10).unwrap(), []);
    assert_eq!(points(&volume.survivor()).len(), 0);
}

#[test]
fn a_point_that_is_left_of_a_deleted_restore_point_is_not_entered() {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let id = made(&engine, "web", 1);
    engine.catalog().begin_deletion(&[id], "op", "x").unwrap();
    drop(engine);
    // The start cannot remove it either.
    volume.fail_next(OpKind::Remove, 1, Fault::Unavailable);
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    assert_eq!(engine.opened().entered_points, 0);
    assert!(!exists(&engine, id));
    drop(engine);
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    assert_eq!((engine.opened().entered_points, points(&volume.survivor()).len()), (0, 0));
    assert_eq!(engine.catalog().deletions(None, 10).unwrap(), []);
}

#[test]
fn deleting_works_on_a_full_volume() {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let id = made(&engine, "web", 1);
    volume.limit_capacity(1);
    assert!(backup(&engine, "web", &[("root", &noise(2, SIZE))]).is_err());
    assert_eq!(engine.delete_backups(&[id], "op", "x").unwrap(), [id]);
    assert_eq!(points(&volume.survivor()).len(), 0);
}

#[test]
fn a_lock_is_on_the_volume_before_it_is_acknowledged() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let (id, other) = (made(&engine, "web", 1), made(&engine, "db", 2));
    let until_ms = bench.clock.now_ms() + 30 * DAY_MS;
    assert_eq!(engine.lock_backups(&[id], until_ms, "admin").unwrap(), [id]);
    assert_eq!(engine.hold_backups(&[id], "case 17", "admin").unwrap(), [id]);
    let names = points(&volume);
    assert_eq!(names.len(), 2, "older revisions are removed: {names:?}");
    assert!(names.iter().any(|name| name.as_str().ends_with(".3")), "{names:?}");
    assert_eq!(sealed_lock(&bench, &volume, id), lock_of(&engine, id));
    assert_eq!(sealed_lock(&bench, &volume, other), RetentionLock::default());
    assert!(is_locked(&engine.delete_backups(&[other, id], "admin", "x")));
    assert!(exists(&engine, other), "all or none");
    let log = engine.catalog().list_audit(PageRequest::FIRST).unwrap().items;
    let AuditEntry { action, detail, .. } = &log[0].entry;
    assert_eq!(action, "backup.delete-refused");
    assert!(detail.contains("case 17"), "{detail}");
    engine.release_holds(&[id], "closed", "admin").unwrap();
    assert_eq!(sealed_lock(&bench, &volume, id).hold, None);
    assert!(is_locked(&engine.delete_backups(&[id], "admin", "x")));
    sound(&engine, 2);
}

/// (L8)
#[test]
fn what_is_refused_for_want_of_room_is_not_in_force() {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let ids = [made(&engine, "web", 1), made(&engine, "db", 2)];
    let until_ms = bench.clock.now_ms() + DAY_MS;
    let sealed = |id| sealed_lock(&bench, &volume.survivor(), id);
    // No room for the first, or only for that.
    for room in [0, 1] {
        volume.fail_next(OpKind::Create, room + 1, Fault::Full);
        let error = engine.lock_backups(&ids, until_ms, "admin").unwrap_err();
        assert_eq!(error.code(), ErrorCode::Full, "{error}");
        volume.heal();
        for id in ids {
            assert_eq!((lock_of(&engine, id), sealed(id)), Default::default(), "{room}");
        }
        assert_eq!(points(&volume.survivor()).len(), 2);
    }
    // A hold, and its release.
    volume.fail_next(OpKind::Create, 1, Fault::Full);
    engine.hold_backups(&ids, "case", "admin").unwrap_err();
    assert!(lock_of(&engine, ids[0]).hold.is_none() && sealed(ids[0]).hold.is_none());
    engine.hold_backups(&ids, "case", "admin").unwrap();
    volume.fail_next(OpKind::Create, 1, Fault::Full);
    engine.release_holds(&ids, "closed", "admin").unwrap_err();
    for id in ids {
        assert!(lock_of(&engine, id).hold.is_some() && sealed(id).hold.is_some(), "it is held");
        assert!(is_locked(&engine.delete_backups(&[id], "admin", "x")));
    }
    assert_eq!(engine.catalog().stale_points(None, 10).unwrap(), []);
    // A lock that the catalog refuses is not on the volume either.
    let gone = BackupId(Ulid(1));
    engine.lock_backups(&[ids[0], gone], until_ms, "admin").unwrap_err();
    assert_eq!((lock_of(&engine, ids[0]).until_ms, sealed(ids[0]).until_ms), (None, None));
    sound(&engine, 2);
}

/// (L8) A rename is done once the catalog has it; points follow.
#[test]
fn a_rename_without_room_for_points_is_done() {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let id = made(&engine, "web", 1);
    volume.fail_next(OpKind::Create, 1, Fault::Full);
    engine.rename_vm(namespace(&engine), "web", "www", "admin").unwrap();
    assert_eq!(engine.catalog().stale_points(None, 10).unwrap(), [id]);
    engine.retention_job().step(&Budget::unlimited()).unwrap();
    let (catalog, _folder) = recovered(&bench, &volume.survivor());
    assert_eq!(catalog.backup(id).unwrap().unwrap().vm, "www");
    sound(&engine, 1);
}

/// (L1) A lock that is changed before the point says the new name of its VM leaves nothing in the folder of the old one.
#[test]
fn a_lock_between_a_rename_and_its_point_leaves_no_older_point() {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let id = made(&engine, "web", 1);
    volume.fail_next(OpKind::Create, 1, Fault::Full);
    engine.rename_vm(namespace(&engine), "web", "www", "admin").unwrap();
    engine.hold_backups(&[id], "case", "admin").unwrap();
    assert_eq!(points(&volume.survivor()).len(), 1);
    engine.release_holds(&[id], "closed", "admin").unwrap();
    engine.delete_backups(&[id], "op", "x").unwrap();
    assert_eq!(points(&volume.survivor()), []);
}

/// (L8) A change in force is not reported as refused, when an older revision cannot be removed now.
#[test]
fn a_change_of_locks_that_cannot_tidy_up_is_done() {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let id = made(&engine, "web", 1);
    engine.hold_backups(&[id], "case", "admin").unwrap();
    volume.fail_next(OpKind::List, 1, Fault::Unavailable);
    engine.release_holds(&[id], "closed", "admin").unwrap();
    assert!(lock_of(&engine, id).hold.is_none());
    engine.retention_job().step(&Budget::unlimited()).unwrap();
    assert_eq!(points(&volume.survivor()).len(), 1);
    assert_eq!(sealed_lock(&bench, &volume.survivor(), id), lock_of(&engine, id));
}

/// (L8) A crash between the point and the row leaves the stricter of both.
#[test]
fn a_crash_in_a_change_of_locks_leaves_the_stricter() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let ids = [made(&engine, "web", 1), made(&engine, "db", 2)];
    engine.hold_backups(&ids[1..], "case", "admin").unwrap();
    let until_ms = bench.clock.now_ms() + DAY_MS;
    let changes = [LockChange::Lock { until_ms }, LockChange::Release { reason: "closed".into() }];
    for (id, change) in ids.iter().zip(&changes) {
        let point = engine.catalog().rehearse_lock(*id, change).unwrap().unwrap();
        let (catalog, repository) = (&**engine.catalog(), engine.repository_id());
        assert!(crate::points::seal_ahead(&volume, catalog, repository, &point).unwrap().is_some());
    }
    drop(engine);
    let engine = bench.open(Arc::new(volume.clone()));
    assert_eq!(lock_of(&engine, ids[0]).until_ms, Some(until_ms));
    assert!(lock_of(&engine, ids[1]).hold.is_some());
    for id in ids {
        assert_eq!(sealed_lock(&bench, &volume, id), lock_of(&engine, id));
    }
    sound(&engine, 2);
}

#[test]
fn a_policy_locks_new_restore_points_in_their_points() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let free = made(&engine, "web", 1);
    engine.catalog().set_policy(&policy(&engine, 7), "admin").unwrap();
    let locked = made(&engine, "web", 2);
    let lock = lock_of(&engine, locked);
    assert!(lock.until_ms.unwrap() >= bench.clock.now_ms() + 7 * DAY_MS);
    assert_eq!(sealed_lock(&bench, &volume, locked), lock);
    assert!(points(&volume).iter().all(|name| name.as_str().ends_with(".1")), "sealed once");
    assert!(is_locked(&engine.delete_backups(&[locked], "admin", "x")));
    engine.delete_backups(&[free], "admin", "x").unwrap();
}

/// A locked restore point of VM `web`, and its engine.
fn locked(bench: &Bench, volume: &MemoryVolume, days: i64) -> (Engine, BackupId) {
    let engine = bench.open(Arc::new(volume.clone()));
    let id = made(&engine, "web", 1);
    engine.lock_backups(&[id], bench.clock.now_ms() + days * DAY_MS, "admin").unwrap();
    (engine, id)
}

#[test]
fn no_change_of_a_policy_releases_a_lock() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let mut all = policy(&engine, 7);
    engine.catalog().set_policy(&all, "admin").unwrap();
    let id = made(&engine, "web", 1);
    all.lock_days = 0;
    engine.catalog().set_policy(&all, "admin").unwrap();
    engine.catalog().remove_policy(all.id, "admin").unwrap();
    assert!(is_locked(&engine.delete_backups(&[id], "admin", "x")));
}

#[test]
fn a_locked_vm_cannot_be_removed() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, id) = locked(&bench, &volume, 7);
    let free = made(&engine, "web", 2);
    let default = namespace(&engine);
    assert!(engine.remove_vm(default, "web", false, "admin").is_err(), "it has restore points");
    assert!(is_locked(&engine.remove_vm(default, "web", true, "admin")));
    assert!(exists(&engine, id) && exists(&engine, free), "all or none");
    assert_eq!(points(&volume).len(), 2);
    let free = made(&engine, "db", 3);
    assert_eq!(engine.remove_vm(default, "db", true, "admin").unwrap(), [free]);
    assert!(engine.remove_vm(default, "db", true, "admin").is_err(), "there is none any more");
}

#[test]
fn a_rename_takes_the_lock_along() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, id) = locked(&bench, &volume, 7);
    let (before, default) = (lock_of(&engine, id), namespace(&engine));
    let old_names = points(&volume);
    engine.rename_vm(default, "web", "www", "admin").unwrap();
    engine.rename_job(default, "nightly", "daily", "admin").unwrap();
    assert!(is_locked(&engine.delete_backups(&[id], "admin", "x")));
    assert!(is_locked(&engine.remove_vm(default, "www", true, "admin")));
    let names = points(&volume);
    assert!(names.len() == 1 && names != old_names, "a point is found by its VM's name: {names:?}");
    assert_eq!(sealed_lock(&bench, &volume, id), before);
    sound(&engine, 1);
    engine.rename_vm(default, "www", "web", "admin").unwrap();
    assert!(restore(&engine, &id.to_string(), "root").unwrap() == noise(1, SIZE));
    sound(&engine, 1);
    let next = made(&engine, "web", 9);
    engine.delete_backups(&[next], "admin", "x").unwrap();
}

#[test]
fn a_clock_that_is_set_forward_releases_nothing_at_once() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (mut engine, id) = locked(&bench, &volume, 10);
    bench.clock.set_by_ms(1000 * DAY_MS);
    assert!(is_locked(&engine.delete_backups(&[id], "admin", "x")));
    // Nor does starting again and again, cleanly or not.
    for clean in [true, false, true] {
        if clean {
            engine.shutdown().unwrap();
        }
        drop(engine);
        engine = bench.open(Arc::new(volume.clone()));
        assert!(is_locked(&engine.delete_backups(&[id], "admin", "x")));
    }
    // Half of its time must really pass.
    bench.clock.advance_ms(4 * DAY_MS);
    assert!(is_locked(&engine.delete_backups(&[id], "admin", "x")));
    bench.clock.advance_ms(DAY_MS + 60_000);
    engine.delete_backups(&[id], "admin", "x").unwrap();
}

/// (L4) Time that passes while the clock is behind is no credit for the jump that sets it right.
#[test]
fn a_clock_that_was_behind_and_jumps_releases_nothing() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, id) = locked(&bench, &volume, 7);
    bench.clock.set_by_ms(-5 * DAY_MS);
    for _ in 0..4 {
        bench.clock.advance_ms(DAY_MS);
        engine.retention_job().step(&Budget::unlimited()).unwrap();
    }
    bench.clock.set_by_ms(20 * DAY_MS);
    assert!(is_locked(&engine.delete_backups(&[id], "admin", "x")));
}

#[test]
fn a_second_process_is_refused_as_well() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, id) = locked(&bench, &volume, 10);
    let old_names = points(&volume);
    // As `holdfast-server` commands open it.
    let path = bench.folder.path().join("catalog.db");
    let clock = Arc::new(ManualClock::new(bench.clock.now_ms() + 1000 * DAY_MS));
    let second = Catalog::open(&path, clock).unwrap();
    second.advance_lock_clock().unwrap();
    assert!(matches!(second.begin_deletion(&[id], "root", "x"), Err(CatalogError::Locked { .. })));
    let vm = second.named_vm(namespace(&engine), "web").unwrap().unwrap();
    second.remove_vm(vm.id, "root").unwrap_err();
    second.rename_vm(vm.id, "www", "root").unwrap();
    assert!(matches!(second.begin_deletion(&[id], "root", "x"), Err(CatalogError::Locked { .. })));
    // The running server brings the point into agreement.
    engine.retention_job().step(&Budget::unlimited()).unwrap();
    let names = points(&volume);
    assert!(names.len() == 1 && names != old_names, "a point is found by its VM's name: {names:?}");
    sound(&engine, 1);
}

#[test]
fn an_older_catalog_neither_loses_a_lock_nor_revives_what_was_deleted() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let (id, gone) = (made(&engine, "web", 1), made(&engine, "db", 2));
    engine.write_points().unwrap();
    // The bytes of an older catalog, as in a snapshot.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("older.db");
    let mut bytes = Vec::new();
    engine.catalog().snapshot(&Arc::default()).unwrap().read_to_end(&mut bytes).unwrap();
    std::fs::write(&copy, bytes).unwrap();
    let until_ms = bench.clock.now_ms() + 9 * DAY_MS;
    engine.lock_backups(&[id], until_ms, "admin").unwrap();
    engine.rename_vm(namespace(&engine), "web", "www", "admin").unwrap();
    engine.delete_backups(&[gone], "op", "x").unwrap();

    let clock = Arc::<ManualClock>::clone(&bench.clock);
    let older = Catalog::open(&copy, clock).unwrap();
    let found = enter_points(&volume, &older, &NoProgress).unwrap();
    assert_eq!((found.entered_count, found.deleted.as_slice()), (0, [gone].as_slice()));
    assert_eq!(older.backup(gone).unwrap(), None);
    let backup = older.backup(id).unwrap().unwrap();
    assert_eq!((backup.lock.until_ms, backup.vm.as_str()), (Some(until_ms), "www"));
    assert!(matches!(older.begin_deletion(&[id], "admin", "x"), Err(CatalogError::Locked { .. })));
    let again = enter_points(&volume, &older, &NoProgress).unwrap();
    assert_eq!((again.entered_count, again.deleted_count, again.problem_count()), (0, 0, 0));
}

#[test]
fn a_locked_restore_point_that_lost_its_point_gets_it_back() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, id) = locked(&bench, &volume, 7);
    let before = lock_of(&engine, id);
    engine.write_points().unwrap();
    drop(engine);
    volume.remove(&points(&volume)[0]).unwrap();
    let engine = bench.open(Arc::new(volume.clone()));
    engine.write_points().unwrap();
    assert_eq!(sealed_lock(&bench, &volume, id), before);
    sound(&engine, 1);
}

#[test]
fn check_compares_locks_both_ways_and_the_stricter_counts() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let id = made(&engine, "web", 1);
    let free = points(&volume)[0].clone();
    let free_bytes = volume.get(&free).unwrap().to_vec();
    let until_ms = bench.clock.now_ms() + 9 * DAY_MS;
    engine.lock_backups(&[id], until_ms, "admin").unwrap();
    let locked = points(&volume)[0].clone();
    // The volume lost the revision with the lock, and has the one before.
    volume.remove(&locked).unwrap();
    volume.replace(&free, free_bytes);
    let report = engine.check(CheckOptions::default(), &NoProgress).unwrap();
    assert!(report.problems.iter().any(|one| one.what.contains("locked")), "{:?}", report.problems);
    assert_eq!(sealed_lock(&bench, &volume, id).until_ms, Some(until_ms));
    sound(&engine, 1);
}

#[test]
fn check_takes_over_a_lock_that_only_the_point_has() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let id = made(&engine, "web", 1);
    let mut point = engine.catalog().point(id).unwrap().unwrap();
    let until_ms = bench.clock.now_ms() + 9 * DAY_MS;
    point.lock.until_ms = Some(until_ms);
    let bytes = crate::points::encode(engine.repository_id(), 1, &point).unwrap();
    volume.replace(&points(&volume)[0], bytes);
    let report = engine.check(CheckOptions::default(), &NoProgress).unwrap();
    assert!(report.problems.iter().any(|one| one.what.contains("longer")), "{:?}", report.problems);
    assert_eq!(lock_of(&engine, id).until_ms, Some(until_ms));
    assert!(is_locked(&engine.delete_backups(&[id], "op", "x")));
    sound(&engine, 1);
}

#[test]
fn several_revisions_are_told_and_the_highest_counts() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let id = made(&engine, "web", 1);
    let first = points(&volume)[0].clone();
    let bytes = volume.get(&first).unwrap().to_vec();
    engine.hold_backups(&[id], "case", "admin").unwrap();
    // Two revisions, as after a crash before the older one is removed.
    volume.replace(&first, bytes);
    let report = engine.check(CheckOptions::default(), &NoProgress).unwrap();
    assert!(report.problems.iter().any(|one| one.what.contains("revisions")), "{:?}", report.problems);
    assert_eq!(points(&volume).len(), 1);
    sound(&engine, 1);
    assert!(sealed_lock(&bench, &volume, id).hold.is_some());
    // A deletion removes all of several revisions.
    volume.replace(&first, vec![1, 2, 3]);
    engine.release_holds(&[id], "closed", "admin").unwrap();
    volume.replace(&first, vec![1, 2, 3]);
    engine.delete_backups(&[id], "op", "x").unwrap();
    assert_eq!(points(&volume), []);
}

#[test]
fn a_damaged_newer_revision_does_not_hide_the_lock_of_the_row() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (engine, id) = locked(&bench, &volume, 7);
    let before = lock_of(&engine, id);
    volume.replace(&points(&volume)[0], vec![0; 100]);
    let report = engine.check(CheckOptions::default(), &NoProgress).unwrap();
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert_eq!(sealed_lock(&bench, &volume, id), before);
    sound(&engine, 1);
}

#[test]
fn a_vm_that_is_being_backed_up_is_neither_removed_nor_renamed() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume));
    made(&engine, "web", 1);
    let disk = noise(2, SIZE);
    super::agent::start(&engine, super::agent::request("web", &[("root", &disk)])).unwrap();
    let default = namespace(&engine);
    for outcome in [
        engine.rename_vm(default, "web", "www", "admin"),
        engine.rename_vm(default, "db", "web", "admin"),
        engine.remove_vm(default, "web", true, "admin").map(drop),
    ] {
        assert!(matches!(outcome, Err(EngineError::BusyElsewhere { .. })), "{outcome:?}");
    }
}

/// (L6)
#[test]
fn rules_do_not_follow_a_clock_that_jumps() {
    const HOUR_MS: i64 = 3_600_000;
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume));
    let start_ms = engine.deciding_time_ms();
    bench.clock.advance_ms(5 * DAY_MS);
    bench.clock.set_by_ms(HOUR_MS / 2);
    assert_eq!(
        engine.deciding_time_ms() - start_ms,
        5 * DAY_MS + HOUR_MS / 2,
        "time passed, and was corrected"
    );
    assert_eq!(engine.clock_jumped_ms(), 0);
    bench.clock.set_by_ms(1000 * DAY_MS);
    assert_eq!(engine.deciding_time_ms() - start_ms, 5 * DAY_MS + HOUR_MS);
    assert_eq!(engine.clock_jumped_ms(), 1000 * DAY_MS - HOUR_MS / 2);
    bench.clock.advance_ms(DAY_MS);
    assert_eq!(engine.deciding_time_ms() - start_ms, 6 * DAY_MS + HOUR_MS);
    bench.clock.set_by_ms(-2000 * DAY_MS);
    assert!(engine.deciding_time_ms() < start_ms, "set back, more is in the future");
}
