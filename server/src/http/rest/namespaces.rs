//! Namespaces.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::wire::{Items, time};
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::query::Params;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct NoQuery {}

/// A tenant
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Namespace {
    name: String,
    created: String,
    vms: u64,
    /// Restore points
    backups: u64,
    /// Bytes of its containers
    stored_bytes: u64,
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
        let found = app.catalog().namespace_overviews(caller.scope().as_deref())?;
        let items = found.into_iter().map(|found| Namespace {
            name: found.namespace.name,
            created: time(found.namespace.created_ms),
            vms: found.vms,
            backups: found.backups,
            stored_bytes: found.stored_bytes,
        });
        Ok(Json(Items::whole(items.collect())))
    })
    .await
}
