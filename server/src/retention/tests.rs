//! Which policy decides.

use holdfast_engine::catalog::RetentionPolicy;
use holdfast_engine::ids::{NamespaceId, PolicyId};

use super::policies::{archive_rules, governing, next_run_ms, rules};

fn policy(number: u8, vm: Option<&str>, job: Option<&str>) -> RetentionPolicy {
    RetentionPolicy {
        id: PolicyId::from_bytes([number; 16]),
        name: format!("p{number}"),
        namespace: NamespaceId::from_bytes([0; 16]),
        vm: vm.map(str::to_owned),
        job: job.map(str::to_owned),
        keep_last: 0,
        keep_hourly: 0,
        keep_daily: 7,
        keep_weekly: 0,
        keep_monthly: 0,
        keep_yearly: 0,
        keep_within_days: 0,
        schedule: "@daily".to_owned(),
        time_zone: String::new(),
        lock_days: 0,
        archive_after_days: None,
        enabled: true,
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
    assert_eq!(rules(&policies[0]).to_string(), "keep-daily 7");
}
