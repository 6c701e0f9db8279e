//! Deletions, locks, holds, the lock clock, and policies.

use holdfast_proto::api::Rules;
use holdfast_types::clock::Clock as _;
use holdfast_types::ids::{BackupId, PolicyId};

use super::cases;
use super::fixture::{Fixture, all_pages};
use crate::{
    ARCHIVE_DAYS_MAX, BackupCommit, BackupFilter, CatalogError, DetailRow, DiskQuery, LOCK_DAYS_MAX,
    PageRequest, PointFate, PointRecord, RETENTION_IDS_MAX, RetentionLock, RetentionPolicy, Verification,
    VmQuery, VmSort,
};

cases![
    no_question_finds_what_is_being_deleted,
    what_is_deleted_stays_in_the_history,
    a_deletion_is_finished_once,
    what_is_being_deleted_is_not_entered_again,
    one_locked_restore_point_refuses_all,
    a_lock_only_lengthens,
    a_hold_ends_by_release_only,
    what_is_locked_or_held_is_listed,
    the_lock_clock_follows_slowly,
    a_lock_ends_when_the_lock_clock_says_so,
    a_policy_locks_what_is_committed,
    a_policy_that_came_late_locks_all_the_same,
    changing_a_policy_releases_nothing,
    policies_are_kept_as_they_were_set,
    a_locked_point_brings_its_lock_and_its_clock,
    the_stricter_lock_counts,
    a_changed_row_makes_its_point_stale,
];

pub(super) const DAY_MS: i64 = 24 * 3600 * 1000;

pub(super) fn query() -> VmQuery {
    VmQuery {
        vm: None,
        search: None,
        stale: None,
        stale_before_ms: 0,
        now_ms: super::fixture::START_MS,
        sort: VmSort::Vm,
        descending: false,
        offset: 0,
        limit: 100,
    }
}

pub(super) fn listed(f: &Fixture) -> Vec<BackupId> {
    let mut ids: Vec<BackupId> = all_pages(2, |page| f.list_backups(&BackupFilter::default(), page))
        .into_iter()
        .map(|backup| backup.id)
        .collect();
    ids.sort_unstable();
    ids
}

fn lock_of(f: &Fixture, id: BackupId) -> RetentionLock {
    f.backup(id).unwrap().unwrap().lock
}

pub(super) fn revision_of(f: &Fixture, id: BackupId) -> (u32, u32) {
    let states = f.point_states(None, 100).unwrap();
    states.iter().find(|state| state.backup == id).map(|state| (state.revision, state.wanted)).unwrap()
}

pub(super) fn audited(f: &Fixture, action: &str) -> usize {
    let log = f.list_audit(PageRequest { size: 1000, token: "" }).unwrap().items;
    log.iter().filter(|entry| entry.entry.action == action).count()
}

pub(super) fn policy(f: &Fixture, name: &str, lock_days: u32) -> RetentionPolicy {
    RetentionPolicy {
        id: PolicyId(f.ulid()),
        name: name.into(),
        namespace: f.default.id,
        vm: None,
        job: None,
        rules: Rules {
            keep_last: 3,
            keep_daily: 7,
            keep_weekly: 4,
            keep_monthly: 12,
            keep_yearly: 1,
            keep_within_days: 2,
            ..Rules::default()
        },
        schedule: "0 3 * * *".into(),
        time_zone: "Europe/Berlin".into(),
        lock_days,
        archive_after_days: None,
        enabled: true,
        resting_since_ms: None,
        updated_ms: 0,
        updated_by: String::new(),
    }
}

