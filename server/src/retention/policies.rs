//! Retention policies: what one may say, and which of them decides about a restore point.

use std::collections::HashMap;

use holdfast_engine::FreezingRule;
use holdfast_engine::catalog::{ARCHIVE_DAYS_MAX, Catalog, LOCK_DAYS_MAX, RetentionPolicy};
use holdfast_engine::clock::Clock;
use holdfast_engine::ids::{NamespaceId, PolicyId};
use holdfast_proto::ErrorCode;
use holdfast_proto::api::SetPolicy;
use holdfast_proto::limits::check_name;
use holdfast_proto::schedule::{Schedule, zone};

use crate::auth::Caller;
use crate::error::ServiceError;

/// A policy that says what is wanted. When and by whom it was set is written by the catalog.
pub(crate) fn of_wanted(wanted: SetPolicy, id: PolicyId, namespace: NamespaceId) -> RetentionPolicy {
    RetentionPolicy {
        id,
        name: wanted.name,
        namespace,
        vm: wanted.vm.filter(|vm| !vm.is_empty()),
        job: wanted.job.filter(|job| !job.is_empty()),
        rules: wanted.rules,
        schedule: wanted.schedule,
        time_zone: wanted.time_zone,
        lock_days: wanted.lock_days,
        archive_after_days: wanted.archive_after_days,
        enabled: wanted.enabled,
        resting_since_ms: None,
        updated_ms: 0,
        updated_by: String::new(),
    }
}

/// The policy that decides about a restore point: of those whose scope it is in, the most specific (VM and job, VM,
/// job, all); of several alike, the oldest. One that is switched off decides, too: it keeps everything, so that
/// switching a policy off never lets a broader one delete what it kept.
pub(crate) fn governing<'a>(
    policies: &'a [RetentionPolicy],
    vm: &str,
    job: &str,
) -> Option<&'a RetentionPolicy> {
    let covering = policies.iter().filter(|policy| policy.covers(vm, job));
    covering.max_by_key(|policy| rank(policy))
}

fn rank(policy: &RetentionPolicy) -> (bool, bool, std::cmp::Reverse<PolicyId>) {
    (policy.vm.is_some(), policy.job.is_some(), std::cmp::Reverse(policy.id))
}

/// Archive rules of the policies, in an order by which the one that [governs](governing) a restore point decides about
/// it. One that is switched off does as well: what it kept from the archive stays where it is. Empty where none says
/// anything.
pub(crate) fn archive_rules(mut policies: Vec<RetentionPolicy>) -> Vec<FreezingRule> {
    if policies.iter().all(|policy| policy.archive_after_days.is_none()) {
        return Vec::new();
    }
    policies.sort_by_key(|policy| std::cmp::Reverse(rank(policy)));
    let rule = |policy: RetentionPolicy| FreezingRule {
        namespace: policy.namespace,
        vm: policy.vm,
        job: policy.job,
        min_age_days: policy.archive_after_days,
    };
    policies.into_iter().map(rule).collect()
}

/// Time of a policy's next run; `None`: by hand only, or it is switched off or rests.
pub(crate) fn next_run_ms(policy: &RetentionPolicy, now_ms: i64) -> Option<i64> {
    if !policy.is_at_work() || policy.schedule.is_empty() {
        return None;
    }
    Schedule::parse(&policy.schedule, &policy.time_zone).ok()?.next_after_ms(now_ms)
}

/// The policies of a namespace. Blocks.
///
/// # Errors
/// Those of the catalog.
pub(crate) fn of_namespace(
    catalog: &Catalog,
    namespace: NamespaceId,
) -> Result<Vec<RetentionPolicy>, ServiceError> {
    Ok(catalog.policies(Some(&[namespace]))?)
}

