//! Commits and what is read of them.

use holdfast_types::ids::{BackupId, RunId, SessionId};
use ulid::Ulid;

use super::cases;
use super::fixture::{Fixture, all_pages};
use super::retention::policy;
use crate::{
    Attempt, BackupCommit, BackupFilter, BackupRecord, CatalogError, DetailFilter, DetailRow, DiskRecord,
    PageRequest, RetentionPolicy, RowStatus,
};

cases![
    a_commit_is_read_back_whole,
    a_partial_backup_names_what_it_lacks,
    a_repeated_commit_does_nothing,
    a_session_ends_once,
    a_vanished_namespace_is_named,
    runs_are_joined_by_their_owner_in_their_namespace,
    a_known_run_brings_its_job,
    the_latest_is_the_last_committed,
    earlier_backups_are_in_order_of_commit,
    backups_are_found_by_prefix,
    backups_are_listed_newest_first,
    large_backups_make_small_pages,
    vms_are_counted,
];

fn a_commit_is_read_back_whole(f: &Fixture) {
    let mut commit = f.commit("web", "nightly");
    commit.attempt.accepted_change = true;
    f.commit_backup(&commit).unwrap();
    let BackupCommit { attempt, backup, disks, missing_disks, details, containers, .. } = &commit;
    let found = f.backup(*backup).unwrap().unwrap();
    let expected = BackupRecord {
        id: *backup,
        session: attempt.session,
        namespace: f.default.id,
        namespace_name: "default".into(),
        vm_id: found.vm_id,
        vm: "web".into(),
        job: "nightly".into(),
        run: attempt.run,
        ordinal: 1,
        client_host: "hv-1.example".into(),
        owner: "default".into(),
        started_ms: attempt.started_ms,
        finished_ms: attempt.finished_ms,
        disks: disks.clone(),
        missing_disks: missing_disks.clone(),
        accepted_change: true,
        lock: crate::RetentionLock::default(),
    };
    assert_eq!(found, expected);
    assert_eq!(f.backup_by_session(attempt.session).unwrap(), Some(expected.clone()));
    assert_eq!(f.latest_backup(f.default.id, "web").unwrap(), Some(expected));
    assert_eq!(f.details(&DetailFilter::default(), PageRequest::FIRST).unwrap().items, *details);
    assert_eq!(f.all_containers().map(|c| c.unwrap()).collect::<Vec<_>>(), *containers);
    let run = f.run(attempt.run).unwrap().unwrap();
    assert_eq!(
        (run.job.as_str(), run.started_ms, run.finished_ms),
        ("nightly", attempt.started_ms, attempt.finished_ms)
    );
    let audit = f.list_audit(PageRequest::FIRST).unwrap().items;
    assert_eq!(audit.len(), 1);
    assert_eq!(audit[0].entry.who, "agent-1");
    assert_eq!(audit[0].entry.action, "backup.commit");
    assert_eq!(audit[0].entry.object, backup.to_string());
    assert!(audit[0].entry.detail.contains("web"), "{:?}", audit[0]);

    assert_eq!(f.backup(BackupId(Ulid(1))).unwrap(), None);
    assert_eq!(f.backup_by_session(SessionId(Ulid(1))).unwrap(), None);
    assert_eq!(f.latest_backup(f.default.id, "db").unwrap(), None);
    assert_eq!(f.run(RunId(Ulid(1))).unwrap(), None);
}

fn a_partial_backup_names_what_it_lacks(f: &Fixture) {
    let missing = vec!["data 2".to_owned(), "log".to_owned()];
    let mut commit = f.commit("web", "nightly");
    commit.missing_disks.clone_from(&missing);
    f.commit_backup(&commit).unwrap();
    let found = f.backup(commit.backup).unwrap().unwrap();
    assert_eq!((&found.missing_disks, found.disks.len()), (&missing, 2));
    let audit = f.list_audit(PageRequest::FIRST).unwrap().items;
    assert!(audit[0].entry.detail.ends_with("without data 2, log"), "{:?}", audit[0].entry);
}

fn a_repeated_commit_does_nothing(f: &Fixture) {
    let commit = f.committed("web", "nightly");
    f.commit_backup(&commit).unwrap();
    assert_eq!(f.details(&DetailFilter::default(), PageRequest::FIRST).unwrap().items, commit.details);
    assert_eq!(f.list_audit(PageRequest::FIRST).unwrap().items.len(), 1);
    let failed = f.failed("web", "nightly", RowStatus::Aborted);
    f.record_failed_run(&failed).unwrap();
    f.record_failed_run(&failed).unwrap();
    assert_eq!(f.details(&DetailFilter::default(), PageRequest::FIRST).unwrap().items.len(), 3);
    assert_eq!(f.list_audit(PageRequest::FIRST).unwrap().items.len(), 2);
}

