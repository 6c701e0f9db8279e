//! VMs and their disks.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{REPORT_PAGE_MAX, VmOverview, VmQuery, VmSort};
use holdfast_proto::ErrorCode;
use holdfast_proto::api::{RowStatus, Verify};
use holdfast_proto::limits::check_name;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::backups::verify;
use super::disks::disks;
use super::wire::{Items, maybe_time, time};
use crate::activity::Change;
use crate::app::App;
use crate::auth::tokens;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::PAGE;
use crate::http::query::{At, Body, Params, limit, order, search};

/// A VM is stale when its newest restore point is older than this: a daily job was missed, and two hours allow for
/// a run that takes long.
const STALE_AFTER_MS: i64 = 26 * 3_600_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct VmsQuery {
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
    /// Part of the name of a VM or namespace; case is ignored
    q: Option<String>,
    /// true: only VMs without a recent restore point; false: only others [default: all]
    stale: Option<bool>,
    /// vm, namespace, backups, latest, protected_bytes, stored_bytes, new_bytes_30d or total_factor, with `-` in
    /// front for largest first [default: vm]
    sort: Option<String>,
    /// How many VMs to skip
    offset: Option<u64>,
    /// Number of items to return: 1 to 1000 [default: 100]
    limit: Option<u32>,
}

/// A VM, what it protects and what it costs
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Vm {
    namespace: String,
    vm: String,
    /// Whose tokens back it up; null: no backup of it was completed yet
    owner: Option<String>,
    /// Restore points
    backups: u64,
    /// Disks of the latest restore point
    disks: u64,
    /// When its first restore point was started; null: it has none
    first: Option<String>,
    latest: Option<Latest>,
    /// Size of the disks of the latest restore point
    virtual_bytes: u64,
    /// Their bytes without holes and zeros
    protected_bytes: u64,
    /// post_lc + meta_bytes of all its runs
    stored_bytes: u64,
    /// New bytes of the last 30 days
    new_bytes_30d: u64,
    /// bytes / post_lc over all its runs; null: nothing was stored
    total_factor: Option<f64>,
    /// How its last run ended: done, failed, aborted or expired
    #[schema(value_type = RowStatus)]
    last_status: String,
    /// null: its last run did not fail
    last_error: Option<String>,
    /// No complete restore point in the last 26 hours
    stale: bool,
    /// The newest verification of the latest restore point; null: none yet
    verify: Option<Verify>,
    /// Whether agents encrypt it end to end, so that its content is proved only by agents
    end_to_end: bool,
    /// When an agent last read a restore point of it, be it gone, and found it sound; null: not yet
    agent_verified: Option<String>,
}

/// The newest restore point
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LatestBackup)]
struct Latest {
    id: String,
    started: String,
    finished: String,
    job: String,
    /// Disks of the VM that could not be read for it: if there are any, it is partial
    missing_disks: Vec<String>,
}

impl From<VmOverview> for Vm {
    fn from(vm: VmOverview) -> Self {
        Self {
            namespace: vm.namespace_name,
            vm: vm.vm,
            owner: vm.owner,
            backups: vm.backups,
            disks: vm.disks,
            first: maybe_time(vm.first_ms),
            latest: vm.latest.map(|latest| Latest {
                id: latest.id.to_string(),
                started: time(latest.started_ms),
                finished: time(latest.finished_ms),
                job: latest.job,
                missing_disks: latest.missing_disks,
            }),
            virtual_bytes: vm.virtual_bytes,
            protected_bytes: vm.protected_bytes,
            stored_bytes: vm.stored_bytes,
            new_bytes_30d: vm.new_bytes_30d,
            total_factor: vm.total_factor,
            last_status: vm.last_status,
            last_error: Some(vm.last_error).filter(|error| !error.is_empty()),
            stale: vm.stale,
            verify: vm.verification.map(verify),
            end_to_end: vm.end_to_end,
            agent_verified: maybe_time(vm.agent_verified_ms),
        }
    }
}

fn query(app: &App) -> VmQuery {
    let now_ms = app.clock.now_ms();
    VmQuery {
        vm: None,
        search: None,
        stale_before_ms: now_ms.saturating_sub(STALE_AFTER_MS),
        stale: None,
        sort: VmSort::Vm,
        descending: false,
        offset: 0,
        limit: 1,
        now_ms,
    }
}

