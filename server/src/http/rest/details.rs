//! Compression details, row by row: as JSON in pages or in lines, as one table to download, and one row with its explanation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdfast_engine::ExtentHistory;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{DetailEntry, DetailFilter, PageRequest, SortOrder};
use holdfast_engine::ids::{NamespaceId, SessionId};
use holdfast_proto::ErrorCode;
use holdfast_proto::api::{DetailBatch, DetailFigures, DetailRow, Finding, Line, RowStatus};
use holdfast_proto::details::names;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::findings;
use crate::http::HttpState;
use crate::http::access::Identity;
use crate::http::bounds::{BATCH_ROWS, DETAILS_PAGE, EXTENT_HISTORY};
use crate::http::download::{self, Table};
use crate::http::ndjson::{self, Takes};
use crate::http::query::{AsLines, At, Params, limit, order, text};
use crate::http::rest::filter::{Filter, detail_query};
use crate::http::rest::wire::{Items, time};
use crate::insight::explain::explain;
use crate::insight::findings::{DiskPast, PAST_RUNS, of_row};

detail_query!(DetailsQuery {
    /// A column of the report, with `-` in front for largest first; rows without a value come last [default: started]
    sort: Option<String>,
    /// How many rows to skip
    offset: Option<u64>,
    /// Number of items to return: 1 to 2000 [default: 200]
    limit: Option<u32>,
    /// json; or tsv or csv, which give every matching row as one table [default: json]
    format: Option<String>,
    /// For tsv and csv: a comma-separated list of columns [default: all]
    columns: Option<String>,
});

/// Runs that a trend shows.
const TREND_POINTS: u32 = 12;

/// One disk in one run: the columns of `holdfast report`, and more
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DetailItem {
    /// Id of the row: the session, and the disk's position in it
    id: String,
    #[serde(flatten)]
    row: DetailRow,
    #[serde(flatten)]
    figures: DetailFigures,
    /// Total factors of the disk's last runs, this one last; null: nothing was stored
    trend: Vec<Option<f64>>,
    /// Why there is no restore point, what was stored in vain, or what is out of line with the VM's history, with the
    /// disk that brought most; null: nothing
    finding: Option<Finding>,
}

/// Compression details: one row per run and disk
///
/// `format=tsv` and `format=csv` give every matching row in the given order, as a file. Without `sort` and `columns`
/// this file is the same, to the byte, as the output of `holdfast report --format tsv` (or csv). An answer in NDJSON contains
/// every matching row, too, oldest first and without figures.
#[utoipa::path(get, path = "/details", tag = "details", params(DetailsQuery), responses((status = 200, description = "Rows", content(
    (Items<DetailItem> = "application/json"), (Line<DetailBatch> = "application/x-ndjson"),
    (String = "text/tab-separated-values"), (String = "text/csv")))))]
pub(super) async fn list(
    State(state): State<HttpState>,
    identity: Identity,
    Params(mut query): Params<DetailsQuery>,
    AsLines(as_lines): AsLines,
) -> Result<Response, ServiceError> {
    let filter = query.filter();
    if as_lines {
        let DetailsQuery { sort: None, offset: None, limit: None, format: None, columns: None, .. } = query
        else {
            return Err(ServiceError::invalid(
                "sort, offset, limit, format and columns are not for lines, which contain every row, oldest first",
            ));
        };
        return lines(&state, &identity, filter).await;
    }
    let (by, descending) = order(query.sort.take(), (SortOrder::OLDEST_FIRST.by, false))?;
    let order = SortOrder { by, descending };
    if let Some(delimiter) = download::delimiter(query.format.as_deref())? {
        if query.offset.is_some() || query.limit.is_some() {
            return Err(ServiceError::invalid(
                "offset and limit are for json only; tsv and csv contain every row",
            ));
        }
        let columns = text(query.columns).map(|list| columns(&list)).transpose()?;
        let caller = identity.caller.clone();
        let filter = state.app.blocking(move |app| filter.resolve(app, &caller)).await?;
        let table = Table { filter, order, delimiter, columns };
        return download::stream(&state, &identity, table);
    }
    if query.columns.is_some() {
        return Err(ServiceError::invalid("columns is for tsv and csv only; json contains all columns"));
    }
    let (offset, limit) = (query.offset.unwrap_or(0), limit("limit", query.limit, DETAILS_PAGE)?);
    let work = move |app: &Arc<App>| {
        let filter = filter.resolve(app, &identity.caller)?;
        page(app, &filter, order, offset, limit).map(|page| Json(page).into_response())
    };
    state.app.blocking(work).await
}

