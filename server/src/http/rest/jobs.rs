//! Jobs and what their runs cost.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::token::Action;
use holdfast_proto::details::Factors;
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
pub(super) struct JobsQuery {
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
}

/// A job and what its runs cost
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Job {
    namespace: String,
    job: String,
    runs: u64,
    /// Different VMs it has backed up, or tried to
    vms: u64,
    last_run: Option<LastRun>,
    /// VMs that failed in this job, in whole or in part, since they were last backed up as a whole, by any job
    failing_vms: u64,
    /// Logical bytes of all its runs
    bytes: u64,
    new_bytes: u64,
    /// post_lc + meta_bytes of all its runs
    stored_bytes: u64,
    global_factor: Option<f64>,
    local_factor: Option<f64>,
    total_factor: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct LastRun {
    id: String,
    started: String,
    finished: String,
    /// Disks that it backed up, or tried to
    disks: u64,
    failed: u64,
}

/// Jobs, by namespace and name
#[utoipa::path(get, path = "/jobs", tag = "vms", params(JobsQuery),
    responses((status = 200, description = "The jobs", body = Items<Job>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(query): Params<JobsQuery>,
) -> Result<Json<Items<Job>>, ServiceError> {
    app.blocking(move |app| {
        let name = query.namespace.unwrap_or_default();
        let namespaces = caller.namespaces(app.catalog(), &name, Action::Catalog)?;
        let items = app.catalog().job_overviews(namespaces.as_deref())?.into_iter().map(|job| {
            let Factors { global, local, total, .. } = job.sums.factors();
            Job {
                namespace: job.namespace_name,
                job: job.job,
                runs: job.runs,
                vms: job.vms,
                last_run: job.last_run.map(|run| LastRun {
                    id: run.id.to_string(),
                    started: time(run.started_ms),
                    finished: time(run.finished_ms),
                    disks: run.disks,
                    failed: run.failed,
                }),
                failing_vms: job.failing_vms,
                bytes: job.sums.bytes,
                new_bytes: job.sums.new_bytes,
                stored_bytes: job.sums.post_lc.saturating_add(job.sums.meta_bytes),
                global_factor: global,
                local_factor: local,
                total_factor: total,
            }
        });
        Ok(Json(Items::whole(items.collect())))
    })
    .await
}
