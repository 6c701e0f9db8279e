//! Compression details added up by group: as JSON in pages, or as one table to download.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use holdfast_engine::catalog::{
    DetailFilter, DetailSort, REPORT_PAGE_MAX, RUNS_LISTED_MAX, TotalsBy, TotalsOrder, TotalsSort,
};
use holdfast_proto::details::{Delimiter, TOTALS_COLUMNS, totals_cells};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::{PAGE, TABLE_GROUPS_MAX};
use crate::http::query::{Params, limit, order};
use crate::http::rest::filter::{Filter, detail_query};
use crate::http::rest::wire::{Items, Sums};
use crate::http::{self, download};

detail_query!(TotalsQuery {
    /// run, vm, job, disk, namespace or repository [default: repository]
    #[param(value_type = Option<http::GroupBy>)]
    by: Option<String>,
    /// rows, failed or a column of the report, with `-` in front for largest first [default: -post_lc]
    sort: Option<String>,
    /// How many groups to skip
    offset: Option<u64>,
    /// Number of items to return: 1 to 1000 [default: 100]
    limit: Option<u32>,
    /// json; or tsv or csv, which give every group as one table [default: json]
    format: Option<String>,
});

/// The sums of a group of rows. Names that do not define the group are empty
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TotalsRow)]
pub(super) struct GroupTotals {
    namespace: String,
    job: String,
    vm: String,
    disk: String,
    run: String,
    /// Distinct VMs of the rows
    vms: u64,
    /// Distinct runs of the rows
    runs: u64,
    #[serde(flatten)]
    sums: Sums,
    /// Total factors of its latest runs, at most 12, oldest first; null: the run stored nothing
    trend: Vec<Option<f64>>,
}

/// Compression details per run, VM, job, disk or namespace, or in total
///
/// By default, groups that stored most come first. `format=tsv` and `format=csv` give all groups, at most 20,000, as a
/// file.
#[utoipa::path(get, path = "/details/totals", tag = "details", params(TotalsQuery), responses((status = 200, description = "A page of groups", content(
    (Items<GroupTotals> = "application/json"), (String = "text/tab-separated-values"), (String = "text/csv")))))]
pub(super) async fn groups(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(mut query): Params<TotalsQuery>,
) -> Result<Response, ServiceError> {
    let filter = query.filter();
    let by = totals_by(query.by.as_deref())?;
    let (sort, descending) = order(query.sort.take(), (TotalsOrder::WORST_FIRST.by, true))?;
    let order = TotalsOrder { by: sort, descending };
    if let Some(delimiter) = download::delimiter(query.format.as_deref())? {
        if query.offset.is_some() || query.limit.is_some() {
            return Err(ServiceError::invalid(
                "offset and limit are for json only; tsv and csv contain every group",
            ));
        }
        let work = move |app: &Arc<App>| table(app, &filter.resolve(app, &caller)?, by, order, delimiter);
        let text = app.blocking(work).await?;
        return download::attachment("holdfast-totals", delimiter, text);
    }
    let (offset, limit) = (query.offset.unwrap_or(0), limit("limit", query.limit, PAGE)?);
    app.blocking(move |app| {
        let filter = filter.resolve(app, &caller)?;
        let (groups, total) = app.catalog().detail_totals(&filter, by, order, offset, limit)?;
        let items = groups.into_iter().map(|group| GroupTotals {
            sums: Sums::from(&group.sums),
            namespace: group.namespace,
            job: group.job,
            vm: group.vm,
            disk: group.disk,
            run: group.run,
            vms: group.vms,
            runs: group.runs,
            trend: group.trend,
        });
        let total = if by == TotalsBy::Run { total.min(RUNS_LISTED_MAX as u64) } else { total };
        Ok(Json(Items { items: items.collect(), total, offset }).into_response())
    })
    .await
}

/// All groups as one table: the names that make a group, then its sums.
fn table(
    app: &App,
    filter: &DetailFilter,
    by: TotalsBy,
    order: TotalsOrder,
    delimiter: Delimiter,
) -> Result<String, ServiceError> {
    let names = ["namespace", "job", "vm", "disk", "run", "vms", "runs"];
    let mut text = String::new();
    delimiter.line(&mut text, names.iter().chain(&TOTALS_COLUMNS).map(ToString::to_string));
    let mut offset = 0;
    loop {
        let (groups, total) = app.catalog().detail_totals(filter, by, order, offset, REPORT_PAGE_MAX)?;
        if total > TABLE_GROUPS_MAX {
            return Err(ServiceError::invalid(format!(
                "there are {total} groups, but a table can have at most {TABLE_GROUPS_MAX}; filter, or group by something else"
            )));
        }
        for group in &groups {
            let names = [&group.namespace, &group.job, &group.vm, &group.disk, &group.run].map(String::clone);
            let counts = [group.vms.to_string(), group.runs.to_string()];
            delimiter.line(&mut text, names.into_iter().chain(counts).chain(totals_cells(&group.sums)));
        }
        offset = offset.saturating_add(u64::from(REPORT_PAGE_MAX));
        if offset >= total || groups.is_empty() {
            return Ok(text);
        }
    }
}

fn totals_by(word: Option<&str>) -> Result<TotalsBy, ServiceError> {
    let Some(word) = word.filter(|word| !word.is_empty()) else { return Ok(TotalsBy::Repository) };
    let found = http::GROUPS.into_iter().find(|(name, _)| *name == word).map(|(_, by)| by);
    found.ok_or_else(|| ServiceError::invalid("by: must be run, vm, job, disk, namespace or repository"))
}

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