fn a_session_ends_once(f: &Fixture) {
    let commit = f.committed("web", "nightly");
    let thief = Attempt { session: SessionId(f.ulid()), ..commit.attempt.clone() };
    let stolen = BackupCommit { attempt: thief, ..commit.clone() };
    assert!(matches!(f.commit_backup(&stolen), Err(CatalogError::Exists { what: "backup", .. })));

    let mut second = f.commit("web", "nightly");
    second.attempt.session = commit.attempt.session;
    assert!(matches!(f.commit_backup(&second), Err(CatalogError::Exists { .. })));
    let mut failed = f.failed("web", "nightly", RowStatus::Aborted);
    failed.attempt.session = commit.attempt.session;
    assert!(matches!(f.record_failed_run(&failed), Err(CatalogError::Exists { what: "backup", .. })));

    let failed = f.failed("web", "nightly", RowStatus::Expired);
    f.record_failed_run(&failed).unwrap();
    let mut late = f.commit("web", "nightly");
    late.attempt.session = failed.attempt.session;
    assert!(matches!(f.commit_backup(&late), Err(CatalogError::Exists { .. })));
    assert_eq!(f.backup(late.backup).unwrap(), None);
    assert_eq!(f.container(late.containers[0].id).unwrap(), None);
}

fn a_vanished_namespace_is_named(f: &Fixture) {
    let mut commit = f.commit("web", "nightly");
    let gone = holdfast_types::ids::NamespaceId(Ulid(3));
    commit.attempt.namespace = gone;
    for container in &mut commit.containers {
        container.namespace = gone;
    }
    let error = f.commit_backup(&commit).unwrap_err();
    assert!(
        matches!(&error, CatalogError::NotFound { what: "namespace", name } if *name == gone.to_string())
    );
    assert_eq!(f.backup(commit.backup).unwrap(), None);
}

/// Makes `commit` part of `run`.
fn join(commit: &mut BackupCommit, run: RunId) {
    commit.attempt.run = run;
    commit.details.iter_mut().for_each(|row| row.run = run.to_string());
    commit.containers.iter_mut().for_each(|container| container.run = Some(run));
}

fn runs_are_joined_by_their_owner_in_their_namespace(f: &Fixture) {
    let first = f.committed("web", "nightly");
    let run = first.attempt.run;
    let mut second = f.commit("db", "nightly");
    join(&mut second, run);
    f.commit_backup(&second).unwrap();
    let record = f.run(run).unwrap().unwrap();
    assert_eq!(record.started_ms, first.attempt.started_ms);
    assert_eq!(record.finished_ms, second.attempt.finished_ms, "widened");

    let mut other_owner = f.commit("build", "nightly");
    other_owner.attempt.owner = "berlin".into();
    join(&mut other_owner, run);
    let error = f.commit_backup(&other_owner).unwrap_err().to_string();
    assert!(
        error.contains("berlin") && !error.contains("nightly"),
        "tells nothing of the run's own: {error}"
    );

    let lab = f.ensure_namespace("lab").unwrap();
    let mut other_namespace = f.commit("web", "nightly");
    move_to(&mut other_namespace, lab.id, "lab");
    join(&mut other_namespace, run);
    assert!(matches!(f.commit_backup(&other_namespace), Err(CatalogError::Invalid { .. })));
    assert_eq!(f.backup(other_namespace.backup).unwrap(), None);
    assert_eq!(f.run(run).unwrap().unwrap(), record, "a refused session does not widen it");
}

/// (P9) The job gets another name while the run is in progress.
fn a_known_run_brings_its_job(f: &Fixture) {
    let first = f.committed("web", "nightly");
    let late = RetentionPolicy { job: Some("daily".into()), ..policy(f, "daily", 3) };
    f.set_policy(&late, "admin").unwrap();
    f.rename_job(f.default.id, "nightly", "daily", "admin").unwrap();
    let mut second = f.commit("db", "nightly");
    join(&mut second, first.attempt.run);
    f.commit_backup(&second).unwrap();
    let found = f.backup(second.backup).unwrap().unwrap();
    assert_eq!(found.job, "daily");
    assert!(found.lock.until_ms.is_some(), "(L3) by the policy of the job that it has");
    assert!(f.stale_points(None, 10).unwrap().contains(&second.backup), "its point says the old name");
    assert_eq!(f.session_details(second.attempt.session).unwrap()[0].job, "daily");
    let point = f.point(second.backup).unwrap().unwrap();
    assert_eq!((point.attempt.job.as_str(), point.details[0].job.as_str()), ("daily", "daily"));
    let mut failed = f.failed("mail", "nightly", RowStatus::Failed);
    failed.attempt.run = first.attempt.run;
    failed.details.iter_mut().for_each(|row| row.run = first.attempt.run.to_string());
    failed.containers.iter_mut().for_each(|container| container.run = Some(first.attempt.run));
    f.record_failed_run(&failed).unwrap();
    let jobs: Vec<String> = f.job_overviews(None).unwrap().into_iter().map(|job| job.job).collect();
    assert_eq!(jobs, ["daily"], "no job of the old name is made");
}

