//! VMs and jobs that are renamed or removed.

use holdfast_types::clock::Clock as _;
use holdfast_types::ids::BackupId;

use super::cases;
use super::fixture::Fixture;
use super::retention::{DAY_MS, audited, listed, policy, query, revision_of};
use crate::{CatalogError, Named, PageRequest, PointRecord, Rename, RetentionPolicy, VmQuery};

cases![
    a_renamed_vm_keeps_everything,
    a_vm_takes_the_name_of_a_removed_one,
    a_renamed_job_keeps_everything,
    a_newer_point_brings_its_names,
    names_that_went_round_are_followed_at_once,
    a_name_that_another_has_still_joins_them,
    policies_rest_until_someone_sets_them,
    a_removed_vm_is_in_no_overview,
    a_vm_with_restore_points_is_not_removed,
];

fn a_renamed_vm_keeps_everything(f: &Fixture) {
    f.advance_lock_clock().unwrap();
    let commit = f.committed("web", "nightly");
    f.set_policy(&RetentionPolicy { vm: Some("web".into()), ..policy(f, "web", 3) }, "admin").unwrap();
    let id = commit.backup;
    f.lock_backups(&[id], f.clock.now_ms() + DAY_MS, "admin").unwrap();
    f.note_point_sealed(id, 2).unwrap();
    let vm = f.named_vm(f.default.id, "web").unwrap().unwrap();
    f.rename_vm(vm.id, "www", "admin").unwrap();
    f.rename_vm(vm.id, "www", "admin").unwrap();
    assert_eq!(audited(f, "vm.rename"), 1);
    assert_eq!(f.named_vm(f.default.id, "web").unwrap(), None);
    assert_eq!(f.named_vm(f.default.id, "www").unwrap().unwrap().id, vm.id);
    assert_eq!(f.latest_backup(f.default.id, "www").unwrap().unwrap().id, id);
    assert_eq!(f.session_details(commit.attempt.session).unwrap()[0].vm, "www");
    assert_eq!(f.stale_points(None, 10).unwrap(), [id]);
    let point = f.point(id).unwrap().unwrap();
    assert_eq!((point.attempt.vm.as_str(), point.details[0].vm.as_str()), ("www", "www"));
    assert!(f.policy_lock(f.default.id, "www", "nightly").unwrap().is_some(), "its policy follows");
    assert!(matches!(f.begin_deletion(&[id], "op", "x"), Err(CatalogError::Locked { .. })));
    f.committed("db", "nightly");
    assert!(matches!(f.rename_vm(vm.id, "db", "admin"), Err(CatalogError::Exists { .. })));
    assert!(matches!(f.rename_vm(vm.id, "a\nb", "admin"), Err(CatalogError::Invalid { .. })));
    let no_vm = holdfast_types::ids::VmId(f.ulid());
    assert!(matches!(f.rename_vm(no_vm, "x", "admin"), Err(CatalogError::NotFound { .. })));
}

fn a_vm_takes_the_name_of_a_removed_one(f: &Fixture) {
    let (old, new) = (f.committed("www", "nightly"), f.committed("web", "nightly"));
    let named = |name: &str| f.named_vm(f.default.id, name).unwrap().unwrap().id;
    f.begin_deletion(&[old.backup], "op", "x").unwrap();
    let web = named("web");
    assert!(matches!(f.rename_vm(web, "www", "admin"), Err(CatalogError::Exists { .. })));
    f.remove_vm(named("www"), "admin").unwrap();
    f.rename_vm(web, "www", "admin").unwrap();
    assert_eq!(named("www"), web);
    for session in [old.attempt.session, new.attempt.session] {
        assert_eq!(f.session_details(session).unwrap()[0].vm, "www");
    }
    assert_eq!(f.list_vms(None, PageRequest::FIRST).unwrap().items.len(), 1);
}

fn a_renamed_job_keeps_everything(f: &Fixture) {
    let commit = f.committed("web", "nightly");
    f.set_policy(&RetentionPolicy { job: Some("nightly".into()), ..policy(f, "job", 3) }, "admin").unwrap();
    f.rename_job(f.default.id, "nightly", "daily", "admin").unwrap();
    assert_eq!(f.backup(commit.backup).unwrap().unwrap().job, "daily");
    assert_eq!(f.run(commit.attempt.run).unwrap().unwrap().job, "daily");
    assert_eq!(f.session_details(commit.attempt.session).unwrap()[0].job, "daily");
    assert_eq!(f.stale_points(None, 10).unwrap(), [commit.backup]);
    assert!(f.policy_lock(f.default.id, "web", "daily").unwrap().is_some(), "its policy follows");
    f.committed("web", "weekly");
    let rename = |from: &str, to: &str| f.rename_job(f.default.id, from, to, "admin");
    assert!(matches!(rename("daily", "weekly"), Err(CatalogError::Exists { .. })));
    assert!(matches!(rename("none", "some"), Err(CatalogError::NotFound { .. })));
    rename("daily", "daily").unwrap();
    assert_eq!(audited(f, "job.rename"), 1);
}

