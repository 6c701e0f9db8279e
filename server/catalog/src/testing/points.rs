//! Commit numbers, and restore points that come from the volume instead of a session.

use holdfast_proto::KeyId;
use holdfast_types::clock::Clock as _;
use holdfast_types::ids::{BackupId, NamespaceId, RunId};

use std::io::Read as _;
use std::sync::Arc;

use super::cases;
use super::fixture::{Fixture, row};
use crate::{
    BackupCommit, CatalogError, CommitState, FailedRun, NamespaceRecord, PageRequest, PointRecord,
    RetentionLock, RowStatus,
};

cases![
    commits_are_numbered_in_their_order,
    a_backup_read_as_a_point_is_what_was_committed,
    a_point_makes_everything_it_names,
    a_point_is_entered_once,
    a_point_takes_its_place_within_its_vm,
    a_later_decision_about_the_owner_stays,
    a_point_replaces_the_record_of_a_failure,
    a_point_that_contradicts_itself_is_refused,
    points_are_entered_together_or_not_at_all,
    points_of_a_run_that_name_two_jobs_are_all_entered,
    a_namespace_comes_back_under_its_id,
    an_end_to_end_namespace_comes_back_with_its_key,
    whether_points_are_written_is_remembered,
    a_snapshot_is_whole_and_changes_are_noticed,
];

/// The point of a backup of another catalog: its namespace, VM and job are unknown here.
fn foreign(f: &Fixture, number: u64, vm: &str) -> PointRecord {
    let namespace = NamespaceRecord {
        id: NamespaceId(ulid::Ulid(0x0193_0000_0000_0000_0000_0000_0000_0001)),
        name: "berlin".into(),
        created_ms: 7,
        key_id: None,
    };
    let BackupCommit { mut attempt, backup, disks, mut details, .. } = f.commit(vm, "weekly");
    let missing_disks = vec!["swap".to_owned()];
    attempt.namespace = namespace.id;
    for row in &mut details {
        row.namespace.clone_from(&namespace.name);
        row.point = crate::PointFate::Partial;
    }
    PointRecord {
        number,
        namespace,
        attempt,
        backup,
        parent: None,
        disks,
        missing_disks,
        details,
        next_container: f.commits().unwrap().next_container,
        revision: 1,
        lock: RetentionLock::default(),
        lock_time_ms: None,
    }
}

fn enter(f: &Fixture, point: &PointRecord) -> crate::Result<bool> {
    f.enter_points(std::slice::from_ref(point)).map(|entered| entered == [true])
}

fn commits_are_numbered_in_their_order(f: &Fixture) {
    assert_eq!(f.commits().unwrap().last, 0);
    for (number, vm) in [(1, "web"), (2, "db"), (3, "web")] {
        let commit = f.committed(vm, "nightly");
        assert_eq!(f.point(commit.backup).unwrap().unwrap().number, number);
        assert_eq!(f.commits().unwrap().last, number);
    }
    let jump = BackupCommit { number: 40, ..f.commit("db", "nightly") };
    f.commit_backup(&jump).unwrap();
    assert_eq!(f.point(jump.backup).unwrap().unwrap().number, 40);
    // A number below the VM's latest would hide the backup behind it.
    let late = BackupCommit { number: 30, ..f.commit("db", "nightly") };
    f.commit_backup(&late).unwrap();
    assert_eq!(f.latest_backup(f.default.id, "db").unwrap().unwrap().id, late.backup);
    assert_eq!(f.commits().unwrap().last, 41);
    let beyond = BackupCommit { number: crate::COMMIT_NUMBER_MAX + 1, ..f.commit("db", "nightly") };
    assert!(matches!(f.commit_backup(&beyond), Err(CatalogError::Invalid { .. })));
}

fn a_backup_read_as_a_point_is_what_was_committed(f: &Fixture) {
    let commit = f.committed("web", "nightly");
    let point = f.point(commit.backup).unwrap().unwrap();
    assert_eq!(point.namespace, f.default);
    assert_eq!((&point.disks, &point.details), (&commit.disks, &commit.details));
    let who = String::new();
    assert_eq!(point.attempt, crate::Attempt { who, ..commit.attempt });
    assert_eq!(point.next_container, f.commits().unwrap().next_container);
    assert_eq!(f.point(BackupId(f.ulid())).unwrap(), None);
    let more = f.committed("db", "nightly").backup;
    let ids: Vec<BackupId> = f.catalog.all_backup_ids().map(Result::unwrap).collect();
    assert_eq!(ids, [commit.backup, more]);
}