pub fn move_to(commit: &mut BackupCommit, namespace: holdfast_types::ids::NamespaceId, name: &str) {
    commit.attempt.namespace = namespace;
    commit.details.iter_mut().for_each(|row| row.namespace = name.into());
    commit.containers.iter_mut().for_each(|container| container.namespace = namespace);
}

fn the_latest_is_the_last_committed(f: &Fixture) {
    f.committed("web", "nightly");
    // The clock is set back by an hour.
    f.clock.advance_ms(-3_600_000);
    let second = f.committed("web", "nightly");
    f.committed("db", "nightly");
    assert_eq!(f.latest_backup(f.default.id, "web").unwrap().unwrap().id, second.backup);
    assert_eq!(f.latest_backup(holdfast_types::ids::NamespaceId(Ulid(3)), "web").unwrap(), None);
}

fn backups_are_found_by_prefix(f: &Fixture) {
    let commits =
        [f.committed("web", "nightly"), f.committed("db", "nightly"), f.committed("web", "nightly")];
    let lab = f.ensure_namespace("lab").unwrap();
    let mut foreign = f.commit("web", "nightly");
    move_to(&mut foreign, lab.id, "lab");
    f.commit_backup(&foreign).unwrap();

    let find = |prefix: &str, limit| -> Vec<BackupId> {
        f.find_backups(f.default.id, prefix, limit).unwrap().into_iter().map(|b| b.id).collect()
    };
    let text = commits[1].backup.to_string();
    assert_eq!(find(&text, 2), [commits[1].backup]);
    assert_eq!(find(&text.to_lowercase(), 2), [commits[1].backup]);
    let common = &text[..4];
    assert_eq!(find(common, 10), commits.each_ref().map(|c| c.backup), "oldest first, own namespace only");
    assert_eq!(find(common, 2).len(), 2);
    assert_eq!(find("7", 2), []);
    assert_eq!(find(&foreign.backup.to_string(), 2), []);
    assert_eq!(f.find_backups(f.default.id, &text, 1).unwrap()[0].disks, commits[1].disks);
    for bad in ["", "latest", "8", &format!("{text}0")] {
        assert!(matches!(f.find_backups(f.default.id, bad, 2), Err(CatalogError::Invalid { .. })), "{bad:?}");
    }
}

fn backups_are_listed_newest_first(f: &Fixture) {
    let lab = f.ensure_namespace("lab").unwrap();
    let mut all = Vec::new();
    for n in 0..24 {
        let mut commit = f.commit(["web", "db", "build"][n % 3], ["nightly", "weekly"][n % 2]);
        if n % 4 == 0 {
            move_to(&mut commit, lab.id, "lab");
        }
        if n % 5 == 0 {
            commit.attempt.started_ms = super::fixture::START_MS;
        }
        f.commit_backup(&commit).unwrap();
        all.push(commit);
    }
    all.sort_by_key(|c| std::cmp::Reverse((c.attempt.started_ms, c.backup)));
    let middle_ms = all[all.len() / 2].attempt.started_ms;
    let scopes =
        [None, Some(vec![]), Some(vec![lab.id]), Some(vec![f.default.id]), Some(vec![f.default.id, lab.id])];
    for namespaces in scopes {
        for vm in [None, Some("web"), Some("none")] {
            for job in [None, Some("weekly"), Some("none")] {
                for (since_ms, until_ms) in [(None, None), (Some(middle_ms), None), (None, Some(middle_ms))] {
                    let filter = BackupFilter {
                        namespaces: namespaces.clone(),
                        vm: vm.map(Into::into),
                        job: job.map(Into::into),
                        since_ms,
                        until_ms,
                    };
                    let expected: Vec<BackupId> = all
                        .iter()
                        .filter(|c| namespaces.as_ref().is_none_or(|n| n.contains(&c.attempt.namespace)))
                        .filter(|c| vm.is_none_or(|vm| c.attempt.vm == vm))
                        .filter(|c| job.is_none_or(|job| c.attempt.job == job))
                        .filter(|c| since_ms.is_none_or(|since_ms| c.attempt.started_ms >= since_ms))
                        .filter(|c| until_ms.is_none_or(|until_ms| c.attempt.started_ms < until_ms))
                        .map(|c| c.backup)
                        .collect();
                    for size in [1, 5, 100] {
                        let found = all_pages(size, |page| f.list_backups(&filter, page));
                        assert_eq!(found.iter().map(|b| b.id).collect::<Vec<_>>(), expected, "{filter:?}");
                        assert!(found.iter().all(|b| b.disks.len() == 2));
                    }
                }
            }
        }
    }
    assert!((1..all.len()).contains(&all.iter().filter(|c| c.attempt.started_ms < middle_ms).count()));
    let page = f.list_backups(&BackupFilter::default(), PageRequest { size: 2, token: "" }).unwrap();
    let token = page.next.unwrap();
    let other = BackupFilter { vm: Some("web".into()), ..BackupFilter::default() };
    let misused = f.list_backups(&other, PageRequest { size: 2, token: &token });
    assert!(matches!(misused, Err(CatalogError::Invalid { .. })));
    let many = BackupFilter { namespaces: Some(vec![lab.id; 1001]), ..BackupFilter::default() };
    assert!(matches!(f.list_backups(&many, PageRequest::FIRST), Err(CatalogError::Invalid { .. })));
}

