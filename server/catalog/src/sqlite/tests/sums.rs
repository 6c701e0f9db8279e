//! Sums of namespaces and of compression details, which change with the rows that they are of.

use super::*;
use crate::{Named, Rename, RowStatus, VmQuery, VmSort};

/// Sums follow rows that are removed, too.
#[test]
fn sums_follow_removals() {
    let home = Home::new();
    let fixture = home.create();
    let commits: Vec<_> = (0..4).map(|_| fixture.committed("web", "nightly")).collect();
    fixture.committed("db", "nightly");
    let usage = || fixture.quotas(None).unwrap()[0].usage;
    let sound = |what: &str| assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new(), "{what}");
    // An older one, the newest, the rest.
    for (number, left) in [(1, 4), (3, 3), (0, 2), (2, 1)] {
        fixture.begin_deletion(&[commits[number].backup], "op", "").unwrap();
        assert_eq!(usage().restore_points, left);
        sound("a backup was removed");
    }
    let stored_bytes = usage().stored_bytes;
    let container = &commits[0].containers[0];
    fixture.condemn_containers(&[container.id]).unwrap();
    fixture.remove_condemned(&[container.id]).unwrap();
    assert_eq!(usage().stored_bytes, stored_bytes - container.stored_bytes);
    sound("a container was removed");
    let raw = home.raw();
    raw.execute("UPDATE namespace_usage SET stored_bytes = -1", []).unwrap();
    let problems = fixture.integrity_check().unwrap();
    assert!(problems.len() == 1 && problems[0].contains("-1 stored bytes"), "{problems:?}");
    assert_eq!(usage().stored_bytes, 0, "starting goes on");
}

/// As those of namespaces, sums of compression details.
#[test]
fn sums_of_details_follow_every_change() {
    let home = Home::new();
    let fixture = home.create();
    let commit = fixture.committed("web", "nightly");
    let gone = fixture.failed("gone", "nightly", RowStatus::Failed);
    fixture.record_failed_run(&gone).unwrap();
    let sound = |what: &str| assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new(), "{what}");
    let jobs = || fixture.job_overviews(None).unwrap();
    sound("rows were written");
    assert_eq!((jobs()[0].vms, jobs()[0].runs, jobs()[0].sums.failed), (2, 2, 1));
    let vm = |name: &str| fixture.named_vm(fixture.default.id, name).unwrap().unwrap().id;
    fixture.remove_vm(vm("gone"), "op").unwrap();
    fixture.rename_vm(vm("web"), "gone", "op").unwrap();
    sound("rows became another VM's");
    assert_eq!((jobs()[0].vms, jobs()[0].sums.rows), (1, 1 + commit.details.len() as u64));
    // The points say that the job has another name now, which another job has taken.
    fixture.committed("db", "weekly");
    let rename = Rename {
        namespace: fixture.default.id,
        kind: Named::Job,
        from: "nightly".into(),
        to: "weekly".into(),
    };
    fixture.follow_names(&[rename]).unwrap();
    sound("rows became another job's");
    assert_eq!((jobs().len(), jobs()[0].vms, jobs()[0].runs), (1, 2, 3));
    // Each column is looked at, those beside one that ended, too.
    let raw = home.raw();
    for column in ["rows", "failed", "bytes", "new_bytes", "post_lc", "meta_bytes"] {
        raw.execute(
            &format!("UPDATE detail_sums SET wire_bytes = 1 << 62, {column} = {column} + 1 WHERE failed > 0"),
            [],
        )
        .unwrap();
        let problems = fixture.integrity_check().unwrap();
        assert!(problems.len() == 1 && problems[0].contains(column), "{problems:?}");
        assert_eq!(fixture.correct_sums(Box::new(|| true)).unwrap(), Some(problems));
        sound("it was corrected");
    }
}

/// A sum ends, and does not overflow; it stays there, whatever goes.
#[test]
fn a_sum_ends() {
    let home = Home::new();
    let fixture = home.create();
    let failed = fixture.failed("web", "nightly", RowStatus::Failed);
    fixture.record_failed_run(&failed).unwrap();
    let ends = |what: &str| {
        assert_eq!(fixture.job_overviews(None).unwrap()[0].sums.wire_bytes, 1 << 62, "{what}");
        assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new(), "{what}");
    };
    home.raw().execute("UPDATE details SET wire_bytes = 9223372036854775807", []).unwrap();
    fixture.add_up().unwrap();
    ends("of a single row, which is more");
    fixture.committed("web", "nightly");
    ends("a row is new");
    let vm = fixture.named_vm(fixture.default.id, "web").unwrap().unwrap();
    fixture.record_failed_run(&fixture.failed("other", "nightly", RowStatus::Failed)).unwrap();
    fixture.remove_vm(fixture.named_vm(fixture.default.id, "other").unwrap().unwrap().id, "op").unwrap();
    fixture.rename_vm(vm.id, "other", "op").unwrap();
    ends("rows were removed and written again");
}

/// A job whose sums are lost says all the same which run was its last, and how many VMs fail.
#[test]
fn a_job_without_sums_is_listed() {
    let home = Home::new();
    let fixture = home.create();
    let failed = fixture.failed("web", "nightly", RowStatus::Failed);
    fixture.record_failed_run(&failed).unwrap();
    home.raw().execute("DELETE FROM detail_sums", []).unwrap();
    let jobs = fixture.job_overviews(None).unwrap();
    assert_eq!((jobs.len(), jobs[0].vms, jobs[0].failing_vms), (1, 0, 1));
    assert_eq!(jobs[0].last_run.as_ref().map(|run| run.id), Some(failed.attempt.run));
}

/// Statistics that are damaged, in whatever way, keep no backup from being committed and no page from being shown.
#[test]
fn wrong_sums_are_in_the_way_of_nothing() {
    for damage in [
        "UPDATE detail_sums SET rows = -5, failed = 7, bytes = -9223372036854775808",
        "UPDATE detail_sums SET rows = 9223372036854775807, wire_bytes = 9223372036854775807",
        "UPDATE detail_sums SET rows = NULL, failed = 'x', bytes = x'00', new_bytes = 1e300, post_lc = NULL",
        "UPDATE detail_sums SET vm_id = x'07'",
        "DELETE FROM detail_sums; UPDATE jobs SET runs = -1; DELETE FROM namespace_usage",
        "UPDATE namespace_usage SET restore_points = -1, protected_bytes = -1",
    ] {
        let query = VmQuery {
            vm: None,
            search: None,
            stale: None,
            stale_before_ms: 0,
            sort: VmSort::StoredBytes,
            descending: true,
            offset: 0,
            limit: 10,
            now_ms: START_MS,
        };
        let home = Home::new();
        let fixture = home.create();
        fixture.committed("web", "nightly");
        home.raw().execute_batch(damage).unwrap();
        fixture.committed("web", "nightly");
        fixture.job_overviews(None).unwrap();
        fixture.repository_overview(None, &[None, Some(0)]).unwrap();
        fixture.vm_overviews(None, &query).unwrap();
        let wrong = fixture.correct_sums(Box::new(|| true)).unwrap().unwrap();
        assert!(!wrong.is_empty(), "{damage}");
        assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new(), "{damage}");
        assert_eq!(fixture.job_overviews(None).unwrap()[0].runs, 2);
    }
}
