//! One disk's `Ingest` stream: scan results in, messages out, answers back.
//!
//! Three futures run together, on one task, with bounded channels between them:
//! [`QueryLoop`] puts the results of a [`Pass`] in order, asks and packs; [`transport::send`] waits for compressed
//! regions, keeps the upload limit and feeds the wire; [`transport::receive`] takes answers. Regions are compressed on
//! threads of their own meanwhile. On a long line, regions and extents go over several connections, see [`lanes`];
//! otherwise over this one. Dropping the stream's future ends all of it; the server keeps what it accepted.
//!
//! Memory in transit: [`BufferPool`] (see `Limits`), `regions` × 2 × 256 KiB in compression,
//! [`WIRE_MESSAGES`] × 600 KiB before the transport, and its window of 16 MiB. With lanes: at most 1.9 MiB on each.

mod lanes;
mod pass;
mod query_loop;
mod transport;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_proto::reread::Reread;
use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::ingest_response::Kind as Answer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use self::lanes::{Lanes, Outlet, lanes};
use self::pass::Pass;
use self::query_loop::QueryLoop;
use super::parent::{BLOCKS_AHEAD, ParentDigests, Rereading};
use crate::backup::Pipeline;
use crate::backup::stream::lanes::hand_over;
use crate::connect::Connection;
use crate::error::ClientError;
use crate::progress::Notice;
use crate::source::walk::{ExtentWalk, ParentDisk};
use crate::source::{Source, WriteTimes};
use crate::turn::Turn;

/// Messages handed to the transport and not yet taken by it.
const WIRE_MESSAGES: usize = 8;

/// Replies not yet looked at. Every extent in a buffer has at most two queries open.
const REPLIES_MAX: usize = 64;

/// Position of a disk within its session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) session: &'a v1::StartResponse,
    pub(super) number: u32,
    /// Size of the disks before this one.
    pub(super) before_bytes: u64,
    /// Time of the disk's last write before it was read.
    pub(super) written_before: Option<WriteTimes>,
}

impl<'a> Place<'a> {
    /// Returns the same disk in the parent backup, if there is one.
    fn parent(self) -> Option<ParentDisk<'a>> {
        let number = usize::try_from(self.number).ok()?;
        let parent = self.session.parents.get(number).filter(|parent| parent.present)?;
        Some(ParentDisk { backup_id: &self.session.parent_backup_id, size_bytes: parent.size_bytes })
    }

    /// Returns the extents of the disk that are due to be read again; `None` without a parent.
    fn reread(self) -> Result<Option<Option<Reread>>, ClientError> {
        let Some(parent) = usize::try_from(self.number).ok().and_then(|n| self.session.parents.get(n)) else {
            return Ok(None);
        };
        let due = |wire| {
            Reread::from_wire(wire)
                .ok_or_else(|| ClientError::Protocol(format!("extents to reread: {wire:?}")))
        };
        let due = parent.reread.as_ref().map(due).transpose()?;
        Ok(parent.present.then_some(due))
    }
}

/// Extents and bytes of a disk that the server has acknowledged, on all of its streams.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    extents: AtomicU64,
    durable_bytes: AtomicU64,
}

impl Accepted {
    fn raise(&self, extents: u64, durable_bytes: u64) {
        self.extents.fetch_max(extents, Ordering::Relaxed);
        self.durable_bytes.fetch_max(durable_bytes, Ordering::Relaxed);
    }

    /// Becomes another whenever the server has more: extents, or chunks of them that it asked for again.
    pub(super) fn so_far(&self) -> (u64, u64) {
        (self.extents.load(Ordering::Relaxed), self.durable_bytes.load(Ordering::Relaxed))
    }
}

