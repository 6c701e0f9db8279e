//! Schedules: when tasks are started by the clock.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::{ScheduleRecord, TaskKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::tasks::{kind_of, object};
use super::wire::{Items, maybe_time};
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::query::{At, Body};
use crate::tasks;

/// When tasks of a kind are started by the clock
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Schedule {
    kind: TaskKind,
    /// Minute, hour, day of the month, month and day of the week
    #[schema(example = "0 6 * * *")]
    expression: String,
    #[schema(example = "Europe/Berlin")]
    time_zone: String,
    enabled: bool,
    /// Of the tasks it starts
    #[schema(value_type = Object)]
    options: Map<String, Value>,
    /// Who set it; null: it is the default
    who: Option<String>,
    /// When it was set; null: it is the default
    updated: Option<String>,
    /// When it comes next; null: it is off
    next: Option<String>,
}

impl From<tasks::Schedule> for Schedule {
    fn from(schedule: tasks::Schedule) -> Self {
        let (who, updated_ms) = schedule.set.unzip();
        Self {
            kind: schedule.kind,
            expression: schedule.expression,
            time_zone: schedule.time_zone,
            enabled: schedule.enabled,
            options: object(&schedule.options),
            who,
            updated: maybe_time(updated_ms),
            next: maybe_time(schedule.next_ms),
        }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetSchedule {
    /// Minute, hour, day of the month, month and day of the week, as cron has them, or @daily and the like
    #[schema(example = "0 6 * * *")]
    expression: String,
    /// A name such as Europe/Berlin; left out: UTC
    #[serde(default)]
    time_zone: Option<String>,
    enabled: bool,
    /// Of the tasks it starts; left out: none
    #[serde(default)]
    #[schema(value_type = Object)]
    options: Map<String, Value>,
}

/// Schedules of the kinds of tasks that have one
///
/// What was due while the server did not run is started once when it does again. Retention policies have schedules of their
/// own.
#[utoipa::path(get, path = "/schedules", tag = "tasks",
    responses((status = 200, description = "The schedules", body = Items<Schedule>)))]
pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<Items<Schedule>>, ServiceError> {
    app.blocking(|app| {
        Ok(Json(Items::whole(app.tasks.schedules()?.into_iter().map(Schedule::from).collect())))
    })
    .await
}

/// Set when tasks of a kind are started
///
/// All of it is set. What would have been due before is not.
#[utoipa::path(put, path = "/schedules/{kind}", tag = "tasks", request_body = SetSchedule,
    params(("kind" = TaskKind, Path, description = "The kind of tasks")),
    responses((status = 200, description = "The schedule", body = Schedule)))]
pub(super) async fn set(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(kind): At<String>,
    Body(wanted): Body<SetSchedule>,
) -> Result<Json<Schedule>, ServiceError> {
    app.blocking(move |app| {
        let schedule = ScheduleRecord {
            kind: kind_of(&kind)?,
            expression: wanted.expression,
            time_zone: wanted.time_zone.filter(|zone| !zone.is_empty()).unwrap_or_else(|| "UTC".to_owned()),
            options: Value::Object(wanted.options).to_string(),
            enabled: wanted.enabled,
            who: caller.token.name.clone(),
            updated_ms: app.clock.now_ms(),
        };
        Ok(Json(app.tasks.set_schedule(schedule)?.into()))
    })
    .await
}
