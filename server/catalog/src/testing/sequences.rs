//! Random sequences of ends of sessions against a model: the numbers add up over everything recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_types::clock::ManualClock;
use holdfast_types::ids::{BackupId, ContainerClass, RunId};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::fixture::{Fixture, add_retried, all_pages, done, numbers, row};
use crate::{BackupCommit, Catalog, CatalogError, DetailFilter, DetailRow, FailedRun, PointFate, RowStatus};

/// End of one session.
#[derive(Debug, Clone)]
struct End {
    vm: u8,
    joins_last_run: bool,
    disks: Vec<Disk>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Commit,
    CommitTwice,
    Fail,
    /// One container is a byte longer than the details say.
    Miscounted(u8),
    /// A row's parts do not make its bytes.
    BrokenRow,
}

#[derive(Debug, Clone)]
struct Disk {
    parts: [u32; 3],
    data_containers: Vec<u32>,
    recipe_bytes: u32,
}

fn end() -> impl Strategy<Value = End> {
    let disk = (any::<[u32; 3]>(), prop::collection::vec(1u32..1 << 25, 0..4), 0u32..1 << 20)
        .prop_map(|(parts, data_containers, recipe_bytes)| Disk { parts, data_containers, recipe_bytes });
    let kind = prop_oneof![
        5 => Just(Kind::Commit),
        1 => Just(Kind::CommitTwice),
        2 => Just(Kind::Fail),
        1 => any::<u8>().prop_map(Kind::Miscounted),
        1 => Just(Kind::BrokenRow),
    ];
    (0u8..3, any::<bool>(), prop::collection::vec(disk, 1..4), kind)
        .prop_map(|(vm, joins_last_run, disks, kind)| End { vm, joins_last_run, disks, kind })
}

pub(super) fn run(open: &dyn Fn(Arc<ManualClock>) -> Arc<Catalog>) {
    let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    runner
        .run(&prop::collection::vec(end(), 1..12), |ends| {
            let fixture = Fixture::new(open);
            let mut rows = Vec::new();
            let mut last_run = None;
            for end in ends {
                let run = play(&fixture, &end, last_run.filter(|_| end.joins_last_run), &mut rows);
                last_run = run.or(last_run);
            }
            check(&fixture, &rows);
            Ok(())
        })
        .unwrap();
}

/// Ends a session as told; adds its rows to the model. The run, if it was recorded.
fn play(f: &Fixture, end: &End, run: Option<RunId>, model: &mut Vec<DetailRow>) -> Option<RunId> {
    let commit = commit(f, end, run);
    let run = commit.attempt.run;
    match end.kind {
        Kind::Commit | Kind::CommitTwice => {
            f.commit_backup(&commit).unwrap();
            if end.kind == Kind::CommitTwice {
                f.commit_backup(&commit).unwrap();
            }
            model.extend(commit.details);
            Some(run)
        }
        Kind::Fail => {
            let failed = |row| DetailRow {
                backup: String::new(),
                status: RowStatus::Aborted,
                point: PointFate::None,
                ..row
            };
            let details: Vec<_> = commit.details.into_iter().map(failed).collect();
            model.extend(details.iter().cloned());
            f.record_failed_run(&FailedRun {
                attempt: commit.attempt,
                details,
                containers: commit.containers,
            })
            .unwrap();
            Some(run)
        }
        Kind::Miscounted(which) => {
            let mut commit = commit;
            let index = usize::from(which) % commit.containers.len().max(1);
            match commit.containers.get_mut(index) {
                Some(container) => container.stored_bytes += 1,
                None => commit.details[0].post_lc += 1,
            }
            assert!(matches!(f.commit_backup(&commit), Err(CatalogError::Invalid { .. })));
            None
        }
        Kind::BrokenRow => {
            let mut commit = commit;
            commit.details[0].dup_bytes += 1;
            assert!(matches!(f.commit_backup(&commit), Err(CatalogError::Invalid { .. })));
            None
        }
    }
}

fn commit(f: &Fixture, end: &End, run: Option<RunId>) -> BackupCommit {
    let mut attempt = f.attempt(&format!("vm-{}", end.vm), "nightly");
    attempt.run = run.unwrap_or(attempt.run);
    let (mut rows, mut containers) = (Vec::new(), Vec::new());
    for (n, disk) in end.disks.iter().enumerate() {
        let [unchanged_bytes, dup_bytes, new_bytes] = disk.parts.map(u64::from);
        rows.push(numbers(DetailRow {
            unchanged_bytes,
            dup_bytes,
            new_bytes,
            post_lc: disk.data_containers.iter().map(|&bytes| u64::from(bytes)).sum(),
            meta_bytes: disk.recipe_bytes.into(),
            ..row(&attempt, &format!("disk-{n}"))
        }));
        for &bytes in &disk.data_containers {
            containers.push(f.sealed(&attempt, ContainerClass::Data, bytes.into()));
        }
        if disk.recipe_bytes > 0 {
            containers.push(f.sealed(&attempt, ContainerClass::Recipe, disk.recipe_bytes.into()));
        }
    }
    done(attempt, BackupId(f.ulid()), rows, containers)
}

fn check(f: &Fixture, model: &[DetailRow]) {
    let mut found = all_pages(7, |page| f.details(&DetailFilter::default(), page));
    assert!(found.is_sorted_by_key(|row| row.started_ms));
    let mut expected = model.to_vec();
    add_retried(&mut expected);
    for rows in [&mut found, &mut expected] {
        rows.sort_by(|a, b| (a.started_ms, &a.disk).cmp(&(b.started_ms, &b.disk)));
    }
    assert_eq!(found, expected);

    let mut told: BTreeMap<(String, ContainerClass), u64> = BTreeMap::new();
    for row in &found {
        assert_eq!(row.bytes, row.unchanged_bytes + row.dup_bytes + row.new_bytes);
        for (class, bytes) in [(ContainerClass::Data, row.post_lc), (ContainerClass::Recipe, row.meta_bytes)]
        {
            *told.entry((row.run.clone(), class)).or_default() += bytes;
        }
    }
    let mut stored: BTreeMap<(String, ContainerClass), u64> =
        told.keys().map(|key| (key.clone(), 0)).collect();
    for container in f.all_containers() {
        let container = container.unwrap();
        *stored.entry((container.run.unwrap().to_string(), container.class)).or_default() +=
            container.stored_bytes;
    }
    assert_eq!(told, stored, "bytes told by rows, bytes in containers");
    assert_eq!(f.integrity_check().unwrap(), Vec::<String>::new());
}
