//! Backups in progress, asked for once or watched.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use holdfast_engine::LiveDisk;
use holdfast_engine::catalog::token::Action;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::ToSchema;

use super::wire::time;
use crate::activity::Changes;
use crate::activity::watch::{self, Snapshot, Watched, Watcher};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::limits::READ_DEADLINE;

/// Keeps proxies from closing a stream without events.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// Delay before a browser connects again.
const RETRY_MS: u32 = 2000;

/// Backups in progress
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ActivityList)]
pub(super) struct ActivityNow {
    now: String,
    /// Oldest first
    sessions: Vec<Activity>,
    /// Restores that wait for their turn, the next one first
    waiting_restores: Vec<WaitingRestore>,
}

/// A restore that waits for its turn: the server has as many under way as it allows
#[derive(Debug, Serialize, ToSchema)]
struct WaitingRestore {
    namespace: String,
    vm: String,
    disk: String,
    /// Id of the restore point
    backup: String,
    /// How many streams get their turn before
    ahead: u64,
}

/// A backup in progress
#[derive(Debug, Serialize, ToSchema)]
struct Activity {
    session: String,
    /// Id of the restore point it will become
    backup: String,
    run: String,
    namespace: String,
    vm: String,
    job: String,
    /// Name of the host that the agent runs on
    host: String,
    started: String,
    /// When the agent last sent a heartbeat or data
    last_seen: String,
    /// Size of all its disks
    bytes_total: u64,
    /// How much of that is done, zeros included
    bytes_done: u64,
    bytes_per_second: u64,
    /// null: not known yet
    eta_seconds: Option<u64>,
    /// While a disk waits for its turn, how many streams get theirs before; null: none waits
    ahead: Option<u64>,
    disks: Vec<ActivityDisk>,
}

/// A disk of a backup in progress; bytes as in compression details, so far
#[derive(Debug, Serialize, ToSchema)]
struct ActivityDisk {
    name: String,
    size_bytes: u64,
    done_bytes: u64,
    unchanged_bytes: u64,
    dup_bytes: u64,
    new_bytes: u64,
    wire_bytes: u64,
    stored_bytes: u64,
    finished: bool,
}

impl From<&LiveDisk> for ActivityDisk {
    fn from(disk: &LiveDisk) -> Self {
        Self {
            name: disk.name.clone(),
            size_bytes: disk.size_bytes,
            done_bytes: disk.done_bytes,
            unchanged_bytes: disk.unchanged_bytes,
            dup_bytes: disk.dup_bytes,
            new_bytes: disk.new_bytes,
            wire_bytes: disk.wire_bytes,
            stored_bytes: disk.stored_bytes,
            finished: disk.finished,
        }
    }
}

impl From<&watch::WaitingRestore> for WaitingRestore {
    fn from(restore: &watch::WaitingRestore) -> Self {
        Self {
            namespace: restore.namespace_name.clone(),
            vm: restore.vm.clone(),
            disk: restore.disk.clone(),
            backup: restore.backup.to_string(),
            ahead: restore.ahead as u64,
        }
    }
}

impl From<&Watched> for Activity {
    fn from(watched: &Watched) -> Self {
        let session = &watched.session;
        let bytes_total: u64 = session.disks.iter().map(|disk| disk.size_bytes).sum();
        Self {
            session: session.session.to_string(),
            backup: session.backup.to_string(),
            run: session.run.to_string(),
            namespace: session.namespace_name.clone(),
            vm: session.vm.clone(),
            job: session.job.clone(),
            host: session.host.clone(),
            started: time(session.started_ms),
            last_seen: time(session.last_seen_ms),
            bytes_total,
            bytes_done: watched.bytes_done,
            bytes_per_second: whole(watched.bytes_per_second),
            eta_seconds: eta(bytes_total.saturating_sub(watched.bytes_done), watched.bytes_per_second),
            ahead: watched.ahead.map(|ahead| ahead as u64),
            disks: session.disks.iter().map(ActivityDisk::from).collect(),
        }
    }
}

/// Lists that have changed: `data` of the event `changed` of `/activity/events`
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Changed {
    what: Vec<Subject>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChangedSubject)]
#[serde(rename_all = "snake_case")]
enum Subject {
    Details,
    Backups,
    Tokens,
    Tasks,
    Policies,
}

/// Seconds for what is left at that rate; `None` beyond ten days.
fn eta(left: u64, per_second: f64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "a guess for people")]
    let seconds = left as f64 / per_second;
    (seconds.is_finite() && seconds <= 10.0 * 86_400.0).then(|| whole(seconds.ceil()))
}

