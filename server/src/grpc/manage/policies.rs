//! Policies as such, and simulations.

use holdfast_engine::catalog::NamespaceRecord;
use holdfast_engine::catalog::token::Action;
use holdfast_proto::limits::{
    DECISIONS_PER_MESSAGE, FORGET_VMS_MAX, SIMULATED_POINTS_PER_MESSAGE, check_name,
};
use holdfast_proto::v1;
use holdfast_proto::v1::forget_response::Kind;
use holdfast_retention::{Schedule, SimulatedDay, simulate as simulated, zone};

use crate::activity::Change;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::grpc::manage::{Answer, wire};
use crate::retention::plan::Decided;
use crate::retention::run::{Subject, Work, run, run_shown};
use crate::retention::{choice, policies};

#[expect(clippy::needless_pass_by_value, reason = "every call is handled alike")]
pub(super) fn list(
    app: &App,
    caller: &Caller,
    message: v1::ListPoliciesRequest,
) -> Result<v1::ListPoliciesResponse, ServiceError> {
    let namespaces = caller.namespaces(app.catalog(), &message.namespace, Action::Catalog)?;
    let found = policies::named(app.catalog(), namespaces.as_deref())?;
    let now_ms = app.clock.now_ms();
    let policies = found.into_iter().map(|(policy, namespace)| wire::policy(policy, namespace, now_ms));
    Ok(v1::ListPoliciesResponse { policies: policies.collect() })
}

pub(super) fn set(
    app: &App,
    caller: &Caller,
    message: v1::SetPolicyRequest,
) -> Result<v1::SetPolicyResponse, ServiceError> {
    let wanted = message.policy.ok_or_else(|| ServiceError::invalid("the call has no policy"))?;
    let namespace = caller.namespace(app.catalog(), &wanted.namespace, Action::Retain)?;
    let known = policies::of_namespace(app.catalog(), namespace.id)?;
    let known = known.into_iter().find(|policy| policy.name == wanted.name);
    let id = match &known {
        Some(known) => known.id,
        None => policies::new_id(app.clock.as_ref())?,
    };
    if let Some(known) = &known {
        policies::check_scope(caller, known)?;
    }
    let record = wire::wanted_policy(wanted).into_policy(id, namespace.id);
    policies::set(app.catalog(), caller, &record)?;
    app.activity.note(Change::Policies);
    let policy = set_policy(app, namespace, &record.name)?;
    Ok(v1::SetPolicyResponse { policy: Some(policy), created: known.is_none() })
}

/// As it is now.
fn set_policy(app: &App, namespace: NamespaceRecord, name: &str) -> Result<v1::Policy, ServiceError> {
    let policy = policies::of_name(app.catalog(), namespace.id, name)?;
    Ok(wire::policy(policy, namespace.name, app.clock.now_ms()))
}

#[expect(clippy::needless_pass_by_value, reason = "every call is handled alike")]
pub(super) fn remove(
    app: &App,
    caller: &Caller,
    message: v1::RemovePolicyRequest,
) -> Result<v1::RemovePolicyResponse, ServiceError> {
    let namespace = caller.namespace(app.catalog(), &message.namespace, Action::Retain)?;
    let policy = policies::of_name(app.catalog(), namespace.id, &message.name)?;
    policies::check_scope(caller, &policy)?;
    app.catalog().remove_policy(policy.id, &caller.token.name)?;
    app.activity.note(Change::Policies);
    let policy = wire::policy(policy, namespace.name, app.clock.now_ms());
    Ok(v1::RemovePolicyResponse { policy: Some(policy) })
}

#[expect(clippy::needless_pass_by_value, reason = "every call is handled alike")]
pub(super) fn simulate(
    app: &App,
    caller: &Caller,
    message: v1::SimulatePolicyRequest,
    answer: &Answer<v1::SimulatePolicyResponse>,
) -> Result<(), ServiceError> {
    caller.check_role(Action::Operate)?;
    let invalid = |error: &dyn std::fmt::Display| ServiceError::invalid(error.to_string());
    let rules = wire::rules(message.rules);
    if !rules.is_empty() {
        rules.validate().map_err(|error| invalid(&error))?;
    }
    let schedule = Schedule::parse(&message.schedule, &message.time_zone).map_err(|error| invalid(&error))?;
    let from_ms = if message.from_ms == 0 { app.clock.now_ms() } else { message.from_ms };
    let days = simulated(&rules, &schedule, from_ms, message.days).map_err(|error| invalid(&error))?;
    let (mut batch, mut points) = (Vec::new(), 0);
    for day in &days {
        points += day.points.len();
        batch.push(simulated_day(day));
        if points >= SIMULATED_POINTS_PER_MESSAGE {
            points = 0;
            if !answer.send(v1::SimulatePolicyResponse { days: std::mem::take(&mut batch) }) {
                return Ok(());
            }
        }
    }
    answer.send(v1::SimulatePolicyResponse { days: batch });
    Ok(())
}