/// Answers with every row, batch by batch.
async fn lines(state: &HttpState, identity: &Identity, filter: Filter) -> Result<Response, ServiceError> {
    let caller = identity.caller.clone();
    ndjson::answer(state, identity, Takes::Turn, move |app, lines| {
        let filter = filter.resolve(app, &caller)?;
        let mut token = Some(String::new());
        while let Some(at) = token {
            let page = app.catalog().details(&filter, PageRequest { size: BATCH_ROWS, token: &at })?;
            let mut backups: Vec<_> = page.items.iter().filter_map(|row| row.backup.parse().ok()).collect();
            backups.sort_unstable();
            backups.dedup();
            let accepted = app.catalog().accepted_changes(&backups)?;
            let accepted_changes = accepted.iter().map(ToString::to_string).collect();
            lines.send(&DetailBatch { rows: page.items, accepted_changes })?;
            token = page.next;
        }
        Ok(())
    })
    .await
}

fn columns(list: &str) -> Result<Vec<&'static str>, ServiceError> {
    let known = |word: &str| names().find(|name| *name == word.trim());
    let refused = || {
        let names: Vec<_> = names().collect();
        ServiceError::invalid(format!("columns: must be a comma-separated list of {}", names.join(", ")))
    };
    list.split(',').map(|word| known(word).ok_or_else(refused)).collect()
}

fn page(
    app: &App,
    filter: &DetailFilter,
    order: SortOrder,
    offset: u64,
    limit: u32,
) -> Result<Items<DetailItem>, ServiceError> {
    let (entries, total) = app.catalog().details_sorted(filter, order, offset, limit)?;
    let histories = app.catalog().detail_histories(&entries, TREND_POINTS)?;
    let found = findings::of_rows(app.catalog(), &entries);
    if histories.len() != entries.len() {
        let (found, wanted) = (histories.len(), entries.len());
        return Err(ServiceError::defect(format!("{found} histories of {wanted} rows")));
    }
    let items = entries.into_iter().zip(histories).zip(found).map(|((entry, earlier), found)| {
        let id = row_id(&entry);
        item(id, entry.row, &earlier, found)
    });
    Ok(Items { items: items.collect(), total, offset })
}

fn row_id(entry: &DetailEntry) -> String {
    format!("{}-{}", entry.session, entry.position)
}

/// A row beside the earlier rows of its disk, oldest first.
fn item(id: String, row: DetailRow, earlier: &[DetailRow], found: Option<Finding>) -> DetailItem {
    // This run is the last point of the trend.
    let before = earlier.iter().skip(earlier.len().saturating_sub(TREND_POINTS as usize - 1));
    let trend = before.chain([&row]).map(|row| row.factors().total).collect();
    let finding = found.or_else(|| of_row(&row));
    DetailItem { id, figures: row.figures(), row, trend, finding }
}

/// A row and its explanation
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DetailWithExplanation)]
pub(super) struct ExplainedDetail {
    #[serde(flatten)]
    item: DetailItem,
    explanation: Explanation,
}

#[derive(Debug, Serialize, ToSchema)]
struct Explanation {
    sentences: Vec<String>,
    /// Medians of the disk's last runs
    usual: UsualRun,
    /// null: the run created no restore point, it no longer exists, or the token may not read it back
    extents: Option<ExtentChanges>,
}

