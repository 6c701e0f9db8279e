//! Retention policies.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{NamespaceRecord, RetentionPolicy};
use holdfast_engine::ids::PolicyId;
use holdfast_proto::ErrorCode;
use holdfast_retention::{Rules as RuleNumbers, Schedule, simulate as simulated};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::activity::Change;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::query::{At, Body, Params, id};
use crate::http::rest::wire::{Items, maybe_time, time};
use crate::retention::plan::Decided;
use crate::retention::run::{Work, run as carry_out, run_shown};
use crate::retention::{choice, policies};

/// Decisions in one answer; the counts are of all.
const DECISIONS_MAX: usize = 10_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http::rest) struct PoliciesQuery {
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
}

/// How many restore points to keep of each kind; 0: the rule is off
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::http::rest) struct Rules {
    keep_last: u32,
    keep_hourly: u32,
    keep_daily: u32,
    keep_weekly: u32,
    keep_monthly: u32,
    keep_yearly: u32,
    keep_within_days: u32,
}

impl From<Rules> for RuleNumbers {
    fn from(rules: Rules) -> Self {
        let Rules {
            keep_last,
            keep_hourly,
            keep_daily,
            keep_weekly,
            keep_monthly,
            keep_yearly,
            keep_within_days,
        } = rules;
        Self { keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly, keep_within_days }
    }
}

impl From<RuleNumbers> for Rules {
    fn from(rules: RuleNumbers) -> Self {
        let RuleNumbers {
            keep_last,
            keep_hourly,
            keep_daily,
            keep_weekly,
            keep_monthly,
            keep_yearly,
            keep_within_days,
        } = rules;
        Self { keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly, keep_within_days }
    }
}

/// A retention policy
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::rest) struct Policy {
    id: String,
    namespace: String,
    name: String,
    /// null: every VM
    vm: Option<String>,
    /// null: every job
    job: Option<String>,
    rules: Rules,
    /// A calendar expression; empty: it runs by hand only
    schedule: String,
    /// Of the schedule, and whose days, weeks and months count; empty: UTC
    time_zone: String,
    /// Each new restore point is locked for so many days
    lock_days: u32,
    /// Data that only its restore points need may go to the archive after so many days; null: as the server's settings say
    archive_after_days: Option<u32>,
    /// One that is switched off deletes and locks nothing
    enabled: bool,
    /// Since when it rests, because the catalog was an older copy: it deletes nothing until it is set again. null: never
    resting_since: Option<String>,
    updated: String,
    /// A token's name
    updated_by: String,
    /// null: it does not run by itself
    next_run: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http::rest) struct SetPolicy {
    /// Empty: the token's
    #[serde(default)]
    namespace: String,
    name: String,
    /// null: every VM
    #[serde(default)]
    vm: Option<String>,
    /// null: every job
    #[serde(default)]
    job: Option<String>,
    #[serde(default)]
    rules: Rules,
    /// A calendar expression; empty: it runs by hand only
    #[serde(default)]
    schedule: String,
    /// Empty: UTC
    #[serde(default)]
    time_zone: String,
    #[serde(default)]
    lock_days: u32,
    /// null: as the server's settings say
    #[serde(default)]
    archive_after_days: Option<u32>,
    enabled: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http::rest) struct SimulatePolicy {
    #[serde(default)]
    rules: Rules,
    /// When backups run: a calendar expression
    schedule: String,
    /// Empty: UTC
    #[serde(default)]
    time_zone: String,
    /// The first day, RFC 3339; null: today
    #[serde(default)]
    from: Option<String>,
    /// At most 3660
    days: u32,
}

/// What a policy would keep
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::rest) struct Simulation {
    days: Vec<SimulatedDay>,
}

/// What exists at the end of a day
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::rest) struct SimulatedDay {
    date: String,
    /// Newest first
    points: Vec<SimulatedPoint>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::rest) struct SimulatedPoint {
    at: String,
    /// The rules that keep it
    reasons: Vec<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http::rest) struct RunPolicy {
    /// Only show what would be kept and deleted
    dry_run: bool,
    /// The plan of a dry run: delete exactly what it showed, or nothing (409, changed). null: what is decided now
    #[serde(default)]
    plan: Option<String>,
}

/// What became, or would become, of restore points
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::rest) struct PolicyRun {
    dry_run: bool,
    /// Of a dry run: stands for the policies as they are and for what would be deleted
    plan: Option<String>,
    kept: u64,
    /// Of a dry run: to be deleted
    deleted: u64,
    /// Not deleted after all: locked or held since it was decided
    refused: u64,
    /// Which they are; at most 10000
    refused_points: Vec<String>,
    /// VMs with too many restore points to decide about; at most 10000
    skipped_vms: Vec<String>,
    /// Of a dry run: what deleting frees, to the byte; null: not known
    freed_bytes: Option<u64>,
    /// VM by VM, newest first; at most 10000
    decisions: Vec<Decision>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Decision {
    id: String,
    vm: String,
    job: String,
    started: String,
    keep: bool,
    /// The rules that keep it
    reasons: Vec<String>,
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
        let namespace = query.namespace.unwrap_or_default();
        let namespaces = caller.namespaces(app.catalog(), &namespace, Action::Catalog)?;
        let now_ms = app.clock.now_ms();
        let found = policies::named(app.catalog(), namespaces.as_deref())?.into_iter();
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
/// Day by day, beginning with nothing, as if every backup succeeded.
#[utoipa::path(post, path = "/policies/simulate", tag = "retention", request_body = SimulatePolicy,
    responses((status = 200, description = "What would exist on each day", body = Simulation)))]
