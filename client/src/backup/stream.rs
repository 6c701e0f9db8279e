//! One disk's `Ingest` stream: findings in, messages out, answers back.
//!
//! Three futures run together, on one task, with bounded channels between them:
//! *ask* puts findings in order, asks and packs; *send* waits for compressed regions, keeps the upload limit
//! and feeds the wire; *receive* takes answers. Regions are compressed on threads of their own meanwhile.
//! Dropping the stream's future ends all of it; the server keeps what it accepted.
//!
//! Memory of what is on its way: [`BufferPool`] (see `Limits`), `items` × 2 × 256 KiB in compression,
//! [`WIRE_MESSAGES`] × 600 KiB before the transport, and its window of 16 MiB.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use holdfast_proto::limits::{EXTENT_BYTES, extent_len};
use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::ingest_response::Kind as Answer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::Machinery;
use super::compress::Compressing;
use super::outbox::Output;
use super::packer::Packer;
use super::parent::{BLOCKS_AHEAD, ParentDigests};
use super::scan::{Finding, InOrder, Scanned, Scanner};
use crate::connect::Connection;
use crate::error::ClientError;
use crate::pool::BufferPool;
use crate::progress::{Notice, Step};
use crate::source::SourceDisk;
use crate::source::extents::ExtentWalk;
use crate::stages::Stage;

/// Messages handed to the transport and not yet taken by it.
const WIRE_MESSAGES: usize = 8;

/// Answers not yet looked at. Every extent in a buffer has at most two queries open.
const ANSWERS_MAX: usize = 64;

/// Which disk of which session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) session: &'a v1::StartResponse,
    pub(super) number: u32,
    /// Size of the disks before this one.
    pub(super) before_bytes: u64,
}

/// Something to be sent in order.
enum Item {
    Region(Compressing),
    Message(Kind),
}

type Wire = mpsc::Sender<v1::IngestRequest>;

/// Backs up one disk, from where the server stopped accepting. `accepted` counts extents the server says it
/// has, also when this fails.
pub(super) async fn ingest(
    connection: &Connection,
    machinery: &Machinery,
    disk: &Arc<SourceDisk>,
    place: Place<'_>,
    accepted: &AtomicU64,
) -> Result<(), ClientError> {
    let progress = &*machinery.progress;
    progress.disk(disk.name(), place.before_bytes);
    let (wire, messages) = mpsc::channel(WIRE_MESSAGES);
    let session_id = place.session.session_id.clone();
    hand_over(&wire, Kind::Open(v1::OpenStream { session_id, disk: place.number })).await;
    let mut inbound = connection.ingest().ingest(ReceiverStream::new(messages)).await?.into_inner();
    let ranges = opened(inbound.message().await?)?;
    let already = ranges.iter().map(|range| range.count).sum();
    if already > 0 {
        accepted.fetch_max(already, Ordering::Relaxed);
        tracing::info!(disk = disk.name(), accepted_extents = already, "session resumed");
        progress.notice(&Notice::Reconnected { disk: disk.name().to_owned(), accepted_extents: already });
    }
    let walk = ExtentWalk::new(disk, ranges).map_err(ClientError::Protocol)?;
    let parent = parent_digests(connection, place).await?;
    let pool = BufferPool::new(machinery.limits.buffers, EXTENT_BYTES as usize);
    let stages = Arc::clone(&machinery.stages);
    let threads = machinery.limits.scan_threads;
    let (scanner, findings) = Scanner::start(Arc::clone(disk), walk, parent, pool, threads, stages)?;
    let (items, queue) = mpsc::channel(machinery.limits.regions);
    let (answers, needs) = mpsc::channel(ANSWERS_MAX);
    let asking = Asking { machinery, disk, scanner: &scanner, wire: wire.clone(), items };
    let ask = asking.run(findings, needs);
    let send = send(machinery, queue, wire);
    let receive = receive(inbound, answers, accepted);
    tokio::try_join!(ask, send, receive).map(|_| ())
}

fn opened(answer: Option<v1::IngestResponse>) -> Result<Vec<v1::ExtentRange>, ClientError> {
    match answer.and_then(|answer| answer.kind) {
        Some(Answer::Opened(opened)) => Ok(opened.accepted),
        Some(_) => Err(ClientError::Protocol("an ingest stream that does not begin with Opened".to_owned())),
        None => Err(ClientError::Lost("the server ended an ingest stream at once".to_owned())),
    }
}

