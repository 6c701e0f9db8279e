//! Limits of namespaces and the sums that count against them; rows of failed attempts that are added up.

use std::collections::BTreeMap;

use holdfast_types::ids::{ContainerClass, NamespaceId, RunId};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use ulid::Ulid;

use super::cases;
use super::fixture::{Fixture, all_pages};
use crate::{CatalogError, DetailFilter, FAILED_ROWS_PER_VM_MAX, PageRequest, Quota, RowStatus, Usage};

cases![
    quotas_are_set_and_told,
    quotas_belong_to_namespaces,
    sessions_are_counted_by_day,
    a_start_is_told_what_it_must_fit_into,
    sums_are_those_of_a_model,
    failed_attempts_are_added_up,
];

fn usage(f: &Fixture, namespace: NamespaceId) -> Usage {
    f.quotas(Some(&[namespace])).unwrap().remove(0).usage
}

fn quotas_are_set_and_told(f: &Fixture) {
    let none = Quota::default();
    assert_eq!(f.quotas(None).unwrap()[0].quota, none);
    let quota = Quota {
        stored_bytes: Some(2_000_000_000_000),
        protected_bytes: Some(0),
        restore_points: Some(7),
        sessions_per_day: None,
    };
    assert_eq!(f.set_quota(f.default.id, &quota, "ann").unwrap(), none);
    assert_eq!(f.quotas(None).unwrap()[0].quota, quota);
    let entry = &f.list_audit(PageRequest::FIRST).unwrap().items[0].entry;
    assert_eq!((entry.who.as_str(), entry.action.as_str()), ("ann", "namespace.quota"));
    assert_eq!(entry.object, f.default.name);
    assert_eq!(
        entry.detail,
        "before: stored bytes none, protected bytes none, restore points none, sessions a day none; \
         now: stored bytes 2000000000000, protected bytes 0, restore points 7, sessions a day none"
    );
    assert_eq!(f.set_quota(f.default.id, &none, "ann").unwrap(), quota);
    assert_eq!(f.quotas(None).unwrap()[0].quota, none);
    let error = f.set_quota(NamespaceId(Ulid(5)), &none, "ann").unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "namespace", .. }), "{error}");
    let too_much = Quota { stored_bytes: Some(u64::MAX), ..none };
    let error = f.set_quota(f.default.id, &too_much, "ann").unwrap_err();
    assert!(matches!(error, CatalogError::Invalid { .. }), "{error}");
    assert_eq!(f.list_audit(PageRequest::FIRST).unwrap().items.len(), 2, "a refusal changes nothing");
}

fn quotas_belong_to_namespaces(f: &Fixture) {
    let lab = f.ensure_namespace("lab").unwrap();
    f.committed("web", "nightly");
    let quota = Quota { restore_points: Some(1), ..Quota::default() };
    f.set_quota(lab.id, &quota, "ann").unwrap();
    let all = f.quotas(None).unwrap();
    assert_eq!(all.iter().map(|one| one.namespace.name.as_str()).collect::<Vec<_>>(), ["default", "lab"]);
    assert_eq!((all[0].quota, all[0].usage.restore_points), (Quota::default(), 1));
    assert_eq!((all[1].quota, all[1].usage), (quota, Usage::default()));
    assert_eq!(f.quotas(Some(&[])).unwrap(), []);
    assert_eq!(f.quotas(Some(&[lab.id])).unwrap(), all[1..]);
}

fn sessions_are_counted_by_day(f: &Fixture) {
    let id = f.default.id;
    let quota = Quota { sessions_per_day: Some(2), ..Quota::default() };
    f.set_quota(id, &quota, "ann").unwrap();
    assert!(f.count_session(id).unwrap() && f.count_session(id).unwrap());
    assert!(!f.count_session(id).unwrap());
    assert_eq!(usage(f, id).sessions_today, 2, "what was refused is not counted");
    f.clock.advance_ms(86_400_000);
    assert_eq!(usage(f, id).sessions_today, 0);
    assert!(f.count_session(id).unwrap());
    assert_eq!(usage(f, id).sessions_today, 1);
    f.set_quota(id, &Quota::default(), "ann").unwrap();
    for _ in 0..5 {
        assert!(f.count_session(id).unwrap());
    }
    assert_eq!(usage(f, id).sessions_today, 6);
    let error = f.count_session(NamespaceId(Ulid(5))).unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { .. }), "{error}");
}

