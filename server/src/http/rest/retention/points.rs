//! Restore points: what deleting them frees, deleting, locks and holds.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{BackupRecord, RetentionLock};
use holdfast_engine::ids::BackupId;
use holdfast_engine::{Engine, EngineError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::activity::Change;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::query::{At, Body, id};
use crate::http::rest::wire::{maybe_time, time};
use crate::retention::choice;
use crate::retention::plan::in_force;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http::rest) struct FreedQuestion {
    /// IDs of restore points: 1 to 1000
    ids: Vec<String>,
}

/// What deleting restore points would free
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::rest) struct Freed {
    /// What the next reclaim could free once all of them are deleted, to the byte; null: not known, or not soon enough
    freed_bytes: Option<u64>,
    points: Vec<ChosenPoint>,
}

/// A restore point that was chosen
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::rest) struct ChosenPoint {
    id: String,
    namespace: String,
    vm: String,
    job: String,
    started: String,
    /// null: it is not locked
    locked_until: Option<String>,
    /// null: it is not held
    hold: Option<Hold>,
}

/// A legal hold: no end, until an admin releases it
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::rest) struct Hold {
    reason: String,
    /// A token's name
    by: String,
    since: String,
}

/// What keeps a restore point from being deleted: until when it is locked, and its hold.
pub(in crate::http::rest) fn kept_by(
    lock: &RetentionLock,
    lock_time_ms: Option<i64>,
) -> (Option<String>, Option<Hold>) {
    let (until_ms, _) = in_force(lock, lock_time_ms);
    let hold = lock.hold.as_ref().map(|hold| Hold {
        reason: hold.reason.clone(),
        by: hold.who.clone(),
        since: time(hold.since_ms),
    });
    (maybe_time(until_ms), hold)
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http::rest) struct DeletePoints {
    /// IDs of restore points: 1 to 1000
    ids: Vec<String>,
    /// For the audit log
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http::rest) struct DeletedPoints {
    /// How many were deleted
    deleted: u64,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http::rest) struct LockPoint {
    /// RFC 3339
    until: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http::rest) struct HoldReason {
    /// For the audit log
    reason: String,
}

/// What deleting restore points would free
///
/// Exact, counted over everything that is in use. Where that takes longer than 20 seconds it is not known here; 'holdfast
/// delete --dry-run' waits for it. Nothing is changed.
#[utoipa::path(post, path = "/restore-points/freed", tag = "retention", request_body = FreedQuestion,
    responses((status = 200, description = "What they would free", body = Freed)))]
pub(in crate::http::rest) async fn freed(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Body(asked): Body<FreedQuestion>,
) -> Result<Json<Freed>, ServiceError> {
    app.blocking(move |app| {
        let points = chosen(app, &caller, Action::Operate, &asked.ids)?;
        let lock_time_ms = app.catalog().lock_time()?;
        let freed_bytes = choice::soon(&app.engine, &ids(&points), &|| *app.stopping().borrow())?;
        let points = points.iter().map(|point| described(point, lock_time_ms)).collect();
        Ok(Json(Freed { freed_bytes, points }))
    })
    .await
}

/// Delete restore points
///
/// All of them or, when one is locked or held, none. Their space comes back with the next reclaim.
#[utoipa::path(post, path = "/restore-points/delete", tag = "retention", request_body = DeletePoints,
    responses((status = 200, description = "They are deleted", body = DeletedPoints)))]
pub(in crate::http::rest) async fn delete(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Body(wanted): Body<DeletePoints>,
) -> Result<Json<DeletedPoints>, ServiceError> {
    app.blocking(move |app| {
        let points = chosen(app, &caller, Action::Retain, &wanted.ids)?;
        choice::check_reason(&wanted.reason, false)?;
        app.engine.delete_backups(&ids(&points), &caller.token.name, &wanted.reason)?;
        app.activity.note(Change::Backup);
        Ok(Json(DeletedPoints { deleted: points.len() as u64 }))
    })
    .await
}

/// Lock a restore point
///
/// Until then no one can delete it. A lock never gets shorter: one that lasts longer stays as it is.
#[utoipa::path(post, path = "/restore-points/{id}/lock", tag = "retention", request_body = LockPoint,
    params(("id" = String, Path, description = "The restore point's id")),
    responses((status = 200, description = "The restore point", body = ChosenPoint)))]