fn a_point_makes_everything_it_names(f: &Fixture) {
    let mut point = foreign(f, 12, "mail");
    point.next_container = 5000;
    assert!(enter(f, &point).unwrap());
    assert_eq!(f.namespace(point.namespace.id).unwrap(), Some(point.namespace.clone()));
    let backup = f.latest_backup(point.namespace.id, "mail").unwrap().unwrap();
    assert_eq!((backup.id, &backup.disks, backup.job.as_str()), (point.backup, &point.disks, "weekly"));
    assert_eq!(f.session_details(point.attempt.session).unwrap(), point.details);
    assert_eq!(f.run(point.attempt.run).unwrap().unwrap().job, "weekly");
    assert_eq!(
        f.commits().unwrap(),
        CommitState { last: 12, points_written: false, next_container: 5000, generation: 0 }
    );
    assert_eq!(f.reserve_container_numbers(1).unwrap(), 5000..5001);
    let log = f.list_audit(PageRequest::FIRST).unwrap().items;
    assert!(
        log.iter()
            .any(|entry| entry.entry.action == "backup.enter"
                && entry.entry.object == point.backup.to_string())
    );
    assert_eq!(f.point(point.backup).unwrap().unwrap().number, 12);
}

fn a_point_is_entered_once(f: &Fixture) {
    let point = foreign(f, 3, "mail");
    assert!(enter(f, &point).unwrap());
    assert!(!enter(f, &point).unwrap());
    let committed = f.committed("web", "nightly");
    let known = f.point(committed.backup).unwrap().unwrap();
    assert!(!enter(f, &known).unwrap());
    let mut stolen = known;
    stolen.attempt.session = foreign(f, 9, "x").attempt.session;
    assert!(matches!(enter(f, &stolen), Err(CatalogError::Exists { .. })));
    assert_eq!(f.catalog.all_backup_ids().count(), 2);
}

fn a_point_takes_its_place_within_its_vm(f: &Fixture) {
    let (first, third) = (foreign(f, 10, "mail"), foreign(f, 30, "mail"));
    let second = foreign(f, 20, "mail");
    for point in [&first, &third, &second] {
        assert!(enter(f, point).unwrap());
    }
    assert_eq!(f.latest_backup(first.namespace.id, "mail").unwrap().unwrap().id, third.backup);
    let before: Vec<BackupId> =
        f.backups_before(third.backup, 10).unwrap().into_iter().map(|b| b.id).collect();
    assert_eq!(before, [second.backup, first.backup]);
    // A number that is taken is no reason to lose a restore point.
    let twin = foreign(f, 30, "mail");
    assert!(enter(f, &twin).unwrap());
    assert_eq!(f.point(twin.backup).unwrap().unwrap().number, 31);
}

/// The operator's decision came after the restore point was made, and before a start entered it.
fn a_later_decision_about_the_owner_stays(f: &Fixture) {
    let owner = |vm: &str| f.vm_owner(f.default.id, vm).unwrap().unwrap();
    let change = |vm: &str, to: &str| f.set_vm_owner(owner(vm).id, to, "operator").unwrap();
    f.committed("web", "nightly");
    let first = late_of(f, "web", 100, "default");
    f.clock.advance_ms(1);
    change("web", "berlin");
    assert!(enter(f, &first).unwrap());
    assert_eq!(owner("web").owner.as_deref(), Some("berlin"));
    assert_eq!(f.backup(first.backup).unwrap().unwrap().owner, first.attempt.vm_owner);

    // The other way round: the catalog is an older copy, which does not know the decision that the point followed.
    f.committed("db", "nightly");
    change("db", "berlin");
    f.clock.advance_ms(1);
    let second = late_of(f, "db", 200, "rome");
    assert!(enter(f, &second).unwrap());
    assert_eq!(owner("db").owner.as_deref(), Some("rome"));
}