fn large_backups_make_small_pages(f: &Fixture) {
    for _ in 0..60 {
        let mut commit = f.commit("web", "nightly");
        let (disk, row) = (commit.disks[1].clone(), commit.details[1].clone());
        for n in 2..256 {
            let name = format!("{n:0>200}");
            commit.disks.push(DiskRecord { name: name.clone(), ..disk.clone() });
            commit.details.push(DetailRow { disk: name, post_lc: 0, meta_bytes: 0, ..row.clone() });
        }
        f.commit_backup(&commit).unwrap();
    }
    let (mut found, mut token) = (0, String::new());
    loop {
        let request = PageRequest { size: 1000, token: &token };
        let page = f.list_backups(&BackupFilter::default(), request).unwrap();
        assert!(page.items.len() < 20, "{}", page.items.len());
        found += page.items.len();
        match page.next {
            Some(next) => token = next,
            None => break,
        }
    }
    assert_eq!(found, 60);
}

fn vms_are_counted(f: &Fixture) {
    f.clock.advance_ms(1);
    let lab = f.ensure_namespace("lab").unwrap();
    f.committed("web", "nightly");
    f.record_failed_run(&f.failed("db", "nightly", RowStatus::Failed)).unwrap();
    let last = f.committed("web", "weekly");
    let mut foreign = f.commit("web", "nightly");
    move_to(&mut foreign, lab.id, "lab");
    f.commit_backup(&foreign).unwrap();
    let told = |namespaces: Option<&[_]>| -> Vec<_> {
        all_pages(1, |page| f.list_vms(namespaces, page))
            .into_iter()
            .map(|vm| (vm.namespace_name, vm.name, vm.backups, vm.latest))
            .collect()
    };
    let db = ("default".to_owned(), "db".to_owned(), 0, None);
    let web = ("default".to_owned(), "web".to_owned(), 2, Some(last.backup));
    let lab_web = ("lab".to_owned(), "web".to_owned(), 1, Some(foreign.backup));
    assert_eq!(told(None), [db.clone(), web.clone(), lab_web.clone()]);
    assert_eq!(told(Some(&[f.default.id])), [db, web]);
    assert_eq!(told(Some(&[lab.id])), [lab_web]);
    assert_eq!(told(Some(&[])), []);
}

fn earlier_backups_are_in_order_of_commit(f: &Fixture) {
    let mut made = Vec::new();
    for n in 0..6 {
        // The clock is set back in between: the order of commits counts.
        f.clock.advance_ms(if n == 3 { -86_400_000 } else { 0 });
        made.push(f.committed("web", if n % 2 == 0 { "nightly" } else { "weekly" }).backup);
        f.committed("db", "nightly");
    }
    for (place, backup) in made.iter().enumerate() {
        for limit in [0, 1, 3, 100] {
            let expected: Vec<BackupRecord> = made[..place]
                .iter()
                .rev()
                .take(limit as usize)
                .map(|id| f.backup(*id).unwrap().unwrap())
                .collect();
            assert_eq!(f.backups_before(*backup, limit).unwrap(), expected, "{place} {limit}");
        }
    }
    assert_eq!(f.backups_before(BackupId(Ulid(1)), 5).unwrap(), []);
}