/// Hands a message to the transport. When the transport is gone, waits for ever: *receive* gets the reason
/// and ends the stream with it.
async fn hand_over(wire: &Wire, kind: Kind) {
    if wire.send(v1::IngestRequest { kind: Some(kind) }).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The parent's digests, streamed in by a task of their own.
async fn parent_digests(connection: &Connection, place: Place<'_>) -> Result<ParentDigests, ClientError> {
    let present = usize::try_from(place.number)
        .ok()
        .and_then(|number| place.session.parents.get(number))
        .is_some_and(|parent| parent.present);
    if !present {
        return Ok(ParentDigests::none());
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
    Ok(ParentDigests::streamed(blocks))
}

struct Asking<'a> {
    machinery: &'a Machinery,
    disk: &'a SourceDisk,
    scanner: &'a Scanner,
    wire: Wire,
    items: mpsc::Sender<Item>,
}

impl Asking<'_> {
    async fn run(
        self,
        mut findings: mpsc::Receiver<Scanned>,
        mut needs: mpsc::Receiver<v1::Need>,
    ) -> Result<(), ClientError> {
        let mut packer = Packer::new(Arc::clone(&self.machinery.plain));
        let mut order = InOrder::default();
        let mut scanning = true;
        while scanning || !packer.is_idle() {
            self.pass_on(&mut packer).await;
            // Ask what there is to ask before waiting for more: those who wait may hold all the buffers.
            let found = match findings.try_recv() {
                Ok(found) => Some(found),
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    scanning = false;
                    self.query(&mut packer, true).await;
                    None
                }
                Err(mpsc::error::TryRecvError::Empty) => {
                    self.query(&mut packer, true).await;
                    None
                }
            };
            let found = if found.is_some() {
                found
            } else {
                tokio::select! {
                    biased;
                    need = needs.recv(), if !packer.is_idle() => {
                        // Without a receiving half, its error ends the stream.
                        let Some(need) = need else { return std::future::pending().await };
                        self.answer(&mut packer, &need)?;
                        None
                    }
                    found = findings.recv(), if scanning => found,
                    else => None,
                }
            };
            if let Some((sequence, finding)) = found {
                order.put(sequence, finding?);
                self.add_all(&mut packer, &mut order);
            }
            while let Ok(need) = needs.try_recv() {
                self.answer(&mut packer, &need)?;
            }
        }
        if !order.is_empty() {
            return Err(ClientError::Internal("a reading thread ended early"));
        }
        self.disk.check_unchanged(self.disk.size_bytes())?;
        packer.finish();
        self.pass_on(&mut packer).await;
        let read_bytes = self.scanner.read_bytes();
        self.put(Item::Message(Kind::Finish(v1::FinishStream { read_bytes }))).await;
        Ok(())
    }

    fn add_all(&self, packer: &mut Packer, order: &mut InOrder) {
        while let Some(finding) = order.take() {
            self.machinery.progress.advance(step_of(self.disk, &finding));
            packer.add(finding);
        }
        self.scanner.delivered(order.taken());
    }

    fn answer(&self, packer: &mut Packer, need: &v1::Need) -> Result<(), ClientError> {
        self.machinery.stages.measure(Stage::Pack, 0, || packer.answer(need))
    }

    /// Sends closed queries, or with `flush` all, and packed output.
    async fn pass_on(&self, packer: &mut Packer) {
        self.query(packer, false).await;
        while let Some(output) = packer.take_output() {
            match output {
                Output::Region(region) => {
                    let new_bytes = region.plain.len() as u64;
                    self.machinery.progress.advance(Step { new_bytes, ..Step::default() });
                    self.put(Item::Region(self.machinery.compressor.submit(region))).await;
                }
                Output::Extents(extents) => self.put(Item::Message(Kind::Extents(extents))).await,
            }
        }
    }

    async fn query(&self, packer: &mut Packer, flush: bool) {
        while let Some(query) = packer.take_query(flush) {
            hand_over(&self.wire, Kind::Query(query)).await;
        }
    }

    async fn put(&self, item: Item) {
        if self.items.send(item).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn step_of(disk: &SourceDisk, finding: &Finding) -> Step {
    let span = |first: u64, count: u64| {
        let end = ((first + count) * u64::from(EXTENT_BYTES)).min(disk.size_bytes());
        end.saturating_sub(first * u64::from(EXTENT_BYTES))
    };
    match finding {
        Finding::Zero { first, count } | Finding::Accepted { first, count } => {
            Step { done_bytes: span(*first, *count), ..Step::default() }
        }
        Finding::Unchanged { index } => {
            let bytes = u64::from(extent_len(disk.size_bytes(), *index));
            Step { done_bytes: bytes, data_bytes: bytes, ..Step::default() }
        }
        Finding::Changed(changed) => {
            let data = changed.pieces.iter().filter(|piece| !piece.zero).map(|piece| u64::from(piece.len));
            let done_bytes = u64::from(extent_len(disk.size_bytes(), changed.index));
            Step { done_bytes, data_bytes: data.sum(), ..Step::default() }
        }
    }
}

async fn send(machinery: &Machinery, mut queue: mpsc::Receiver<Item>, wire: Wire) -> Result<(), ClientError> {
    while let Some(item) = queue.recv().await {
        let (kind, bytes) = match item {
            Item::Message(kind) => (kind, 0),
            Item::Region(compressing) => {
                let ended = ClientError::Internal("a compressing thread ended early");
                let region = compressing.await.map_err(|_| ended)??;
                let bytes = region.payload.len() as u64;
                machinery.limit.wait(bytes).await;
                (Kind::Region(region), bytes)
            }
        };
        let begun = Instant::now();
        hand_over(&wire, kind).await;
        machinery.stages.waited(Stage::SendWait, begun.elapsed(), bytes);
        machinery.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        machinery.progress.advance(Step { wire_bytes: bytes, ..Step::default() });
    }
    Ok(())
}

async fn receive(
    mut inbound: tonic::Streaming<v1::IngestResponse>,
    answers: mpsc::Sender<v1::Need>,
    accepted: &AtomicU64,
) -> Result<(), ClientError> {
    while let Some(response) = inbound.message().await? {
        match response.kind {
            Some(Answer::Need(need)) => {
                if answers.send(need).await.is_err() {
                    return Err(ClientError::Protocol("an answer after the last query".to_owned()));
                }
            }
            Some(Answer::Ack(ack)) => {
                accepted.fetch_max(ack.extents_accepted, Ordering::Relaxed);
            }
            Some(Answer::Finished(_)) => return Ok(()),
            Some(Answer::Opened(_)) | None => {
                return Err(ClientError::Protocol("an ingest answer of no known kind".to_owned()));
            }
        }
    }
    Err(ClientError::Lost("the server ended an ingest stream before its finish".to_owned()))
}