fn point_of(f: &Fixture, commit: &BackupCommit) -> PointRecord {
    let BackupCommit { attempt, backup, disks, missing_disks, details, .. } = commit.clone();
    PointRecord {
        number: 1,
        namespace: f.default.clone(),
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

fn no_question_finds_what_is_being_deleted(f: &Fixture) {
    let (old, gone, other) =
        (f.committed("web", "nightly"), f.committed("web", "nightly"), f.committed("db", "nightly"));
    let (at_ms, who) = (f.clock.now_ms(), "op".to_owned());
    let verified =
        Verification { backup: gone.backup, at_ms, who, by_agent: true, ok: true, detail: String::new() };
    f.record_verification(&verified).unwrap();
    let usage = || f.quotas(None).unwrap().remove(0).usage;
    let (before, id) = (usage(), gone.backup);
    let begun = f.begin_deletion(&[id], "op", "no longer needed").unwrap();
    assert_eq!((begun.len(), begun[0].backup, begun[0].vm.as_str()), (1, id, "web"));
    assert_eq!((begun[0].revision, begun[0].stale, &begun[0].namespace), (1, false, &f.default));

    assert_eq!(listed(f), [old.backup, other.backup]);
    assert_eq!(f.backup(id).unwrap(), None);
    assert_eq!(f.backup_by_session(gone.attempt.session).unwrap(), None);
    assert_eq!(f.latest_backup(f.default.id, "web").unwrap().unwrap().id, old.backup);
    assert_eq!(f.backups_before(id, 10).unwrap(), []);
    assert_eq!(f.find_backups(f.default.id, &id.to_string(), 10).unwrap(), []);
    assert!(f.catalog.all_roots().all(|root| root.unwrap().backup != id));
    assert!(f.catalog.all_backup_ids().all(|found| found.unwrap() != id));
    assert!(f.point_states(None, 10).unwrap().iter().all(|state| state.backup != id));
    assert_eq!(f.point(id).unwrap(), None);
    assert_eq!(f.verifications(&[id]).unwrap(), []);
    assert!(matches!(f.record_verification(&verified), Err(CatalogError::NotFound { .. })));
    let vm = f.named_vm(f.default.id, "web").unwrap().unwrap().id;
    assert_eq!(f.backups_of_vm(vm, None, 10).unwrap(), [old.backup]);
    let vms = f.list_vms(None, PageRequest::FIRST).unwrap().items;
    let web = vms.iter().find(|vm| vm.name == "web").unwrap();
    assert_eq!((web.backups, web.latest), (1, Some(old.backup)));
    let (overviews, _) = f.vm_overviews(None, &query()).unwrap();
    let web = overviews.iter().find(|vm| vm.vm == "web").unwrap();
    assert_eq!((web.backups, web.latest.as_ref().map(|latest| latest.id)), (1, Some(old.backup)));
    assert!(web.verification.is_none());
    let disks = DiskQuery { vm: Some("web".into()), now_ms: at_ms, offset: 0, limit: 10 };
    let (disks, _) = f.disk_overviews(None, &disks).unwrap();
    assert!(disks.iter().all(|disk| disk.latest_backup == old.backup), "{disks:?}");
    assert_eq!(f.namespace_overviews(None).unwrap()[0].backups, 2);
    assert_eq!(usage().restore_points, before.restore_points - 1);
    let protected: u64 = old.disks.iter().chain(&other.disks).map(|disk| disk.data_bytes).sum();
    assert_eq!(usage().protected_bytes, protected);
    let account = f.start_account(f.default.id, "web", "nightly").unwrap();
    assert_eq!(account.vm_protected_bytes, Some(old.disks.iter().map(|disk| disk.data_bytes).sum()));
}

fn what_is_deleted_stays_in_the_history(f: &Fixture) {
    let commit = f.committed("web", "nightly");
    f.begin_deletion(&[commit.backup], "op", "tidying").unwrap();
    f.finish_deletion(&[commit.backup]).unwrap();
    let deleted = DetailRow {
        point: PointFate::Deleted,
        deleted_ms: f.clock.now_ms(),
        deleted_by: "op: tidying".into(),
        ..commit.details[0].clone()
    };
    assert_eq!(f.session_details(commit.attempt.session).unwrap()[0], deleted);
    assert!(f.run(commit.attempt.run).unwrap().is_some());
    assert_eq!(f.containers(None, 100).unwrap().len(), commit.containers.len());
    // A commit whose answer was lost is not taken for a new one.
    assert!(matches!(f.commit_backup(&commit), Err(CatalogError::Exists { .. })));
    let entry = f.list_audit(PageRequest::FIRST).unwrap().items.remove(0).entry;
    assert_eq!((entry.action.as_str(), entry.object), ("backup.delete", commit.backup.to_string()));
    assert!(entry.detail.contains("tidying") && entry.detail.contains("web"), "{}", entry.detail);
    // The next backup is of the same VM, above every number that was used.
    let next = f.committed("web", "nightly");
    assert_eq!(f.point(next.backup).unwrap().unwrap().number, 2);
}

fn a_deletion_is_finished_once(f: &Fixture) {
    let commits: Vec<BackupId> = (0..3).map(|_| f.committed("web", "nightly").backup).collect();
    assert_eq!(f.begin_deletion(&commits[..2], "op", "x").unwrap().len(), 2);
    // Asked again, with one more: that one only.
    let again = f.begin_deletion(&commits, "op", "x").unwrap();
    assert_eq!(again.iter().map(|one| one.backup).collect::<Vec<_>>(), commits[2..]);
    assert_eq!(f.deletions(None, 10).unwrap().len(), 3);
    assert_eq!(f.deletions(Some(commits[0]), 1).unwrap()[0].backup, commits[1]);
    f.finish_deletion(&commits[..2]).unwrap();
    f.finish_deletion(&commits[..2]).unwrap();
    f.finish_deletion(&[]).unwrap();
    assert_eq!(f.deletions(None, 10).unwrap().len(), 1);
    let error = f.begin_deletion(&commits[..1], "op", "x").unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { .. }), "{error}");
    // Of one that does not exist and one that does, neither.
    let kept = f.committed("web", "nightly").backup;
    f.begin_deletion(&[kept, commits[0]], "op", "x").unwrap_err();
    assert_eq!(listed(f), [kept]);
    let many = vec![kept; RETENTION_IDS_MAX + 1];
    assert!(matches!(f.begin_deletion(&many, "op", "x"), Err(CatalogError::Invalid { .. })));
}

