//! Namespaces: what they take, and what they may take.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::{self, NamespaceQuota, NamespaceRecord};
use holdfast_engine::ids::NamespaceId;
use holdfast_proto::ErrorCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::wire::{Items, maybe_time, time};
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

/// What a namespace may take; null: no limit
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Quota {
    /// Bytes of its containers
    #[serde(default)]
    stored_bytes: Option<u64>,
    /// Data of the newest restore point of each VM; holes and zeros do not count
    #[serde(default)]
    protected_bytes: Option<u64>,
    /// Restore points
    #[serde(default)]
    restore_points: Option<u64>,
    /// Backups started on one day (UTC), however they end
    #[serde(default)]
    sessions_per_day: Option<u64>,
}

/// What counts against a quota
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Usage {
    /// Bytes of its containers
    stored_bytes: u64,
    /// Data of the newest restore point of each VM
    protected_bytes: u64,
    /// Restore points
    restore_points: u64,
    /// Backups started since midnight UTC
    sessions_today: u64,
}

/// A tenant
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Namespace {
    name: String,
    created: String,
    /// Id of the key that agents encrypt its content with (end to end); null: they do not. The server can read and prove
    /// nothing of it: only `holdfast verify`, by an agent with the key, does
    key_id: Option<String>,
    /// What agents proved of it; null: it is not end-to-end encrypted, or has no restore points
    agents: Option<AgentsProved>,
    vms: u64,
    /// Restore points
    backups: u64,
    /// Bytes of its containers
    stored_bytes: u64,
    quota: Quota,
    usage: Usage,
    /// The limits that are nearly reached (nine tenths and more), in words
    near: Vec<&'static str>,
}

/// What agents proved of a namespace whose content only they can prove
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentsProved {
    /// VMs with restore points
    vms: u64,
    /// Those of them of which no agent has ever verified a restore point
    never_verified: u64,
    /// When the VM was verified that waits longest; null: none ever was
    oldest: Option<String>,
    /// What to do, when some of it was not verified for two weeks
    reminder: Option<String>,
    /// The command that verifies all of it, to be pasted at an agent
    command: String,
}

impl AgentsProved {
    fn of(found: &catalog::AgentsProofs, now_ms: i64) -> Self {
        Self {
            vms: found.vms,
            never_verified: found.never,
            oldest: maybe_time(found.oldest_ms),
            reminder: agents_reminder(found, now_ms),
            command: agents_command(found),
        }
    }
}

impl From<catalog::Quota> for Quota {
    fn from(quota: catalog::Quota) -> Self {
        let catalog::Quota { stored_bytes, protected_bytes, restore_points, sessions_per_day } = quota;
        Self { stored_bytes, protected_bytes, restore_points, sessions_per_day }
    }
}

impl From<Quota> for catalog::Quota {
    fn from(quota: Quota) -> Self {
        let Quota { stored_bytes, protected_bytes, restore_points, sessions_per_day } = quota;
        Self { stored_bytes, protected_bytes, restore_points, sessions_per_day }
    }
}

impl Namespace {
    fn of(
        namespace: NamespaceRecord,
        vms: u64,
        found: &NamespaceQuota,
        agents: Option<AgentsProved>,
    ) -> Self {
        let catalog::Usage { stored_bytes, protected_bytes, restore_points, sessions_today, .. } =
            found.usage;
        Self {
            name: namespace.name,
            created: time(namespace.created_ms),
            key_id: namespace.key_id.map(|key_id| key_id.to_string()),
            agents,
            vms,
            backups: restore_points,
            stored_bytes,
            quota: found.quota.into(),
            usage: Usage { stored_bytes, protected_bytes, restore_points, sessions_today },
            near: found.near(),
        }
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
        let agents = agents(overview.namespace.id).map(|found| AgentsProved::of(found, now_ms));
        Some(Namespace::of(overview.namespace, overview.vms, &quota, agents))
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
        app.catalog().set_quota(namespace.id, &wanted.into(), &caller.token.name)?;
        app.activity.note(Change::Tokens);
        let found = find(app, Some(&[namespace.id]))?.pop();
        Ok(Json(found.ok_or_else(absent)?))
    })
    .await
}
