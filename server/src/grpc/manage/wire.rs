//! Between the protocol's messages and what the server decides with.

use holdfast_engine::catalog::{BackupRecord, RetentionLock, RetentionPolicy};
use holdfast_proto::v1;
use holdfast_retention::{Reason, Rules};

use crate::retention::plan::{Decided, in_force};
use crate::retention::policies;

/// What keeps a restore point from being deleted; `None`: nothing.
pub(in crate::grpc) fn protection(lock: &RetentionLock, lock_time_ms: Option<i64>) -> Option<v1::Protection> {
    let (locked_until_ms, held) = in_force(lock, lock_time_ms);
    if locked_until_ms.is_none() && !held {
        return None;
    }
    let hold = lock.hold.clone();
    let (hold_reason, hold_who) = hold.map(|hold| (hold.reason, hold.who)).unwrap_or_default();
    Some(v1::Protection { locked_until_ms, hold_reason, hold_who })
}

pub(super) fn selected(backup: &BackupRecord, lock_time_ms: Option<i64>) -> v1::SelectedPoint {
    v1::SelectedPoint {
        id: backup.id.to_string(),
        vm: backup.vm.clone(),
        job: backup.job.clone(),
        started_ms: backup.started_ms,
        protection: protection(&backup.lock, lock_time_ms),
    }
}

pub(super) fn reasons(reasons: &[Reason]) -> Vec<String> {
    reasons.iter().map(ToString::to_string).collect()
}

pub(super) fn decision(decided: &Decided) -> v1::Decision {
    v1::Decision {
        backup: decided.id.to_string(),
        vm: decided.vm.clone(),
        job: decided.job.clone(),
        started_ms: decided.started_ms,
        reasons: reasons(&decided.reasons),
    }
}

/// Rules that are left out say nothing.
pub(super) fn rules(rules: Option<v1::RetentionRules>) -> Rules {
    let rules = rules.unwrap_or_default();
    Rules {
        keep_last: rules.keep_last,
        keep_hourly: rules.keep_hourly,
        keep_daily: rules.keep_daily,
        keep_weekly: rules.keep_weekly,
        keep_monthly: rules.keep_monthly,
        keep_yearly: rules.keep_yearly,
        keep_within_days: rules.keep_within_days,
    }
}

/// A policy as the protocol tells it.
pub(super) fn policy(found: RetentionPolicy, namespace: String, now_ms: i64) -> v1::Policy {
    let rules = policies::rules(&found);
    v1::Policy {
        id: found.id.to_string(),
        namespace,
        rules: Some(v1::RetentionRules {
            keep_last: rules.keep_last,
            keep_hourly: rules.keep_hourly,
            keep_daily: rules.keep_daily,
            keep_weekly: rules.keep_weekly,
            keep_monthly: rules.keep_monthly,
            keep_yearly: rules.keep_yearly,
            keep_within_days: rules.keep_within_days,
        }),
        next_run_ms: policies::next_run_ms(&found, now_ms),
        name: found.name,
        vm: found.vm.unwrap_or_default(),
        job: found.job.unwrap_or_default(),
        schedule: found.schedule,
        time_zone: found.time_zone,
        lock_days: found.lock_days,
        archive_after_days: found.archive_after_days,
        enabled: found.enabled,
        resting_since_ms: found.resting_since_ms,
        updated_ms: found.updated_ms,
        updated_by: found.updated_by,
    }
}

/// What a policy is to say.
pub(super) fn wanted_policy(wanted: v1::Policy) -> policies::Wanted {
    policies::Wanted {
        name: wanted.name,
        vm: Some(wanted.vm),
        job: Some(wanted.job),
        rules: rules(wanted.rules),
        schedule: wanted.schedule,
        time_zone: wanted.time_zone,
        lock_days: wanted.lock_days,
        archive_after_days: wanted.archive_after_days,
        enabled: wanted.enabled,
    }
}