pub(in crate::http::rest) async fn lock(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
    Body(wanted): Body<LockPoint>,
) -> Result<Json<ChosenPoint>, ServiceError> {
    app.blocking(move |app| {
        let until: jiff::Timestamp = wanted
            .until
            .parse()
            .map_err(|_| ServiceError::invalid("until: write a time such as 2027-12-31T00:00:00Z"))?;
        change(app, &caller, &text, |ids, who| {
            app.engine.lock_backups(ids, until.as_millisecond(), who).map(drop)
        })
    })
    .await
}

/// Hold a restore point
///
/// It cannot be deleted until the hold is released. One that is held stays as it is.
#[utoipa::path(post, path = "/restore-points/{id}/hold", tag = "retention", request_body = HoldReason,
    params(("id" = String, Path, description = "The restore point's id")),
    responses((status = 200, description = "The restore point", body = ChosenPoint)))]
pub(in crate::http::rest) async fn hold(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
    Body(wanted): Body<HoldReason>,
) -> Result<Json<ChosenPoint>, ServiceError> {
    change_held(&app, caller, text, wanted.reason, Engine::hold_backups).await
}

/// Release a restore point's hold
///
/// Its lock, if it has one, stays.
#[utoipa::path(delete, path = "/restore-points/{id}/hold", tag = "retention", request_body = HoldReason,
    params(("id" = String, Path, description = "The restore point's id")),
    responses((status = 200, description = "The restore point", body = ChosenPoint)))]
pub(in crate::http::rest) async fn release_hold(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
    Body(wanted): Body<HoldReason>,
) -> Result<Json<ChosenPoint>, ServiceError> {
    change_held(&app, caller, text, wanted.reason, Engine::release_holds).await
}

/// What the engine does to holds: which restore points, the reason, who.
type HoldChange = fn(&Engine, &[BackupId], &str, &str) -> Result<Vec<BackupId>, EngineError>;

async fn change_held(
    app: &Arc<App>,
    caller: Caller,
    text: String,
    reason: String,
    engine_change: HoldChange,
) -> Result<Json<ChosenPoint>, ServiceError> {
    app.blocking(move |app| {
        choice::check_reason(&reason, true)?;
        change(app, &caller, &text, |ids, who| engine_change(&app.engine, ids, &reason, who).map(drop))
    })
    .await
}

fn change(
    app: &App,
    caller: &Caller,
    text: &str,
    change: impl FnOnce(&[BackupId], &str) -> Result<(), EngineError>,
) -> Result<Json<ChosenPoint>, ServiceError> {
    let asked = [text.to_owned()];
    let points = chosen(app, caller, Action::Retain, &asked)?;
    change(&ids(&points), &caller.token.name)?;
    app.activity.note(Change::Backup);
    let lock_time_ms = app.catalog().lock_time()?;
    let now = chosen(app, caller, Action::Retain, &asked)?.pop();
    let now = now.ok_or_else(|| ServiceError::defect("a restore point that was changed is gone"))?;
    Ok(Json(described(&now, lock_time_ms)))
}

fn chosen(
    app: &App,
    caller: &Caller,
    action: Action,
    texts: &[String],
) -> Result<Vec<BackupRecord>, ServiceError> {
    let ids = texts.iter().map(|text| id("backup", text)).collect::<Result<Vec<BackupId>, _>>()?;
    choice::by_id(app.catalog(), caller, action, &ids)
}

fn ids(points: &[BackupRecord]) -> Vec<BackupId> {
    points.iter().map(|point| point.id).collect()
}

fn described(backup: &BackupRecord, lock_time_ms: Option<i64>) -> ChosenPoint {
    let (locked_until, hold) = kept_by(&backup.lock, lock_time_ms);
    ChosenPoint {
        id: backup.id.to_string(),
        namespace: backup.namespace_name.clone(),
        vm: backup.vm.clone(),
        job: backup.job.clone(),
        started: time(backup.started_ms),
        locked_until,
        hold,
    }
}
