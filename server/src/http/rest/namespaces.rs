//! Namespaces: what they take, and what they may take.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::{self, NamespaceQuota, NamespaceRecord};
use holdfast_engine::ids::NamespaceId;
use holdfast_proto::ErrorCode;
use holdfast_proto::api::{AgentsProved, Items, Namespace, Quota, Time, Usage};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::activity::Change;
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::query::{At, Body, Params};
use crate::insight::{agents_command, agents_reminder};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct NoQuery {}

fn proved(found: &catalog::AgentsProofs, now_ms: i64) -> AgentsProved {
    AgentsProved {
        vms: found.vms,
        never_verified: found.never,
        oldest: found.oldest_ms.map(Time::new),
        reminder: agents_reminder(found, now_ms),
        command: agents_command(found),
    }
}

fn described(
    namespace: NamespaceRecord,
    vms: u64,
    found: &NamespaceQuota,
    agents: Option<AgentsProved>,
) -> Namespace {
    let catalog::Usage { stored_bytes, protected_bytes, restore_points, sessions_today, .. } = found.usage;
    Namespace {
        name: namespace.name,
        created: Time::new(namespace.created_ms),
        key_id: namespace.key_id.map(|key_id| key_id.to_string()),
        agents,
        vms,
        backups: restore_points,
        stored_bytes,
        quota: found.quota,
        usage: Usage { stored_bytes, protected_bytes, restore_points, sessions_today },
        near: found.near().into_iter().map(str::to_owned).collect(),
    }
}

/// Namespaces in the token's scope, by name
#[utoipa::path(get, path = "/namespaces", tag = "vms",
    responses((status = 200, description = "The namespaces", body = Items<Namespace>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(NoQuery {}): Params<NoQuery>,
) -> Result<Json<Items<Namespace>>, ServiceError> {
    app.blocking(move |app| {
        let items = find(app, caller.scope().as_deref())?;
        Ok(Json(Items::whole(items)))
    })
    .await
}

fn find(app: &App, scope: Option<&[NamespaceId]>) -> Result<Vec<Namespace>, ServiceError> {
    let quotas = app.catalog().quotas(scope)?;
    let mut quotas: HashMap<NamespaceId, NamespaceQuota> =
        quotas.into_iter().map(|found| (found.namespace.id, found)).collect();
    let found = app.catalog().namespace_overviews(scope)?;
    let now_ms = app.clock.now_ms();
    let proofs = app.catalog().agents_proof_summaries()?;
    let agents = |id| proofs.iter().find(|found| found.namespace == id);
    // One that was created between the two questions is left out.
    let item = |overview: catalog::NamespaceOverview| {
        let quota = quotas.remove(&overview.namespace.id)?;
        let agents = agents(overview.namespace.id).map(|found| proved(found, now_ms));
        Some(described(overview.namespace, overview.vms, &quota, agents))
    };
    Ok(found.into_iter().filter_map(item).collect())
}

/// Set what a namespace may take
///
/// All four limits are set: one that is left out or null is removed. A backup that runs follows before it is refused
/// anything, others when they start. What is stored already stays, however low a limit is.
#[utoipa::path(put, path = "/namespaces/{name}/quota", tag = "access", request_body = Quota,
    params(("name" = String, Path, description = "The namespace's name")),
    responses((status = 200, description = "The namespace with its new limits", body = Namespace)))]
pub(super) async fn set_quota(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(name): At<String>,
    Body(wanted): Body<Quota>,
) -> Result<Json<Namespace>, ServiceError> {
    app.blocking(move |app| {
        let absent = || ServiceError::new(ErrorCode::NotFound, format!("there is no namespace {name:?}"));
        let namespace = app.catalog().namespace_by_name(&name)?.ok_or_else(absent)?;
        app.catalog().set_quota(namespace.id, &wanted, &caller.token.name)?;
        app.activity.note(Change::Tokens);
        let found = find(app, Some(&[namespace.id]))?.pop();
        Ok(Json(found.ok_or_else(absent)?))
    })
    .await
}