/// The point of a backup of a VM of this catalog, made now under this owner.
fn late_of(f: &Fixture, vm: &str, number: u64, owner: &str) -> PointRecord {
    let BackupCommit { mut attempt, backup, disks, missing_disks, details, .. } = f.commit(vm, "nightly");
    attempt.finished_ms = f.clock.now_ms();
    owner.clone_into(&mut attempt.vm_owner);
    let (namespace, next_container) = (f.default.clone(), f.commits().unwrap().next_container);
    PointRecord {
        number,
        namespace,
        attempt,
        backup,
        parent: None,
        disks,
        missing_disks,
        details,
        next_container,
        revision: 1,
        lock: RetentionLock::default(),
        lock_time_ms: None,
    }
}

fn a_point_replaces_the_record_of_a_failure(f: &Fixture) {
    let commit = f.commit("web", "nightly");
    let lost = crate::DetailRow {
        status: RowStatus::Failed,
        error: "the catalog could not be written".into(),
        ..row(&commit.attempt, "system")
    };
    let failed = FailedRun { attempt: commit.attempt.clone(), details: vec![lost], containers: vec![] };
    f.record_failed_run(&failed).unwrap();
    let BackupCommit { attempt, backup, disks, missing_disks, details, .. } = commit;
    let point = PointRecord {
        number: 1,
        namespace: f.default.clone(),
        attempt,
        backup,
        parent: None,
        disks,
        missing_disks,
        details,
        next_container: 9,
        revision: 1,
        lock: RetentionLock::default(),
        lock_time_ms: None,
    };
    assert!(enter(f, &point).unwrap());
    assert_eq!(f.session_details(point.attempt.session).unwrap(), point.details);
}

fn a_point_that_contradicts_itself_is_refused(f: &Fixture) {
    type Change = fn(&mut PointRecord);
    let changes: [Change; 8] = [
        |p| p.number = 0,
        |p| p.number = crate::COMMIT_NUMBER_MAX + 1,
        |p| p.next_container = 0,
        |p| p.next_container = u64::MAX,
        |p| p.disks.clear(),
        |p| drop(p.details.pop()),
        |p| p.namespace.id = NamespaceId(ulid::Ulid(1)),
        |p| p.disks.iter_mut().for_each(|disk| disk.extent_count += 1),
    ];
    for (n, change) in changes.iter().enumerate() {
        let mut point = foreign(f, 5, "mail");
        change(&mut point);
        let refused = enter(f, &point);
        assert!(matches!(refused, Err(CatalogError::Invalid { .. })), "{n}: {refused:?}");
    }
    assert_eq!(f.catalog.all_backup_ids().count(), 0);
    assert_eq!(f.namespaces().unwrap().len(), 1);
}

fn a_namespace_comes_back_under_its_id(f: &Fixture) {
    let wanted = foreign(f, 1, "x").namespace;
    assert_eq!(f.restore_namespace(&wanted).unwrap(), wanted);
    let renamed = NamespaceRecord { name: "other".into(), ..wanted.clone() };
    assert_eq!(f.restore_namespace(&renamed).unwrap(), wanted, "known by its id");
    let twin = NamespaceRecord { id: NamespaceId(ulid::Ulid(5)), ..wanted };
    let restored = f.restore_namespace(&twin).unwrap();
    assert_eq!((restored.id, restored.name), (twin.id, format!("berlin-{}", twin.id)));
    // Of its containers alone its name is not known.
    let unnamed = NamespaceRecord::unnamed(NamespaceId(ulid::Ulid(7)));
    assert_eq!(f.restore_namespace(&unnamed).unwrap(), unnamed);
    let taken = NamespaceRecord { name: "berlin".into(), ..unnamed.clone() };
    assert_eq!(f.restore_namespace(&taken).unwrap(), unnamed, "another has that name");
    let named = NamespaceRecord { name: "hamburg".into(), ..unnamed };
    assert_eq!(f.restore_namespace(&named).unwrap(), named);
    assert_eq!(f.namespace_by_name("hamburg").unwrap(), Some(named));
    let bad =
        NamespaceRecord { id: NamespaceId(ulid::Ulid(6)), name: "a\nb".into(), created_ms: 0, key_id: None };
    assert!(matches!(f.restore_namespace(&bad), Err(CatalogError::Invalid { .. })));
}

