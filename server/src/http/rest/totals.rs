//! Compression details added up by group: as JSON in pages, or as one table to download.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use holdfast_engine::catalog::{
    DayTotals, DetailFilter, DetailSort, REPORT_PAGE_MAX, RUNS_LISTED_MAX, TotalsBy, TotalsOrder, TotalsSort,
};
use holdfast_proto::api::{DaySpan, DaysRow, Sums, TotalsRow};
use holdfast_proto::details::{Delimiter, Totals, days_table, totals_table};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::{PAGE, TABLE_GROUPS_MAX};
use crate::http::query::{Params, limit, order};
use crate::http::rest::filter::{Filter, detail_query};
use crate::http::rest::series::series_by;
use crate::http::rest::wire::{Items, day_text};
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

/// Compression details per run, VM, job, disk or namespace, or in total
///
/// By default, groups that stored most come first. `format=tsv` and `format=csv` give all groups, at most 20,000, as a
/// file.
#[utoipa::path(get, path = "/details/totals", tag = "details", params(TotalsQuery), responses((status = 200, description = "A page of groups", content(
    (Items<TotalsRow> = "application/json"), (String = "text/tab-separated-values"), (String = "text/csv")))))]
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
        let (items, total) = app.catalog().detail_totals(&filter, by, order, offset, limit)?;
        let total = if by == TotalsBy::Run { total.min(RUNS_LISTED_MAX as u64) } else { total };
        Ok(Json(Items { items, total, offset }).into_response())
    })
    .await
}

/// All groups as one table.
fn table(
    app: &App,
    filter: &DetailFilter,
    by: TotalsBy,
    order: TotalsOrder,
    delimiter: Delimiter,
) -> Result<String, ServiceError> {
    let mut rows: Vec<TotalsRow> = Vec::new();
    loop {
        let (groups, total) =
            app.catalog().detail_totals(filter, by, order, rows.len() as u64, REPORT_PAGE_MAX)?;
        check_table(total, "groups")?;
        let is_last = groups.is_empty();
        rows.extend(groups);
        if is_last || rows.len() as u64 >= total {
            return Ok(totals_table(&rows, delimiter));
        }
    }
}

/// Refuses a table that is not made while it is read, and is too large for that.
fn check_table(rows: u64, what: &str) -> Result<(), ServiceError> {
    if rows <= TABLE_GROUPS_MAX {
        return Ok(());
    }
    Err(ServiceError::invalid(format!(
        "there are {rows} {what}, but a table can have at most {TABLE_GROUPS_MAX}; filter, or group by something else"
    )))
}

detail_query!(DaysQuery {
    /// repository, job or vm [default: repository]
    by: Option<String>,
    /// json, tsv or csv [default: json]
    format: Option<String>,
});

/// Compression details per day and week
///
/// Rows count for the day on which they finished, in UTC. After the days of each week their sums follow, by job or VM if asked
/// for. At most 20,000 sums.
#[utoipa::path(get, path = "/details/days", tag = "details", params(DaysQuery), responses((status = 200, description = "Days and weeks", content(
    (Items<DaysRow> = "application/json"), (String = "text/tab-separated-values"), (String = "text/csv")))))]
pub(super) async fn days(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(mut query): Params<DaysQuery>,
) -> Result<Response, ServiceError> {
    let filter = query.filter();
    let by = series_by(query.by.as_deref())?;
    let delimiter = download::delimiter(query.format.as_deref())?;
    let work = move |app: &Arc<App>| {
        let found = app.catalog().detail_days(&filter.resolve(app, &caller)?, by)?;
        check_table(found.len() as u64, "sums")?;
        with_weeks(found)
    };
    let items = app.blocking(work).await?;
    match delimiter {
        Some(delimiter) => download::attachment("holdfast-days", delimiter, days_table(&items, delimiter)),
        None => Ok(Json(Items { total: items.len() as u64, items, offset: 0 }).into_response()),
    }
}

/// 1970-01-01 was a Thursday.
const fn monday(day: i32) -> i32 {
    day.saturating_sub(day.saturating_add(3).rem_euclid(7))
}

/// Puts the sums of each week after its days.
fn with_weeks(days: Vec<DayTotals>) -> Result<Vec<DaysRow>, ServiceError> {
    let mut rows = Vec::with_capacity(days.len());
    let mut week: BTreeMap<(String, String), Totals> = BTreeMap::new();
    let mut of = None;
    let row = |span, day, namespace, name, sums: Totals| {
        Ok::<_, ServiceError>(DaysRow { span, day: day_text(day)?, namespace, name, sums: sums.into() })
    };
    for DayTotals { day, namespace, name, sums } in days {
        if let Some(before) = of.replace(monday(day)).filter(|before| *before != monday(day)) {
            for ((namespace, name), sums) in std::mem::take(&mut week) {
                rows.push(row(DaySpan::Week, before, namespace, name, sums)?);
            }
        }
        week.entry((namespace.clone(), name.clone())).or_default().merge(&sums);
        rows.push(row(DaySpan::Day, day, namespace, name, sums)?);
    }
    for ((namespace, name), sums) in week {
        rows.push(row(DaySpan::Week, of.unwrap_or_default(), namespace, name, sums)?);
    }
    Ok(rows)
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
            seconds: group.sums.totals.seconds(),
            disks: group.sums.totals.rows,
            sums: group.sums,
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
