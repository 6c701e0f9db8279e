//! Tasks: reclaim, scrub, verification, policy runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use holdfast_engine::catalog::{self, PageRequest, TASK_LINES_MAX, TaskRecord};
use holdfast_engine::ids::TaskId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::wire::{Keyset, maybe_time, time};
use crate::app::App;
use crate::error::ServiceError;
use crate::http;
use crate::http::access::Identity;
use crate::http::bounds::PAGE;
use crate::http::query::{At, Body, Params, id, limit, text};

/// Lines of a task's log in a list.
const LIST_LINES: usize = 5;

/// How much of a task is done
#[derive(Debug, Serialize, ToSchema)]
struct TaskProgress {
    done: u64,
    /// 0: not known
    total: u64,
    /// What is counted; empty: nothing is
    unit: String,
}

/// What a task told
#[derive(Debug, Serialize, ToSchema)]
struct TaskLine {
    number: u64,
    at: String,
    text: String,
}

/// Long work that a person or a schedule started
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Task {
    id: String,
    #[schema(value_type = http::TaskKind, example = "reclaim")]
    kind: &'static str,
    #[schema(value_type = http::TaskStatus, example = "running")]
    status: &'static str,
    /// Name of the token that started it; `schedule` for its schedule
    who: String,
    /// Whether its schedule started it
    scheduled: bool,
    /// As its kind reads them
    #[schema(value_type = Object)]
    options: Map<String, Value>,
    created: String,
    /// null: it waits for another of its kind
    started: Option<String>,
    /// null: it has not ended
    finished: Option<String>,
    /// How often it was begun: more than once after a restart of the server or a long pause
    attempts: u32,
    progress: TaskProgress,
    /// What it has come to, as its kind says it
    #[schema(value_type = Object)]
    figures: Map<String, Value>,
    /// Why it failed; empty when it did not
    error: String,
    /// The newest lines of its log, oldest first: 5 in a list, else up to 1000
    log: Vec<TaskLine>,
}

impl Task {
    pub(super) fn of((task, lines): (TaskRecord, Vec<catalog::TaskLine>)) -> Self {
        let catalog::TaskProgress { done, total, unit } = task.progress;
        let line =
            |line: catalog::TaskLine| TaskLine { number: line.number, at: time(line.at_ms), text: line.text };
        Self {
            id: task.id.to_string(),
            kind: task.kind.word(),
            status: task.status.word(),
            who: task.who,
            scheduled: task.scheduled,
            options: object(&task.options),
            created: time(task.created_ms),
            started: maybe_time(task.started_ms),
            finished: maybe_time(task.finished_ms),
            attempts: task.attempts,
            progress: TaskProgress { done, total, unit },
            figures: object(&task.figures),
            error: task.error,
            log: lines.into_iter().map(line).collect(),
        }
    }
}

/// What a kind wrote as JSON; empty when it wrote nothing.
pub(super) fn object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap_or_default()
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TaskQuery {
    /// Only of this kind
    #[param(value_type = Option<http::TaskKind>)]
    kind: Option<String>,
    /// Items per page: 1 to 1000, 100 unless given
    page_size: Option<u32>,
    /// `next_page_token` of the page before
    page_token: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StartTask {
    /// reclaim, scrub, verify, policy or audit
    #[schema(value_type = http::TaskKind)]
    kind: String,
    /// What exactly to do; left out: all of it
    #[serde(default)]
    #[schema(value_type = Object)]
    options: Map<String, Value>,
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
        let kind = text(query.kind).map(|kind| kind.parse()).transpose()?;
        let token = query.page_token.unwrap_or_default();
        let (tasks, next) = app.tasks.list(kind, PageRequest { size, token: &token })?;
        let items = tasks.into_iter().map(|task| {
            let id = task.id;
            match app.tasks.get(id, LIST_LINES) {
                Ok(found) => Ok(Task::of(found)),
                // Forgotten meanwhile.
                Err(error) if error.code == holdfast_proto::ErrorCode::NotFound => {
                    Ok(Task::of((task, vec![])))
                }
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
        let kind = wanted.kind.parse()?;
        let options = Value::Object(wanted.options).to_string();
        let task = app.start_task(kind, &options, &caller.token.name)?;
        Ok((StatusCode::CREATED, Json(Task::of((task, Vec::new())))))
    })
    .await
}

/// A task and its log
///
/// While it works, `progress`, `figures` and `log` change; the event `changed` of `/activity/events` says when.
#[utoipa::path(get, path = "/tasks/{id}", tag = "tasks", params(("id" = String, Path, description = "The task's id")),
    responses((status = 200, description = "The task", body = Task)))]
pub(super) async fn get(State(app): State<Arc<App>>, At(id): At<String>) -> Result<Json<Task>, ServiceError> {
    app.blocking(move |app| Ok(Json(Task::of(app.tasks.get(task_id(&id)?, TASK_LINES_MAX as usize)?)))).await
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
    app.blocking(move |app| told(app, app.tasks.pause(task_id(&id)?, &caller.token.name)?)).await
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
    app.blocking(move |app| told(app, app.tasks.resume(task_id(&id)?, &caller.token.name)?)).await
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
    app.blocking(move |app| told(app, app.tasks.cancel(task_id(&id)?, &caller.token.name)?)).await
}

fn task_id(text: &str) -> Result<TaskId, ServiceError> {
    id("task", text)
}

fn told(app: &App, task: TaskRecord) -> Result<Json<Task>, ServiceError> {
    let found = app.tasks.get(task.id, LIST_LINES);
    Ok(Json(Task::of(found.unwrap_or((task, Vec::new())))))
}
