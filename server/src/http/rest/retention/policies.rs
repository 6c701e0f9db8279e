//! Retention policies.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use holdfast_engine::Engine;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{NamespaceRecord, RetentionPolicy};
use holdfast_engine::ids::{BackupId, PolicyId};
use holdfast_proto::ErrorCode;
use holdfast_proto::api::{
    Decision, Forget, Line, Policy, PolicyRun, RunPart, RunPolicy, SetPolicy, SimulatePolicy, SimulatedDay,
    SimulatedPoint, Simulation, Time,
};
use holdfast_proto::limits::{FORGET_VMS_MAX, check_name};
use holdfast_proto::schedule::{Schedule, zone};
use holdfast_retention::{Reason, simulate as simulated};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::activity::Change;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::http::HttpState;
use crate::http::access::Identity;
use crate::http::ndjson::{self, Lines, Takes};
use crate::http::query::{AsLines, At, Body, Params, id, name};
use crate::http::rest::wire::Items;
use crate::retention::plan::Decided;
use crate::retention::run::{Subject, Tell, Work, run as run_work, run_shown};
use crate::retention::{choice, policies};

/// Decisions in an answer in one piece; the counts are of all.
const DECISIONS_MAX: usize = 10_000;

/// Decisions in a line: each at most 26 + 2 × 200 bytes of names and 200 of reasons, so under 400 KiB.
const DECISIONS_PER_LINE: usize = 500;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http::rest) struct PoliciesQuery {
    /// One namespace [default: all in the token's scope; with a name: the token's]
    namespace: Option<String>,
    /// The one of this name [default: every]
    name: Option<String>,
}

/// Retention policies, by namespace and name
#[utoipa::path(get, path = "/policies", tag = "retention", params(PoliciesQuery),
    responses((status = 200, description = "The policies", body = Items<Policy>)))]
pub(in crate::http::rest) async fn list(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(query): Params<PoliciesQuery>,
) -> Result<Json<Items<Policy>>, ServiceError> {
    app.blocking(move |app| {
        let (namespace, name) = (query.namespace.unwrap_or_default(), query.name);
        // An empty one is none of theirs: it must not stand for all.
        name.iter().try_for_each(|name| check_name("policy", name)).map_err(ServiceError::invalid)?;
        let namespaces = match &name {
            Some(_) => Some(vec![caller.namespace(app.catalog(), &namespace, Action::Catalog)?.id]),
            None => caller.namespaces(app.catalog(), &namespace, Action::Catalog)?,
        };
        let now_ms = app.clock.now_ms();
        let found = policies::named(app.catalog(), namespaces.as_deref())?.into_iter();
        let found = found.filter(|(policy, _)| name.as_ref().is_none_or(|name| *name == policy.name));
        Ok(Json(Items::whole(found.map(|(policy, namespace)| shown(policy, namespace, now_ms)).collect())))
    })
    .await
}

/// Create a retention policy
///
/// It decides about the restore points of its scope, unless a policy with a narrower scope does.
#[utoipa::path(post, path = "/policies", tag = "retention", request_body = SetPolicy,
    responses((status = 201, description = "The policy", body = Policy)))]
pub(in crate::http::rest) async fn create(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Body(wanted): Body<SetPolicy>,
) -> Result<(StatusCode, Json<Policy>), ServiceError> {
    app.blocking(move |app| {
        let namespace = caller.namespace(app.catalog(), &wanted.namespace, Action::Retain)?;
        let id = policies::new_id(app.clock.as_ref())?;
        Ok((StatusCode::CREATED, set(app, &caller, id, namespace, wanted)?))
    })
    .await
}

/// Change a retention policy
///
/// Everything is set: what is left out gets its default. What it locked stays locked.
#[utoipa::path(put, path = "/policies/{id}", tag = "retention", request_body = SetPolicy,
    params(("id" = String, Path, description = "The policy's id")),
    responses((status = 200, description = "The policy", body = Policy)))]
pub(in crate::http::rest) async fn replace(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
    Body(wanted): Body<SetPolicy>,
) -> Result<Json<Policy>, ServiceError> {
    app.blocking(move |app| {
        let (known, namespace) = find(app, &caller, Action::Retain, &text)?;
        if !wanted.namespace.is_empty() && wanted.namespace != namespace.name {
            return Err(ServiceError::invalid("a policy stays in its namespace; create another one there"));
        }
        set(app, &caller, known.id, namespace, wanted)
    })
    .await
}

