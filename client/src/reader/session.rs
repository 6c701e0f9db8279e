//! The conversation with the server about one disk: a call that is opened when the disk is read and closed when it has not been for
//! a while. Parts are asked for as they come, several ahead, and answered in their order. After a lost connection, those without
//! an answer are asked for again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_proto::v1;
use holdfast_proto::v1::read_disk_response::Kind;
use holdfast_proto::v1::read_parts_request::Kind as Ask;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::layout::Layout;
use super::store::{CHUNK_OVERHEAD, Part, Store, extents_of};
use crate::backoff::Backoff;
use crate::cancel::Cancel;
use crate::connect::{Connection, Settings, open_again};
use crate::error::ClientError;
use crate::progress::Progress;
use crate::restore::window::{Assembler, CheckedRegion, WindowError};
use crate::restore::{BadRange, DecodePool, DiskOfBackup};
use crate::turn::{Turn, give_way};

/// Parts that the server is asked for ahead of its answers.
const PIPELINE: usize = 16;
/// Time without reads after which the slot at the server is given back.
const IDLE: Duration = Duration::from_secs(60);

pub(super) struct Session {
    pub(super) settings: Settings,
    pub(super) connection: Arc<Mutex<Connection>>,
    pub(super) disk: DiskOfBackup,
    pub(super) store: Arc<Store>,
    pub(super) pool: Arc<DecodePool>,
    pub(super) progress: Arc<dyn Progress>,
    pub(super) retry_for: Duration,
    pub(super) cancel: Cancel,
}

/// Parts without an answer, in the order of asking.
type Open = VecDeque<Arc<Part>>;

/// A part whose regions are being decoded. Dropped when the last of them is.
struct Landing {
    part: Arc<Part>,
    store: Arc<Store>,
    /// All of it has arrived.
    complete: AtomicBool,
}

impl Drop for Landing {
    fn drop(&mut self) {
        if self.complete.load(Ordering::Relaxed) {
            self.part.end(&self.store, Ok(()));
        }
    }
}

/// The part being answered.
struct Answering {
    assembler: Assembler,
    landing: Arc<Landing>,
    layout: Option<Arc<Layout>>,
}