fn simulated_day(day: &SimulatedDay) -> v1::SimulatedDay {
    let points = day.points.iter();
    let points = points
        .map(|point| v1::SimulatedPoint { at_ms: point.at_ms, reasons: wire::reasons(&point.reasons) })
        .collect();
    v1::SimulatedDay { date: day.date.to_string(), points }
}

/// Restore points, and VMs, that a summary names at most.
const NAMED_MAX: usize = 1000;

type Forgotten = Answer<v1::ForgetResponse>;

/// Rules that the caller makes up: to delete by them is deleting by hand.
pub(super) fn forget(
    app: &App,
    caller: &Caller,
    message: v1::ForgetRequest,
    answer: &Forgotten,
) -> Result<(), ServiceError> {
    let action = if message.dry_run { Action::Operate } else { Action::Retain };
    let namespace = caller.namespace(app.catalog(), &message.namespace, action)?;
    choice::check_reason(&message.reason, false)?;
    if message.vms.is_empty() || message.vms.len() > FORGET_VMS_MAX {
        let count = message.vms.len();
        return Err(ServiceError::invalid(format!("name 1 to {FORGET_VMS_MAX} VMs, not {count}")));
    }
    for vm in &message.vms {
        check_name("VM", vm).map_err(ServiceError::invalid)?;
        caller.check_vm(vm)?;
    }
    if !message.job.is_empty() {
        check_name("job", &message.job).map_err(ServiceError::invalid)?;
    }
    let rules = wire::rules(message.rules);
    rules.validate().map_err(|error| ServiceError::invalid(error.to_string()))?;
    let zone = zone(&message.time_zone).map_err(|error| ServiceError::invalid(error.to_string()))?;
    let mut vms = message.vms;
    vms.sort_unstable();
    vms.dedup();
    let reason = if message.reason.is_empty() {
        format!("forget: {rules}")
    } else {
        format!("{}: {rules}", message.reason)
    };
    let work = Work {
        namespace: namespace.id,
        subject: Subject::Vms { vms, job: Some(message.job).filter(|job| !job.is_empty()) },
        rules,
        zone,
        dry_run: message.dry_run,
        who: caller.token.name.clone(),
        reason,
    };
    carry_out(app, work, "", message.without_bytes, answer)
}

#[expect(clippy::needless_pass_by_value, reason = "every call is handled alike")]
pub(super) fn run_policy(
    app: &App,
    caller: &Caller,
    message: v1::RunPolicyRequest,
    answer: &Forgotten,
) -> Result<(), ServiceError> {
    let namespace = caller.namespace(app.catalog(), &message.namespace, Action::Operate)?;
    let policy = policies::of_name(app.catalog(), namespace.id, &message.name)?;
    policies::check_scope(caller, &policy)?;
    let work = Work::of_policy(app.catalog(), &policy, &caller.token.name, message.dry_run)?;
    carry_out(app, work, &message.plan, message.without_bytes, answer)
}

fn carry_out(
    app: &App,
    mut work: Work,
    plan: &str,
    without_bytes: bool,
    answer: &Forgotten,
) -> Result<(), ServiceError> {
    let mut tell = |decided: &[Decided]| {
        decided.chunks(DECISIONS_PER_MESSAGE).all(|some| {
            let decisions = some.iter().map(wire::decision).collect();
            answer.send(v1::ForgetResponse { kind: Some(Kind::Decisions(v1::Decisions { decisions })) })
        })
    };
    let stop = || answer.is_over();
    let outcome = if plan.is_empty() || work.dry_run {
        run(&app.engine, &work, &stop, &mut tell)?
    } else {
        run_shown(&app.engine, &mut work, plan, &stop, &mut tell)?
    };
    if outcome.deleted > 0 && !work.dry_run {
        app.activity.note(Change::Backup);
    }
    let freed_bytes = if work.dry_run && !without_bytes && !answer.is_over() {
        choice::by_deleting(&app.engine, &outcome.doomed, &|| answer.is_over())?
    } else {
        None
    };
    let summary = v1::ForgetSummary {
        plan: if work.dry_run { work.plan(&outcome.doomed) } else { String::new() },
        kept: outcome.kept,
        deleted: outcome.deleted,
        freed_bytes,
        vms: outcome.vms,
        refused: outcome.refused.len() as u64,
        refused_backups: outcome.refused.iter().take(NAMED_MAX).map(ToString::to_string).collect(),
        skipped_vms: outcome.skipped.into_iter().take(NAMED_MAX).collect(),
    };
    answer.send(v1::ForgetResponse { kind: Some(Kind::Summary(summary)) });
    Ok(())
}