pub(in crate::http::rest) async fn simulate(
    State(app): State<Arc<App>>,
    Identity { .. }: Identity,
    Body(wanted): Body<SimulatePolicy>,
) -> Result<Json<Simulation>, ServiceError> {
    app.blocking(move |app| {
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
        let rules = RuleNumbers::from(wanted.rules);
        if !rules.is_empty() {
            rules.validate().map_err(|error| invalid(&error))?;
        }
        let schedule =
            Schedule::parse(&wanted.schedule, &wanted.time_zone).map_err(|error| invalid(&error))?;
        let days = simulated(&rules, &schedule, from_ms, wanted.days).map_err(|error| invalid(&error))?;
        let point = |point: &holdfast_retention::SimulatedPoint| SimulatedPoint {
            at: time(point.at_ms),
            reasons: point.reasons.iter().map(ToString::to_string).collect(),
        };
        let day = |day: holdfast_retention::SimulatedDay| SimulatedDay {
            date: day.date.to_string(),
            points: day.points.iter().map(point).collect(),
        };
        Ok(Json(Simulation { days: days.into_iter().map(day).collect() }))
    })
    .await
}

/// Apply a retention policy now
///
/// Restore points that it decides about and does not keep are deleted, unless it is a dry run.
#[utoipa::path(post, path = "/policies/{id}/run", tag = "retention", request_body = RunPolicy,
    params(("id" = String, Path, description = "The policy's id")),
    responses((status = 200, description = "What it decided", body = PolicyRun)))]
pub(in crate::http::rest) async fn run(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
    Body(wanted): Body<RunPolicy>,
) -> Result<Json<PolicyRun>, ServiceError> {
    app.blocking(move |app| {
        let (policy, _) = find(app, &caller, Action::Operate, &text)?;
        let mut work = Work::of_policy(app.catalog(), &policy, &caller.token.name, wanted.dry_run)?;
        let mut decisions = Vec::new();
        let mut tell = |decided: &[Decided]| {
            let room = DECISIONS_MAX.saturating_sub(decisions.len());
            decisions.extend(decided.iter().take(room).map(decision));
            true
        };
        let stopping = app.stopping();
        let stop = || *stopping.borrow();
        let outcome = match wanted.plan.filter(|_| !wanted.dry_run) {
            Some(plan) => run_shown(&app.engine, &mut work, &plan, &stop, &mut tell)?,
            None => carry_out(&app.engine, &work, &stop, &mut tell)?,
        };
        if outcome.deleted > 0 && !wanted.dry_run {
            app.activity.note(Change::Backup);
        }
        let freed_bytes =
            if wanted.dry_run { choice::soon(&app.engine, &outcome.doomed, &stop)? } else { None };
        Ok(Json(PolicyRun {
            dry_run: wanted.dry_run,
            plan: wanted.dry_run.then(|| work.plan(&outcome.doomed)),
            kept: outcome.kept,
            deleted: outcome.deleted,
            refused: outcome.refused.len() as u64,
            refused_points: outcome.refused.iter().take(DECISIONS_MAX).map(ToString::to_string).collect(),
            skipped_vms: outcome.skipped.into_iter().take(DECISIONS_MAX).collect(),
            freed_bytes,
            decisions,
        }))
    })
    .await
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
    let wanted = policies::Wanted {
        name: wanted.name,
        vm: wanted.vm,
        job: wanted.job,
        rules: wanted.rules.into(),
        schedule: wanted.schedule,
        time_zone: wanted.time_zone,
        lock_days: wanted.lock_days,
        archive_after_days: wanted.archive_after_days,
        enabled: wanted.enabled,
    };
    let record = wanted.into_policy(id, namespace.id);
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
        rules: policies::rules(&policy).into(),
        next_run: maybe_time(policies::next_run_ms(&policy, now_ms)),
        name: policy.name,
        vm: policy.vm,
        job: policy.job,
        schedule: policy.schedule,
        time_zone: policy.time_zone,
        lock_days: policy.lock_days,
        archive_after_days: policy.archive_after_days,
        enabled: policy.enabled,
        resting_since: maybe_time(policy.resting_since_ms),
        updated: time(policy.updated_ms),
        updated_by: policy.updated_by,
    }
}

fn decision(decided: &Decided) -> Decision {
    Decision {
        id: decided.id.to_string(),
        vm: decided.vm.clone(),
        job: decided.job.clone(),
        started: time(decided.started_ms),
        keep: decided.keep(),
        reasons: decided.reasons.iter().map(ToString::to_string).collect(),
    }
}
