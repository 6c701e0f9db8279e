//! Disks of VMs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{DiskOverview, DiskQuery};
use holdfast_engine::ids::NamespaceId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::wire::Items;
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::PAGE;
use crate::http::query::{Params, limit, name};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DisksQuery {
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
    vm: Option<String>,
    /// How many disks to skip
    offset: Option<u64>,
    /// Number of items to return: 1 to 1000 [default: 100]
    limit: Option<u32>,
}

/// A disk of a VM's latest restore point
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Disk {
    namespace: String,
    vm: String,
    disk: String,
    size_bytes: u64,
    /// Without holes and zeros
    data_bytes: u64,
    latest_backup: String,
    /// post_lc + meta_bytes of all its runs
    stored_bytes: u64,
    /// New bytes of the last 30 days
    new_bytes_30d: u64,
}

/// Disks of the VMs' latest restore points
#[utoipa::path(get, path = "/disks", tag = "vms", params(DisksQuery),
    responses((status = 200, description = "A page of disks", body = Items<Disk>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(query): Params<DisksQuery>,
) -> Result<Json<Items<Disk>>, ServiceError> {
    let (offset, limit) = (query.offset.unwrap_or(0), limit("limit", query.limit, PAGE)?);
    app.blocking(move |app| {
        let namespace = query.namespace.unwrap_or_default();
        let namespaces = caller.namespaces(app.catalog(), &namespace, Action::Catalog)?;
        let (disks, total) = disks(app, namespaces.as_deref(), name("VM", query.vm)?, offset, limit)?;
        let items = disks.into_iter().map(|disk| Disk {
            namespace: disk.namespace_name,
            vm: disk.vm,
            disk: disk.disk,
            size_bytes: disk.size_bytes,
            data_bytes: disk.data_bytes,
            latest_backup: disk.latest_backup.to_string(),
            stored_bytes: disk.stored_bytes,
            new_bytes_30d: disk.new_bytes_30d,
        });
        Ok(Json(Items { items: items.collect(), total, offset }))
    })
    .await
}

/// A page of disks, and how many there are. Blocks.
pub(super) fn disks(
    app: &App,
    namespaces: Option<&[NamespaceId]>,
    vm: Option<String>,
    offset: u64,
    limit: u32,
) -> Result<(Vec<DiskOverview>, u64), ServiceError> {
    let query = DiskQuery { vm, offset, limit, now_ms: app.clock.now_ms() };
    Ok(app.catalog().disk_overviews(namespaces, &query)?)
}