/// Remove a retention policy
///
/// What it locked stays locked. A policy with a broader scope decides from then on.
#[utoipa::path(delete, path = "/policies/{id}", tag = "retention",
    params(("id" = String, Path, description = "The policy's id")),
    responses((status = 204, description = "Removed")))]
pub(in crate::http::rest) async fn remove(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
) -> Result<StatusCode, ServiceError> {
    app.blocking(move |app| {
        let (known, _) = find(app, &caller, Action::Retain, &text)?;
        app.catalog().remove_policy(known.id, &caller.token.name)?;
        app.activity.note(Change::Policies);
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// What rules would keep of the backups that a schedule makes
///
/// Day by day, beginning with nothing, as if every backup succeeded. In NDJSON a line is a day.
#[utoipa::path(post, path = "/policies/simulate", tag = "retention", request_body = SimulatePolicy,
    responses((status = 200, description = "What would exist on each day",
        content((Simulation = "application/json"), (Line<SimulatedDay> = "application/x-ndjson")))))]
pub(in crate::http::rest) async fn simulate(
    State(state): State<HttpState>,
    identity: Identity,
    AsLines(as_lines): AsLines,
    Body(wanted): Body<SimulatePolicy>,
) -> Result<Response, ServiceError> {
    if as_lines {
        let work = move |app: &Arc<App>, lines: &Lines<SimulatedDay>| {
            simulated_days(app, wanted)?.try_for_each(|day| lines.send(&day))
        };
        return ndjson::answer(&state, &identity, Takes::Turn, work).await;
    }
    let simulation = move |app: &Arc<App>| Ok(Simulation { days: simulated_days(app, wanted)?.collect() });
    Ok(Json(state.app.blocking(simulation).await?).into_response())
}

fn simulated_days(
    app: &App,
    wanted: SimulatePolicy,
) -> Result<impl Iterator<Item = SimulatedDay>, ServiceError> {
    let invalid = |error: &dyn std::fmt::Display| ServiceError::invalid(error.to_string());
    let from_ms = match wanted.from.filter(|text| !text.is_empty()) {
        None => app.clock.now_ms(),
        Some(text) => {
            let from: jiff::Timestamp = text
                .parse()
                .map_err(|_| ServiceError::invalid("from: write a time such as 2027-12-31T00:00:00Z"))?;
            from.as_millisecond()
        }
    };
    let rules = wanted.rules;
    if !rules.is_empty() {
        rules.validate().map_err(|error| invalid(&error))?;
    }
    let schedule = Schedule::parse(&wanted.schedule, &wanted.time_zone).map_err(|error| invalid(&error))?;
    let days = simulated(&rules, &schedule, from_ms, wanted.days).map_err(|error| invalid(&error))?;
    let point = |point: &holdfast_retention::SimulatedPoint| SimulatedPoint {
        at: Time::new(point.at_ms),
        reasons: texts(&point.reasons),
    };
    Ok(days.into_iter().map(move |day| SimulatedDay {
        date: day.date.to_string(),
        points: day.points.iter().map(point).collect(),
    }))
}

/// Apply a retention policy now
///
/// Restore points that it decides about and does not keep are deleted, unless it is a dry run. In NDJSON, lines have all
/// decisions as they are made, and the last one the rest; the run ends early when no one reads them.
#[utoipa::path(post, path = "/policies/{id}/run", tag = "retention", request_body = RunPolicy,
    params(("id" = String, Path, description = "The policy's id")),
    responses((status = 200, description = "What it decided",
        content((PolicyRun = "application/json"), (Line<RunPart> = "application/x-ndjson")))))]
pub(in crate::http::rest) async fn run(
    State(state): State<HttpState>,
    identity: Identity,
    as_lines: AsLines,
    At(text): At<String>,
    Body(wanted): Body<RunPolicy>,
) -> Result<Response, ServiceError> {
    let (caller, dry_run) = (identity.caller.clone(), wanted.dry_run);
    let work = move |app: &App| {
        let (policy, _) = find(app, &caller, Action::Operate, &text)?;
        let work = Work::of_policy(app.catalog(), &policy, &caller.token.name, wanted.dry_run)?;
        Ok((work, wanted.plan))
    };
    carried_out(&state, &identity, (as_lines, dry_run), work).await
}