fn what_is_being_deleted_is_not_entered_again(f: &Fixture) {
    let commit = f.committed("web", "nightly");
    let point = f.point(commit.backup).unwrap().unwrap();
    f.begin_deletion(&[commit.backup], "op", "x").unwrap();
    assert_eq!(f.enter_points(std::slice::from_ref(&point)).unwrap(), [false]);
    assert_eq!(listed(f), []);
}

fn one_locked_restore_point_refuses_all(f: &Fixture) {
    let (free, locked) = (f.committed("web", "nightly").backup, f.committed("db", "nightly").backup);
    f.advance_lock_clock().unwrap();
    let until_ms = f.clock.now_ms() + DAY_MS;
    assert_eq!(f.lock_backups(&[locked], until_ms, "admin").unwrap(), [locked]);
    let error = f.begin_deletion(&[free, locked], "op", "x").unwrap_err();
    let CatalogError::Locked { backup, vm, until_ms: until, hold: None } = &error else {
        panic!("{error:?}")
    };
    assert_eq!((**backup, &**vm, *until), (locked, "db", Some(until_ms)));
    assert!(error.to_string().contains("is locked until 2025-11-2"), "{error}");
    assert_eq!(listed(f), [free, locked], "none was deleted");
    assert_eq!(audited(f, "backup.delete"), 0);
    f.hold_backups(&[locked], "case 17", "admin").unwrap();
    let error = f.begin_deletion(&[locked], "op", "x").unwrap_err();
    let CatalogError::Locked { until_ms: Some(_), hold: Some(reason), .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(&**reason, "case 17");
    f.begin_deletion(&[free], "op", "x").unwrap();
}

fn a_lock_only_lengthens(f: &Fixture) {
    let id = f.committed("web", "nightly").backup;
    let now_ms = f.advance_lock_clock().unwrap();
    f.lock_backups(&[id], now_ms + 5 * DAY_MS, "admin").unwrap();
    assert_eq!(f.lock_backups(&[id], now_ms + DAY_MS, "admin").unwrap(), [], "shorter");
    assert_eq!(f.lock_backups(&[id], now_ms + 5 * DAY_MS, "admin").unwrap(), [], "the same");
    assert_eq!(lock_of(f, id).until_ms, Some(now_ms + 5 * DAY_MS));
    assert_eq!(f.lock_backups(&[id], now_ms + 6 * DAY_MS, "admin").unwrap(), [id]);
    assert_eq!(lock_of(f, id).until_ms, Some(now_ms + 6 * DAY_MS));
    assert_eq!(audited(f, "backup.lock"), 2);
    for wrong in [now_ms, now_ms - 1, now_ms + (i64::from(LOCK_DAYS_MAX) + 1) * DAY_MS, i64::MAX] {
        let error = f.lock_backups(&[id], wrong, "admin").unwrap_err();
        assert!(matches!(error, CatalogError::Invalid { .. }), "{wrong}: {error}");
    }
    let error = f.lock_backups(&[id, BackupId(f.ulid())], now_ms + 9 * DAY_MS, "admin").unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { .. }), "{error}");
    assert_eq!(lock_of(f, id).until_ms, Some(now_ms + 6 * DAY_MS), "all or none");
}