/// A newer revision of a restore point's point, after VM and job were renamed.
fn renamed(f: &Fixture, id: BackupId, vm: &str, job: &str) -> PointRecord {
    let mut point = f.point(id).unwrap().unwrap();
    point.revision = 3;
    (point.attempt.vm, point.attempt.job) = (vm.into(), job.into());
    for row in &mut point.details {
        (row.vm, row.job) = (vm.into(), job.into());
    }
    point
}

fn rename(f: &Fixture, kind: Named, from: &str, to: &str) -> Rename {
    Rename { namespace: f.default.id, kind, from: from.into(), to: to.into() }
}

fn a_newer_point_brings_its_names(f: &Fixture) {
    let (first, second) = (f.committed("web", "nightly"), f.committed("web", "nightly"));
    let left = f.committed("web", "nightly").backup;
    // The catalog is an older copy: both were renamed, VM and job. Of one restore point a crash left the old point.
    let points = [first.backup, second.backup].map(|id| renamed(f, id, "www", "daily"));
    f.follow_names(&[rename(f, Named::Vm, "web", "www"), rename(f, Named::Job, "nightly", "daily")]).unwrap();
    assert_eq!(f.enter_points(&points).unwrap(), [false, false]);
    for commit in [&first, &second] {
        let backup = f.backup(commit.backup).unwrap().unwrap();
        assert_eq!((backup.vm.as_str(), backup.job.as_str()), ("www", "daily"));
        assert_eq!(f.session_details(commit.attempt.session).unwrap()[0].vm, "www");
        assert_eq!(revision_of(f, commit.backup), (3, 3));
    }
    assert_eq!(f.list_vms(None, PageRequest::FIRST).unwrap().items.len(), 1, "it is one VM");
    assert_eq!(f.stale_points(None, 10).unwrap(), [left], "(L5) its point says the old name");
    // A point that says another name than all others brings none.
    let mut older = renamed(f, first.backup, "old", "daily");
    older.revision = 4;
    f.enter_points(std::slice::from_ref(&older)).unwrap();
    assert_eq!(f.backup(first.backup).unwrap().unwrap().vm, "www");
    assert!(f.stale_points(None, 10).unwrap().contains(&first.backup));
}

/// (P10) B was renamed to C, then A to B; another time, two changed their names.
fn names_that_went_round_are_followed_at_once(f: &Fixture) {
    let of = |id: BackupId| f.backup(id).unwrap().unwrap().vm;
    let (a, b) = (f.committed("a", "nightly").backup, f.committed("b", "nightly").backup);
    let keeps = |vm: &str| RetentionPolicy { vm: Some(vm.into()), ..policy(f, vm, 3) };
    let (of_a, of_b) = (keeps("a"), keeps("b"));
    f.set_policy(&of_a, "admin").unwrap();
    f.set_policy(&of_b, "admin").unwrap();
    f.follow_names(&[rename(f, Named::Vm, "a", "b"), rename(f, Named::Vm, "b", "c")]).unwrap();
    assert_eq!((of(a).as_str(), of(b).as_str()), ("b", "c"));
    let is_for = |id| f.policy(id).unwrap().unwrap().vm.unwrap();
    assert_eq!((is_for(of_a.id).as_str(), is_for(of_b.id).as_str()), ("b", "c"), "policies follow");
    f.follow_names(&[rename(f, Named::Vm, "c", "b"), rename(f, Named::Vm, "b", "c")]).unwrap();
    assert_eq!((of(a).as_str(), of(b).as_str()), ("c", "b"));
    assert_eq!((is_for(of_a.id).as_str(), is_for(of_b.id).as_str()), ("c", "b"));
    assert_eq!(audited(f, "vm.rename"), 4);
    assert_eq!(f.integrity_check().unwrap(), Vec::<String>::new());
    f.follow_names(&[rename(f, Named::Vm, "none", "x")]).unwrap();
    assert!(f.follow_names(&[rename(f, Named::Vm, "b", "a\nb")]).is_err());
}

