//! Choice of the policy that decides.

use std::sync::Arc;

use holdfast_catalog::testing::fixture::Fixture;
use holdfast_engine::catalog::{Catalog, RetentionPolicy};
use holdfast_engine::clock::Clock as _;
use holdfast_engine::ids::{NamespaceId, PolicyId};
use holdfast_proto::api::Rules;
use holdfast_retention::TimeZone;

use super::plan::decide_vm;
use super::policies::{archive_rules, governing, next_run_ms};

fn policy(number: u8, vm: Option<&str>, job: Option<&str>) -> RetentionPolicy {
    RetentionPolicy {
        id: PolicyId::from_bytes([number; 16]),
        name: format!("p{number}"),
        namespace: NamespaceId::from_bytes([0; 16]),
        vm: vm.map(str::to_owned),
        job: job.map(str::to_owned),
        rules: Rules { keep_daily: 7, ..Rules::default() },
        schedule: "@daily".to_owned(),
        time_zone: String::new(),
        lock_days: 0,
        archive_after_days: None,
        enabled: true,
        resting_since_ms: None,
        updated_ms: 0,
        updated_by: String::new(),
    }
}

#[test]
fn the_most_specific_policy_decides() {
    let policies = [
        policy(1, None, None),
        policy(2, None, Some("nightly")),
        policy(3, Some("web"), None),
        policy(4, Some("web"), Some("weekly")),
        policy(5, None, None),
    ];
    let decides = |vm: &str, job: &str| governing(&policies, vm, job).map(|found| found.name.as_str());
    assert_eq!(decides("db", "adhoc"), Some("p1"), "of two alike the oldest");
    assert_eq!(decides("db", "nightly"), Some("p2"));
    assert_eq!(decides("web", "nightly"), Some("p3"), "the VM before the job");
    assert_eq!(decides("web", "weekly"), Some("p4"));
    assert!(governing(&policies[2..4], "db", "weekly").is_none());
}

#[test]
fn about_the_archive_the_same_policy_decides() {
    let mut policies = vec![
        policy(1, None, None),
        policy(2, None, Some("nightly")),
        policy(3, Some("web"), None),
        policy(4, None, None),
    ];
    assert!(archive_rules(policies.clone()).is_empty(), "none says anything");
    policies[0].archive_after_days = Some(90);
    policies[2].archive_after_days = Some(400);
    policies[2].enabled = false;
    let rules = archive_rules(policies);
    let said: Vec<_> =
        rules.iter().map(|rule| (rule.vm.as_deref(), rule.job.as_deref(), rule.min_age_days)).collect();
    let expected = [
        (Some("web"), None, Some(400)),
        // It decides about its restore points, and leaves this to the settings.
        (None, Some("nightly"), None),
        (None, None, Some(90)),
        (None, None, None),
    ];
    assert_eq!(said, expected);
}

#[test]
fn one_that_is_switched_off_decides_and_keeps() {
    let mut policies = [policy(1, None, None), policy(2, Some("web"), None)];
    policies[1].enabled = false;
    assert_eq!(governing(&policies, "web", "nightly").map(|found| found.name.as_str()), Some("p2"));
    assert_eq!(next_run_ms(&policies[1], 0), None);
    assert_eq!(next_run_ms(&policies[0], 0), Some(86_400_000));
    assert_eq!(policies[0].rules.to_string(), "keep-daily 7");
}

/// (L7) One night's clock was five days ahead, and that night's restore point lacks a disk. The ones after it are
/// partial as well, but for one.
#[test]
fn the_newest_whole_one_is_told_by_no_clock() {
    const DAY_MS: i64 = 86_400_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("catalog.db");
    let fixture =
        Fixture::new(&|clock| Catalog::create(&path, clock).map(|catalog| Arc::new(catalog) as _).unwrap());
    let commit = |days_ahead: i64, is_whole: bool| {
        fixture.clock.advance_ms(DAY_MS);
        let mut commit = fixture.commit("web", "nightly");
        commit.attempt.started_ms += days_ahead * DAY_MS;
        commit.attempt.finished_ms += days_ahead * DAY_MS;
        for row in &mut commit.details {
            (row.started_ms, row.finished_ms) = (commit.attempt.started_ms, commit.attempt.finished_ms);
        }
        if !is_whole {
            commit.missing_disks = vec!["swap".into()];
        }
        fixture.commit_backup(&commit).unwrap();
        commit.backup
    };
    let (_old, _ahead, last_whole) = (commit(0, true), commit(5, true), commit(0, true));
    for _ in 0..9 {
        commit(0, false);
    }
    let now_ms = fixture.clock.now_ms();
    let rules = Rules { keep_last: 1, ..Rules::default() };
    let subject = (fixture.default.id, "web");
    let decided = decide_vm(&fixture.catalog, now_ms, subject, &|_| true, (&rules, &TimeZone::UTC));
    let decided = decided.unwrap().unwrap();
    let kept: Vec<_> = decided.iter().filter(|point| point.keep()).map(|point| point.id).collect();
    assert!(kept.contains(&last_whole), "{decided:?}");
    assert_eq!(kept.len(), 2, "{decided:?}");
}
