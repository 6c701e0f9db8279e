//! One disk coming in: a task reads messages off the line, a thread that may block hands them to the engine, and a
//! queue between them bounds both their number and their bytes.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | the stream from its first message to its end |
//! | `queue` | the task that reads the line; the thread that hands its messages to the engine |
//! | `lanes` | further connections of the same stream: which there are, how many there may be, and one of them |
//! | `intake` | where the stream's own messages and those of its lanes become one queue, in their order |
//!
//! A disk whose turn it is not yet waits before its second message is read: it costs its connection and a task.
//!
//! When the engine is behind, the queue fills, the task stops reading, and HTTP/2 stops the agent. A stream that
//! ends because its line did leaves its session as it is, for the agent to open it again. A message that the engine
//! could not handle ends the session: nothing can come of it any more, and the agent may start another at once. So does
//! a panic in the engine, because the state is then unknown.

mod intake;
mod lanes;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::sync::{Arc, mpsc as blocking};
use std::time::Duration;

use holdfast_engine::DiskStream;
use holdfast_engine::ids::SessionId;
use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::ingest_response::{self, Kind as Answer};
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tracing::{Instrument as _, Span};

use crate::activity::streams::{StreamGuard, Subject};
use crate::activity::{Change, worth};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::grpc::bounds::{IDLE_INTERVAL, INGEST_ANSWERS, OPEN_TIMEOUT};
use crate::grpc::call::{note_late_refusal, own_session, queued, shown};
use crate::grpc::calls::Call;
use crate::grpc::ingest::intake::{Intake, Item, Message};
use crate::grpc::ingest::lanes::Offer;
pub(super) use crate::grpc::ingest::lanes::{Lanes, lane};
pub(super) use crate::grpc::ingest::queue::line_error;
use crate::grpc::ingest::queue::pump;
use crate::grpc::outgoing::hand_over;
use crate::metrics::BackupEnd;

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

/// Messages on their way to the engine.
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

/// The engine's side of a disk coming in, as far as this module needs it; tests have one of their own.
trait Disk: Send + 'static {
    fn opened(&self) -> Result<v1::StreamOpened, ServiceError>;
    fn handle(&self, kind: Kind, wire_bytes: u64) -> Result<Option<v1::IngestResponse>, ServiceError>;
    fn idle(&self) -> Result<Option<v1::IngestResponse>, ServiceError>;
    /// See [`DiskStream::wait_for_others`].
    fn wait_for_others(&self, timeout: Duration) -> bool;
}

impl Disk for DiskStream {
    fn opened(&self) -> Result<v1::StreamOpened, ServiceError> {
        Ok(Self::opened(self)?)
    }

    fn handle(&self, kind: Kind, wire_bytes: u64) -> Result<Option<v1::IngestResponse>, ServiceError> {
        Ok(Self::handle(self, kind, wire_bytes)?)
    }

    fn idle(&self) -> Result<Option<v1::IngestResponse>, ServiceError> {
        Ok(Self::idle(self)?)
    }

    fn wait_for_others(&self, timeout: Duration) -> bool {
        Self::wait_for_others(self, timeout)
    }
}

/// Progress that a message brings, in bytes. A query brings none.
fn worth_of(kind: &Kind, wire_bytes: u64) -> u64 {
    match kind {
        Kind::Extents(v1::Extents { unchanged, zero, chunked }) => {
            let count = |sum: u64, range: &v1::ExtentRange| sum.saturating_add(range.count);
            worth(unchanged.iter().chain(zero).fold(chunked.len() as u64, count), wire_bytes)
        }
        Kind::Region(_) => wire_bytes,
        _ => 0,
    }
}

/// Hands messages to the engine until the disk is finished, the line ends, or the stream must end.
fn work(
    disk: &impl Disk,
    guard: &StreamGuard,
    items: &blocking::Receiver<Item>,
    answers: &Answers,
    offer: Offer,
) -> Result<(), ServiceError> {
    let Offer { lanes_max, stream } = offer;
    let opened = v1::StreamOpened { lanes_max, stream, ..disk.opened()? };
    let mut answer = Some(v1::IngestResponse { kind: Some(ingest_response::Kind::Opened(opened)) });
    loop {
        if let Some(answer) = answer.take() {
            let finished = matches!(answer.kind, Some(ingest_response::Kind::Finished(_)));
            if !hand_over(guard, answers, answer)? || finished {
                return Ok(());
            }
        }
        guard.check()?;
        let item = match items.try_recv() {
            Err(TryRecvError::Empty) => {
                answer = disk.idle()?;
                // An agent that waits for Finish says nothing meanwhile.
                if answer.is_some() || guard.working(|| disk.wait_for_others(IDLE_INTERVAL)) {
                    continue;
                }
                match items.recv_timeout(IDLE_INTERVAL) {
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => None,
                    Ok(item) => Some(item),
                }
            }
            Err(TryRecvError::Disconnected) => None,
            Ok(item) => Some(item),
        };
        match item {
            Some(Item::Message(Message { kind, wire_bytes, room }, in_hand)) => {
                let moved = worth_of(&kind, wire_bytes);
                answer = guard.working(|| disk.handle(kind, wire_bytes))?;
                guard.moved(moved);
                drop((room, in_hand));
            }
            Some(Item::Failed(error)) => return Err(error),
            None => {
                guard.check()?;
                return Err(ServiceError::invalid("the agent ended the disk without Finish"));
            }
        }
    }
}
