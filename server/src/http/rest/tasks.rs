//! Tasks: reclaim, scrub, verification, policy runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use holdfast_engine::catalog::{self, PageRequest, TASK_LINES_MAX, TaskRecord};
use holdfast_engine::ids::TaskId;
use holdfast_proto::api::{Keyset, NotATaskKind, StartTask, Task, TaskKind, TaskLine, Time};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::IntoParams;

use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::{PAGE, PageSize};
use crate::http::query::{At, Body, Params, id, limit, text};

/// Lines of a task's log in a list.
const LIST_LINES: usize = 5;

/// Lines of one task's log.
const LOG_LINES: PageSize = PageSize { default: TASK_LINES_MAX, max: TASK_LINES_MAX };

/// A task as it is told.
pub(super) fn told((task, lines): (TaskRecord, Vec<catalog::TaskLine>)) -> Task {
    let line = |line: catalog::TaskLine| TaskLine {
        number: line.number,
        at: Time::new(line.at_ms),
        text: line.text,
    };
    Task {
        id: task.id.to_string(),
        kind: task.kind,
        status: task.status,
        who: task.who,
        scheduled: task.scheduled,
        options: object(&task.options),
        created: Time::new(task.created_ms),
        started: task.started_ms.map(Time::new),
        finished: task.finished_ms.map(Time::new),
        attempts: task.attempts,
        progress: task.progress,
        figures: object(&task.figures),
        error: task.error,
        log: lines.into_iter().map(line).collect(),
    }
}

/// JSON object that a kind of task wrote; empty when it wrote nothing.
pub(super) fn object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap_or_default()
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TaskQuery {
    /// Only of this kind
    #[param(value_type = Option<TaskKind>)]
    kind: Option<String>,
    /// Items per page: 1 to 1000, 100 unless given
    page_size: Option<u32>,
    /// `next_page_token` of the page before
    page_token: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Lines of its log: 1 to 1000, 1000 unless given
    log_lines: Option<u32>,
}

/// Tasks, newest first
///
/// Those that have not ended, and the history: of each kind the newest 500 that have, for two years.
#[utoipa::path(get, path = "/tasks", tag = "tasks", params(TaskQuery),
    responses((status = 200, description = "A page of tasks", body = Keyset<Task>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Params(query): Params<TaskQuery>,
) -> Result<Json<Keyset<Task>>, ServiceError> {
    let size = limit("page_size", query.page_size, PAGE)?;
    app.blocking(move |app| {
        let kind = text(query.kind).map(|kind| kind_of(&kind)).transpose()?;
        let token = query.page_token.unwrap_or_default();
        let (tasks, next) = app.tasks.list(kind, PageRequest { size, token: &token })?;
        let items = tasks.into_iter().map(|task| {
            let id = task.id;
            match app.tasks.get(id, LIST_LINES) {
                Ok(found) => Ok(told(found)),
                // Forgotten meanwhile.
                Err(error) if error.code == holdfast_proto::ErrorCode::NotFound => Ok(told((task, vec![]))),
                Err(error) => Err(error),
            }
        });
        Ok(Json(Keyset { items: items.collect::<Result<_, ServiceError>>()?, next_page_token: next }))
    })
    .await
}

/// Start a task
///
/// One task of a kind works at a time, others wait. A task that waits already to do exactly this is returned instead.
#[utoipa::path(post, path = "/tasks", tag = "tasks", request_body = StartTask,
    responses((status = 201, description = "The task", body = Task)))]
pub(super) async fn start(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Body(wanted): Body<StartTask>,
) -> Result<(StatusCode, Json<Task>), ServiceError> {
    app.blocking(move |app| {
        let options = Value::Object(wanted.options).to_string();
        let task = app.start_task(wanted.kind, &options, &caller.token.name)?;
        Ok((StatusCode::CREATED, Json(told((task, Vec::new())))))
    })
    .await
}

/// A task and its log
///
/// While it works, `progress`, `figures` and `log` change; the event `changed` of `/activity/events` says when.
#[utoipa::path(get, path = "/tasks/{id}", tag = "tasks",
    params(("id" = String, Path, description = "The task's id"), LogQuery),
    responses((status = 200, description = "The task", body = Task)))]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    At(id): At<String>,
    Params(query): Params<LogQuery>,
) -> Result<Json<Task>, ServiceError> {
    let lines = limit("log_lines", query.log_lines, LOG_LINES)?;
    app.blocking(move |app| Ok(Json(told(app.tasks.get(task_id(&id)?, lines as usize)?)))).await
}

/// Pause a task
///
/// It stays where it is until it is resumed, also over a restart of the server.
#[utoipa::path(post, path = "/tasks/{id}/pause", tag = "tasks", params(("id" = String, Path, description = "The task's id")),
    responses((status = 200, description = "The task", body = Task)))]
pub(super) async fn pause(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(id): At<String>,
) -> Result<Json<Task>, ServiceError> {
    app.blocking(move |app| now(app, app.tasks.pause(task_id(&id)?, &caller.token.name)?)).await
}

/// Resume a task
///
/// It goes on where it was, as far as its kind can: a round of reclaim that was paused for more than ten minutes, or over a
/// restart, begins again with what is left.
#[utoipa::path(post, path = "/tasks/{id}/resume", tag = "tasks", params(("id" = String, Path, description = "The task's id")),
    responses((status = 200, description = "The task", body = Task)))]
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(id): At<String>,
) -> Result<Json<Task>, ServiceError> {
    app.blocking(move |app| now(app, app.tasks.resume(task_id(&id)?, &caller.token.name)?)).await
}

/// Cancel a task
///
/// One that works ends as soon as it can, and is `running` until then. What it has done stays done.
#[utoipa::path(post, path = "/tasks/{id}/cancel", tag = "tasks", params(("id" = String, Path, description = "The task's id")),
    responses((status = 200, description = "The task", body = Task)))]
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(id): At<String>,
) -> Result<Json<Task>, ServiceError> {
    app.blocking(move |app| now(app, app.tasks.cancel(task_id(&id)?, &caller.token.name)?)).await
}

pub(super) fn task_id(text: &str) -> Result<TaskId, ServiceError> {
    id("task", text)
}

fn now(app: &App, task: TaskRecord) -> Result<Json<Task>, ServiceError> {
    let found = app.tasks.get(task.id, LIST_LINES);
    Ok(Json(told(found.unwrap_or((task, Vec::new())))))
}

/// The kind of that word.
pub(super) fn kind_of(text: &str) -> Result<TaskKind, ServiceError> {
    text.parse().map_err(|error: NotATaskKind| ServiceError::invalid(error.to_string()))
}
