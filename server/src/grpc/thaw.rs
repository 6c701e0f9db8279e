//! What of a restore point lies in the archive, what bringing it back costs, and doing it. Who may restore it may do so.

use std::sync::Arc;

use holdfast_engine::catalog::{AuditEntry, TaskKind};
use holdfast_engine::ids::TaskId;
use holdfast_proto::ErrorCode;
use holdfast_proto::limits::check_name;
use holdfast_proto::v1;

use super::call::parse_id;
use super::manage::task_message;
use super::reading::may_read;
use crate::app::App;
use crate::archive;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::tasks::ThawOptions;

/// Lines of the log in one answer.
const LINES: usize = 5;

/// What it takes. Blocks for as long as a walk over the recipes takes, if anything is cold.
pub(super) fn quote(
    app: &Arc<App>,
    caller: &Caller,
    message: v1::QuoteThawRequest,
) -> Result<v1::ThawQuote, ServiceError> {
    let backup = may_read(app, caller, &message.backup_id)?;
    for disk in &message.disks {
        check_name("disk", disk).map_err(ServiceError::invalid)?;
    }
    let days = app.archives.days(message.days)?;
    let disks = app.archives.disks(backup.id, message.disks)?;
    let mut stopping = app.stopping();
    let mut go_on = || !*stopping.borrow_and_update();
    let parts = app.archives.parts(backup.namespace, backup.id, &disks, &mut go_on)?;
    let parts = parts.ok_or_else(ServiceError::shutting_down)?;
    Ok(archive::quote(&app.archives, &parts, days))
}

/// Starts to bring it back, or finds the task that does. Blocks.
pub(super) fn start(
    app: &Arc<App>,
    caller: &Caller,
    message: v1::StartThawRequest,
) -> Result<v1::Task, ServiceError> {
    let backup = may_read(app, caller, &message.backup_id)?;
    for disk in &message.disks {
        check_name("disk", disk).map_err(ServiceError::invalid)?;
    }
    let v1::StartThawRequest { disks, speed, days, .. } = message;
    let options = ThawOptions { backup: backup.id.to_string(), disks, speed, days };
    let text = serde_json::to_string(&options).map_err(ServiceError::defect)?;
    // One that does the same is shared.
    let task = app.start_task(TaskKind::Thaw, &text, &caller.token.name)?;
    let (vm, namespace) = (&backup.vm, &backup.namespace_name);
    let entry = AuditEntry {
        who: caller.token.name.clone(),
        action: "backup.thaw".to_owned(),
        object: backup.id.to_string(),
        detail: format!("VM {vm:?} in namespace {namespace:?}, {}, task {}", options.speed, task.id),
    };
    let repeats = format!("{} {}", backup.id, task.id);
    app.auth.audit_log().note(entry, repeats);
    let (task, log) = app.tasks.get(task.id, LINES)?;
    Ok(task_message(task, log))
}

/// How far it is. Blocks.
#[expect(clippy::needless_pass_by_value, reason = "every call is handled alike")]
pub(super) fn get(
    app: &Arc<App>,
    caller: &Caller,
    message: v1::GetThawRequest,
) -> Result<v1::Task, ServiceError> {
    let id: TaskId = parse_id("task", &message.task_id)?;
    let (task, log) = app.tasks.get(id, LINES)?;
    if task.kind != TaskKind::Thaw {
        return Err(ServiceError::new(ErrorCode::NotFound, format!("task {id} thaws nothing")));
    }
    // Who may not read the restore point learns nothing of the task.
    may_read(app, caller, &ThawOptions::read(&task.options)?.backup)?;
    Ok(task_message(task, log))
}
