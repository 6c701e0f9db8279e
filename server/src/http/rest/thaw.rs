//! Data of restore points in the archive, the cost of thawing it, and thawing it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use holdfast_engine::ids::BackupId;
use holdfast_proto::api::{Line, StartThaw, Task, Thaw};
use serde::Deserialize;
use utoipa::IntoParams;

use super::tasks::{task_id, told};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::query::{AsLines, At, Body, Params, id, name};
use crate::http::{HttpState, ndjson};
use crate::reading::{self, Wanted};

/// Longest time for a walk over recipes: an answer must begin within 30 s.
const AT_MOST: Duration = Duration::from_secs(20);

/// Limit of a walk whose answer has begun: over 10 TB it takes minutes.
const AT_MOST_WAITING: Duration = Duration::from_secs(30 * 60);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ThawQuery {
    /// One disk [default: all]
    disk: Option<String>,
    /// For which what is thawed can be read [default: s3_thaw_days]
    days: Option<u32>,
}

/// What of a restore point lies in the archive
///
/// With what bringing it back costs at each speed. Where looking that up takes longer than 20 seconds it is refused, unless it may
/// be a line of NDJSON: that takes as long as it takes. Nothing is asked of the bucket.
#[utoipa::path(get, path = "/backups/{id}/thaw", tag = "backups",
    params(("id" = String, Path, description = "The restore point's id"), ThawQuery),
    responses((status = 200, description = "What thawing it takes",
        content((Thaw = "application/json"), (Line<Thaw> = "application/x-ndjson")))))]
pub(super) async fn quote(
    State(state): State<HttpState>,
    identity: Identity,
    At(text): At<String>,
    Params(query): Params<ThawQuery>,
    as_lines: AsLines,
) -> Result<Response, ServiceError> {
    let backup: BackupId = id("backup", &text)?;
    let disks = name("disk", query.disk)?.into_iter().collect();
    let wanted = Wanted { backup, disks, days: query.days.unwrap_or(0) };
    let caller = identity.caller.clone();
    ndjson::one(&state, &identity, (as_lines, ndjson::Takes::Turn), move |app, lines| {
        let at_most = if lines.is_some() { AT_MOST_WAITING } else { AT_MOST };
        quoted(app, &caller, &wanted, at_most, &|| !lines.is_some_and(ndjson::Lines::is_over))
    })
    .await
}

fn quoted(
    app: &App,
    caller: &Caller,
    wanted: &Wanted,
    at_most: Duration,
    go_on: &dyn Fn() -> bool,
) -> Result<Thaw, ServiceError> {
    let quote = reading::quote_thaw(app, caller, wanted, at_most, go_on)?;
    let task = reading::task_of(app, caller, wanted.backup)?;
    Ok(Thaw { task: task.map(told), ..quote })
}

/// Thaw a restore point
///
/// Starts a task that asks for what has to be thawed, and waits until it can be read; what was asked for before is not asked for
/// again. It costs what the offer of that speed says, and cannot be taken back. A task that does the same already is returned
/// instead.
#[utoipa::path(post, path = "/backups/{id}/thaw", tag = "backups",
    params(("id" = String, Path, description = "The restore point's id")), request_body = StartThaw,
    responses((status = 201, description = "The task", body = Task)))]
pub(super) async fn start(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
    Body(wanted): Body<StartThaw>,
) -> Result<(StatusCode, Json<Task>), ServiceError> {
    app.blocking(move |app| {
        let StartThaw { speed, days, disks } = wanted;
        let wanted = Wanted { backup: id("backup", &text)?, disks, days };
        let started = reading::start_thaw(app, &caller, wanted, speed)?;
        Ok((StatusCode::CREATED, Json(told(started))))
    })
    .await
}

/// A task that thaws a restore point
///
/// Shown to every token that may restore it, also once the task has ended.
#[utoipa::path(get, path = "/backups/{id}/thaw/{task}", tag = "backups",
    params(("id" = String, Path, description = "The restore point's id"), ("task" = String, Path, description = "The task's id")),
    responses((status = 200, description = "The task", body = Task)))]
pub(super) async fn task(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At((text, task)): At<(String, String)>,
) -> Result<Json<Task>, ServiceError> {
    app.blocking(move |app| {
        let found = reading::get_thaw(app, &caller, id("backup", &text)?, task_id(&task)?)?;
        Ok(Json(told(found)))
    })
    .await
}
