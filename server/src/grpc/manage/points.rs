//! Restore points that are named: what they would free, deleting, locks and holds.

use holdfast_engine::catalog::BackupRecord;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::ids::BackupId;
use holdfast_proto::v1;

use super::wire;
use crate::activity::Change;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::retention::choice;
use crate::retention::run::delete_free;

fn chosen(
    app: &App,
    caller: &Caller,
    action: Action,
    selection: Option<v1::Selection>,
) -> Result<Vec<BackupRecord>, ServiceError> {
    let selection = selection.unwrap_or_default();
    let v1::Selection { namespace, backups, vm } = &selection;
    choice::named(app.catalog(), caller, action, namespace, vm, backups)
}

fn ids(points: &[BackupRecord]) -> Vec<BackupId> {
    points.iter().map(|point| point.id).collect()
}

pub(super) fn freed(
    app: &App,
    caller: &Caller,
    message: v1::FreedRequest,
) -> Result<v1::FreedResponse, ServiceError> {
    let points = chosen(app, caller, Action::Operate, message.selection)?;
    let lock_time_ms = app.catalog().lock_time()?;
    let freed_bytes = if message.without_bytes {
        None
    } else {
        choice::by_deleting(&app.engine, &ids(&points), &|| *app.stopping().borrow())?
    };
    let points = points.iter().map(|point| wire::selected(point, lock_time_ms)).collect();
    Ok(v1::FreedResponse { points, freed_bytes })
}

pub(super) fn delete(
    app: &App,
    caller: &Caller,
    message: v1::DeleteRequest,
) -> Result<v1::DeleteResponse, ServiceError> {
    let points = chosen(app, caller, Action::Retain, message.selection)?;
    choice::check_reason(&message.reason, false)?;
    let (ids, of) = (ids(&points), (caller.token.name.as_str(), message.reason.as_str()));
    let (deleted, refused) = if message.others {
        delete_free(&app.engine, &ids, of)?
    } else {
        app.engine.delete_backups(&ids, of.0, of.1)?;
        (ids.len() as u64, Vec::new())
    };
    app.activity.note(Change::Backup);
    Ok(v1::DeleteResponse { deleted, refused: texts(&refused) })
}

pub(super) fn lock(
    app: &App,
    caller: &Caller,
    message: v1::LockRequest,
) -> Result<v1::LockResponse, ServiceError> {
    let points = chosen(app, caller, Action::Retain, message.selection)?;
    let changed = app.engine.lock_backups(&ids(&points), message.until_ms, &caller.token.name)?;
    app.activity.note(Change::Backup);
    Ok(v1::LockResponse { changed: texts(&changed) })
}

pub(super) fn hold(
    app: &App,
    caller: &Caller,
    message: v1::HoldRequest,
) -> Result<v1::HoldResponse, ServiceError> {
    let points = chosen(app, caller, Action::Retain, message.selection)?;
    choice::check_reason(&message.reason, true)?;
    let changed = app.engine.hold_backups(&ids(&points), &message.reason, &caller.token.name)?;
    app.activity.note(Change::Backup);
    Ok(v1::HoldResponse { changed: texts(&changed) })
}

pub(super) fn release_hold(
    app: &App,
    caller: &Caller,
    message: v1::ReleaseHoldRequest,
) -> Result<v1::ReleaseHoldResponse, ServiceError> {
    let points = chosen(app, caller, Action::Retain, message.selection)?;
    choice::check_reason(&message.reason, true)?;
    let changed = app.engine.release_holds(&ids(&points), &message.reason, &caller.token.name)?;
    app.activity.note(Change::Backup);
    Ok(v1::ReleaseHoldResponse { changed: texts(&changed) })
}

fn texts(ids: &[BackupId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
