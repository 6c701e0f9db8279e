//! Data that cannot be restored, named by VM, restore point, disk and byte range.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::DamagedDisk as Row;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::ids::BackupId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::wire::time;
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::PAGE;
use crate::http::query::{Params, limit};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DamageQuery {
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
    /// Number of items to return: 1 to 1000 [default: 100]
    page_size: Option<u32>,
    /// `next_page_token` of the previous page
    page_token: Option<String>,
}

/// What cannot be restored
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LostData)]
pub(super) struct Damage {
    /// Restore points that lack something; 0: nothing is known to be lost
    restore_points: u64,
    /// Disks of these that lack something
    disks: u64,
    /// Bytes of these disks that are lost
    bytes: u64,
    /// By restore point, oldest first
    items: Vec<DamagedDisk>,
    /// `page_token` of the next page; null: this is the last page
    next_page_token: Option<String>,
}

/// A disk of a restore point that lacks something
#[derive(Debug, Serialize, ToSchema)]
struct DamagedDisk {
    /// The restore point
    backup: String,
    namespace: String,
    vm: String,
    disk: String,
    /// When the restore point was begun
    started: String,
    /// When it was first found to lack something
    found: String,
    bytes: u64,
    /// How many ranges these bytes are in
    ranges: u64,
    /// The first 64 of them
    listed: Vec<LostRange>,
}

/// Bytes of a disk that cannot be restored
#[derive(Debug, Serialize, ToSchema)]
struct LostRange {
    start: u64,
    bytes: u64,
}

/// What cannot be restored now
#[utoipa::path(get, path = "/damage", tag = "backups", params(DamageQuery),
    responses((status = 200, description = "Restore points that lack something", body = Damage)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(query): Params<DamageQuery>,
) -> Result<Json<Damage>, ServiceError> {
    let size = limit("page_size", query.page_size, PAGE)?;
    app.blocking(move |app| {
        let namespace = query.namespace.unwrap_or_default();
        let namespaces = caller.namespaces(app.catalog(), &namespace, Action::Catalog)?;
        let after = query.page_token.as_deref().map(parse_token).transpose()?;
        let totals = app.catalog().damage_totals(namespaces.as_deref())?;
        let found = app.catalog().damaged_disks(namespaces.as_deref(), after, size)?;
        // A page may also be short because its items are large.
        let next_page_token = found.last().map(|last| format!("{}.{}", last.backup, last.lost.position));
        Ok(Json(Damage {
            restore_points: totals.restore_points,
            disks: totals.disks,
            bytes: totals.bytes,
            items: found.into_iter().map(item).collect(),
            next_page_token,
        }))
    })
    .await
}

fn parse_token(token: &str) -> Result<(BackupId, u32), ServiceError> {
    let parsed = token.split_once('.').and_then(|(backup, position)| {
        Some((backup.parse::<BackupId>().ok()?, position.parse::<u32>().ok()?))
    });
    parsed.ok_or_else(|| ServiceError::invalid("page_token is not of this list"))
}

fn item(disk: Row) -> DamagedDisk {
    DamagedDisk {
        backup: disk.backup.to_string(),
        namespace: disk.namespace_name,
        vm: disk.vm,
        disk: disk.disk,
        started: time(disk.started_ms),
        found: time(disk.found_ms),
        bytes: disk.lost.bytes,
        ranges: disk.lost.ranges,
        listed: disk
            .lost
            .listed
            .into_iter()
            .map(|range| LostRange { start: range.start, bytes: range.bytes })
            .collect(),
    }
}
