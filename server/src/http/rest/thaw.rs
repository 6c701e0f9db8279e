//! What of a restore point lies in the archive, what bringing it back costs, and doing it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use holdfast_engine::ids::BackupId;
use holdfast_proto::v1;
use holdfast_tiers::prices::Dollars;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::tasks::Task;
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::query::{At, Body, Params, id, name};
use crate::reading::{self, Wanted};

/// For which a walk over recipes may go on: an answer must begin within 30 s.
const AT_MOST: Duration = Duration::from_secs(20);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ThawQuery {
    /// One disk [default: all]
    disk: Option<String>,
    /// For which what is thawed can be read [default: s3_thaw_days]
    days: Option<u32>,
}

/// What of a restore point lies in the archive, and what bringing it back takes
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Thaw {
    /// What has to be thawed before it can be restored; 0: nothing
    objects: u64,
    bytes: u64,
    /// What was asked for and is not there yet
    objects_under_way: u64,
    bytes_under_way: u64,
    /// What lies in the archive and was thawed, so that it can be read for now
    objects_readable: u64,
    bytes_readable: u64,
    /// Storage classes of what has to be thawed
    classes: Vec<String>,
    /// For which it can be read then
    days: u32,
    /// The cheapest first; none where nothing has to be thawed
    offers: Vec<ThawOffer>,
    /// Where the prices are from, and since when
    region: String,
    as_of: String,
    /// The task that thaws something of this restore point; null: none does
    task: Option<Task>,
}

/// A way to thaw it
#[derive(Debug, Serialize, ToSchema)]
struct ThawOffer {
    /// bulk, standard or expedited
    speed: String,
    /// Within which it can be read, as a rule
    hours: u32,
    /// In US dollars, lines that may not apply left out
    cost: f64,
    lines: Vec<ThawLine>,
}

/// A line of an offer
#[derive(Debug, Serialize, ToSchema)]
struct ThawLine {
    what: String,
    /// In US dollars
    cost: f64,
    /// Whether it is not in the sum, because it may not apply
    extra: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StartThaw {
    /// bulk, standard or expedited
    speed: String,
    /// For which what is thawed can be read; left out: as the settings say
    #[serde(default)]
    days: u32,
    /// Left out: all disks
    #[serde(default)]
    disks: Vec<String>,
}

/// What of a restore point lies in the archive
///
/// With what bringing it back costs at each speed. Where looking that up takes longer than 20 seconds it is refused; 'holdfast
/// restore' waits for it. Nothing is asked of the bucket.
#[utoipa::path(get, path = "/backups/{id}/thaw", tag = "backups",
    params(("id" = String, Path, description = "The restore point's id"), ThawQuery),
    responses((status = 200, description = "What thawing it takes", body = Thaw)))]
pub(super) async fn quote(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
    Params(query): Params<ThawQuery>,
) -> Result<Json<Thaw>, ServiceError> {
    app.blocking(move |app| {
        let backup: BackupId = id("backup", &text)?;
        let disks = name("disk", query.disk)?.into_iter().collect();
        let wanted = Wanted { backup, disks, days: query.days.unwrap_or(0) };
        let quote = reading::quote_thaw(app, &caller, &wanted, AT_MOST)?;
        let task = reading::task_of(app, &caller, backup)?;
        Ok(Json(described(quote, task.map(Task::of))))
    })
    .await
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
        let told = reading::start_thaw(app, &caller, wanted, speed)?;
        Ok((StatusCode::CREATED, Json(Task::of(told))))
    })
    .await
}

fn described(quote: v1::ThawQuote, task: Option<Task>) -> Thaw {
    Thaw {
        objects: quote.objects,
        bytes: quote.bytes,
        objects_under_way: quote.objects_under_way,
        bytes_under_way: quote.bytes_under_way,
        objects_readable: quote.objects_readable,
        bytes_readable: quote.bytes_readable,
        classes: quote.classes,
        days: quote.days,
        offers: quote.offers.into_iter().map(offer).collect(),
        region: quote.region,
        as_of: quote.as_of,
        task,
    }
}

fn offer(offer: v1::ThawOffer) -> ThawOffer {
    let line = |line: v1::ThawCost| ThawLine {
        what: line.what,
        cost: Dollars(line.nanodollars).as_f64(),
        extra: line.is_extra,
    };
    ThawOffer {
        speed: offer.speed,
        hours: offer.hours,
        cost: Dollars(offer.nanodollars).as_f64(),
        lines: offer.lines.into_iter().map(line).collect(),
    }
}