fn a_start_is_told_what_it_must_fit_into(f: &Fixture) {
    let account = |vm: &str, job: &str| f.start_account(f.default.id, vm, job).unwrap();
    let before = account("web", "nightly");
    assert_eq!((before.knows_vm, before.knows_job, before.vm_protected_bytes), (false, false, None));
    f.record_failed_run(&f.failed("web", "hourly", RowStatus::Failed)).unwrap();
    let failed = account("web", "hourly");
    assert_eq!((failed.knows_vm, failed.knows_job, failed.vm_protected_bytes), (true, true, None));
    let commit = f.committed("web", "nightly");
    let bytes = commit.disks.iter().map(|disk| disk.data_bytes).sum();
    let after = account("web", "nightly");
    assert_eq!((after.knows_vm, after.knows_job, after.vm_protected_bytes), (true, true, Some(bytes)));
    assert_eq!((after.usage.protected_bytes, after.usage.vms, after.usage.jobs), (bytes, 1, 2));
    assert_eq!(account("db", "nightly").vm_protected_bytes, None);
    let error = f.start_account(NamespaceId(Ulid(5)), "web", "nightly").unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { .. }), "{error}");
}

/// Changes of a catalog that affect its sums.
#[derive(Debug, Clone)]
enum Step {
    Commit {
        namespace: u8,
        vm: u8,
        parts: [u32; 2],
    },
    Fail {
        namespace: u8,
        vm: u8,
        job: u8,
    },
    Adopt {
        namespace: u8,
        bytes: u32,
    },
    /// The same commit once more.
    Repeat,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..3, 0u8..3, any::<[u32; 2]>())
            .prop_map(|(namespace, vm, parts)| Step::Commit { namespace, vm, parts }),
        2 => (0u8..3, 0u8..4, 0u8..3).prop_map(|(namespace, vm, job)| Step::Fail { namespace, vm, job }),
        1 => (0u8..3, 1u32..1 << 25).prop_map(|(namespace, bytes)| Step::Adopt { namespace, bytes }),
        1 => Just(Step::Repeat),
    ]
}

#[derive(Debug, Default)]
struct Model {
    usage: Usage,
    newest: BTreeMap<u8, u64>,
    vms: BTreeMap<u8, ()>,
    jobs: BTreeMap<String, ()>,
}

impl Model {
    fn usage(&self) -> Usage {
        Usage {
            protected_bytes: self.newest.values().sum(),
            vms: self.vms.len() as u64,
            jobs: self.jobs.len() as u64,
            ..self.usage
        }
    }
}