/// Forget restore points
///
/// Deletes restore points of some VMs that the given rules do not keep, unless it is a dry run; deleting is for admins. Policies
/// decide nothing here. Lines are as those of a policy's run.
#[utoipa::path(post, path = "/restore-points/forget", tag = "retention", request_body = Forget,
    responses((status = 200, description = "What was decided",
        content((PolicyRun = "application/json"), (Line<RunPart> = "application/x-ndjson")))))]
pub(in crate::http::rest) async fn forget(
    State(state): State<HttpState>,
    identity: Identity,
    as_lines: AsLines,
    Body(wanted): Body<Forget>,
) -> Result<Response, ServiceError> {
    let (caller, dry_run) = (identity.caller.clone(), wanted.dry_run);
    let work = move |app: &App| Ok((work_by_hand(app, &caller, wanted)?, None));
    carried_out(&state, &identity, (as_lines, dry_run), work).await
}

/// Rules that the caller makes up: to delete by them is deleting by hand.
fn work_by_hand(app: &App, caller: &Caller, wanted: Forget) -> Result<Work, ServiceError> {
    let action = if wanted.dry_run { Action::Operate } else { Action::Retain };
    let namespace = caller.namespace(app.catalog(), &wanted.namespace, action)?;
    choice::check_reason(&wanted.reason, false)?;
    let mut vms = wanted.vms;
    if vms.is_empty() || vms.len() > FORGET_VMS_MAX {
        return Err(ServiceError::invalid(format!("name 1 to {FORGET_VMS_MAX} VMs, not {}", vms.len())));
    }
    for vm in &vms {
        check_name("VM", vm).map_err(ServiceError::invalid)?;
        caller.check_vm(vm)?;
    }
    vms.sort_unstable();
    vms.dedup();
    let job = name("job", wanted.job)?;
    let rules = wanted.rules;
    rules.validate().map_err(|error| ServiceError::invalid(error.to_string()))?;
    let zone = zone(&wanted.time_zone).map_err(|error| ServiceError::invalid(error.to_string()))?;
    let why = if wanted.reason.is_empty() { "forget" } else { &wanted.reason };
    Ok(Work {
        namespace: namespace.id,
        subject: Subject::Vms { vms, job },
        reason: format!("{why}: {rules}"),
        rules,
        zone,
        dry_run: wanted.dry_run,
        who: caller.token.name.clone(),
    })
}

/// Answers with what comes of `work`, and of the plan that it is to keep to: all decisions in lines, else the first of them.
async fn carried_out(
    state: &HttpState,
    identity: &Identity,
    (AsLines(as_lines), dry_run): (AsLines, bool),
    work: impl FnOnce(&App) -> Result<(Work, Option<String>), ServiceError> + Send + 'static,
) -> Result<Response, ServiceError> {
    if as_lines {
        let work = move |app: &Arc<App>, lines: &Lines<RunPart>| {
            let mut told = Ok(());
            let mut tell = |decided: &[Decided]| {
                let mut parts = decided.chunks(DECISIONS_PER_LINE).map(|some| some.iter().map(decision));
                told = parts.try_for_each(|part| lines.send(&RunPart::Decisions(part.collect())));
                told.is_ok()
            };
            let run = carry_out(app, work(app)?, &|| lines.is_over(), &mut tell, choice::by_deleting)?;
            if dry_run {
                told?;
                return lines.send(&RunPart::Run(run));
            }
            // Deletions are reported first, then the error that cut the run short.
            lines.finish(&RunPart::Run(run))?;
            told.and_then(|()| lines.check())
        };
        let takes = if dry_run { Takes::Turn } else { Takes::Slot };
        return ndjson::answer(state, identity, takes, work).await;
    }
    let run = move |app: &Arc<App>| {
        let mut decisions = Vec::new();
        let mut tell = |decided: &[Decided]| {
            let room = DECISIONS_MAX.saturating_sub(decisions.len());
            decisions.extend(decided.iter().take(room).map(decision));
            true
        };
        let run = carry_out(app, work(app)?, &|| *app.stopping().borrow(), &mut tell, choice::soon)?;
        Ok(PolicyRun { decisions, ..run })
    };
    Ok(Json(state.app.blocking(run).await?).into_response())
}