#[derive(Debug, Serialize, ToSchema)]
struct UsualRun {
    /// Runs that the medians are taken over; in the first week there are no medians
    rows: usize,
    new_bytes: Option<u64>,
    /// null: most runs stored nothing
    total_factor: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ExtentChanges {
    /// Extents (4 MiB each) of the disk
    total: u64,
    /// Extents compared: all, unless so much changed that it would take too long
    compared: u64,
    /// Compared extents that differ from the previous restore point
    changed: u64,
    /// Changed extents that were empty before
    newly_written: u64,
    /// Changed extents that had held data and were compared with all earlier restore points
    traced: u64,
    /// Traced extents that were the same in all restore points compared
    changed_first_time: u64,
    /// Earlier restore points compared
    compared_backups: u64,
    /// When the backup of the previous restore point began
    before: String,
}

/// One row, explained
///
/// Describes in sentences what was unusual about it, compared with the runs before it, and where
/// on the disk the changes are.
#[utoipa::path(get, path = "/details/{id}", tag = "details", params(("id" = String, Path, description = "`id` of a row")),
    responses((status = 200, description = "The row", body = ExplainedDetail)))]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
) -> Result<Json<ExplainedDetail>, ServiceError> {
    app.blocking(move |app| {
        let (entry, namespace) = find(app, &caller, &text)?;
        let earlier = app.catalog().detail_history(&entry, PAST_RUNS)?;
        let found = findings::of_rows(app.catalog(), std::slice::from_ref(&entry)).pop().flatten();
        let (id, row) = (row_id(&entry), entry.row);
        let past = DiskPast::of(&row, &earlier);
        let extents = extents(app, &caller, namespace, &row)?;
        let left = match row.run.parse() {
            Ok(run) if row.status != RowStatus::Done => app.catalog().left_of_run(run)?,
            _ => 0,
        };
        let sentences = explain(&row, earlier.is_empty(), found.as_ref(), &past, extents.as_ref(), left);
        let explanation = Explanation {
            sentences,
            usual: UsualRun {
                rows: past.runs,
                new_bytes: past.usual.map(|usual| usual.new_bytes),
                total_factor: past.usual.and_then(|usual| usual.total_factor),
            },
            extents: extents.map(|extents| ExtentChanges {
                total: extents.total,
                compared: extents.compared,
                changed: extents.changed,
                newly_written: extents.newly_written,
                traced: extents.traced,
                changed_first_time: extents.changed_first_time,
                compared_backups: extents.compared_backups,
                before: time(extents.before_ms),
            }),
        };
        Ok(Json(ExplainedDetail { item: item(id, row, &earlier, found), explanation }))
    })
    .await
}

/// Comparison of its restore point's disk with earlier ones; `None` when there is none to compare with, or the recipes
/// cannot be read: the numbers of a run outlive its restore point.
fn extents(
    app: &App,
    caller: &Caller,
    namespace: NamespaceId,
    row: &DetailRow,
) -> Result<Option<ExtentHistory>, ServiceError> {
    let Ok(backup) = row.backup.parse() else { return Ok(None) };
    // Where a disk changed tells of what it holds: only those who may read it back are told.
    let Some(record) = app.catalog().backup(backup)? else { return Ok(None) };
    if caller.check_contents(app.catalog(), &record).is_err() {
        return Ok(None);
    }
    let found = match app.engine.extent_history(namespace, backup, &row.disk, EXTENT_HISTORY) {
        Ok(found) => found,
        Err(error) if matches!(error.code(), ErrorCode::NotFound | ErrorCode::Damaged) => {
            tracing::debug!(%backup, disk = row.disk, %error, "cannot compare a disk with earlier restore points");
            None
        }
        Err(error) => return Err(error.into()),
    };
    Ok(found)
}

/// The row of that id if it is in the caller's scope; any other looks as if it did not exist.
fn find(app: &App, caller: &Caller, text: &str) -> Result<(DetailEntry, NamespaceId), ServiceError> {
    let wrong = || {
        let shown: String = text.chars().take(40).collect();
        ServiceError::invalid(format!("{shown:?} is not the id of a row; GET /details gives each row's 'id'"))
    };
    let (session, position) = text.split_once('-').ok_or_else(wrong)?;
    let session: SessionId = session.parse().map_err(|_| wrong())?;
    let position: u32 = position.parse().map_err(|_| wrong())?;
    let absent = || ServiceError::new(ErrorCode::NotFound, format!("there is no row {session}-{position}"));
    let entry = app.catalog().detail(session, position)?.ok_or_else(absent)?;
    let namespace = app.catalog().namespace_by_name(&entry.row.namespace)?.map(|namespace| namespace.id);
    match namespace.filter(|namespace| caller.may(Action::Report, *namespace)) {
        Some(namespace) => Ok((entry, namespace)),
        None => Err(absent()),
    }
}
