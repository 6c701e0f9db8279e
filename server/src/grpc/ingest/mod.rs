//! One disk coming in: a task reads messages off the line, a thread that may block hands them to the engine, and a
//! queue between them bounds both their number and their bytes.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | the stream from its first message to its end |
//! | `queue` | the task that reads the line |
//! | `lane`, `lanes` | further connections of the same stream: one of them; which there are, and how many there may be |
//! | `intake`, `merge` | where the stream's own messages and those of its lanes become one queue, in their order |
//! | `worker` | the thread that hands messages to the engine and sends its answers |
//!
//! A disk whose turn it is not yet waits before its second message is read: it costs its connection and a task.
//!
//! When the engine is behind, the queue fills, the task stops reading, and HTTP/2 stops the agent. A stream that
//! ends because its line did leaves its session as it is, for the agent to open it again. A message that the engine
//! could not handle ends the session: nothing can come of it any more, and the agent may start another at once. So does
//! a panic in the engine, because the state is then unknown.

mod intake;
mod lane;
mod lanes;
mod merge;
mod queue;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::sync::mpsc as blocking;

use holdfast_engine::ids::SessionId;
use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::ingest_response::Kind as Answer;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tracing::{Instrument as _, Span};

use super::bounds::{INGEST_ANSWERS, OPEN_TIMEOUT};
use super::call::{note_late_refusal, own_session, queued, shown};
use super::calls::Call;
use crate::activity::Change;
use crate::activity::streams::{StreamGuard, Subject};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::metrics::BackupEnd;
use intake::{Intake, Item};
use lanes::Offer;
use queue::{line_error, pump};
use worker::{Disk, work};

pub(super) use lane::lane;
pub(super) use lanes::Lanes;

type Answers = mpsc::Sender<Result<v1::IngestResponse, Status>>;

/// Answers to what `messages` brings.
pub(super) fn stream(
    app: Arc<App>,
    lanes: Arc<Lanes>,
    (caller, call): (Caller, Option<Call>),
    guard: StreamGuard,
    messages: Streaming<v1::IngestRequest>,
) -> ReceiverStream<Result<v1::IngestResponse, Status>> {
    let (answers, receiver) = mpsc::channel(INGEST_ANSWERS);
    // In a task of its own: an agent may wait for the answer's headers before it sends anything.
    let run = async move {
        if let Err(error) = run(app, lanes, (caller, call), guard, messages, answers.clone()).await {
            // The agent may be gone.
            let _ = answers.send(Err(error.into_status())).await;
        }
    };
    tokio::spawn(run.instrument(Span::current()));
    ReceiverStream::new(receiver)
}

async fn run(
    app: Arc<App>,
    lanes: Arc<Lanes>,
    (caller, call): (Caller, Option<Call>),
    guard: StreamGuard,
    mut messages: Streaming<v1::IngestRequest>,
    answers: Answers,
) -> Result<(), ServiceError> {
    let open = first_message(&guard, &mut messages).await?;
    let span = tracing::info_span!("disk", session = shown::<SessionId>(&open.session_id), disk = open.disk);
    async {
        let (number, token) = (open.disk, caller.token.id);
        let (session, guard) = app
            .blocking(move |app| {
                let session = own_session(app, &caller, &open.session_id)
                    .inspect_err(|error| note_late_refusal(app, &caller, call, error))?;
                let namespace = app.engine.session_namespace(session)?;
                guard.enter(namespace, Subject::Session(session), open.takes_queued)?;
                Ok((session, guard))
            })
            .await?;
        if !wait_for_turn(&app, &guard, session, &answers).await? {
            return Ok(());
        }
        let disk = app.blocking(move |app| Ok(app.engine.open_stream(session, number)?)).await?;
        let disk = disk.taking_pending(open.takes_pending);
        let (intake, items) = Intake::new();
        let host = lanes.host(session, number, token, Arc::clone(&intake));
        let arrivals = Arrivals { intake, items, offer: host.offer() };
        match carry(disk, guard, messages, answers, arrivals).await {
            Ok(ended) => {
                if ended.is_err() {
                    // Before the agent is told: it may start again at once, and must not find its VM busy.
                    end_failed(&app, session).await;
                }
                ended
            }
            Err(panic) => {
                abort(&app, session).await;
                Err(panic.into())
            }
        }
    }
    .instrument(span)
    .await
}