/// VMs, a page at a time
#[utoipa::path(get, path = "/vms", tag = "vms", params(VmsQuery),
    responses((status = 200, description = "A page of VMs", body = Items<Vm>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(asked): Params<VmsQuery>,
) -> Result<Json<Items<Vm>>, ServiceError> {
    let (sort, descending) = order(asked.sort, (VmSort::Vm, false))?;
    let (offset, limit) = (asked.offset.unwrap_or(0), limit("limit", asked.limit, PAGE)?);
    let search = search(asked.q)?;
    app.blocking(move |app| {
        let namespace = asked.namespace.unwrap_or_default();
        let namespaces = caller.namespaces(app.catalog(), &namespace, Action::Catalog)?;
        let query = VmQuery { search, stale: asked.stale, sort, descending, offset, limit, ..query(app) };
        let (vms, total) = app.catalog().vm_overviews(namespaces.as_deref(), &query)?;
        Ok(Json(Items { items: vms.into_iter().map(Vm::from).collect(), total, offset }))
    })
    .await
}

/// A VM with its disks
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct VmDetail {
    #[serde(flatten)]
    vm: Vm,
    /// Of the latest restore point
    disk_list: Vec<VmDisk>,
}

#[derive(Debug, Serialize, ToSchema)]
struct VmDisk {
    disk: String,
    size_bytes: u64,
    /// Without holes and zeros
    data_bytes: u64,
    /// post_lc + meta_bytes of all its runs
    stored_bytes: u64,
}

/// One VM
#[utoipa::path(get, path = "/vms/{namespace}/{vm}", tag = "vms",
    params(("namespace" = String, Path, description = "Its namespace"), ("vm" = String, Path, description = "Its name")),
    responses((status = 200, description = "The VM", body = VmDetail)))]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At((namespace, vm)): At<(String, String)>,
) -> Result<Json<VmDetail>, ServiceError> {
    app.blocking(move |app| {
        check_name("VM", &vm).map_err(ServiceError::invalid)?;
        let namespace = caller.namespace(app.catalog(), &namespace, Action::Catalog)?;
        let only = [namespace.id];
        let query = VmQuery { vm: Some(vm.clone()), ..query(app) };
        let (found, _) = app.catalog().vm_overviews(Some(&only), &query)?;
        let found = found.into_iter().next().ok_or_else(|| {
            let (vm, name) = (&vm, &namespace.name);
            ServiceError::new(ErrorCode::NotFound, format!("there is no VM {vm:?} in namespace {name:?}"))
        })?;
        let disk_list =
            disks(app, Some(&only), Some(vm), 0, REPORT_PAGE_MAX)?.0.into_iter().map(|disk| VmDisk {
                disk: disk.disk,
                size_bytes: disk.size_bytes,
                data_bytes: disk.data_bytes,
                stored_bytes: disk.stored_bytes,
            });
        Ok(Json(VmDetail { disk_list: disk_list.collect(), vm: found.into() }))
    })
    .await
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeOwner {
    /// The new owner, as tokens have it
    owner: String,
}

/// A VM's owner
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChangedOwner {
    namespace: String,
    vm: String,
    owner: String,
    /// null: it had none
    previous_owner: Option<String>,
}

/// Give a VM to another owner
///
/// Takes effect at once: tokens of the owner before can no longer back it up. The next backup reads the whole VM.
#[utoipa::path(post, path = "/vms/{namespace}/{vm}/owner", tag = "vms", request_body = ChangeOwner,
    params(("namespace" = String, Path, description = "Its namespace"), ("vm" = String, Path, description = "Its name")),
    responses((status = 200, description = "The VM's owner now and before", body = ChangedOwner)))]
pub(super) async fn change_owner(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At((namespace, vm)): At<(String, String)>,
    Body(wanted): Body<ChangeOwner>,
) -> Result<Json<ChangedOwner>, ServiceError> {
    app.blocking(move |app| {
        let namespace = caller.namespace(app.catalog(), &namespace, Action::Operate)?;
        caller.check_vm(&vm)?;
        let who = &caller.token.name;
        let changed = tokens::change_owner(app.catalog(), who, &namespace, &vm, &wanted.owner)?;
        app.activity.note(Change::Backup);
        Ok(Json(ChangedOwner {
            namespace: namespace.name,
            vm,
            owner: changed.after,
            previous_owner: changed.before,
        }))
    })
    .await
}
