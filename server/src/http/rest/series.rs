//! Compression details per day, for charts.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::{DetailFilter, TotalsBy, TotalsOrder};
use holdfast_proto::api::TotalsRow;
use holdfast_proto::details::Totals;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::filter::Filter;
use super::wire::{DAY_MS, day_of, day_text};
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::{SERIES_DAYS, SERIES_DAYS_MAX, SERIES_GROUPS};
use crate::http::query::{Params, limit};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SeriesQuery {
    /// repository, job or vm [default: repository]
    by: Option<String>,
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
    job: Option<String>,
    vm: Option<String>,
    /// The first day: a time or a day in it, or a span before now such as 30d [default: 90 days up to `until`]
    since: Option<String>,
    /// The last day [default: today]
    until: Option<String>,
    /// How many jobs or VMs: those that stored most; 1 to 50 [default: 10]
    top: Option<u32>,
}

/// One value per day for each group; days are in UTC, without gaps
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Series {
    #[schema(example = json!(["2026-11-20", "2026-11-21"]))]
    days: Vec<String>,
    /// Those that stored most come first
    groups: Vec<Group>,
}

/// Values of the runs that ended on each day
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = SeriesGroup)]
struct Group {
    /// Empty for the repository
    namespace: String,
    /// The job or the VM; empty for the repository
    name: String,
    /// Logical bytes
    pre_comp: Vec<u64>,
    /// Bytes left after deduplication
    new_bytes: Vec<u64>,
    /// Bytes added to data containers
    post_lc: Vec<u64>,
    /// Bytes added to recipe containers
    meta_bytes: Vec<u64>,
    /// post_lc + meta_bytes of all runs up to the day's end
    stored: Vec<u64>,
    /// Bytes of the latest restore point of each VM at the day's end
    protected: Vec<u64>,
    global_factor: Vec<Option<f64>>,
    local_factor: Vec<Option<f64>>,
    total_factor: Vec<Option<f64>>,
    /// Disks whose run failed
    failed: Vec<u64>,
}

/// Days from the first to the last, since 1970-01-01.
#[derive(Debug, Clone, Copy)]
struct Span {
    first: i32,
    last: i32,
}

impl Span {
    fn days(self) -> impl Iterator<Item = i32> {
        self.first..=self.last
    }
}

/// Compression details per day
#[utoipa::path(get, path = "/series", tag = "details", params(SeriesQuery),
    responses((status = 200, description = "One value per day", body = Series)))]
pub(super) async fn series(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(query): Params<SeriesQuery>,
) -> Result<Json<Series>, ServiceError> {
    let by = series_by(query.by.as_deref())?;
    let top = limit("top", query.top, SERIES_GROUPS)?;
    let filter = Filter {
        namespace: query.namespace,
        job: query.job,
        vm: query.vm,
        since: query.since,
        until: query.until,
        ..Filter::default()
    };
    app.blocking(move |app| {
        let filter = filter.resolve(app, &caller)?;
        let span = span(app, &filter)?;
        let groups = groups(app, &filter, by, top, span)?;
        Ok(Json(Series { days: span.days().map(day_text).collect::<Result<_, _>>()?, groups }))
    })
    .await
}

/// Parses what days are added up by.
pub(super) fn series_by(word: Option<&str>) -> Result<TotalsBy, ServiceError> {
    match word {
        None | Some("" | "repository") => Ok(TotalsBy::Repository),
        Some("job") => Ok(TotalsBy::Job),
        Some("vm") => Ok(TotalsBy::Vm),
        Some(_) => Err(ServiceError::invalid("by: must be repository, job or vm")),
    }
}

fn span(app: &App, filter: &DetailFilter) -> Result<Span, ServiceError> {
    let today_ms = app.clock.now_ms();
    let last_ms = filter.until_ms.unwrap_or(today_ms);
    let first_ms = filter.since_ms.unwrap_or_else(|| last_ms.saturating_sub((SERIES_DAYS - 1) * DAY_MS));
    let span = Span { first: day_of(first_ms)?, last: day_of(last_ms)? };
    let length = i64::from(span.last) - i64::from(span.first) + 1;
    if (1..=SERIES_DAYS_MAX).contains(&length) {
        return Ok(span);
    }
    Err(ServiceError::invalid(format!(
        "since, until: a series must have 1 to {SERIES_DAYS_MAX} days, not {length}"
    )))
}

