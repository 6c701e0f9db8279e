//! Overview: protected data, its cost, and recent writes.

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::WindowTotals;
use holdfast_engine::catalog::token::Action;
use holdfast_proto::details::Factors;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::auth::Caller;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::query::Params;
use crate::http::{self, HttpState};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct NamespaceQuery {
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
}

/// What is protected and what it costs
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Totals)]
pub(super) struct Overview {
    /// VMs with restore points
    vms: u64,
    /// Restore points
    backups: u64,
    /// Size of the disks of each VM's latest restore point
    virtual_bytes: u64,
    /// Their bytes without holes and zeros
    protected_bytes: u64,
    /// Bytes of all containers
    stored_bytes: u64,
    /// All bytes ever protected by restore points / stored_bytes; null: nothing is stored
    total_factor: Option<f64>,
    windows: Vec<Window>,
}

/// The runs that finished in a span of time up to now
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TotalsWindow)]
struct Window {
    #[schema(value_type = http::TimeWindow)]
    window: &'static str,
    runs: u64,
    /// Disks that they backed up, or tried to
    disks: u64,
    failed: u64,
    /// Logical bytes
    pre_comp: u64,
    /// Bytes left after deduplication
    new_bytes: u64,
    /// Bytes added to data containers
    post_comp: u64,
    /// Bytes added to recipe containers
    meta_bytes: u64,
    global_factor: Option<f64>,
    local_factor: Option<f64>,
    total_factor: Option<f64>,
    reduction_pct: Option<f64>,
}

/// What is protected, what it costs, and what was written recently
#[utoipa::path(get, path = "/totals", tag = "details", params(NamespaceQuery),
    responses((status = 200, description = "Totals", body = Overview)))]
pub(super) async fn overview(
    State(state): State<HttpState>,
    Identity { caller, .. }: Identity,
    Params(query): Params<NamespaceQuery>,
) -> Result<Json<Overview>, ServiceError> {
    state.blocking(move |state| look(state, &caller, &query.namespace.unwrap_or_default())).await.map(Json)
}

fn look(state: &HttpState, caller: &Caller, namespace: &str) -> Result<Overview, ServiceError> {
    let app = &state.app;
    let namespaces = caller.namespaces(app.catalog(), namespace, Action::Report)?;
    let scope = namespaces.as_deref();
    let now_ms = app.clock.now_ms();
    let since = http::WINDOWS.map(|(_, span_ms)| (span_ms > 0).then(|| now_ms.saturating_sub(span_ms)));
    let found = app.catalog().repository_overview(scope, &since)?;
    let containers = state.storage.containers(app, scope)?;
    let stored_bytes = containers.iter().map(|kind| kind.stored_bytes).sum::<u64>();
    let windows: Vec<_> =
        http::WINDOWS.iter().zip(&found.windows).map(|((name, _), sums)| window(name, sums)).collect();
    let written = found.windows.last().map_or(0, |all| all.sums.done_bytes);
    Ok(Overview {
        vms: found.vms,
        backups: found.backups,
        virtual_bytes: found.virtual_bytes,
        protected_bytes: found.protected_bytes,
        stored_bytes,
        total_factor: Factors::of(written, 0, stored_bytes).total,
        windows,
    })
}

fn window(name: &'static str, WindowTotals { runs, sums }: &WindowTotals) -> Window {
    let factors = sums.factors();
    Window {
        window: name,
        runs: *runs,
        disks: sums.rows,
        failed: sums.failed,
        pre_comp: sums.bytes,
        new_bytes: sums.new_bytes,
        post_comp: sums.post_lc,
        meta_bytes: sums.meta_bytes,
        global_factor: factors.global,
        local_factor: factors.local,
        total_factor: factors.total,
        reduction_pct: factors.reduction_pct,
    }
}
