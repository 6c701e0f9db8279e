//! The task that reads a stream's messages off the line, as fast as there is room for them.

use holdfast_proto::ErrorCode;
use holdfast_proto::v1;
use prost::Message as _;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use super::intake::{Intake, Message};
use crate::activity::streams::Stopped;
use crate::error::ServiceError;

/// Bytes gRPC puts before each message.
pub(super) const GRPC_HEADER_BYTES: usize = 5;

/// Reads `messages` until they end, one of them cannot be read, or the stream must end.
pub(super) async fn pump(
    mut messages: impl Stream<Item = Result<v1::IngestRequest, Status>> + Unpin,
    intake: &Intake,
    mut stopped: Stopped,
) {
    loop {
        let message = tokio::select! {
            () = stopped.wait() => return,
            idle = intake.idle() => return intake.fail(idle),
            message = messages.next() => message,
        };
        let taken = match message {
            None => break,
            Some(Ok(message)) => tokio::select! {
                () = stopped.wait() => return,
                stuck = intake.stuck() => return intake.fail(stuck),
                taken = admit(message, intake) => taken,
            },
            Some(Err(status)) => Err(line_error(&status)),
        };
        match taken {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return intake.fail(error),
        }
    }
    // Lanes may still bring what belongs before the last message.
    if intake.own_ended() {
        tokio::select! {
            () = stopped.wait() => {}
            idle = intake.idle() => intake.fail(idle),
        }
    }
}

/// Waits until there is room for the message, then hands it on. False: the engine takes no more.
async fn admit(message: v1::IngestRequest, intake: &Intake) -> Result<bool, ServiceError> {
    let bytes = message.encoded_len().saturating_add(GRPC_HEADER_BYTES);
    let kind = message.kind.ok_or_else(unknown_kind)?;
    let room = intake.room(bytes).await?;
    intake.own(message.order, Message { kind, wire_bytes: bytes as u64, room })
}

/// A newer agent's message.
pub(super) fn unknown_kind() -> ServiceError {
    ServiceError::invalid("the message is of a kind this server does not know; update the server")
}

/// Maps tonic's error for a message it could not read, in our words where the agent is at fault.
pub(in crate::grpc) fn line_error(status: &Status) -> ServiceError {
    match status.code() {
        tonic::Code::OutOfRange | tonic::Code::ResourceExhausted => {
            ServiceError::new(ErrorCode::Limit, format!("a message is too large: {}", status.message()))
        }
        tonic::Code::Internal | tonic::Code::InvalidArgument => {
            ServiceError::invalid(format!("a message cannot be read: {}", status.message()))
        }
        _ => {
            ServiceError::new(ErrorCode::Unavailable, format!("the connection failed: {}", status.message()))
        }
    }
}