fn groups(
    app: &App,
    filter: &DetailFilter,
    by: TotalsBy,
    top: u32,
    span: Span,
) -> Result<Vec<Group>, ServiceError> {
    let start_ms = i64::from(span.first) * DAY_MS;
    let within = DetailFilter {
        since_ms: None,
        until_ms: None,
        finished_since_ms: Some(start_ms),
        finished_until_ms: Some(i64::from(span.last).saturating_add(1) * DAY_MS),
        ..filter.clone()
    };
    let (found, _) = app.catalog().detail_totals(&within, by, TotalsOrder::WORST_FIRST, 0, top)?;
    if found.is_empty() && by == TotalsBy::Repository {
        return Ok(vec![group(app, filter, &within, by, span, "", "")?]);
    }
    let one = |found: &TotalsRow| {
        let (name, narrow): (&str, fn(&mut DetailFilter, String)) = match by {
            TotalsBy::Vm => (&found.vm, |filter, name| filter.vm = Some(name)),
            TotalsBy::Job => (&found.job, |filter, name| filter.job = Some(name)),
            _ => ("", |_, _| {}),
        };
        let (mut before, mut within) = (filter.clone(), within.clone());
        if by != TotalsBy::Repository {
            // Its own namespace: another may have a VM of the same name.
            let namespace = app.catalog().namespace_by_name(&found.namespace)?.map(|namespace| namespace.id);
            for filter in [&mut before, &mut within] {
                filter.namespaces = Some(namespace.into_iter().collect());
                narrow(filter, name.to_owned());
            }
        }
        group(app, &before, &within, by, span, &found.namespace, name)
    };
    found.iter().map(one).collect()
}

/// The days of one group. `filter` says which rows at any time, `within` those of the span.
fn group(
    app: &App,
    filter: &DetailFilter,
    within: &DetailFilter,
    by: TotalsBy,
    span: Span,
    namespace: &str,
    name: &str,
) -> Result<Group, ServiceError> {
    let catalog = app.catalog();
    let days: HashMap<i32, Totals> =
        catalog.detail_days(within, by)?.into_iter().map(|day| (day.day, day.sums)).collect();
    let protected: HashMap<i32, u64> =
        catalog.protected_days(within, by)?.into_iter().map(|day| (day.day, day.protected_bytes)).collect();
    let earlier = DetailFilter {
        since_ms: None,
        until_ms: None,
        finished_until_ms: within.finished_since_ms,
        ..filter.clone()
    };
    let (before, _) = catalog.detail_totals(&earlier, by, TotalsOrder::WORST_FIRST, 0, 1)?;
    let mut stored = before
        .first()
        .map(|found| &found.sums.totals)
        .map_or(0, |sums| sums.post_lc.saturating_add(sums.meta_bytes));
    let mut held = 0;
    let mut group = Group { namespace: namespace.to_owned(), name: name.to_owned(), ..Group::default() };
    let none = Totals::default();
    for day in span.days() {
        let sums = days.get(&day).unwrap_or(&none);
        stored = stored.saturating_add(sums.post_lc).saturating_add(sums.meta_bytes);
        held = protected.get(&day).copied().unwrap_or(held);
        let factors = sums.factors();
        group.pre_comp.push(sums.bytes);
        group.new_bytes.push(sums.new_bytes);
        group.post_lc.push(sums.post_lc);
        group.meta_bytes.push(sums.meta_bytes);
        group.stored.push(stored);
        group.protected.push(held);
        group.global_factor.push(factors.global);
        group.local_factor.push(factors.local);
        group.total_factor.push(factors.total);
        group.failed.push(sums.failed);
    }
    Ok(group)
}
