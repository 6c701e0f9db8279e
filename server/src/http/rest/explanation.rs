//! One row of compression details, explained.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::DetailEntry;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::ids::{NamespaceId, SessionId};
use holdfast_proto::ErrorCode;
use holdfast_proto::v1::{DetailRow, RowStatus};
use serde::Serialize;
use utoipa::ToSchema;

use super::details::{DetailItem, id_and_row, item, wire_rows};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::EXTENT_HISTORY;
use crate::http::query::At;
use crate::insight::explain::{Extents, explain};
use crate::insight::{LOOK_BACK, Usual};

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
    /// Runs that the medians are taken over; with fewer than 3 there are no medians
    rows: usize,
    new_bytes: Option<u64>,
    /// null: most runs stored nothing
    total_factor: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ExtentChanges {
    /// Extents (4 MiB each) of the disk
    total: u64,
    /// Different from the previous restore point
    changed: u64,
    /// Changed extents that were the same in all restore points compared
    changed_first_time: u64,
    /// Changed extents that were empty before
    newly_written: u64,
    /// Earlier restore points compared
    compared_backups: u64,
}

/// Runs that ended well.
fn done(rows: &[DetailRow]) -> usize {
    rows.iter().filter(|row| row.status == RowStatus::Done as i32).count()
}

/// One row, explained
///
/// Describes in sentences what was unusual about it, compared with the medians of the same disk's last runs, and where
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
        let earlier = wire_rows(app.catalog().detail_history(&entry, LOOK_BACK)?);
        let (id, row) = id_and_row(entry);
        let usual = Usual::of(&earlier);
        let extents = extents(app, &caller, namespace, &row)?;
        let sentences = explain(&row, earlier.is_empty(), usual.as_ref(), extents.as_ref());
        let explanation = Explanation {
            sentences,
            usual: UsualRun {
                rows: usual.map_or_else(|| done(&earlier), |usual| usual.rows),
                new_bytes: usual.map(|usual| usual.new_bytes),
                total_factor: usual.and_then(|usual| usual.total_factor),
            },
            extents: extents.map(|extents| ExtentChanges {
                total: extents.total,
                changed: extents.changed,
                changed_first_time: extents.changed_first_time,
                newly_written: extents.newly_written,
                compared_backups: extents.compared_backups,
            }),
        };
        Ok(Json(ExplainedDetail { item: item(id, &row, &earlier), explanation }))
    })
    .await
}

/// Where its restore point's disk differs from earlier ones; `None` when there is none to compare with, or the
/// recipes cannot be read: the numbers of a run outlive its restore point.
fn extents(
    app: &App,
    caller: &Caller,
    namespace: NamespaceId,
    row: &DetailRow,
) -> Result<Option<Extents>, ServiceError> {
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
    Ok(found.map(|found| Extents {
        total: found.total,
        changed: found.changed,
        changed_first_time: found.changed_first_time,
        newly_written: found.newly_written,
        compared_backups: found.compared_backups,
    }))
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
