//! Lanes: further connections over which one disk's regions and extents come, because one TCP connection does not fill a
//! long line.
//!
//! A stream says when it opens how many lanes it may have, and its number. A lane names session, disk and that number,
//! and belongs to the token that started the session; anything else is refused. It lives exactly as long as the stream:
//! it ends with it, and a lane that ends earlier, whatever the reason, ends the stream as a lost connection does, after
//! all that came before in order. The agent then opens the stream again. A crash leaves nothing of this behind.
//!
//! How many there may be: [`LANES_MAX`] a stream; together half of the connections that callers with a token may have,
//! and of one token half of its connections and half of its calls. A stream is offered a quarter of what is left of both
//! when it opens, so that many agents get a few each. One that gets none, or fewer than it was offered, goes on with
//! what it has.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_engine::ids::{SessionId, TokenId};
use holdfast_proto::limits::LANES_MAX;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::lane_request::Kind as LaneKind;
use holdfast_proto::{ErrorCode, v1};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Status, Streaming};
use tracing::Instrument as _;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::grpc::bounds::OPEN_TIMEOUT;
use crate::grpc::call::own_session;
use crate::grpc::ingest::intake::{Intake, Message, Source};
use crate::grpc::ingest::queue::{GRPC_HEADER_BYTES, line_error, unknown_kind};
use crate::limits::{CALLS_PER_TOKEN_MAX, RESERVED_FOR_STRANGERS, TOKEN_SHARE};

/// Share of the connections that may be lanes: half, the other half is for everything else.
const LANES_SHARE: usize = 2;

/// One stream is offered at most this part of the lanes that are left: a quarter.
const OFFER_SHARE: usize = 4;

/// Offer of lanes to a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) lanes_max: u32,
    pub(super) stream: u64,
}

#[derive(Debug)]
struct Entry {
    session: SessionId,
    disk: u32,
    token: TokenId,
    intake: Arc<Intake>,
    lanes_max: u32,
    lanes: u32,
}

#[derive(Debug, Default)]
struct Table {
    /// Number of the stream that opened last.
    last: u64,
    streams: HashMap<u64, Entry>,
}

impl Table {
    fn lanes(&self, of: Option<TokenId>) -> usize {
        let entries = self.streams.values().filter(|entry| of.is_none_or(|token| entry.token == token));
        entries.map(|entry| entry.lanes as usize).sum()
    }
}

/// Lanes of all streams.
#[derive(Debug)]
pub(in crate::grpc) struct Lanes {
    table: Mutex<Table>,
    max: usize,
    per_token_max: usize,
}

impl Lanes {
    /// Creates the table for a server with `connections` connections for agents.
    pub(in crate::grpc) fn new(connections: u32) -> Arc<Self> {
        let connections = connections as usize;
        let max = (connections - connections / RESERVED_FOR_STRANGERS) / LANES_SHARE;
        let per_token_max = (connections / TOKEN_SHARE).min(CALLS_PER_TOKEN_MAX) / LANES_SHARE;
        Arc::new(Self { table: Mutex::default(), max, per_token_max })
    }

    /// Enters a stream.
    pub(super) fn host(
        self: &Arc<Self>,
        session: SessionId,
        disk: u32,
        token: TokenId,
        intake: Arc<Intake>,
    ) -> Host {
        let mut table = self.table.lock();
        let lanes_max = offer(self.left(&table, token));
        table.last += 1;
        let stream = table.last;
        table.streams.insert(stream, Entry { session, disk, token, intake, lanes_max, lanes: 0 });
        Host { lanes: Arc::clone(self), offer: Offer { lanes_max, stream } }
    }

    /// Adds a lane to a stream.
    ///
    /// # Errors
    /// `Invalid` when it is not a stream of this session and disk that is open and numbers its messages; `Limit` when
    /// there are as many lanes as there may be.
    pub(super) fn attach(
        self: &Arc<Self>,
        session: SessionId,
        disk: u32,
        stream: u64,
        token: TokenId,
    ) -> Result<Attached, ServiceError> {
        let mut table = self.table.lock();
        let left = self.left(&table, token);
        let is_asked =
            |entry: &&mut Entry| (entry.session, entry.disk, entry.token) == (session, disk, token);
        let Some(entry) = table.streams.get_mut(&stream).filter(is_asked) else {
            return Err(ServiceError::invalid(format!(
                "session {session} has no open stream {stream} of disk {disk} that a lane could belong to"
            )));
        };
        if !entry.intake.may_have_lanes() {
            return Err(ServiceError::invalid(format!(
                "stream {stream} can have no lanes any more: it is over, or its messages have no numbers"
            )));
        }
        if entry.lanes >= entry.lanes_max || left == 0 {
            return Err(ServiceError::at_capacity(format!(
                "stream {stream} has {} of at most {} lanes, and there may be {left} more of this token; go on with \
                 those that are open",
                entry.lanes, entry.lanes_max
            )));
        }
        entry.lanes += 1;
        Ok(Attached { lanes: Arc::clone(self), stream, intake: Arc::clone(&entry.intake) })
    }