fn whole(number: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate, not negative; `as` saturates"
    )]
    let whole = number as u64;
    whole
}

fn visible(app: &App, caller: &Caller, snapshot: &Snapshot) -> ActivityNow {
    let may_see = |namespace| caller.may(Action::Report, namespace);
    let mine = snapshot.backups.iter().filter(|watched| may_see(watched.session.namespace));
    let restores = snapshot.waiting_restores.iter().filter(|restore| may_see(restore.namespace));
    ActivityNow {
        now: time(app.clock.now_ms()),
        sessions: mine.map(Activity::from).collect(),
        waiting_restores: restores.map(WaitingRestore::from).collect(),
    }
}

/// Backups in progress
#[utoipa::path(get, path = "/activity", tag = "activity",
    responses((status = 200, description = "The backups in progress", body = ActivityNow)))]
pub(super) async fn now(State(app): State<Arc<App>>, Identity { caller, .. }: Identity) -> Json<ActivityNow> {
    Json(visible(&app, &caller, &app.activity.watchers.snapshot()))
}

/// Watch backups in progress
///
/// Server-sent events. `activity`: the answer of GET /activity, at once and then whenever it changes, at most once a
/// second. `changed`: `{"what":["details","backups","tokens","tasks","policies"]}`, the lists that have changed. The stream ends
/// with the token or login, and when the server stops. A token may have at most 16 streams.
#[utoipa::path(get, path = "/activity/events", tag = "activity",
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream"),
        (status = 429, description = "Too many streams, of this token or in total", body = holdfast_proto::api::Problem,
            content_type = "application/problem+json")))]
pub(super) async fn events(
    State(app): State<Arc<App>>,
    identity: Identity,
) -> Result<Response, ServiceError> {
    let watcher = app.activity.watchers.watch(identity.credential())?;
    let (events, body) = mpsc::channel(1);
    tokio::spawn(send_events(app, identity.caller, watcher, events));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // Without it nginx would buffer the events.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(ReceiverStream::new(body))).into_response())
}

/// An event's text. An error breaks the connection.
type Event = Result<Bytes, ServiceError>;

async fn send_events(app: Arc<App>, caller: Caller, mut watcher: Watcher, events: mpsc::Sender<Event>) {
    let mut comments = tokio::time::interval(COMMENT_INTERVAL);
    comments.reset();
    let mut seen = *watcher.changes.borrow_and_update();
    let first = watcher.snapshots.borrow_and_update().clone();
    let mut next = activity(&app, &caller, &first, &format!("retry: {RETRY_MS}\n"));
    loop {
        let failed = next.is_err();
        // A reader that takes no event for this long is gone.
        if events.send_timeout(next, READ_DEADLINE).await.is_err() || failed {
            return;
        }
        next = tokio::select! {
            _ = watcher.stop.wait_for(|stop| *stop) => return,
            () = events.closed() => return,
            changed = watcher.snapshots.changed() => {
                if changed.is_err() {
                    return;
                }
                let snapshot = watcher.snapshots.borrow_and_update().clone();
                activity(&app, &caller, &snapshot, "")
            }
            changed = watcher.changes.changed() => {
                if changed.is_err() {
                    return;
                }
                let before = std::mem::replace(&mut seen, *watcher.changes.borrow_and_update());
                event("changed", &changes_between(before, seen), "")
            }
            _ = comments.tick() => Ok(Bytes::from_static(b":\n\n")),
        };
    }
}

fn activity(app: &App, caller: &Caller, snapshot: &Snapshot, before: &str) -> Event {
    event("activity", &visible(app, caller, snapshot), before)
}

/// An event, after the lines in `before`. Compact JSON has no line breaks, so it is one `data` line.
fn event(name: &str, data: &impl Serialize, before: &str) -> Event {
    let data = serde_json::to_string(data)
        .map_err(|error| ServiceError::defect(format!("event {name} has no JSON form: {error}")))?;
    Ok(format!("{before}event: {name}\ndata: {data}\n\n").into())
}

fn changes_between(before: Changes, now: Changes) -> Changed {
    let subjects = [
        (Subject::Details, before.details != now.details),
        (Subject::Backups, before.backups != now.backups),
        (Subject::Tokens, before.tokens != now.tokens),
        (Subject::Tasks, before.tasks != now.tasks),
        (Subject::Policies, before.policies != now.policies),
    ];
    Changed {
        what: subjects.into_iter().filter(|(_, changed)| *changed).map(|(subject, _)| subject).collect(),
    }
}