fn sums_are_those_of_a_model(f: &Fixture) {
    let spaces = [f.default.clone(), f.ensure_namespace("lab").unwrap(), f.ensure_namespace("shop").unwrap()];
    let mut models: [Model; 3] = std::array::from_fn(|_| Model::default());
    let mut last = None;
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let drawn = prop::collection::vec(step(), 60..90).new_tree(&mut runner).unwrap();
    let steps = drawn.current();
    println!("{steps:?}");
    for step in steps {
        match step {
            Step::Commit { namespace, vm, parts } => {
                let (space, model) = (&spaces[usize::from(namespace)], &mut models[usize::from(namespace)]);
                let mut commit = f.commit(&format!("vm-{vm}"), "nightly");
                for ((disk, row), new) in commit.disks.iter_mut().zip(&mut commit.details).zip(parts) {
                    row.unchanged_bytes += u64::from(new);
                    row.bytes += u64::from(new);
                    row.virtual_bytes = row.bytes.max(row.virtual_bytes);
                    (disk.data_bytes, disk.size_bytes) = (row.bytes, row.virtual_bytes);
                    disk.extent_count = holdfast_proto::limits::extent_count(row.virtual_bytes);
                }
                super::move_to_namespace(&mut commit, space.id, &space.name);
                f.commit_backup(&commit).unwrap();
                model.usage.restore_points += 1;
                model.usage.stored_bytes += commit.containers.iter().map(|c| c.stored_bytes).sum::<u64>();
                model.newest.insert(vm, commit.disks.iter().map(|disk| disk.data_bytes).sum());
                model.vms.insert(vm, ());
                model.jobs.insert("nightly".into(), ());
                last = Some(commit);
            }
            Step::Fail { namespace, vm, job } => {
                let (space, model) = (&spaces[usize::from(namespace)], &mut models[usize::from(namespace)]);
                let job = format!("job-{job}");
                let mut failed = f.failed(&format!("vm-{vm}"), &job, RowStatus::Aborted);
                failed.attempt.namespace = space.id;
                failed.details[0].namespace.clone_from(&space.name);
                failed.containers[0].namespace = space.id;
                f.record_failed_run(&failed).unwrap();
                model.usage.stored_bytes += failed.containers[0].stored_bytes;
                model.vms.insert(vm, ());
                model.jobs.insert(job, ());
            }
            Step::Adopt { namespace, bytes } => {
                let (space, model) = (&spaces[usize::from(namespace)], &mut models[usize::from(namespace)]);
                let mut attempt = f.attempt("any", "any");
                attempt.namespace = space.id;
                let container = f.sealed(&attempt, ContainerClass::Data, bytes.into());
                // Twice: the second time it is known.
                f.add_containers(std::slice::from_ref(&container)).unwrap();
                f.add_containers(&[container]).unwrap();
                model.usage.stored_bytes += u64::from(bytes);
            }
            Step::Repeat => {
                if let Some(commit) = &last {
                    f.commit_backup(commit).unwrap();
                }
            }
        }
        for (space, model) in spaces.iter().zip(&models) {
            assert_eq!(usage(f, space.id), model.usage(), "namespace {}", space.name);
        }
    }
}

/// Many attempts that fail leave a bounded number of rows, whose sums are those of all attempts.
fn failed_attempts_are_added_up(f: &Fixture) {
    let kept = f.committed("web", "nightly");
    let shared_run = RunId(f.ulid());
    let attempts = u64::from(FAILED_ROWS_PER_VM_MAX) * 2 + 100;
    let (mut post_lc, mut new_bytes) = (0, 0);
    for number in 0..attempts {
        let mut failed =
            f.failed("web", if number % 3 == 0 { "nightly" } else { "hourly" }, RowStatus::Aborted);
        if number % 64 == 1 {
            failed.attempt.run = shared_run;
            failed.details[0].run = shared_run.to_string();
            failed.attempt.job = "hourly".into();
            failed.details[0].job = "hourly".into();
            failed.containers[0].run = Some(shared_run);
        }
        post_lc += failed.details[0].post_lc;
        new_bytes += failed.details[0].new_bytes;
        f.record_failed_run(&failed).unwrap();
    }
    let rows = all_pages(100, |page| f.details(&DetailFilter::default(), page));
    let failed: Vec<_> = rows.iter().filter(|row| row.status != RowStatus::Done).collect();
    assert!(failed.len() <= FAILED_ROWS_PER_VM_MAX as usize, "{} rows", failed.len());
    assert_eq!(failed.iter().map(|row| row.post_lc).sum::<u64>(), post_lc);
    assert_eq!(failed.iter().map(|row| row.new_bytes).sum::<u64>(), new_bytes);
    assert_eq!(rows.len() - failed.len(), kept.details.len(), "rows of restore points stay");
    let merged: Vec<_> = failed.iter().filter(|row| row.disk == "earlier attempts").collect();
    assert_eq!(merged.len(), 2, "one a job");
    let told = |row: &&&crate::DetailRow| row.error.split(' ').next().unwrap().parse::<u64>().unwrap();
    let single = (failed.len() - merged.len()) as u64;
    assert_eq!(merged.iter().map(told).sum::<u64>() + single, attempts);
    for container in f.all_containers() {
        let run = container.unwrap().run.expect("every container is of a run on record");
        assert!(f.run(run).unwrap().is_some());
    }
    assert_eq!(usage(f, f.default.id).vms, 1);
}