/// Checks what a policy says, and that no other has its scope. Blocks.
///
/// # Errors
/// `Invalid`, saying what is wrong.
pub(crate) fn check(catalog: &Catalog, policy: &RetentionPolicy) -> Result<(), ServiceError> {
    let named = [("policy", Some(&policy.name)), ("VM", policy.vm.as_ref()), ("job", policy.job.as_ref())];
    for (what, name) in named {
        name.map_or(Ok(()), |name| check_name(what, name)).map_err(ServiceError::invalid)?;
    }
    let rules = policy.rules;
    if !rules.is_empty() {
        rules.validate().map_err(|error| ServiceError::invalid(error.to_string()))?;
    }
    zone(&policy.time_zone).map_err(|error| ServiceError::invalid(error.to_string()))?;
    if !policy.schedule.is_empty() {
        Schedule::parse(&policy.schedule, &policy.time_zone)
            .map_err(|error| ServiceError::invalid(error.to_string()))?;
    }
    if policy.lock_days > LOCK_DAYS_MAX {
        let days = policy.lock_days;
        return Err(ServiceError::invalid(format!(
            "restore points can be locked for {LOCK_DAYS_MAX} days at most, not {days}"
        )));
    }
    if let Some(days) = policy.archive_after_days.filter(|days| *days > ARCHIVE_DAYS_MAX) {
        return Err(ServiceError::invalid(format!(
            "data can be kept from the archive for {ARCHIVE_DAYS_MAX} days at most, not {days}"
        )));
    }
    let others = of_namespace(catalog, policy.namespace)?;
    let same =
        others.iter().find(|other| other.id != policy.id && other.vm == policy.vm && other.job == policy.job);
    same.map_or(Ok(()), |other| {
        Err(ServiceError::invalid(format!(
            "policy {:?} is for the same restore points; change or remove it, or name another VM or job",
            other.name
        )))
    })
}

/// Creates or replaces a policy, after all checks. Blocks.
///
/// # Errors
/// As [`check`] and [`check_scope`], and those of the catalog.
pub(crate) fn set(catalog: &Catalog, caller: &Caller, policy: &RetentionPolicy) -> Result<(), ServiceError> {
    check(catalog, policy)?;
    check_scope(caller, policy)?;
    Ok(catalog.set_policy(policy, &caller.token.name)?)
}

/// A policy's id. Blocks.
///
/// # Errors
/// When the system gives no random numbers.
pub(crate) fn new_id(clock: &dyn Clock) -> Result<PolicyId, ServiceError> {
    Ok(PolicyId(holdfast_engine::catalog::new_id(clock)?))
}

/// The policies of these namespaces (`None`: all) with the namespaces' names. Blocks.
///
/// # Errors
/// Those of the catalog.
pub(crate) fn named(
    catalog: &Catalog,
    namespaces: Option<&[NamespaceId]>,
) -> Result<Vec<(RetentionPolicy, String)>, ServiceError> {
    let found = catalog.policies(namespaces)?;
    let mut names: HashMap<NamespaceId, String> = HashMap::new();
    let mut named = Vec::with_capacity(found.len());
    for policy in found {
        let name = match names.get(&policy.namespace) {
            Some(name) => name.clone(),
            None => {
                let name = catalog.namespace(policy.namespace)?.map(|found| found.name).unwrap_or_default();
                names.insert(policy.namespace, name.clone());
                name
            }
        };
        named.push((policy, name));
    }
    Ok(named)
}

/// A policy of one VM is for those who may have that VM; any other for tokens that are not confined to some VMs.
///
/// # Errors
/// `Forbidden`.
pub(crate) fn check_scope(caller: &Caller, policy: &RetentionPolicy) -> Result<(), ServiceError> {
    if let Some(vm) = &policy.vm {
        return caller.check_vm(vm);
    }
    if caller.token.vm_patterns.is_empty() {
        return Ok(());
    }
    let (token, patterns) = (&caller.token.name, caller.token.vm_patterns.join(", "));
    Err(ServiceError::new(
        ErrorCode::Forbidden,
        format!(
            "token {token:?} is for the VMs {patterns}, and policy {:?} is for others, too; use a token that is for all",
            policy.name
        ),
    ))
}
