//! Policies as such, and simulations.

use holdfast_engine::catalog::NamespaceRecord;
use holdfast_engine::catalog::token::Action;
use holdfast_proto::limits::SIMULATED_POINTS_PER_MESSAGE;
use holdfast_proto::v1;
use holdfast_retention::{Schedule, SimulatedDay, simulate as simulated};

use super::stream::Answer;
use super::wire;
use crate::activity::Change;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::retention::policies;

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
