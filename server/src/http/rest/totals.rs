//! Compression details added up: per group, per run, and over windows of time.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{
    DetailFilter, DetailSort, REPORT_PAGE_MAX, TotalsBy, TotalsOrder, TotalsSort, VmQuery, VmSort,
};
use holdfast_proto::details::{Delimiter, TOTALS_COLUMNS, totals_cells};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::filter::{Filter, detail_query};
use super::wire::{Items, Sums};
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::{PAGE, TABLE_GROUPS_MAX};
use crate::http::download;
use crate::http::query::{Params, limit, order};
use crate::http::state::HttpState;

detail_query!(TotalsQuery {
    /// run, vm, job, disk, namespace or repository [default: repository]
    by: Option<String>,
    /// rows, failed or a column of the report, with `-` before it: largest first [default: -post_lc]
    sort: Option<String>,
    /// How many groups to skip
    offset: Option<u64>,
    /// How many; 1 to 1000 [default: 100]
    limit: Option<u32>,
    /// json; or tsv or csv, which give every group as one table [default: json]
    format: Option<String>,
});

/// Rows of one group added up. Only the names that define the group are not empty
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GroupTotals {
    namespace: String,
    job: String,
    vm: String,
    disk: String,
    run: String,
    /// Different VMs among the rows
    vms: u64,
    /// Different runs among the rows
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
    Ok(match word {
        Some("run") => TotalsBy::Run,
        Some("vm") => TotalsBy::Vm,
        Some("job") => TotalsBy::Job,
        Some("disk") => TotalsBy::Disk,
        Some("namespace") => TotalsBy::Namespace,
        None | Some("" | "repository") => TotalsBy::Repository,
        Some(_) => {
            return Err(ServiceError::invalid("by: must be run, vm, job, disk, namespace or repository"));
        }
    })
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
    /// failed or a column of the report, with `-` before it: largest first [default: -started]
    sort: Option<String>,
    /// How many runs to skip
    offset: Option<u64>,
    /// How many; 1 to 1000 [default: 100]
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
pub(super) async fn runs(
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
        Ok(Json(Items { items: items.collect(), total, offset }))
    })
    .await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct NamespaceQuery {
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
}

/// What is protected and what it costs
#[derive(Debug, Serialize, ToSchema)]
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
    /// All bytes ever protected / stored_bytes; null: nothing is stored
    total_factor: Option<f64>,
    windows: Vec<Window>,
}

/// The runs of a span of time up to now
#[derive(Debug, Serialize, ToSchema)]
struct Window {
    /// 24h, 7d or all
    window: &'static str,
    runs: u64,
    /// Disks backed up, or tried to
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

/// Spans of time: name and milliseconds; 0: all time.
const WINDOWS: [(&str, i64); 3] = [("24h", 24 * 3_600_000), ("7d", 7 * 24 * 3_600_000), ("all", 0)];

/// What is protected, what it costs, and what was written lately
#[utoipa::path(get, path = "/totals", tag = "details", params(NamespaceQuery),
    responses((status = 200, description = "Totals", body = Overview)))]
pub(super) async fn overview(
    State(state): State<HttpState>,
    Identity { caller, .. }: Identity,
    Params(query): Params<NamespaceQuery>,
) -> Result<Json<Overview>, ServiceError> {
    state
        .blocking(move |state| {
            let app = &state.app;
            let name = query.namespace.unwrap_or_default();
            let namespaces = caller.namespaces(app.catalog(), &name, Action::Report)?;
            let filter = DetailFilter { namespaces, ..DetailFilter::default() };
            let windows = WINDOWS.map(|(name, span_ms)| window(app, &filter, name, span_ms));
            let windows = windows.into_iter().collect::<Result<Vec<_>, _>>()?;
            let scope = filter.namespaces.as_deref();
            let stored_bytes =
                state.storage.containers(app, scope)?.iter().map(|kind| kind.stored_bytes).sum::<u64>();
            let (mut vms, mut backups, mut virtual_bytes, mut protected_bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
            for_each_vm(app, scope, |vm| {
                vms += u64::from(vm.backups > 0);
                backups = backups.saturating_add(vm.backups);
                virtual_bytes = virtual_bytes.saturating_add(vm.virtual_bytes);
                protected_bytes = protected_bytes.saturating_add(vm.protected_bytes);
            })?;
            let written = windows.last().map_or(0, |all| all.pre_comp);
            Ok(Json(Overview {
                vms,
                backups,
                virtual_bytes,
                protected_bytes,
                stored_bytes,
                total_factor: ratio(written, stored_bytes),
                windows,
            }))
        })
        .await
}

fn window(
    app: &App,
    filter: &DetailFilter,
    name: &'static str,
    span_ms: i64,
) -> Result<Window, ServiceError> {
    let since_ms = (span_ms > 0).then(|| app.clock.now_ms().saturating_sub(span_ms));
    let filter = DetailFilter { since_ms, ..filter.clone() };
    let (groups, _) =
        app.catalog().detail_totals(&filter, TotalsBy::Repository, TotalsOrder::WORST_FIRST, 0, 1)?;
    let (sums, runs) = groups.into_iter().next().map(|group| (group.sums, group.runs)).unwrap_or_default();
    let factors = sums.factors();
    Ok(Window {
        window: name,
        runs,
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
    })
}

/// Every VM in pages.
fn for_each_vm(
    app: &App,
    namespaces: Option<&[holdfast_engine::ids::NamespaceId]>,
    mut each: impl FnMut(&holdfast_engine::catalog::VmOverview),
) -> Result<(), ServiceError> {
    let now_ms = app.clock.now_ms();
    let mut query = VmQuery {
        vm: None,
        search: None,
        stale_before_ms: now_ms,
        stale: None,
        sort: VmSort::Vm,
        descending: false,
        offset: 0,
        limit: REPORT_PAGE_MAX,
        now_ms,
    };
    loop {
        let (vms, total) = app.catalog().vm_overviews(namespaces, &query)?;
        vms.iter().for_each(&mut each);
        query.offset = query.offset.saturating_add(u64::from(REPORT_PAGE_MAX));
        if query.offset >= total || vms.is_empty() {
            return Ok(());
        }
    }
}

fn ratio(a: u64, b: u64) -> Option<f64> {
    holdfast_proto::details::Factors::of(a, 0, b).total
}
