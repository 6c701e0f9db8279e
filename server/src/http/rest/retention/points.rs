//! Restore points: what deleting them frees, deleting, locks and holds.

use axum::extract::State;
use axum::response::Response;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{BackupRecord, RetentionLock};
use holdfast_engine::ids::BackupId;
use holdfast_engine::{Engine, EngineError};
use holdfast_proto::api::{
    ChangedPoints, ChosenPoint, DeletePoints, DeletedPoints, Freed, FreedQuestion, Hold, HoldPoints, Line,
    LockPoints, Time,
};

use crate::activity::Change;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::http::HttpState;
use crate::http::access::Identity;
use crate::http::ndjson::{self, Takes};
use crate::http::query::{AsLines, Body, id};
use crate::retention::choice;
use crate::retention::plan::in_force;
use crate::retention::run::delete_free;

/// The lock's end and the hold that keep a restore point from being deleted.
pub(in crate::http::rest) fn kept_by(
    lock: &RetentionLock,
    lock_time_ms: Option<i64>,
) -> (Option<Time>, Option<Hold>) {
    let (until_ms, _) = in_force(lock, lock_time_ms);
    let hold = lock.hold.as_ref().map(|hold| Hold {
        reason: hold.reason.clone(),
        by: hold.who.clone(),
        since: Time::new(hold.since_ms),
    });
    (until_ms.map(Time::new), hold)
}

/// What deleting restore points would free
///
/// Exact, counted over everything that is in use. Where that takes longer than 20 seconds it is not known here; an answer in
/// NDJSON, one line, waits for it, as 'holdfast delete --dry-run' does. Nothing is changed.
#[utoipa::path(post, path = "/restore-points/freed", tag = "retention", request_body = FreedQuestion,
    responses((status = 200, description = "What they would free",
        content((Freed = "application/json"), (Line<Freed> = "application/x-ndjson")))))]
pub(in crate::http::rest) async fn freed(
    State(state): State<HttpState>,
    identity: Identity,
    as_lines: AsLines,
    Body(asked): Body<FreedQuestion>,
) -> Result<Response, ServiceError> {
    let caller = identity.caller.clone();
    ndjson::one(&state, &identity, (as_lines, Takes::Turn), move |app, lines| {
        let chosen = (asked.ids.as_slice(), asked.namespace.as_deref(), asked.vm.as_str());
        let points = self::chosen(app, &caller, Action::Operate, chosen)?;
        let (lock_time_ms, ids) = (app.catalog().lock_time()?, ids(&points));
        let freed_bytes = match lines {
            _ if asked.without_bytes => None,
            Some(lines) => choice::by_deleting(&app.engine, &ids, &|| lines.is_over())?,
            None => choice::soon(&app.engine, &ids, &|| *app.stopping().borrow())?,
        };
        let points = points.iter().map(|point| described(point, lock_time_ms)).collect();
        Ok(Freed { freed_bytes, points })
    })
    .await
}

/// Delete restore points
///
/// All of them or, when one is locked or held, none, unless `others` says otherwise. Their space comes back with the next
/// reclaim.
#[utoipa::path(post, path = "/restore-points/delete", tag = "retention", request_body = DeletePoints,
    responses((status = 200, description = "They are deleted",
        content((DeletedPoints = "application/json"), (Line<DeletedPoints> = "application/x-ndjson")))))]
pub(in crate::http::rest) async fn delete(
    State(state): State<HttpState>,
    identity: Identity,
    as_lines: AsLines,
    Body(wanted): Body<DeletePoints>,
) -> Result<Response, ServiceError> {
    let caller = identity.caller.clone();
    ndjson::one(&state, &identity, (as_lines, Takes::Slot), move |app, _| {
        let DeletePoints { ids, namespace, vm, reason, others } = &wanted;
        let points = chosen(app, &caller, Action::Retain, (ids, namespace.as_deref(), vm))?;
        choice::check_reason(reason, false)?;
        let (ids, who) = (self::ids(&points), caller.token.name.as_str());
        let (deleted, refused) = if *others {
            delete_free(&app.engine, &ids, (who, reason))?
        } else {
            app.engine.delete_backups(&ids, who, reason)?;
            (ids.len() as u64, Vec::new())
        };
        app.activity.note(Change::Backup);
        Ok(DeletedPoints { deleted, refused: texts(&refused) })
    })
    .await
}

/// Lock restore points
///
/// Until then no one can delete them. A lock never gets shorter: one that lasts longer stays as it is.
#[utoipa::path(post, path = "/restore-points/lock", tag = "retention", request_body = LockPoints,
    responses((status = 200, description = "They are locked",
        content((ChangedPoints = "application/json"), (Line<ChangedPoints> = "application/x-ndjson")))))]
