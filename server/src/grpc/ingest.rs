//! One disk coming in: an async task reads messages off the line, a thread that may block hands them to the
//! engine, and a queue between them bounds both their number and their bytes.
//!
//! The engine blocks when it is behind, then the queue fills, then the task stops reading, then HTTP/2 stops
//! the agent. A stream that ends for whatever reason leaves its session as it is, for the agent to reopen;
//! only a panic in the engine ends the session, because nobody knows what state it is in.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{self as blocking, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use holdfast_engine::DiskStream;
use holdfast_engine::ids::SessionId;
use holdfast_proto::limits::MESSAGE_MAX_BYTES;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::{self, ingest_response};
use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinError;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Status, Streaming};
use tracing::{Instrument as _, Span};

use super::call::{own_session, shown};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::streams::StreamGuard;

/// Bytes of messages waiting for the engine at most: one of the largest kind.
const QUEUE_BYTES: usize = MESSAGE_MAX_BYTES;
/// Messages waiting at most. Every message takes at least this part of the queue.
const QUEUE_MESSAGES: usize = 8;
/// Answers waiting for the line at most (each a bitmap or a counter, under 1 KiB).
const ANSWERS: usize = 16;
/// How long an agent may take to say which disk it sends.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the engine may report progress while no message comes.
const IDLE_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes gRPC puts before each message.
const GRPC_HEADER_BYTES: usize = 5;

type Answers = mpsc::Sender<Result<v1::IngestResponse, Status>>;

/// What goes from the line to the engine.
enum Item {
    Message {
        kind: Kind,
        wire_bytes: u64,
        /// Given back when the engine is done with the message.
        place: OwnedSemaphorePermit,
    },
    /// The line failed, or sent something that is no message.
    Failed(ServiceError),
}

/// Answers to what `messages` brings.
pub(super) fn stream(
    app: Arc<App>,
    caller: Caller,
    guard: StreamGuard,
    messages: Streaming<v1::IngestRequest>,
) -> ReceiverStream<Result<v1::IngestResponse, Status>> {
    let (answers, receiver) = mpsc::channel(ANSWERS);
    // In a task of its own: an agent may wait for the answer's headers before it sends anything.
    let run = async move {
        if let Err(error) = run(app, caller, guard, messages, answers.clone()).await {
            // The agent may be gone.
            let _ = answers.send(Err(error.into_status())).await;
        }
    };
    tokio::spawn(run.instrument(Span::current()));
    ReceiverStream::new(receiver)
}

async fn run(
    app: Arc<App>,
    caller: Caller,
    guard: StreamGuard,
    mut messages: Streaming<v1::IngestRequest>,
    answers: Answers,
) -> Result<(), ServiceError> {
    let open = first_message(&guard, &mut messages).await?;
    let span = tracing::info_span!("disk", session = shown::<SessionId>(&open.session_id), disk = open.disk);
    async {
        let (session, disk) = app
            .blocking(move |app| {
                let session = own_session(app, &caller, &open.session_id)?;
                Ok((session, app.engine.open_stream(session, open.disk)?))
            })
            .await?;
        match carry(disk, guard, messages, answers).await {
            Ok(ended) => ended,
            Err(panic) => {
                give_up(&app, session).await;
                Err(panic.into())
            }
        }
    }
    .instrument(span)
    .await
}

/// The engine's side of a disk coming in, as far as this module needs it; tests bring one of their own.
trait Disk: Send + 'static {
    fn opened(&self) -> Result<v1::StreamOpened, ServiceError>;
    fn handle(&self, kind: Kind, wire_bytes: u64) -> Result<Option<v1::IngestResponse>, ServiceError>;
    fn idle(&self) -> Result<Option<v1::IngestResponse>, ServiceError>;
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
}

