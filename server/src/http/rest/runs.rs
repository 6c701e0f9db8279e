//! Runs, each with its compression details added up.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::{DetailSort, RUNS_LISTED_MAX, TotalsBy, TotalsOrder, TotalsSort};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::filter::Filter;
use super::wire::{Items, Sums};
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::PAGE;
use crate::http::query::{Params, limit, order};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunsQuery {
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
    job: Option<String>,
    /// Started at or after: a time, a day, or a span before now such as 7d
    since: Option<String>,
    /// Started before
    until: Option<String>,
    /// failed or a column of the report, with `-` in front for largest first [default: -started]
    sort: Option<String>,
    /// How many runs to skip
    offset: Option<u64>,
    /// Number of items to return: 1 to 1000 [default: 100]
    limit: Option<u32>,
}

/// One execution of a job
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Run {
    id: String,
    namespace: String,
    job: String,
    /// From its first start to its last finish
    seconds: f64,
    vms: u64,
    disks: u64,
    #[serde(flatten)]
    sums: Sums,
}

/// Runs, newest first
#[utoipa::path(get, path = "/runs", tag = "details", params(RunsQuery),
    responses((status = 200, description = "A page of runs", body = Items<Run>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(query): Params<RunsQuery>,
) -> Result<Json<Items<Run>>, ServiceError> {
    let newest = (TotalsSort::Column(DetailSort::Started), true);
    let (by, descending) = order(query.sort, newest)?;
    let (offset, limit) = (query.offset.unwrap_or(0), limit("limit", query.limit, PAGE)?);
    let filter = Filter {
        namespace: query.namespace,
        job: query.job,
        since: query.since,
        until: query.until,
        ..Filter::default()
    };
    app.blocking(move |app| {
        let filter = filter.resolve(app, &caller)?;
        let order = TotalsOrder { by, descending };
        let (groups, total) = app.catalog().detail_totals(&filter, TotalsBy::Run, order, offset, limit)?;
        let items = groups.into_iter().map(|group| Run {
            seconds: group.sums.seconds(),
            disks: group.sums.rows,
            sums: Sums::from(&group.sums),
            id: group.run,
            namespace: group.namespace,
            job: group.job,
            vms: group.vms,
        });
        // No page is asked for beyond what is listed.
        let total = total.min(RUNS_LISTED_MAX as u64);
        Ok(Json(Items { items: items.collect(), total, offset }))
    })
    .await
}