/// Backs up one disk, from where the server stopped accepting. `accepted` is raised to what the server says it has,
/// also when this fails.
pub(super) async fn ingest(
    connection: &Connection,
    pipeline: &Pipeline,
    disk: &Arc<dyn Source>,
    place: Place<'_>,
    accepted: &Accepted,
) -> Result<(), ClientError> {
    pipeline.progress.disk(disk.name(), place.before_bytes);
    let (wire, messages) = mpsc::channel(WIRE_MESSAGES);
    let session_id = place.session.session_id.clone();
    pipeline.progress.connections(1);
    let open = v1::OpenStream { session_id, disk: place.number, takes_pending: true, takes_queued: true };
    hand_over(&wire, Kind::Open(open)).await;
    let mut inbound = connection.ingest().ingest(ReceiverStream::new(messages)).await?.into_inner();
    let mut opened = opened(&mut inbound, pipeline).await?;
    let ranges = std::mem::take(&mut opened.accepted);
    let already = ranges.iter().map(|range| range.count).fold(0, u64::saturating_add);
    if already > 0 {
        accepted.raise(already, 0);
        tracing::info!(disk = disk.name(), accepted_extents = already, "session resumed");
        let notice = Notice::Reconnected { disk: disk.name().to_owned(), accepted_extents: already };
        pipeline.progress.notice(&notice);
    }
    let walk = ExtentWalk::new(&**disk, ranges, place.parent()).map_err(ClientError::Protocol)?;
    let parent = parent_digests(connection, place, pipeline).await?;
    let pass = Pass::start(pipeline, disk, walk, parent)?;
    let (items, queue) = mpsc::channel(pipeline.limits.regions);
    let (replies, replied) = mpsc::channel(REPLIES_MAX);
    let ask = QueryLoop::new(pipeline, disk, place.written_before, wire.clone(), items).run(pass, replied);
    let session_id = &place.session.session_id;
    let (lanes, outlet) = lanes(pipeline, connection, session_id, place.number, &opened, &wire)
        .map_or_else(|| (None, Outlet::plain(wire)), |(lanes, outlet)| (Some(lanes), outlet));
    let send = transport::send(pipeline, queue, outlet);
    let receive = transport::receive(inbound, replies, accepted);
    tokio::select! {
        biased;
        // The result of the stream takes precedence over the error of a lane.
        outcome = async { tokio::try_join!(ask, send, receive) } => outcome.map(|_| ()),
        broke = watch(lanes) => Err(broke),
    }
}

/// Waits for a lane to break.
async fn watch(lanes: Option<Lanes<'_>>) -> ClientError {
    match lanes {
        Some(lanes) => lanes.watch().await,
        None => std::future::pending().await,
    }
}

/// Waits for the disk's turn, and learns what the server has of it.
async fn opened(
    inbound: &mut tonic::Streaming<v1::IngestResponse>,
    pipeline: &Pipeline,
) -> Result<v1::StreamOpened, ClientError> {
    let mut turn = Turn::new(&*pipeline.progress);
    loop {
        match inbound.message().await?.map(|answer| answer.kind) {
            Some(Some(Answer::Queued(queued))) => {
                turn.queued(queued);
                pipeline.has_waited.store(true, Ordering::Relaxed);
            }
            Some(Some(Answer::Opened(opened))) => return Ok(opened),
            Some(_) => {
                return Err(ClientError::Protocol(
                    "an ingest stream that does not begin with Opened".to_owned(),
                ));
            }
            None => return Err(ClientError::Lost("the server ended an ingest stream at once".to_owned())),
        }
    }
}

/// The parent's digests, streamed in by a task of their own.
async fn parent_digests(
    connection: &Connection,
    place: Place<'_>,
    pipeline: &Pipeline,
) -> Result<ParentDigests, ClientError> {
    let Some(reread) = place.reread()? else { return Ok(ParentDigests::none()) };
    let rereading = |due| Rereading { due, count: Arc::clone(&pipeline.reread_extents) };
    if pipeline.reread_all {
        return Ok(ParentDigests::none().rereading(Some(rereading(None))));
    }
    let session_id = place.session.session_id.clone();
    let request = v1::ParentDigestsRequest { session_id, disk: place.number };
    let mut stream = connection.ingest().parent_digests(request).await?.into_inner();
    let (sender, blocks) = mpsc::channel(BLOCKS_AHEAD);
    tokio::spawn(async move {
        loop {
            let block = match stream.message().await {
                Ok(None) => return,
                Ok(Some(block)) => Ok(block),
                Err(status) => Err(ClientError::from(status)),
            };
            let failed = block.is_err();
            if sender.send(block).await.is_err() || failed {
                return;
            }
        }
    });
    Ok(ParentDigests::streamed(blocks).rereading(reread.map(|due| rereading(Some(due)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_sent_again_count_as_progress() {
        let accepted = Accepted::default();
        accepted.raise(10, 0);
        let described = accepted.so_far();
        accepted.raise(10, 4096);
        assert!(accepted.so_far() > described);
        let stored = accepted.so_far();
        accepted.raise(3, 0);
        assert_eq!(accepted.so_far(), stored, "a new stream's first words take nothing back");
    }
}