/// Counts the bytes that deleting frees.
type Count = fn(&Engine, &[BackupId], &(dyn Fn() -> bool + Sync)) -> Result<Option<u64>, ServiceError>;

/// Returns what comes of it, without the decisions.
fn carry_out(
    app: &App,
    (mut work, plan): (Work, Option<String>),
    stop: &(dyn Fn() -> bool + Sync),
    tell: &mut Tell<'_>,
    count: Count,
) -> Result<PolicyRun, ServiceError> {
    let dry_run = work.dry_run;
    let outcome = match plan.filter(|_| !dry_run) {
        Some(plan) => run_shown(&app.engine, &mut work, &plan, stop, tell)?,
        None => run_work(&app.engine, &work, stop, tell)?,
    };
    if outcome.deleted > 0 && !dry_run {
        app.activity.note(Change::Backup);
    }
    let freed_bytes = if dry_run && !stop() { count(&app.engine, &outcome.doomed, stop)? } else { None };
    Ok(PolicyRun {
        dry_run,
        plan: dry_run.then(|| work.plan(&outcome.doomed)),
        kept: outcome.kept,
        deleted: outcome.deleted,
        refused: outcome.refused.len() as u64,
        refused_points: outcome.refused.iter().take(DECISIONS_MAX).map(ToString::to_string).collect(),
        skipped_vms: outcome.skipped.into_iter().take(DECISIONS_MAX).collect(),
        freed_bytes,
        decisions: Vec::new(),
    })
}

/// The policy of that id, when the caller may do this to it.
fn find(
    app: &App,
    caller: &Caller,
    action: Action,
    text: &str,
) -> Result<(RetentionPolicy, NamespaceRecord), ServiceError> {
    caller.check_role(action)?;
    let id: PolicyId = id("policy", text)?;
    let absent = || ServiceError::new(ErrorCode::NotFound, format!("there is no policy {id}"));
    let found = app.catalog().policy(id)?.filter(|policy| caller.may(action, policy.namespace));
    let policy = found.ok_or_else(absent)?;
    policies::check_scope(caller, &policy)?;
    let namespace = app.catalog().namespace(policy.namespace)?.ok_or_else(absent)?;
    Ok((policy, namespace))
}

fn set(
    app: &App,
    caller: &Caller,
    id: PolicyId,
    namespace: NamespaceRecord,
    wanted: SetPolicy,
) -> Result<Json<Policy>, ServiceError> {
    let record = policies::of_wanted(wanted, id, namespace.id);
    policies::set(app.catalog(), caller, &record)?;
    app.activity.note(Change::Policies);
    let now = app.catalog().policy(id)?;
    let now = now.ok_or_else(|| ServiceError::defect("a policy that was set is gone"))?;
    Ok(Json(shown(now, namespace.name, app.clock.now_ms())))
}

fn shown(policy: RetentionPolicy, namespace: String, now_ms: i64) -> Policy {
    Policy {
        id: policy.id.to_string(),
        namespace,
        rules: policy.rules,
        next_run: policies::next_run_ms(&policy, now_ms).map(Time::new),
        name: policy.name,
        vm: policy.vm,
        job: policy.job,
        schedule: policy.schedule,
        time_zone: policy.time_zone,
        lock_days: policy.lock_days,
        archive_after_days: policy.archive_after_days,
        enabled: policy.enabled,
        resting_since: policy.resting_since_ms.map(Time::new),
        updated: Time::new(policy.updated_ms),
        updated_by: policy.updated_by,
    }
}

fn decision(decided: &Decided) -> Decision {
    Decision {
        id: decided.id.to_string(),
        vm: decided.vm.clone(),
        job: decided.job.clone(),
        started: Time::new(decided.started_ms),
        keep: decided.keep(),
        reasons: texts(&decided.reasons),
    }
}

fn texts(reasons: &[Reason]) -> Vec<String> {
    reasons.iter().map(ToString::to_string).collect()
}
