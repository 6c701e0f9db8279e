//! One lane from its first message to its end.

use std::sync::Arc;

use holdfast_proto::ErrorCode;
use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::lane_request::Kind as LaneKind;
use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Status, Streaming};
use tracing::Instrument as _;

use super::intake::Message;
use super::lanes::{Attached, Lanes};
use super::merge::Source;
use super::queue::{GRPC_HEADER_BYTES, line_error, unknown_kind};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::grpc::bounds::OPEN_TIMEOUT;
use crate::grpc::call::own_session;

type Answers = mpsc::Sender<Result<v1::LaneResponse, Status>>;

/// Opens the lane that the first of `messages` asks for. It is open once this returns.
///
/// # Errors
/// When there is no such stream of this caller's, or it may have no more lanes.
pub(in crate::grpc) async fn lane(
    app: &Arc<App>,
    lanes: &Arc<Lanes>,
    caller: Caller,
    mut messages: Streaming<v1::LaneRequest>,
) -> Result<ReceiverStream<Result<v1::LaneResponse, Status>>, ServiceError> {
    let late = || ServiceError::invalid(format!("the lane was not open within {} s", OPEN_TIMEOUT.as_secs()));
    let open =
        tokio::time::timeout(OPEN_TIMEOUT, first_message(&mut messages)).await.map_err(|_| late())??;
    let token = caller.token.id;
    let (session, open) = app
        .blocking(move |app| own_session(app, &caller, &open.session_id).map(|session| (session, open)))
        .await?;
    let attached = lanes.attach(session, open.disk, open.stream, token)?;
    tokio::time::timeout(OPEN_TIMEOUT, attached.intake.share_room()).await.map_err(|_| late())?;
    let (answers, receiver) = mpsc::channel(2);
    let opened = Ok(v1::LaneResponse {});
    // There is room for two.
    drop(answers.try_send(opened));
    let span = tracing::info_span!("lane", %session, disk = open.disk);
    tokio::spawn(carry(attached, messages, answers).instrument(span));
    Ok(ReceiverStream::new(receiver))
}

async fn first_message(messages: &mut Streaming<v1::LaneRequest>) -> Result<v1::OpenLane, ServiceError> {
    let first = messages.message().await.map_err(|status| line_error(&status))?;
    match first {
        Some(v1::LaneRequest { order: 0, kind: Some(LaneKind::Open(open)) }) => Ok(open),
        _ => Err(ServiceError::invalid("the first message of a lane must be OpenLane, without a number")),
    }
}

/// Carries messages to the stream until it is over, or the lane breaks.
pub(super) async fn carry(
    attached: Attached,
    messages: impl Stream<Item = Result<v1::LaneRequest, Status>> + Unpin,
    answers: Answers,
) {
    let broke = tokio::select! {
        () = attached.intake.ended() => return,
        broke = pump(&attached, messages) => broke,
    };
    if let Some(error) = broke {
        tracing::debug!(%error, "the lane broke");
        attached.broke(&error);
        // The agent may be gone.
        drop(answers.try_send(Err(error.into_status())));
    }
}

/// Why it broke; `None` when the engine takes no more.
async fn pump(
    attached: &Attached,
    mut messages: impl Stream<Item = Result<v1::LaneRequest, Status>> + Unpin,
) -> Option<ServiceError> {
    // One message at a time: the next is not even read before the engine is done with this one.
    let queue = Arc::new(Semaphore::new(1));
    let mut source = Source::default();
    loop {
        let Ok(room) = Arc::clone(&queue).acquire_owned().await else { return None };
        let taken = match messages.next().await {
            None => Err(ServiceError::new(
                ErrorCode::Unavailable,
                "the agent ended it before the disk was finished",
            )),
            Some(Err(status)) => Err(line_error(&status)),
            Some(Ok(message)) => take(attached, &mut source, message, room),
        };
        match taken {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(error),
        }
    }
}

fn take(
    attached: &Attached,
    source: &mut Source,
    message: v1::LaneRequest,
    room: OwnedSemaphorePermit,
) -> Result<bool, ServiceError> {
    let wire_bytes = message.encoded_len().saturating_add(GRPC_HEADER_BYTES) as u64;
    let kind = match message.kind.ok_or_else(unknown_kind)? {
        LaneKind::Region(region) => Kind::Region(region),
        LaneKind::Extents(extents) => Kind::Extents(extents),
        LaneKind::Open(_) => return Err(ServiceError::invalid("the lane is open already")),
    };
    attached.intake.of_lane(source, message.order, Message { kind, wire_bytes, room })
}
