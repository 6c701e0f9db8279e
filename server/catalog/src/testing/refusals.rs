//! Commits that contradict themselves: each is refused with both sides named, and leaves nothing.

use holdfast_types::ids::{ContainerClass, RunId};
use ulid::Ulid;

use super::cases;
use super::fixture::Fixture;
use crate::{
    BackupCommit, CatalogError, ContainerState, DetailFilter, DetailRow, FailedRun, PageRequest, RowStatus,
};

cases![contradictory_commits_leave_nothing, contradictory_failures_leave_nothing];

type Break<T> = (&'static [&'static str], fn(&mut T));

fn sum_rows(c: &mut BackupCommit, change: impl Fn(&mut DetailRow)) {
    c.details.iter_mut().for_each(change);
}

const COMMITS: &[Break<BackupCommit>] = &[
    // Details that do not add up, both numbers named.
    (&["post_lc is 750001", "750000 bytes", "Data"], |c| c.details[0].post_lc += 1),
    (&["post_lc is 750000", "250000 bytes"], |c| {
        c.containers.remove(1);
    }),
    (&["meta_bytes is 1000", "1001 bytes", "Recipe"], |c| c.containers[3].stored_bytes += 1),
    (&["post_lc is 750000", "749999 bytes"], |c| c.containers[0].stored_bytes -= 1),
    (&["post_lc"], |c| c.containers[0].class = ContainerClass::Recipe),
    (&["bytes 1048577", "new 1048576"], |c| c.details[1].bytes += 1),
    (&["do not add up"], |c| {
        c.details[1].unchanged_bytes = u64::MAX;
        c.details[1].dup_bytes = 1;
    }),
    (&["more than can be kept"], |c| c.details[0].wire_bytes = 1 << 63),
    (&["new of"], |c| c.details[0].new_chunks = 1000),
    // Names and references.
    (&["\"db\"", "\"web\""], |c| sum_rows(c, |row| row.vm = "db".into())),
    (&["weekly", "nightly"], |c| c.details[1].job = "weekly".into()),
    (&["run"], |c| c.details[1].run = RunId(Ulid(1)).to_string()),
    (&["namespace", "\"lab\"", "\"default\""], |c| sum_rows(c, |row| row.namespace = "lab".into())),
    (&["backup"], |c| c.details[0].backup.clear()),
    (&["status"], |c| c.details[0].status = RowStatus::Failed),
    (&["\"data\"", "\"system\""], |c| c.details.reverse()),
    (&["2 disks", "1 rows"], |c| {
        c.details.pop();
    }),
    (&["VM name"], |c| {
        c.attempt.vm = "a\nb".into();
        sum_rows(c, |row| row.vm = "a\nb".into());
    }),
    (&["job name"], |c| c.attempt.job = String::new()),
    // Disks.
    (&["0 disks"], |c| {
        c.disks.clear();
        c.details.clear();
        c.containers.clear();
    }),
    (&["two disks"], |c| {
        c.disks[1].name = "system".into();
        c.details[1].disk = "system".into();
    }),
    (&["extents"], |c| c.disks[0].extent_count += 1),
    (&["virtual_bytes"], |c| c.details[0].virtual_bytes += 1),
    (&["of data in"], |c| c.disks[0].data_bytes = c.disks[0].size_bytes + 1),
    (&["the limit is"], |c| c.disks[0].size_bytes = (1 << 50) + 1),
    // Containers.
    (&["twice"], |c| c.containers[1] = c.containers[0].clone()),
    (&["of run"], |c| c.containers[0].run = None),
    (&["of namespace"], |c| c.containers[0].namespace = holdfast_types::ids::NamespaceId(Ulid(1))),
    (&["not live"], |c| c.containers[0].state = ContainerState::Condemned),
];

fn contradictory_commits_leave_nothing(f: &Fixture) {
    for (n, (words, spoil)) in COMMITS.iter().enumerate() {
        let mut commit = f.commit("web", "nightly");
        spoil(&mut commit);
        let error = f.commit_backup(&commit).expect_err(&format!("break {n}, {words:?}"));
        assert!(matches!(error, CatalogError::Invalid { .. }), "{n}: {error:?}");
        for word in *words {
            assert!(error.to_string().contains(word), "{n}: {error} lacks {word}");
        }
        is_empty(f, commit.attempt.run);
    }
}

const FAILURES: &[Break<FailedRun>] = &[
    (&["status"], |c| c.details[0].status = RowStatus::Done),
    (&["backup"], |c| c.details[0].backup = "x".into()),
    (&["do not add up"], |c| c.details[0].bytes += 1),
    (&["rows"], |c| c.details = vec![c.details[0].clone(); 257]),
    (&["0 rows"], |c| c.details.clear()),
    (&["disk name"], |c| c.details[0].disk = String::new()),
    (&["of run"], |c| c.containers[0].run = None),
];

fn contradictory_failures_leave_nothing(f: &Fixture) {
    for (n, (words, spoil)) in FAILURES.iter().enumerate() {
        let mut failed = f.failed("web", "nightly", RowStatus::Failed);
        spoil(&mut failed);
        let error = f.record_failed_run(&failed).expect_err(&format!("break {n}, {words:?}"));
        assert!(matches!(error, CatalogError::Invalid { .. }), "{n}: {error:?}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{n}: {error}");
        is_empty(f, failed.attempt.run);
    }
}

fn is_empty(f: &Fixture, run: RunId) {
    assert_eq!(f.run(run).unwrap(), None);
    assert_eq!(f.details(&DetailFilter::default(), PageRequest::FIRST).unwrap().items, []);
    assert_eq!(f.containers(None, 10).unwrap(), []);
    assert_eq!(f.list_vms(None, PageRequest::FIRST).unwrap().items, []);
    assert_eq!(f.list_audit(PageRequest::FIRST).unwrap().items, []);
}