/// (P10) The name is that of a VM of the older catalog, whose restore points were deleted since.
fn a_name_that_another_has_still_joins_them(f: &Fixture) {
    let mut old = f.commit("www", "daily");
    // It is the newest once its number is taken by another.
    old.disks[0].data_bytes -= 4096;
    f.commit_backup(&old).unwrap();
    let (later, other) = (f.committed("www", "daily"), f.committed("web", "nightly"));
    let number = f.backup(old.backup).unwrap().unwrap().ordinal;
    // Numbers of another lineage may be the same.
    let mut twin = renamed(f, other.backup, "web", "nightly");
    (twin.number, twin.revision) = (number, 1);
    (twin.backup, twin.attempt.session) = (BackupId(f.ulid()), holdfast_types::ids::SessionId(f.ulid()));
    twin.details.iter_mut().for_each(|row| row.backup = twin.backup.to_string());
    f.enter_points(std::slice::from_ref(&twin)).unwrap();
    f.follow_names(&[rename(f, Named::Vm, "web", "www"), rename(f, Named::Job, "nightly", "daily")]).unwrap();
    for id in [old.backup, later.backup, other.backup, twin.backup] {
        let found = f.backup(id).unwrap().unwrap();
        assert_eq!((found.vm.as_str(), found.job.as_str()), ("www", "daily"));
    }
    assert_eq!(f.list_vms(None, PageRequest::FIRST).unwrap().items.len(), 1);
    assert_eq!(f.run(old.attempt.run).unwrap().unwrap().job, "daily");
    assert_eq!(f.integrity_check().unwrap(), Vec::<String>::new(), "sums follow");
    let next = f.committed("www", "daily").backup;
    assert_eq!(f.latest_backup(f.default.id, "www").unwrap().unwrap().id, next);
}

/// (P10)
fn policies_rest_until_someone_sets_them(f: &Fixture) {
    let on = RetentionPolicy { vm: Some("web".into()), ..policy(f, "on", 3) };
    let off = RetentionPolicy { enabled: false, job: Some("x".into()), ..policy(f, "off", 3) };
    f.set_policy(&on, "admin").unwrap();
    f.set_policy(&off, "admin").unwrap();
    assert_eq!((f.rest_policies().unwrap(), f.rest_policies().unwrap()), (1, 0));
    let now = |id| f.policy(id).unwrap().unwrap();
    assert!(now(on.id).resting_since_ms.is_some() && !now(on.id).is_at_work() && now(on.id).enabled);
    assert_eq!(now(off.id).resting_since_ms, None);
    assert!(f.policy_lock(f.default.id, "web", "nightly").unwrap().is_some(), "it locks on (L3)");
    f.set_policy(&now(on.id), "admin").unwrap();
    assert!(now(on.id).is_at_work());
}

fn a_removed_vm_is_in_no_overview(f: &Fixture) {
    let (gone, kept) = (f.committed("web", "nightly"), f.committed("db", "nightly"));
    f.begin_deletion(&[gone.backup], "op", "x").unwrap();
    let vm = f.named_vm(f.default.id, "web").unwrap().unwrap().id;
    f.remove_vm(vm, "admin").unwrap();
    assert_eq!(f.named_vm(f.default.id, "web").unwrap(), None);
    let names = || -> Vec<String> {
        f.list_vms(None, PageRequest::FIRST).unwrap().items.into_iter().map(|vm| vm.name).collect()
    };
    assert_eq!(names(), ["db"]);
    let stale = VmQuery { stale: Some(true), stale_before_ms: i64::MAX, ..query() };
    let (found, total) = f.vm_overviews(None, &stale).unwrap();
    assert_eq!((found[0].vm.as_str(), total), ("db", 1));
    assert_eq!(f.namespace_overviews(None).unwrap()[0].vms, 1);
    let history = f.session_details(gone.attempt.session).unwrap();
    assert_eq!((history.len(), &history[0].backup), (2, &gone.backup.to_string()), "its history stays");
    assert_eq!(f.vm_owner(f.default.id, "web").unwrap().unwrap().owner, None);
    assert_eq!(audited(f, "vm.remove"), 1);
    // A backup of that name takes it back.
    f.committed("web", "nightly");
    assert_eq!(names(), ["db", "web"]);
    assert!(listed(f).contains(&kept.backup));
}

fn a_vm_with_restore_points_is_not_removed(f: &Fixture) {
    let id = f.committed("web", "nightly").backup;
    f.hold_backups(&[id], "case", "admin").unwrap();
    let vm = f.named_vm(f.default.id, "web").unwrap().unwrap().id;
    let error = f.remove_vm(vm, "admin").unwrap_err();
    assert!(matches!(error, CatalogError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains(&id.to_string()), "{error}");
    let no_vm = holdfast_types::ids::VmId(f.ulid());
    assert!(matches!(f.remove_vm(no_vm, "admin"), Err(CatalogError::NotFound { .. })));
}