fn an_end_to_end_namespace_comes_back_with_its_key(f: &Fixture) {
    let key_id = Some(KeyId::from_bytes([3; 8]));
    let mut point = foreign(f, 1, "x");
    // As a start makes it of containers without a point.
    let guessed = NamespaceRecord { name: "recovered".into(), ..point.namespace.clone() };
    assert_eq!(f.restore_namespace(&guessed).unwrap().key_id, None);
    point.namespace.key_id = key_id;
    enter(f, &point).unwrap();
    let now = f.namespace(point.namespace.id).unwrap().unwrap();
    assert_eq!((now.name.as_str(), now.key_id), ("recovered", key_id));
    assert_eq!(f.point(point.backup).unwrap().unwrap().namespace, now, "and is written with it");
    let other = NamespaceRecord { key_id: Some(KeyId::from_bytes([4; 8])), ..now.clone() };
    assert_eq!(f.restore_namespace(&other).unwrap(), now, "a key stays what it is");
    let none = NamespaceRecord { key_id: None, ..now.clone() };
    assert_eq!(f.restore_namespace(&none).unwrap(), now);
}

fn whether_points_are_written_is_remembered(f: &Fixture) {
    assert!(!f.commits().unwrap().points_written, "what came before points has none");
    for written in [true, true, false] {
        f.set_points_written(written).unwrap();
        assert_eq!(f.commits().unwrap().points_written, written);
    }
}

fn a_snapshot_is_whole_and_changes_are_noticed(f: &Fixture) {
    f.committed("web", "nightly");
    let before = f.change_mark().unwrap();
    assert_eq!(f.change_mark().unwrap(), before);
    let mut bytes = Vec::new();
    f.snapshot(&Arc::default()).unwrap().read_to_end(&mut bytes).unwrap();
    assert!(!bytes.is_empty());
    assert_eq!(f.change_mark().unwrap(), before, "reading changes nothing");
    f.committed("web", "nightly");
    assert_ne!(f.change_mark().unwrap(), before);
}

fn points_are_entered_together_or_not_at_all(f: &Fixture) {
    let (one, two, mut bad) = (foreign(f, 1, "mail"), foreign(f, 2, "mail"), foreign(f, 3, "mail"));
    assert_eq!(f.enter_points(&[one.clone(), two.clone(), one.clone()]).unwrap(), [true, true, false]);
    bad.attempt.run = two.attempt.run;
    bad.details.iter_mut().for_each(|row| row.run = bad.attempt.run.to_string());
    bad.attempt.owner = "other".into();
    let refused = f.enter_points(&[foreign(f, 4, "mail"), bad]);
    assert!(matches!(refused, Err(CatalogError::Invalid { .. })), "{refused:?}");
    assert_eq!(f.catalog.all_backup_ids().count(), 2);
}

/// (P9) The job was renamed while the run was in progress; the catalog is lost before every point was sealed anew.
fn points_of_a_run_that_name_two_jobs_are_all_entered(f: &Fixture) {
    let named = |number: u64, run: RunId, job: &str, revision: u32| {
        let mut point = foreign(f, number, &format!("vm-{number}"));
        (point.attempt.run, point.attempt.job, point.revision) = (run, job.into(), revision);
        for row in &mut point.details {
            (row.run, row.job) = (run.to_string(), job.into());
        }
        point
    };
    for (n, old_first) in [(0, true), (10, false)] {
        let run = RunId(f.ulid());
        let mut points =
            [named(n + 1, run, "nightly", 1), named(n + 2, run, "daily", 2), named(n + 3, run, "nightly", 1)];
        if !old_first {
            points.reverse();
            points.swap(0, 1);
        }
        assert_eq!(f.enter_points(&points).unwrap(), [true; 3]);
        assert_eq!(f.run(run).unwrap().unwrap().job, "daily");
        for point in &points {
            assert_eq!(f.backup(point.backup).unwrap().unwrap().job, "daily");
            assert_eq!(f.session_details(point.attempt.session).unwrap()[0].job, "daily");
            let is_stale = f.stale_points(None, 100).unwrap().contains(&point.backup);
            assert!(is_stale || point.attempt.job == "daily", "(L5) its point says the old name");
        }
    }
}