/// Waits until the stream has a slot; meanwhile tells the agent its place, and the engine that the wait is ours. False:
/// the agent went away.
async fn wait_for_turn(
    app: &App,
    guard: &StreamGuard,
    session: SessionId,
    answers: &Answers,
) -> Result<bool, ServiceError> {
    let tell = |ahead| {
        // Takes the lock of the table of sessions for a moment, never for as long as a disk does.
        app.engine.waits_for_turn(session)?;
        let queued = v1::IngestResponse { kind: Some(Answer::Queued(queued(ahead))) };
        // An agent that does not read needs no more of them.
        drop(answers.try_send(Ok(queued)));
        Ok(())
    };
    tokio::select! {
        () = answers.closed() => Ok(false),
        waited = guard.wait(tell) => waited.map(|()| true),
    }
}

async fn first_message(
    guard: &StreamGuard,
    messages: &mut Streaming<v1::IngestRequest>,
) -> Result<v1::OpenStream, ServiceError> {
    let mut stopped = guard.stopped();
    let first = tokio::select! {
        () = stopped.wait() => {
            guard.check()?;
            None
        }
        first = tokio::time::timeout(OPEN_TIMEOUT, messages.message()) => match first {
            Ok(first) => first.map_err(|status| line_error(&status))?,
            Err(_) => {
                return Err(ServiceError::invalid(format!("no Open came within {} s", OPEN_TIMEOUT.as_secs())));
            }
        },
    };
    match first.and_then(|message| message.kind) {
        Some(Kind::Open(open)) => Ok(open),
        _ => Err(ServiceError::invalid("the first message of a disk must be Open")),
    }
}

/// How messages come to the engine.
struct Arrivals {
    intake: Arc<Intake>,
    items: blocking::Receiver<Item>,
    offer: Offer,
}

/// Carries messages to the disk and its answers back until either end is done. The outer error is a panic.
async fn carry(
    disk: impl Disk,
    guard: StreamGuard,
    messages: impl Stream<Item = Result<v1::IngestRequest, Status>> + Send + Unpin + 'static,
    answers: Answers,
    arrivals: Arrivals,
) -> Result<Result<(), ServiceError>, JoinError> {
    let Arrivals { intake, items, offer } = arrivals;
    let stopped = guard.stopped();
    let pump = tokio::spawn(async move { pump(messages, &intake, stopped).await }.in_current_span());
    let span = Span::current();
    let worker = move || span.in_scope(|| work(&disk, &guard, &items, &answers, offer));
    let ended = tokio::task::spawn_blocking(worker).await;
    pump.abort();
    ended
}

/// Ends the session if the engine cannot go on with it; one whose agent went away stays.
async fn end_failed(app: &Arc<App>, session: SessionId) {
    let ended = app
        .blocking(move |app| {
            if app.engine.end_failed(session)? {
                app.metrics.backup_ended(session, BackupEnd::Aborted);
                app.activity.sessions.ended(session);
                app.activity.note(Change::Run);
            }
            Ok(())
        })
        .await;
    if let Err(error) = ended {
        tracing::error!(%session, %error, "cannot end a session that failed");
    }
}

async fn abort(app: &Arc<App>, session: SessionId) {
    tracing::error!(%session, "an internal error ended the stream; aborting the session");
    let ended = app
        .blocking(move |app| {
            app.activity.sessions.ended(session);
            Ok(app.engine.abort(session, "the server failed with an internal error")?)
        })
        .await;
    if let Err(error) = ended {
        tracing::error!(%session, %error, "cannot abort the session");
    }
}