    /// Lanes that may still be opened, of this token.
    fn left(&self, table: &Table, token: TokenId) -> usize {
        let of_token = self.per_token_max.saturating_sub(table.lanes(Some(token)));
        self.max.saturating_sub(table.lanes(None)).min(of_token)
    }
}

/// A single lane beside a stream gains nothing.
fn offer(left: usize) -> u32 {
    let lanes = u32::try_from(left / OFFER_SHARE).unwrap_or(LANES_MAX).min(LANES_MAX);
    if lanes < 2 { 0 } else { lanes }
}

/// A stream that may have lanes; dropping it ends them.
#[derive(Debug)]
pub(super) struct Host {
    lanes: Arc<Lanes>,
    offer: Offer,
}

impl Host {
    pub(super) const fn offer(&self) -> Offer {
        self.offer
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(entry) = self.lanes.table.lock().streams.remove(&self.offer.stream) {
            entry.intake.end();
        }
    }
}

/// One lane of a stream; dropping it gives its place back.
#[derive(Debug)]
pub(super) struct Attached {
    lanes: Arc<Lanes>,
    stream: u64,
    pub(super) intake: Arc<Intake>,
}

impl Attached {
    /// The lane ended with `error` while its stream went on.
    pub(super) fn broke(&self, error: &ServiceError) {
        let text = format!("a lane of the disk's stream ended: {error}; open the stream again");
        let code = if error.code == ErrorCode::Unavailable { error.code } else { ErrorCode::Invalid };
        self.intake.fail(ServiceError::new(code, text));
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(entry) = self.lanes.table.lock().streams.get_mut(&self.stream) {
            entry.lanes -= 1;
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: u8) -> SessionId {
        SessionId::from_bytes([number; 16])
    }

    fn token(number: u8) -> TokenId {
        TokenId::from_bytes([number; 16])
    }

    fn host(lanes: &Arc<Lanes>, number: u8) -> Host {
        lanes.host(session(number), 0, token(1), Intake::new().0)
    }

    #[test]
    fn a_lane_belongs_to_one_stream_of_one_session_and_token() {
        let lanes = Lanes::new(256);
        let host = host(&lanes, 1);
        let Offer { stream, lanes_max } = host.offer();
        assert_eq!((stream > 0, lanes_max), (true, LANES_MAX));
        let attach = |number, disk, stream, of| {
            lanes.attach(session(number), disk, stream, token(of)).map(drop).map_err(|error| error.code)
        };
        assert_eq!(attach(1, 0, stream, 1), Ok(()));
        for (number, disk, stream, of) in
            [(2, 0, stream, 1), (1, 1, stream, 1), (1, 0, stream + 1, 1), (1, 0, stream, 2), (1, 0, 0, 1)]
        {
            assert_eq!(attach(number, disk, stream, of), Err(ErrorCode::Invalid));
        }
        drop(host);
        assert_eq!(attach(1, 0, stream, 1), Err(ErrorCode::Invalid), "its stream is over");
    }

    #[test]
    fn many_streams_share_what_there_may_be() {
        let lanes = Lanes::new(256);
        let mut held = Vec::new();
        let mut offers = Vec::new();
        for number in 0..20 {
            let host = host(&lanes, number);
            let Offer { stream, lanes_max } = host.offer();
            let open = || lanes.attach(session(number), 0, stream, token(1));
            let attached: Vec<Attached> = (0..lanes_max).map(|_| open().unwrap()).collect();
            assert_eq!(open().unwrap_err().code, ErrorCode::Limit, "more than offered");
            offers.push(lanes_max);
            held.push((host, attached));
        }
        assert_eq!(offers[..7], [16, 12, 9, 6, 5, 4, 3]);
        assert_eq!(offers.last(), Some(&0), "the rest have one connection");
        assert!(offers.iter().sum::<u32>() <= 64, "half of what a token may have");
        // Another token has its own share, and what ended is given back.
        assert_eq!(lanes.host(session(99), 0, token(2), Intake::new().0).offer().lanes_max, 13);
        drop(held);
        assert_eq!(host(&lanes, 1).offer().lanes_max, 16);
        assert_eq!(host(&Lanes::new(16), 1).offer().lanes_max, 0, "a small server needs its connections");
    }
}