impl Session {
    /// Works until the disk is dropped, or reading is cancelled.
    pub(super) async fn run(self, mut parts: mpsc::Receiver<Arc<Part>>) {
        let (mut open, epoch) = (Open::new(), Instant::now());
        let mut backoff = Backoff::new(self.retry_for);
        loop {
            if open.is_empty() {
                // An outage during which no one read is over.
                backoff = Backoff::new(self.retry_for);
            }
            if !self.next(&mut parts, &mut open).await {
                break;
            }
            let outcome = tokio::select! {
                biased;
                () = self.cancel.cancelled() => break,
                outcome = self.call(&mut parts, &mut open, &mut backoff) => outcome,
            };
            if let Err(error) = outcome {
                tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => break,
                    () = self.recover(error, &mut open, (&mut backoff, epoch)) => {}
                }
            }
        }
        parts.close();
        while let Ok(part) = parts.try_recv() {
            open.push_back(part);
        }
        let count = open.len();
        self.fail(&mut open, count, &ClientError::Interrupted);
    }

    /// Waits until there is something to ask for. False: there will not be.
    async fn next(&self, parts: &mut mpsc::Receiver<Arc<Part>>, open: &mut Open) -> bool {
        if parts.is_closed() && parts.is_empty() {
            return false;
        }
        if open.is_empty() {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return false,
                part = parts.recv() => open.extend(part),
            }
        }
        !open.is_empty()
    }

    /// Connects again where that may help; otherwise reads under way fail: all of them at the end of an outage, and only the one
    /// that was being answered for a reason of its own. The others are asked for again.
    async fn recover(&self, error: ClientError, open: &mut Open, (backoff, epoch): (&mut Backoff, Instant)) {
        if error.is_giving_way() {
            return give_way(&error).await;
        }
        if error.is_connection_loss() || error.is_limit() {
            let notice = |notice: &_| self.progress.notice(notice);
            match open_again(&self.settings, error, (&mut *backoff, epoch), notice).await {
                Ok(connection) => {
                    *self.connection.lock() = connection;
                    return;
                }
                Err(error) => {
                    *backoff = Backoff::new(self.retry_for);
                    return self.fail(open, open.len(), &error);
                }
            }
        }
        self.fail(open, 1, &error);
    }

    /// Ends so many of the parts that are open, the oldest first.
    fn fail(&self, open: &mut Open, count: usize, error: &ClientError) {
        let (DiskOfBackup { backup_id, disk, .. }, count) = (&self.disk, count.min(open.len()));
        if count > 0 {
            tracing::error!(backup = backup_id, disk, %error, reads = count, "reads of a disk failed");
        }
        let reason: Arc<str> = error.to_string().into();
        open.drain(..count).for_each(|part| part.end(&self.store, Err(Arc::clone(&reason))));
    }

    /// One call: until nothing has been read for a while, or the disk was dropped.
    async fn call(
        &self,
        parts: &mut mpsc::Receiver<Arc<Part>>,
        open: &mut Open,
        backoff: &mut Backoff,
    ) -> Result<(), ClientError> {
        let mut client = self.connection.lock().restore();
        let (asks, receiver) = mpsc::channel(PIPELINE + 1);
        let ask = |kind| asks.try_send(v1::ReadPartsRequest { kind: Some(kind) });
        let lost = |_| ClientError::Lost("the server takes no more questions".to_owned());
        ask(Ask::Open(self.opening())).map_err(lost)?;
        let mut answers = client.read_parts(ReceiverStream::new(receiver)).await?.into_inner();
        let permits = Arc::new(Semaphore::new(self.pool.jobs_max()));
        let (mut asked, mut header, mut answering) = (0, None, None);
        let mut turn = Turn::new(&*self.progress);
        loop {
            while let Some(part) = open.get(asked).filter(|_| asked < PIPELINE && header.is_some()) {
                ask(Ask::Part(part_message(part))).map_err(lost)?;
                asked += 1;
            }
            let message = tokio::select! {
                biased;
                message = answers.message() => message?,
                part = parts.recv(), if open.len() < 2 * PIPELINE => match part {
                    Some(part) => { open.push_back(part); continue }
                    None => return Ok(()),
                },
                () = tokio::time::sleep(IDLE), if open.is_empty() => return Ok(()),
            };
            let kind = message.ok_or_else(|| ClientError::Lost("the server ended a call".to_owned()))?.kind;
            match (kind, &header) {
                (Some(Kind::Queued(queued)), None) => turn.queued(queued),
                (Some(Kind::Header(found)), None) => {
                    turn.came();
                    header = Some(self.checked(found)?);
                }
                (Some(kind), Some(header)) if let Some(part) = open.front().filter(|_| asked > 0) => {
                    let current = match answering.take() {
                        Some(current) => current,
                        None => self.begin(part, header)?,
                    };
                    answering = self.accept(kind, current, &permits).await?;
                    if answering.is_none() {
                        open.pop_front();
                        asked -= 1;
                        backoff.progressed();
                    }
                }
                _ => {
                    return Err(ClientError::Protocol("a message that no question was asked for".to_owned()));
                }
            }
        }
    }

    fn opening(&self) -> v1::ReadDiskRequest {
        v1::ReadDiskRequest {
            backup_id: self.disk.backup_id.clone(),
            disk: self.disk.disk.clone(),
            takes_queued: true,
            ..v1::ReadDiskRequest::default()
        }
    }

    fn checked(&self, header: v1::DiskHeader) -> Result<v1::DiskHeader, ClientError> {
        let what = format!("disk {:?} of backup {}", self.disk.disk, self.disk.backup_id);
        self.pool.cipher.check(&header.key_id, &what)?;
        Assembler::new(self.disk.size_bytes, 0).header(&header)?;
        Ok(header)
    }

    fn begin(&self, part: &Arc<Part>, header: &v1::DiskHeader) -> Result<Answering, WindowError> {
        let (first, count) = extents_of(&part.bytes);
        let assembler = Assembler::new(self.disk.size_bytes, first).until(first + count);
        let mut assembler = assembler.past_damage(true).in_part();
        assembler.header(header)?;
        let (part, store) = (Arc::clone(part), Arc::clone(&self.store));
        let landing = Arc::new(Landing { part, store, complete: AtomicBool::new(false) });
        Ok(Answering { assembler, landing, layout: None })
    }

    /// Takes a message of an answer. `None`: it was the last.
    async fn accept(
        &self,
        kind: Kind,
        mut current: Answering,
        permits: &Arc<Semaphore>,
    ) -> Result<Option<Answering>, ClientError> {
        let Answering { assembler, landing, layout } = &mut current;
        match kind {
            Kind::Window(window) => {
                let found = Arc::new(Layout::of(&*assembler.window(&window)?));
                if let Some(key) = landing.part.window {
                    self.store.layouts.insert(key, Arc::clone(&found), found.memory_bytes());
                    landing.part.flight.layout(Arc::clone(&found));
                }
                *layout = Some(found);
            }
            Kind::Regions(batch) => {
                let layout = layout.as_ref().ok_or(ClientError::Internal("regions before their window"))?;
                for region in assembler.regions(batch)? {
                    let permit = Arc::clone(permits).acquire_owned().await;
                    let closed = |_| ClientError::Internal("the decoding threads ended early");
                    let permit = permit.map_err(closed)?;
                    self.decode(region, (Arc::clone(landing), Arc::clone(layout)), permit);
                }
            }
            Kind::Damaged(damaged) => self.lose(&landing.part, assembler.damaged(&damaged)?),
            Kind::WindowEnd(_) => {
                assembler.window_end()?;
                if !assembler.is_complete() {
                    return Err(ClientError::Protocol("a window that is less than was asked for".to_owned()));
                }
                landing.complete.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            Kind::Header(_) | Kind::Queued(_) => {
                return Err(ClientError::Protocol("a second beginning of a disk".to_owned()));
            }
        }
        Ok(Some(current))
    }

    /// Hands a region to the decoding threads; `held` is dropped when it is done.
    fn decode(
        &self,
        region: CheckedRegion,
        (landing, layout): (Arc<Landing>, Arc<Layout>),
        held: impl Send + 'static,
    ) {
        let to = Arc::clone(&landing);
        let sink = move |offset: u64, bytes: &[u8]| {
            if let Some(fingerprint) = layout.chunk_at(offset) {
                let chunk: Arc<[u8]> = bytes.into();
                to.store.chunks.insert(fingerprint, Arc::clone(&chunk), chunk.len() + CHUNK_OVERHEAD);
                to.part.flight.chunk(fingerprint, chunk);
            }
        };
        let disk = self.disk.disk.clone();
        self.pool.decode(region, sink, move |outcome| {
            match outcome {
                Ok(bad) => note_lost(&disk, &landing.part, bad),
                Err(error) => landing.part.flight.end(Err(error.to_string().into())),
            }
            drop((landing, held));
        });
    }

    fn lose(&self, part: &Part, bad: Vec<BadRange>) {
        note_lost(&self.disk.disk, part, bad);
    }
}

/// Chunks that cannot be read: an error of the reads that need them.
fn note_lost(disk: &str, part: &Part, bad: Vec<BadRange>) {
    for BadRange { offset, len, reason, .. } in &bad {
        tracing::error!(disk, offset, len, %reason, "a range of the disk cannot be read");
    }
    part.flight.lose(bad);
}

fn part_message(part: &Part) -> v1::ReadPart {
    let (first_extent, count) = extents_of(&part.bytes);
    let (offset, end) = (part.bytes.start, part.bytes.end);
    let length = if part.window.is_some() { 0 } else { end - offset };
    v1::ReadPart { first_extent, extent_count: u32::try_from(count).unwrap_or(u32::MAX), offset, length }
}