pub(in crate::http::rest) async fn lock(
    State(state): State<HttpState>,
    identity: Identity,
    as_lines: AsLines,
    Body(wanted): Body<LockPoints>,
) -> Result<Response, ServiceError> {
    let caller = identity.caller.clone();
    ndjson::one(&state, &identity, (as_lines, Takes::Slot), move |app, _| {
        let until_ms = until_ms(&wanted.until)?;
        let chosen = (wanted.ids.as_slice(), wanted.namespace.as_deref(), wanted.vm.as_str());
        change(app, &caller, chosen, |ids, who| app.engine.lock_backups(ids, until_ms, who))
    })
    .await
}

/// Hold restore points
///
/// They cannot be deleted until they are released. One that is held stays as it is.
#[utoipa::path(post, path = "/restore-points/hold", tag = "retention", request_body = HoldPoints,
    responses((status = 200, description = "They are held",
        content((ChangedPoints = "application/json"), (Line<ChangedPoints> = "application/x-ndjson")))))]
pub(in crate::http::rest) async fn hold(
    State(state): State<HttpState>,
    identity: Identity,
    as_lines: AsLines,
    Body(wanted): Body<HoldPoints>,
) -> Result<Response, ServiceError> {
    change_held(&state, &identity, as_lines, wanted, Engine::hold_backups).await
}

/// Release the holds of restore points
///
/// Their locks stay.
#[utoipa::path(post, path = "/restore-points/release", tag = "retention", request_body = HoldPoints,
    responses((status = 200, description = "They are released",
        content((ChangedPoints = "application/json"), (Line<ChangedPoints> = "application/x-ndjson")))))]
pub(in crate::http::rest) async fn release(
    State(state): State<HttpState>,
    identity: Identity,
    as_lines: AsLines,
    Body(wanted): Body<HoldPoints>,
) -> Result<Response, ServiceError> {
    change_held(&state, &identity, as_lines, wanted, Engine::release_holds).await
}

/// A change of holds by the engine: which restore points, the reason, who.
type HoldChange = fn(&Engine, &[BackupId], &str, &str) -> Result<Vec<BackupId>, EngineError>;

async fn change_held(
    state: &HttpState,
    identity: &Identity,
    as_lines: AsLines,
    wanted: HoldPoints,
    engine_change: HoldChange,
) -> Result<Response, ServiceError> {
    let caller = identity.caller.clone();
    ndjson::one(state, identity, (as_lines, Takes::Slot), move |app, _| {
        let HoldPoints { ids, namespace, vm, reason } = &wanted;
        choice::check_reason(reason, true)?;
        let chosen = (ids.as_slice(), namespace.as_deref(), vm.as_str());
        change(app, &caller, chosen, |ids, who| engine_change(&app.engine, ids, reason, who))
    })
    .await
}

/// Restore points that were changed.
type Changed = Result<Vec<BackupId>, EngineError>;

fn change(
    app: &App,
    caller: &Caller,
    chosen: Chosen<'_>,
    change: impl FnOnce(&[BackupId], &str) -> Changed,
) -> Result<ChangedPoints, ServiceError> {
    let points = self::chosen(app, caller, Action::Retain, chosen)?;
    let changed = change(&ids(&points), &caller.token.name)?;
    app.activity.note(Change::Backup);
    Ok(ChangedPoints { changed: texts(&changed) })
}

/// IDs, namespace and VM, as a request has them.
type Chosen<'a> = (&'a [String], Option<&'a str>, &'a str);

fn chosen(
    app: &App,
    caller: &Caller,
    action: Action,
    (texts, namespace, vm): Chosen<'_>,
) -> Result<Vec<BackupRecord>, ServiceError> {
    match namespace {
        Some(namespace) => choice::named(app.catalog(), caller, action, namespace, vm, texts),
        None if vm.is_empty() => {
            let ids = texts.iter().map(|text| id("backup", text)).collect::<Result<Vec<BackupId>, _>>()?;
            choice::by_id(app.catalog(), caller, action, &ids)
        }
        None => Err(ServiceError::invalid("vm: say its namespace, too")),
    }
}

fn ids(points: &[BackupRecord]) -> Vec<BackupId> {
    points.iter().map(|point| point.id).collect()
}

fn texts(ids: &[BackupId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

fn until_ms(text: &str) -> Result<i64, ServiceError> {
    let wrong = |_| ServiceError::invalid("until: write a time such as 2027-12-31T00:00:00Z");
    text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_millisecond).map_err(wrong)
}

fn described(backup: &BackupRecord, lock_time_ms: Option<i64>) -> ChosenPoint {
    let (locked_until, hold) = kept_by(&backup.lock, lock_time_ms);
    ChosenPoint {
        id: backup.id.to_string(),
        namespace: backup.namespace_name.clone(),
        vm: backup.vm.clone(),
        job: backup.job.clone(),
        started: Time::new(backup.started_ms),
        locked_until,
        hold,
    }
}