fn what_is_locked_or_held_is_listed(f: &Fixture) {
    let mut ids: Vec<BackupId> = (0..6).map(|_| f.committed("web", "nightly").backup).collect();
    let free = f.committed("web", "nightly").backup;
    ids.sort_unstable();
    let now_ms = f.advance_lock_clock().unwrap();
    f.lock_backups(&ids[..4], now_ms + DAY_MS, "admin").unwrap();
    f.hold_backups(&ids[3..], "case 17", "admin").unwrap();
    let mut found = Vec::new();
    loop {
        let page = f.locked_backups(found.last().map(|(id, _)| *id), 4).unwrap();
        assert!(page.len() <= 4);
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    for (id, lock) in found {
        assert_eq!(lock, lock_of(f, id));
        assert_ne!(id, free);
    }
    f.release_holds(&ids[4..], "closed", "admin").unwrap();
    f.begin_deletion(&ids[4..5], "op", "x").unwrap();
    assert_eq!(f.locked_backups(None, 9).unwrap().len(), 4);
}

fn a_hold_ends_by_release_only(f: &Fixture) {
    let id = f.committed("web", "nightly").backup;
    f.advance_lock_clock().unwrap();
    for nothing in ["", "  "] {
        assert!(matches!(f.hold_backups(&[id], nothing, "admin"), Err(CatalogError::Invalid { .. })));
        assert!(matches!(f.release_holds(&[id], nothing, "admin"), Err(CatalogError::Invalid { .. })));
    }
    assert_eq!(f.hold_backups(&[id], "case 17", "admin").unwrap(), [id]);
    assert_eq!(f.hold_backups(&[id], "case 18", "other").unwrap(), [], "the first stays");
    let hold = lock_of(f, id).hold.unwrap();
    assert_eq!(
        (hold.reason.as_str(), hold.who.as_str(), hold.since_ms),
        ("case 17", "admin", f.clock.now_ms())
    );
    f.clock.advance_ms(100 * 365 * DAY_MS);
    f.advance_lock_clock().unwrap();
    assert!(matches!(f.begin_deletion(&[id], "op", "x"), Err(CatalogError::Locked { hold: Some(_), .. })));
    assert_eq!(f.release_holds(&[id], "closed", "boss").unwrap(), [id]);
    assert_eq!(f.release_holds(&[id], "closed", "boss").unwrap(), []);
    let entry = f.list_audit(PageRequest::FIRST).unwrap().items.remove(0).entry;
    assert_eq!((entry.who.as_str(), entry.action.as_str()), ("boss", "backup.release"));
    assert!(entry.detail.contains("closed") && entry.detail.contains("case 17"), "{}", entry.detail);
    f.begin_deletion(&[id], "op", "x").unwrap();
}

fn the_lock_clock_follows_slowly(f: &Fixture) {
    assert_eq!(f.lock_time().unwrap(), None);
    let start_ms = f.clock.now_ms();
    assert_eq!(f.advance_lock_clock().unwrap(), start_ms);
    f.clock.advance_ms(5000);
    assert_eq!(f.advance_lock_clock().unwrap(), start_ms + 5000, "in step");
    f.clock.set_by_ms(1000 * DAY_MS);
    assert_eq!(f.advance_lock_clock().unwrap(), start_ms + 5000, "a jump alone moves nothing");
    f.clock.advance_ms(5000);
    assert_eq!(f.advance_lock_clock().unwrap(), start_ms + 15_000, "twice as fast, no faster");
    f.clock.set_by_ms(-2000 * DAY_MS);
    f.clock.advance_ms(5000);
    assert_eq!(f.advance_lock_clock().unwrap(), start_ms + 15_000, "it never goes back");
    assert_eq!(f.lock_time().unwrap(), Some(start_ms + 15_000));
}

fn a_lock_ends_when_the_lock_clock_says_so(f: &Fixture) {
    let id = f.committed("web", "nightly").backup;
    let start_ms = f.clock.now_ms();
    // Before the clock was ever advanced every lock is in force.
    f.lock_backups(&[id], start_ms + 1000, "admin").unwrap();
    f.clock.set_by_ms(DAY_MS);
    assert!(matches!(f.begin_deletion(&[id], "op", "x"), Err(CatalogError::Locked { .. })));
    f.clock.set_by_ms(-DAY_MS);
    f.advance_lock_clock().unwrap();
    // The time of day is set forward: nothing is released.
    f.clock.set_by_ms(10 * DAY_MS);
    f.advance_lock_clock().unwrap();
    assert!(matches!(f.begin_deletion(&[id], "op", "x"), Err(CatalogError::Locked { .. })));
    f.clock.advance_ms(500);
    f.advance_lock_clock().unwrap();
    assert_eq!(f.begin_deletion(&[id], "op", "x").unwrap().len(), 1);
}

fn a_policy_locks_what_is_committed(f: &Fixture) {
    let now_ms = f.advance_lock_clock().unwrap();
    let of = |vm: &str, job: &str| f.policy_lock(f.default.id, vm, job).unwrap();
    assert_eq!(of("web", "nightly"), None);
    let all = policy(f, "all", 2);
    let web = RetentionPolicy { vm: Some("web".into()), ..policy(f, "web", 30) };
    let job = RetentionPolicy { vm: Some("db".into()), job: Some("weekly".into()), ..policy(f, "job", 9) };
    let off = RetentionPolicy { enabled: false, ..policy(f, "off", 999) };
    for one in [&all, &web, &job, &off] {
        f.set_policy(one, "admin").unwrap();
    }
    assert_eq!(of("web", "nightly"), Some(now_ms + 30 * DAY_MS));
    assert_eq!(of("db", "nightly"), Some(now_ms + 2 * DAY_MS));
    assert_eq!(of("db", "weekly"), Some(now_ms + 9 * DAY_MS));
    // Behind the time of day, after a long stop: the days count from now.
    f.clock.set_by_ms(DAY_MS);
    assert_eq!(of("web", "nightly"), Some(now_ms + 31 * DAY_MS));
    // Far ahead: twice as long at most.
    f.clock.set_by_ms(1000 * DAY_MS);
    assert_eq!(of("web", "nightly"), Some(now_ms + 60 * DAY_MS));
    f.clock.set_by_ms(-1001 * DAY_MS);
    let lock = RetentionLock { until_ms: of("web", "nightly"), hold: None };
    let commit = BackupCommit { lock: lock.clone(), ..f.commit("web", "nightly") };
    f.commit_backup(&commit).unwrap();
    assert_eq!(lock_of(f, commit.backup), lock);
    assert_eq!(f.point(commit.backup).unwrap().unwrap().lock, lock);
    assert_eq!(revision_of(f, commit.backup), (1, 1), "its point says so already");
}

fn a_policy_that_came_late_locks_all_the_same(f: &Fixture) {
    let now_ms = f.advance_lock_clock().unwrap();
    // Its point was sealed before the policy was set.
    let commit = f.commit("web", "nightly");
    f.set_policy(&policy(f, "all", 2), "admin").unwrap();
    f.commit_backup(&commit).unwrap();
    let until_ms = lock_of(f, commit.backup).until_ms.unwrap();
    assert!(until_ms >= now_ms + 2 * DAY_MS, "{until_ms}");
    assert_eq!(f.stale_points(None, 10).unwrap(), [commit.backup]);
    assert!(matches!(f.begin_deletion(&[commit.backup], "op", "x"), Err(CatalogError::Locked { .. })));
}

fn changing_a_policy_releases_nothing(f: &Fixture) {
    f.advance_lock_clock().unwrap();
    let mut all = policy(f, "all", 2);
    f.set_policy(&all, "admin").unwrap();
    let id = f.committed("web", "nightly").backup;
    let before = lock_of(f, id);
    all.lock_days = 0;
    f.set_policy(&all, "admin").unwrap();
    all.enabled = false;
    f.set_policy(&all, "admin").unwrap();
    f.remove_policy(all.id, "admin").unwrap();
    assert_eq!(lock_of(f, id), before);
    assert!(matches!(f.begin_deletion(&[id], "admin", "x"), Err(CatalogError::Locked { .. })));
    assert_eq!(lock_of(f, f.committed("web", "nightly").backup), RetentionLock::default());
}

fn policies_are_kept_as_they_were_set(f: &Fixture) {
    let (mut a, b) = (policy(f, "a", 1), policy(f, "b", 0));
    f.set_policy(&b, "admin").unwrap();
    f.set_policy(&a, "admin").unwrap();
    let as_set = |policy: &RetentionPolicy| RetentionPolicy {
        updated_ms: f.clock.now_ms(),
        updated_by: "admin".into(),
        ..policy.clone()
    };
    assert_eq!(f.policies(None).unwrap(), [as_set(&a), as_set(&b)]);
    assert_eq!(f.policies(Some(&[])).unwrap(), []);
    assert_eq!(f.policy(a.id).unwrap(), Some(as_set(&a)));
    a.name = "c".into();
    a.rules.keep_last = 9;
    f.set_policy(&a, "admin").unwrap();
    assert_eq!(f.policies(Some(&[f.default.id])).unwrap(), [as_set(&b), as_set(&a)]);
    let twin = RetentionPolicy { id: PolicyId(f.ulid()), ..a.clone() };
    assert!(matches!(f.set_policy(&twin, "admin"), Err(CatalogError::Exists { .. })));
    let lab = f.ensure_namespace("lab").unwrap();
    let moved = RetentionPolicy { namespace: lab.id, ..a.clone() };
    assert!(matches!(f.set_policy(&moved, "admin"), Err(CatalogError::Invalid { .. })));
    let wrong: [fn(&mut RetentionPolicy); 5] = [
        |p| p.name = String::new(),
        |p| p.vm = Some("a\nb".into()),
        |p| p.lock_days = LOCK_DAYS_MAX + 1,
        |p| p.archive_after_days = Some(ARCHIVE_DAYS_MAX + 1),
        |p| p.schedule = "x".repeat(1000),
    ];
    for change in wrong {
        let mut policy = policy(f, "wrong", 1);
        change(&mut policy);
        assert!(matches!(f.set_policy(&policy, "admin"), Err(CatalogError::Invalid { .. })), "{policy:?}");
    }
    f.remove_policy(a.id, "admin").unwrap();
    assert!(matches!(f.remove_policy(a.id, "admin"), Err(CatalogError::NotFound { .. })));
    assert_eq!((audited(f, "policy.set"), audited(f, "policy.remove")), (3, 1));
}

fn a_locked_point_brings_its_lock_and_its_clock(f: &Fixture) {
    let commit = f.commit("web", "nightly");
    let hold = crate::LegalHold { reason: "case 17".into(), who: "admin".into(), since_ms: 5 };
    let lock = RetentionLock { until_ms: Some(f.clock.now_ms() + DAY_MS), hold: Some(hold) };
    let point = PointRecord {
        revision: 4,
        lock: lock.clone(),
        lock_time_ms: Some(f.clock.now_ms()),
        ..point_of(f, &commit)
    };
    assert_eq!(f.enter_points(std::slice::from_ref(&point)).unwrap(), [true]);
    assert_eq!(lock_of(f, commit.backup), lock);
    assert_eq!(revision_of(f, commit.backup), (4, 4));
    assert_eq!(f.lock_time().unwrap(), point.lock_time_ms);
    // The time of day is far ahead when a lost catalog is made anew: the lock clock is not.
    f.clock.set_by_ms(10 * DAY_MS);
    f.advance_lock_clock().unwrap();
    f.release_holds(&[commit.backup], "closed", "admin").unwrap();
    assert!(matches!(f.begin_deletion(&[commit.backup], "op", "x"), Err(CatalogError::Locked { .. })));
}

fn the_stricter_lock_counts(f: &Fixture) {
    let id = f.committed("web", "nightly").backup;
    let now_ms = f.advance_lock_clock().unwrap();
    let mut point = f.point(id).unwrap().unwrap();
    // The catalog is an older copy, which does not know of the lock.
    point.revision = 2;
    point.lock.until_ms = Some(now_ms + 3 * DAY_MS);
    assert_eq!(f.enter_points(std::slice::from_ref(&point)).unwrap(), [false]);
    assert_eq!(lock_of(f, id).until_ms, point.lock.until_ms);
    assert_eq!(revision_of(f, id), (2, 2), "they agree");
    // The row knows of more: the point is sealed anew.
    f.lock_backups(&[id], now_ms + 9 * DAY_MS, "admin").unwrap();
    assert_eq!(f.enter_points(std::slice::from_ref(&point)).unwrap(), [false]);
    assert_eq!(lock_of(f, id).until_ms, Some(now_ms + 9 * DAY_MS));
    assert_eq!(f.stale_points(None, 10).unwrap(), [id]);
}

fn a_changed_row_makes_its_point_stale(f: &Fixture) {
    let (a, b) = (f.committed("web", "nightly").backup, f.committed("db", "nightly").backup);
    assert_eq!(f.stale_points(None, 10).unwrap(), []);
    f.hold_backups(&[a, b], "case", "admin").unwrap();
    assert_eq!(f.stale_points(None, 10).unwrap(), [a, b]);
    assert_eq!(f.stale_points(Some(a), 10).unwrap(), [b]);
    assert_eq!(f.point(a).unwrap().unwrap().revision, 2);
    f.note_point_sealed(a, 2).unwrap();
    assert_eq!((f.stale_points(None, 10).unwrap(), revision_of(f, a)), (vec![b], (2, 2)));
    // Changed again while it was being sealed: it stays stale.
    let revision = f.point(b).unwrap().unwrap().revision;
    f.release_holds(&[b], "closed", "admin").unwrap();
    f.note_point_sealed(b, revision).unwrap();
    assert_eq!(f.stale_points(None, 10).unwrap(), [b]);
    f.mark_point_stale(a, 7).unwrap();
    assert_eq!(revision_of(f, a), (2, 8));
    f.mark_point_stale(BackupId(f.ulid()), 7).unwrap();
    assert!(f.begin_deletion(&[b], "op", "x").unwrap()[0].stale);
}
