//! The task that reads messages off the line into the queue, as fast as there is room in it.

use std::sync::Arc;
use std::sync::mpsc as blocking;

use holdfast_proto::ErrorCode;
use holdfast_proto::limits::MESSAGE_MAX_BYTES;
use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use crate::activity::streams::Stopped;
use crate::error::ServiceError;
use crate::grpc::bounds::{INGEST_QUEUE_BYTES, INGEST_QUEUE_MESSAGES};
use crate::limits::INGEST_IDLE;

/// Bytes gRPC puts before each message.
const GRPC_HEADER_BYTES: usize = 5;

/// What goes from the line to the engine.
pub(super) enum Item {
    Message {
        kind: Kind,
        wire_bytes: u64,
        /// Its room in the queue, held until the engine is done with the message.
        room: OwnedSemaphorePermit,
    },
    /// The line failed, or sent something that is not a message.
    Failed(ServiceError),
}

/// Reads `messages` until they end, one of them cannot be read, or the stream must end.
pub(super) async fn pump(
    mut messages: impl Stream<Item = Result<v1::IngestRequest, Status>> + Unpin,
    queue: blocking::Sender<Item>,
    mut stopped: Stopped,
) {
    let room = Arc::new(Semaphore::new(INGEST_QUEUE_BYTES as usize));
    loop {
        let message = tokio::select! {
            () = stopped.wait() => return,
            message = tokio::time::timeout(INGEST_IDLE, messages.next()) => message,
        };
        let item = match message {
            Err(_) => Item::Failed(idle()),
            Ok(None) => return,
            Ok(Some(Ok(message))) => match admit(message, &room).await {
                Ok(item) => item,
                Err(error) => Item::Failed(error),
            },
            Ok(Some(Err(status))) => Item::Failed(line_error(&status)),
        };
        let last = matches!(item, Item::Failed(_));
        // The engine's side is gone when it failed or finished.
        if queue.send(item).is_err() || last {
            return;
        }
    }
}

/// The stream is needed for others. Its session lives on, and the agent may open it again.
fn idle() -> ServiceError {
    let secs = INGEST_IDLE.as_secs();
    let text = format!(
        "no message of the disk came for {secs} s; open its stream again when there is something to send"
    );
    ServiceError::new(ErrorCode::Unavailable, text)
}

/// Waits until there is room for the message.
async fn admit(message: v1::IngestRequest, room: &Arc<Semaphore>) -> Result<Item, ServiceError> {
    let bytes = message.encoded_len().saturating_add(GRPC_HEADER_BYTES);
    let kind = message.kind.ok_or_else(|| {
        ServiceError::invalid("the message is of a kind this server does not know; update the server")
    })?;
    let room = Arc::clone(room)
        .acquire_many_owned(cost(bytes))
        .await
        .map_err(|_| ServiceError::defect("the queue of a disk's messages was closed"))?;
    Ok(Item::Message { kind, wire_bytes: bytes as u64, room })
}

/// How much of the queue a message takes: its bytes, but at least its share by number, and at most all of it. The
/// largest message and its header are a little more than the queue.
fn cost(bytes: usize) -> u32 {
    const COST_MIN: u32 = INGEST_QUEUE_BYTES / INGEST_QUEUE_MESSAGES;
    match u32::try_from(bytes) {
        Ok(bytes) => bytes.clamp(COST_MIN, INGEST_QUEUE_BYTES),
        Err(_) => INGEST_QUEUE_BYTES,
    }
}

/// What tonic says about a message it could not read, in our words where the agent is at fault.
pub(super) fn line_error(status: &Status) -> ServiceError {
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
