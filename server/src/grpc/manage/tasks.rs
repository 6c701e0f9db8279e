//! Long work: it is about the repository as a whole, and so are its tasks.

use holdfast_engine::catalog::{PageRequest, TASK_LINES_MAX, TaskKind, TaskLine, TaskRecord, TaskStatus};
use holdfast_engine::ids::TaskId;
use holdfast_proto::ErrorCode;
use holdfast_proto::v1::{self, TaskControl};

use super::super::call::parse_id;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;

/// Lines of a task's log in one answer, unless told otherwise.
const LINES: u32 = 5;

/// Tasks looked through for the one that has not ended.
const UNFINISHED_LOOKED_AT: u32 = 100;

pub(super) fn start_reclaim(
    app: &App,
    caller: &Caller,
    message: v1::StartReclaimRequest,
) -> Result<v1::Task, ServiceError> {
    let v1::StartReclaimRequest { dry_run, squeeze, squeeze_level, squeeze_min_age_days } = message;
    // What is absent is null here, and then the server's choice.
    let options = serde_json::json!({
        "dry_run": dry_run,
        "squeeze": squeeze,
        "squeeze_level": squeeze_level,
        "squeeze_min_age_days": squeeze_min_age_days,
    })
    .to_string();
    let task = app.start_task(TaskKind::Reclaim, &options, &caller.token.name)?;
    Ok(wire(task, Vec::new()))
}

pub(super) fn start_scrub(
    app: &App,
    caller: &Caller,
    _: v1::StartScrubRequest,
) -> Result<v1::Task, ServiceError> {
    let task = app.start_task(TaskKind::Scrub, "{}", &caller.token.name)?;
    Ok(wire(task, Vec::new()))
}

pub(super) fn start_verification(
    app: &App,
    caller: &Caller,
    message: v1::StartVerificationRequest,
) -> Result<v1::Task, ServiceError> {
    let v1::StartVerificationRequest { namespace, vm } = message;
    let given = [("namespace", namespace), ("vm", vm)];
    let given = given.into_iter().filter(|(_, value)| !value.is_empty());
    let options: serde_json::Map<String, serde_json::Value> =
        given.map(|(name, value)| (name.to_owned(), value.into())).collect();
    let options = serde_json::Value::Object(options).to_string();
    let task = app.start_task(TaskKind::Verify, &options, &caller.token.name)?;
    Ok(wire(task, Vec::new()))
}

#[expect(clippy::needless_pass_by_value, reason = "every call is handled alike")]
pub(super) fn list(
    app: &App,
    _: &Caller,
    message: v1::ListTasksRequest,
) -> Result<v1::ListTasksResponse, ServiceError> {
    let page = PageRequest { size: message.page_size, token: &message.page_token };
    let (tasks, next) = app.tasks.list(kind(&message.kind)?, page)?;
    let tasks = tasks.into_iter().map(|task| wire(task, Vec::new())).collect();
    Ok(v1::ListTasksResponse { tasks, next_page_token: next.unwrap_or_default() })
}

#[expect(clippy::needless_pass_by_value, reason = "every call is handled alike")]
pub(super) fn get(app: &App, _: &Caller, message: v1::GetTaskRequest) -> Result<v1::Task, ServiceError> {
    let id: TaskId = parse_id("task", &message.id)?;
    let lines = if message.log_lines == 0 { LINES } else { message.log_lines.min(TASK_LINES_MAX) };
    let (task, log) = app.tasks.get(id, lines as usize)?;
    Ok(wire(task, log))
}

#[expect(clippy::needless_pass_by_value, reason = "every call is handled alike")]
pub(super) fn control(
    app: &App,
    caller: &Caller,
    message: v1::ControlTaskRequest,
) -> Result<v1::Task, ServiceError> {
    let id =
        if message.id.is_empty() { under_way(app, &message.kind)? } else { parse_id("task", &message.id)? };
    let who = &caller.token.name;
    let task = match message.control() {
        TaskControl::Pause => app.tasks.pause(id, who)?,
        TaskControl::Resume => app.tasks.resume(id, who)?,
        TaskControl::Cancel => app.tasks.cancel(id, who)?,
        TaskControl::Unspecified => return Err(ServiceError::invalid("pause, resume or cancel it?")),
    };
    Ok(wire(task, Vec::new()))
}

/// The task of that kind that works; else the one that waits.
fn under_way(app: &App, text: &str) -> Result<TaskId, ServiceError> {
    let kind = kind(text)?;
    let page = PageRequest { size: UNFINISHED_LOOKED_AT, token: "" };
    let (tasks, _) = app.tasks.list(kind, page)?;
    let unfinished = || tasks.iter().filter(|task| !task.status.has_ended());
    let works = unfinished().find(|task| matches!(task.status, TaskStatus::Running | TaskStatus::Paused));
    works.or_else(|| unfinished().next()).map(|task| task.id).ok_or_else(|| {
        let word = kind.map_or("task", TaskKind::word);
        ServiceError::new(ErrorCode::NotFound, format!("no {word} is under way"))
    })
}

/// Empty: every kind.
fn kind(text: &str) -> Result<Option<TaskKind>, ServiceError> {
    if text.is_empty() {
        return Ok(None);
    }
    Ok(Some(text.parse::<TaskKind>()?))
}

pub(in crate::grpc) fn wire(task: TaskRecord, log: Vec<TaskLine>) -> v1::Task {
    let status = match task.status {
        TaskStatus::Queued => v1::TaskStatus::Queued,
        TaskStatus::Running => v1::TaskStatus::Running,
        TaskStatus::Paused => v1::TaskStatus::Paused,
        TaskStatus::Interrupted => v1::TaskStatus::Interrupted,
        TaskStatus::Done => v1::TaskStatus::Done,
        TaskStatus::Failed => v1::TaskStatus::Failed,
        TaskStatus::Cancelled => v1::TaskStatus::Cancelled,
    };
    v1::Task {
        id: task.id.to_string(),
        kind: task.kind.word().to_owned(),
        status: status.into(),
        who: task.who,
        created_ms: task.created_ms,
        started_ms: task.started_ms.unwrap_or(0),
        finished_ms: task.finished_ms.unwrap_or(0),
        done: task.progress.done,
        total: task.progress.total,
        unit: task.progress.unit,
        figures: task.figures,
        error: task.error,
        log: log.into_iter().map(|line| line.text).collect(),
    }
}