/// Carries messages to the disk and its answers back until either end is done. The outer error is a panic.
async fn carry(
    disk: impl Disk,
    guard: StreamGuard,
    messages: impl Stream<Item = Result<v1::IngestRequest, Status>> + Send + Unpin + 'static,
    answers: Answers,
) -> Result<Result<(), ServiceError>, JoinError> {
    let (queue, items) = blocking::channel();
    let pump = tokio::spawn(pump(messages, queue, guard.stopped()).in_current_span());
    let span = Span::current();
    let worker = move || span.in_scope(|| work(&disk, &guard, &items, &answers));
    let ended = tokio::task::spawn_blocking(worker).await;
    pump.abort();
    ended
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

/// Reads messages off the line into the queue, as fast as places in it become free.
async fn pump(
    mut messages: impl Stream<Item = Result<v1::IngestRequest, Status>> + Unpin,
    queue: blocking::Sender<Item>,
    mut stopped: crate::streams::Stopped,
) {
    let places = Arc::new(Semaphore::new(QUEUE_BYTES));
    loop {
        let message = tokio::select! {
            () = stopped.wait() => return,
            message = messages.next() => message,
        };
        let item = match message {
            None => return,
            Some(Ok(message)) => match enqueue(message, &places).await {
                Ok(item) => item,
                Err(error) => Item::Failed(error),
            },
            Some(Err(status)) => Item::Failed(line_error(&status)),
        };
        let last = matches!(item, Item::Failed(_));
        // The engine's side is gone when it erred or finished.
        if queue.send(item).is_err() || last {
            return;
        }
    }
}

async fn enqueue(message: v1::IngestRequest, places: &Arc<Semaphore>) -> Result<Item, ServiceError> {
    let bytes = message.encoded_len().saturating_add(GRPC_HEADER_BYTES);
    let kind = message.kind.ok_or_else(|| {
        ServiceError::invalid("the message is of a kind this server does not know; update the server")
    })?;
    let cost = bytes.clamp(QUEUE_BYTES / QUEUE_MESSAGES, QUEUE_BYTES);
    let cost = u32::try_from(cost).unwrap_or(u32::MAX);
    let place = Arc::clone(places)
        .acquire_many_owned(cost)
        .await
        .map_err(|error| ServiceError::new(holdfast_proto::ErrorCode::Internal, error.to_string()))?;
    Ok(Item::Message { kind, wire_bytes: u64::try_from(bytes).unwrap_or(u64::MAX), place })
}

/// What tonic says about a message it could not read, in our words where it was the agent's fault.
fn line_error(status: &Status) -> ServiceError {
    use holdfast_proto::ErrorCode;
    match status.code() {
        tonic::Code::OutOfRange | tonic::Code::ResourceExhausted => ServiceError::new(
            ErrorCode::Limit,
            format!("a message is larger than {MESSAGE_MAX_BYTES} bytes: {}", status.message()),
        ),
        tonic::Code::Internal | tonic::Code::InvalidArgument => {
            ServiceError::invalid(format!("a message cannot be read: {}", status.message()))
        }
        _ => {
            ServiceError::new(ErrorCode::Unavailable, format!("the connection failed: {}", status.message()))
        }
    }
}

/// Hands messages to the engine until the disk is finished, the line ends, or the stream must end.
fn work(
    disk: &impl Disk,
    guard: &StreamGuard,
    items: &blocking::Receiver<Item>,
    answers: &Answers,
) -> Result<(), ServiceError> {
    let mut answer = Some(v1::IngestResponse { kind: Some(ingest_response::Kind::Opened(disk.opened()?)) });
    loop {
        if let Some(answer) = answer.take() {
            let finished = matches!(answer.kind, Some(ingest_response::Kind::Finished(_)));
            if answers.blocking_send(Ok(answer)).is_err() || finished {
                return Ok(());
            }
        }
        guard.check()?;
        let item = match items.try_recv() {
            Err(TryRecvError::Empty) => {
                answer = disk.idle()?;
                if answer.is_some() {
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
            Some(Item::Message { kind, wire_bytes, place }) => {
                answer = disk.handle(kind, wire_bytes)?;
                drop(place);
            }
            Some(Item::Failed(error)) => return Err(error),
            None => {
                guard.check()?;
                return Err(ServiceError::invalid("the agent ended the disk without Finish"));
            }
        }
    }
}

async fn give_up(app: &Arc<App>, session: SessionId) {
    tracing::error!(%session, "a defect ended the stream; giving the session up");
    let ended = app
        .blocking(move |app| {
            app.sessions.ended(session);
            Ok(app.engine.abort(session, "the server met a defect in itself")?)
        })
        .await;
    if let Err(error) = ended {
        tracing::error!(%session, %error, "cannot give the session up");
    }
}
