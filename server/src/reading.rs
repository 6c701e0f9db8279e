//! Reading restore points back, whichever protocol asks: who may, and what has to be thawed before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{
    AuditEntry, BackupRecord, NamespaceRecord, PageRequest, TaskKind, TaskLine, TaskRecord,
};
use holdfast_engine::ids::{BackupId, TaskId};
use holdfast_proto::ErrorCode;
use holdfast_proto::api::Thaw;

use crate::app::App;
use crate::archive;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::tasks::ThawOptions;

/// The backup, when the caller may read it. Blocks.
///
/// # Errors
/// `Denied` and `NotFound`; the catalog's.
pub(crate) fn may_read(app: &App, caller: &Caller, id: BackupId) -> Result<BackupRecord, ServiceError> {
    may(app, caller, id, Action::ReadBack, "backup.read-refused")
}

/// The backup, when the caller may do this with its contents; otherwise the audit log has `refused`. Blocks.
///
/// # Errors
/// As [`may_read`].
pub(crate) fn may(
    app: &App,
    caller: &Caller,
    id: BackupId,
    action: Action,
    refused: &str,
) -> Result<BackupRecord, ServiceError> {
    caller.check_role(action)?;
    let absent = || ServiceError::new(ErrorCode::NotFound, format!("there is no backup {id}"));
    let backup = app.catalog().backup(id)?.ok_or_else(absent)?;
    // To the caller one of another namespace does not exist; to who reads the audit log it does.
    let may = if caller.may(action, backup.namespace) {
        caller.check_contents(app.catalog(), &backup)
    } else {
        Err(absent())
    };
    may.inspect_err(|_| {
        if let Ok(Some(namespace)) = app.catalog().namespace(backup.namespace) {
            note_refusal(app, caller, refused, &namespace, &backup.vm);
        }
    })?;
    Ok(backup)
}

/// Notes in the audit log that a VM was refused to a caller: counted in one entry for the same token, VM and act, so
/// that a caller who tries for ever does not fill the catalog.
pub(crate) fn note_refusal(app: &App, caller: &Caller, act: &str, namespace: &NamespaceRecord, vm: &str) {
    caller.refusal_noted();
    let token = &caller.token;
    let owner = match app.catalog().vm_owner(namespace.id, vm) {
        Ok(found) => {
            found.and_then(|found| found.owner).map_or("no owner".to_owned(), |o| format!("owner {o:?}"))
        }
        Err(error) => format!("an owner that cannot be looked up ({error})"),
    };
    let patterns = if token.vm_patterns.is_empty() { "*".to_owned() } else { token.vm_patterns.join(", ") };
    let entry = AuditEntry {
        who: token.name.clone(),
        action: act.to_owned(),
        object: vm.to_owned(),
        detail: format!(
            "VM {vm:?} in namespace {:?} has {owner}; token {:?} ({}) is of owner {:?}, for the VMs {patterns}",
            namespace.name, token.name, token.id, token.owner
        ),
    };
    let text = entry.detail.clone();
    if app.auth.audit_log().note(entry, format!("{} {vm}", namespace.id)) {
        tracing::warn!(vm, token = token.name, "{act}: {text}");
    }
}

/// Tasks looked through for one of the same restore point.
const LOOKED_AT: u32 = 100;

/// Lines of the log in one answer.
const LINES: usize = 5;

/// A task, and the newest lines of its log.
pub(crate) type Told = (TaskRecord, Vec<TaskLine>);

/// A request to thaw.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) backup: BackupId,
    /// Empty: all.
    pub(crate) disks: Vec<String>,
    /// Days for which it can be read; 0: as the settings say.
    pub(crate) days: u32,
}

/// Returns the quote, without a task. Blocks for as long as a walk over the recipes takes, if anything is cold, and for
/// `at_most`; `goes_on` is asked every now and then.
///
/// # Errors
/// The errors of [`may_read`]; `Invalid`; `NotFound`: a disk; `Limit`: it takes longer; `Unavailable`: it is not to go on.
pub(crate) fn quote_thaw(
    app: &App,
    caller: &Caller,
    wanted: &Wanted,
    at_most: Duration,
    goes_on: &dyn Fn() -> bool,
) -> Result<Thaw, ServiceError> {
    let backup = may_read(app, caller, wanted.backup)?;
    let days = app.archives.days(wanted.days)?;
    let disks = archive::disks(&backup.disks, &wanted.disks)?;
    let (mut stopping, begun) = (app.stopping(), Instant::now());
    let mut is_late = false;
    let mut go_on = || {
        is_late = begun.elapsed() > at_most;
        !is_late && !*stopping.borrow_and_update() && goes_on()
    };
    let parts = app.archives.parts(backup.namespace, backup.id, &disks, &mut go_on)?;
    match parts {
        Some(parts) => Ok(app.archives.quote(&parts, days)),
        None if is_late => Err(ServiceError::new(
            ErrorCode::Limit,
            format!(
                "looking up what of it lies in the archive takes longer than the {} s that a request may: name fewer disks, or let \
                 'holdfast restore {}' show it, which waits longest",
                at_most.as_secs(),
                backup.id
            ),
        )),
        None => Err(ServiceError::shutting_down()),
    }
}

/// Starts to bring it back, or finds the task that does. Blocks.
///
/// # Errors
/// The errors of [`may_read`]; `Invalid`; `NotFound`: a disk; those of tasks.
pub(crate) fn start_thaw(
    app: &Arc<App>,
    caller: &Caller,
    wanted: Wanted,
    speed: String,
) -> Result<Told, ServiceError> {
    let backup = may_read(app, caller, wanted.backup)?;
    app.archives.check_speed(&speed)?;
    let Wanted { disks, days, .. } = wanted;
    let options = ThawOptions { backup: backup.id.to_string(), disks, speed, days, namespace: String::new() };
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
    app.tasks.get(task.id, LINES)
}

/// A task that thaws this restore point. Blocks.
///
/// # Errors
/// `NotFound`: it is no such task; those of [`may_read`].
pub(crate) fn get_thaw(
    app: &App,
    caller: &Caller,
    backup: BackupId,
    id: TaskId,
) -> Result<Told, ServiceError> {
    // Who may not read the restore point learns nothing of its tasks.
    may_read(app, caller, backup)?;
    let (task, log) = app.tasks.get(id, LINES)?;
    let thaws = task.kind == TaskKind::Thaw && ThawOptions::read(&task.options)?.backup()? == backup;
    if !thaws {
        let message = format!("task {id} does not thaw restore point {backup}");
        return Err(ServiceError::new(ErrorCode::NotFound, message));
    }
    Ok((task, log))
}

/// The newest task that thaws something of this restore point and has not ended. Blocks.
///
/// # Errors
/// The errors of [`may_read`]; the catalog's.
pub(crate) fn task_of(app: &App, caller: &Caller, backup: BackupId) -> Result<Option<Told>, ServiceError> {
    let backup = may_read(app, caller, backup)?.id.to_string();
    let page = PageRequest { size: LOOKED_AT, token: "" };
    let (tasks, _) = app.tasks.list(Some(TaskKind::Thaw), page)?;
    let is_it = |task: &TaskRecord| {
        !task.status.has_ended() && ThawOptions::read(&task.options).is_ok_and(|of| of.backup == backup)
    };
    let found = tasks.into_iter().find(is_it);
    found.map(|task| app.tasks.get(task.id, LINES)).transpose()
}
