//! Reads disks of restore points here and there: what exports, file restores and boots are made of.
//!
//! [`Reader::disk`] opens a disk; [`OpenDisk`] is read by any number of threads, which block. A read looks up the layout of its
//! window (64 MiB of the disk), then the chunks it needs: in memory, among those on their way (`flight`), or else it asks for
//! them, all in one message. So a cold read takes two round trips at most, and one where its window is known. `session` is the
//! conversation with the server, one call for each disk, which keeps its slot while the disk is in use; `ahead` recognises
//! sequential reads.
//!
//! Chunks are kept by their fingerprints, so what disks or clones share is fetched once. Each was decoded and compared with its
//! fingerprint before (R2). What cannot be read is an error of the reads that need it, and of no other.
//!
//! Memory: the cache, [`CACHE_BYTES`] unless the caller says otherwise; 64 MiB of layouts, those of 18 GiB of a disk; 128 MiB on
//! their way ahead of sequential reads; of each other read that waits its own chunks.

mod ahead;
mod cache;
mod flight;
mod layout;
mod session;
mod store;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdfast_nbd::{Disk, Extent};
use holdfast_proto::Fingerprint;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use ahead::Sequences;
use flight::Flight;
use layout::{Content, Layout, WINDOW_BYTES};
use session::Session;
use store::{Coming, Part, Store};

use crate::cancel::Cancel;
use crate::connect::{Connection, Settings};
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::progress::Progress;
use crate::restore::{DecodePool, DiskOfBackup};

/// Memory of decoded chunks unless the caller says otherwise.
pub const CACHE_BYTES: usize = 256 << 20;
/// Bytes on their way ahead of sequential reads: four sequences at full speed.
const AHEAD_BYTES_MAX: u64 = 4 * ahead::AHEAD_BYTES;
/// Parts that wait for the server; reads beyond wait to be among them.
const PARTS_MAX: usize = 64;
/// Windows whose layouts one question about extents asks for.
const STATUS_WINDOWS: u64 = 8;

/// Options of a reader.
#[derive(Debug, Clone)]
pub struct ReaderOptions {
    /// Memory for decoded chunks.
    pub cache_bytes: usize,
    /// Threads that decode; `None`: one per core.
    pub threads: Option<usize>,
    /// Longest outage to wait for; reads wait with it.
    pub retry_for: Duration,
    /// Naming and protection of chunks.
    pub cipher: Cipher,
    /// Ends all reads.
    pub cancel: Cancel,
}

/// Reads disks of restore points, with one memory for all of them.
pub struct Reader {
    settings: Settings,
    connection: Arc<Mutex<Connection>>,
    progress: Arc<dyn Progress>,
    pool: Arc<DecodePool>,
    store: Arc<Store>,
    retry_for: Duration,
    cancel: Cancel,
    disks: AtomicU32,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Reader {
    /// A reader that uses `connection`, and others like it when that is lost.
    ///
    /// # Errors
    /// [`ClientError::Internal`] when threads cannot be started.
    pub fn new(
        settings: Settings,
        connection: Connection,
        progress: Arc<dyn Progress>,
        options: ReaderOptions,
    ) -> Result<Self, ClientError> {
        let ReaderOptions { cache_bytes, threads, retry_for, cipher, cancel } = options;
        let pool = Arc::new(DecodePool::new(threads, cipher)?);
        let store = Arc::new(Store::new(cache_bytes));
        let connection = Arc::new(Mutex::new(connection));
        Ok(Self { settings, connection, progress, pool, store, retry_for, cancel, disks: AtomicU32::new(0) })
    }

    /// Opens a disk. The server is asked when it is read, and not after the disk was dropped. Call it within a runtime.
    pub fn disk(&self, disk: DiskOfBackup) -> OpenDisk {
        let (parts, receiver) = mpsc::channel(PARTS_MAX);
        let size_bytes = disk.size_bytes;
        let session = Session {
            settings: self.settings.clone(),
            connection: Arc::clone(&self.connection),
            disk,
            store: Arc::clone(&self.store),
            pool: Arc::clone(&self.pool),
            progress: Arc::clone(&self.progress),
            retry_for: self.retry_for,
            cancel: self.cancel.clone(),
        };
        tokio::spawn(session.run(receiver));
        let number = self.disks.fetch_add(1, Ordering::Relaxed);
        let (store, sequences) = (Arc::clone(&self.store), Mutex::default());
        OpenDisk { number, size_bytes, store, parts, sequences }
    }
}

/// A disk of a restore point, read by threads that may block.
#[derive(Debug)]
pub struct OpenDisk {
    number: u32,
    size_bytes: u64,
    store: Arc<Store>,
    parts: mpsc::Sender<Arc<Part>>,
    sequences: Mutex<Sequences>,
}

/// Bytes that a read needs: in memory, or on their way.
enum Got {
    Zeros,
    Here(Arc<[u8]>),
    /// `is_own`: this read asked for it; otherwise another did, for more than this.
    Coming {
        flight: Arc<Flight>,
        fingerprint: Fingerprint,
        is_own: bool,
    },
}

impl OpenDisk {
    fn window_bytes(&self, window: u64) -> Range<u64> {
        let start = window.saturating_mul(WINDOW_BYTES);
        start..start.saturating_add(WINDOW_BYTES).min(self.size_bytes)
    }

    /// The layout of a window, or where it is awaited. `None`: it is not wanted enough to wait until it can be asked for.
    fn layout(&self, window: u64, is_ahead: bool) -> io::Result<Option<Result<Arc<Layout>, Arc<Flight>>>> {
        let key = (self.number, window);
        if let Some(layout) = self.store.layouts.get(&key) {
            return Ok(Some(Ok(layout)));
        }
        let mut coming = self.store.coming.lock();
        if let Some(layout) = self.store.layouts.get(&key) {
            return Ok(Some(Ok(layout)));
        }
        if let Some(flight) = coming.layouts.get(&key) {
            return Ok(Some(Err(Arc::clone(flight))));
        }
        let flight = Arc::new(Flight::default());
        coming.layouts.insert(key, Arc::clone(&flight));
        let bytes = self.window_bytes(window);
        let part = Part { window: Some(key), bytes, chunks: Vec::new(), is_ahead, flight };
        let flight = Arc::clone(&part.flight);
        self.ask(part, coming).map(|asked| asked.then_some(Err(flight)))
    }

    fn wait_for_layout(&self, window: u64) -> io::Result<Arc<Layout>> {
        match self.layout(window, false)? {
            Some(Ok(layout)) => Ok(layout),
            Some(Err(flight)) => flight.wait_for_layout(),
            None => Err(gone()),
        }
    }

    /// Asks for a part that is among those coming. False: it is read ahead, and the server has enough to do.
    fn ask(&self, part: Part, mut coming: parking_lot::MutexGuard<'_, Coming>) -> io::Result<bool> {
        let part = Arc::new(part);
        let ahead = self.store.ahead_bytes.fetch_add(part.ahead_bytes(), Ordering::Relaxed);
        if part.is_ahead {
            // Under the lock: no one may have begun to wait for what is not asked for.
            let asked = ahead < AHEAD_BYTES_MAX && self.parts.try_send(Arc::clone(&part)).is_ok();
            if !asked {
                part.leave(&self.store, &mut coming);
            }
            return Ok(asked);
        }
        drop(coming);
        if self.parts.blocking_send(Arc::clone(&part)).is_err() {
            part.end(&self.store, Err("reading has ended".into()));
            return Err(gone());
        }
        Ok(true)
    }

    /// Finds the pieces of `bytes`, which lie in one window; asks for those that are neither in memory nor on their way.
    fn gather(
        &self,
        layout: &Layout,
        bytes: &Range<u64>,
        is_ahead: bool,
    ) -> io::Result<Vec<(Range<u64>, Got)>> {
        let mut got = Vec::new();
        let mut lacking = Vec::new();
        for piece in layout.within(bytes.clone()) {
            let found = match &piece.content {
                Content::Zeros => Got::Zeros,
                Content::Unknown(_) if is_ahead => Got::Zeros,
                Content::Unknown(reason) => return Err(io::Error::other(reason.to_string())),
                Content::Chunk(fingerprint) => match self.store.chunks.get(fingerprint) {
                    Some(chunk) => Got::Here(chunk),
                    None => {
                        lacking.push((got.len(), *fingerprint));
                        Got::Zeros
                    }
                },
            };
            got.push((piece.bytes.clone(), found));
        }
        if !lacking.is_empty() {
            self.complete(&mut got, &lacking, is_ahead)?;
        }
        Ok(got)
    }

    /// Fills in what is lacking, by its places in `got`.
    fn complete(
        &self,
        got: &mut [(Range<u64>, Got)],
        lacking: &[(usize, Fingerprint)],
        is_ahead: bool,
    ) -> io::Result<()> {
        let flight = Arc::new(Flight::default());
        let mut wanted: Option<Range<u64>> = None;
        let mut chunks = Vec::new();
        let mut coming = self.store.coming.lock();
        for (place, fingerprint) in lacking {
            let Some((bytes, got)) = got.get_mut(*place) else { continue };
            // It may have come since it was looked for.
            if let Some(chunk) = self.store.chunks.get(fingerprint) {
                *got = Got::Here(chunk);
                continue;
            }
            let found = coming.chunks.entry(*fingerprint).or_insert_with(|| {
                chunks.push(*fingerprint);
                let start = wanted.as_ref().map_or(bytes.start, |wanted| wanted.start);
                wanted = Some(start..bytes.end);
                Arc::clone(&flight)
            });
            let is_own = Arc::ptr_eq(found, &flight);
            *got = Got::Coming { flight: Arc::clone(found), fingerprint: *fingerprint, is_own };
        }
        let Some(bytes) = wanted else { return Ok(()) };
        self.ask(Part { window: None, bytes, chunks, is_ahead, flight }, coming).map(drop)
    }

    /// Reads bytes of one window.
    fn read_window(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = offset..offset + buffer.len() as u64;
        let layout = self.wait_for_layout(offset / WINDOW_BYTES)?;
        let mut rest = buffer;
        for (piece, got) in self.gather(&layout, &bytes, false)? {
            let (from, to) = (piece.start.max(bytes.start), piece.end.min(bytes.end));
            let (part, after) = rest.split_at_mut_checked(small(to - from)).ok_or_else(gap)?;
            let chunk = match got {
                Got::Zeros => {
                    part.fill(0);
                    None
                }
                Got::Here(chunk) => Some(chunk),
                Got::Coming { flight, fingerprint, is_own } => {
                    let came = flight.wait_for_chunk(&fingerprint, piece.start);
                    Some(if is_own { came } else { came.or_else(|_| self.ask_again(&layout, &piece)) }?)
                }
            };
            if let Some(chunk) = chunk {
                let of_chunk =
                    chunk.get(small(from - piece.start)..small(to - piece.start)).ok_or_else(gap)?;
                part.copy_from_slice(of_chunk);
            }
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err(gap()) }
    }

    /// Waits for a chunk that did not come with what another read asked for: something else of that may be what cannot be read.
    fn ask_again(&self, layout: &Layout, piece: &Range<u64>) -> io::Result<Arc<[u8]>> {
        match self.gather(layout, piece, false)?.pop() {
            Some((_, Got::Here(chunk))) => Ok(chunk),
            Some((_, Got::Coming { flight, fingerprint, .. })) => {
                flight.wait_for_chunk(&fingerprint, piece.start)
            }
            Some((_, Got::Zeros)) | None => Err(gap()),
        }
    }

    /// Asks for what a sequence of reads will need, without waiting for any of it.
    fn read_ahead(&self, bytes: &Range<u64>) -> io::Result<()> {
        let mut at = bytes.start;
        while at < bytes.end {
            let window = at / WINDOW_BYTES;
            let end = bytes.end.min(self.window_bytes(window).end);
            if let Some(Ok(layout)) = self.layout(window, true)? {
                self.gather(&layout, &(at..end), true)?;
            }
            at = end;
        }
        // It is known when it is needed.
        let next = bytes.end / WINDOW_BYTES + 1;
        if next * WINDOW_BYTES < self.size_bytes {
            self.layout(next, true)?;
        }
        Ok(())
    }
}

impl Disk for OpenDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.size_bytes);
        let bytes =
            offset..end.ok_or_else(|| io::Error::other(format!("the disk ends at {}", self.size_bytes)))?;
        let more = self.sequences.lock().read(&bytes, self.size_bytes);
        // What cannot be read ahead is asked for again when it is read.
        drop(more.map(|more| self.read_ahead(&more)));
        let mut rest = buffer;
        let mut at = offset;
        while !rest.is_empty() {
            let room = small(self.window_bytes(at / WINDOW_BYTES).end - at);
            let (part, after) = rest.split_at_mut(room.min(rest.len()));
            self.read_window(at, part)?;
            at += part.len() as u64;
            rest = after;
        }
        Ok(())
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Vec<Extent>> {
        let first = range.start / WINDOW_BYTES;
        let end = range.end.min(self.size_bytes).div_ceil(WINDOW_BYTES).min(first + STATUS_WINDOWS);
        for window in first + 1..end {
            self.layout(window, true)?;
        }
        let mut extents: Vec<Extent> = Vec::new();
        for window in first..end {
            let layout = self.wait_for_layout(window)?;
            for piece in layout.within(range.clone()) {
                let zero = piece.content == Content::Zeros;
                let len = piece.bytes.end.min(range.end) - piece.bytes.start.max(range.start);
                match extents.last_mut().filter(|last| last.zero == zero) {
                    Some(last) => last.len += len,
                    None => extents.push(Extent { len, zero }),
                }
            }
        }
        Ok(extents)
    }

    fn is_at_hand(&self, range: Range<u64>) -> bool {
        // A read that begins a window may have to wait to ask for more.
        let window = range.start / WINDOW_BYTES;
        let Some(layout) = self.store.layouts.get(&(self.number, window)) else { return false };
        range.end <= self.window_bytes(window).end
            && layout.within(range).all(|piece| match &piece.content {
                Content::Zeros => true,
                Content::Chunk(fingerprint) => self.store.chunks.get(fingerprint).is_some(),
                Content::Unknown(_) => false,
            })
    }
}

/// A length within a window.
fn small(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn gone() -> io::Error {
    io::Error::other("reading has ended")
}

fn gap() -> io::Error {
    io::Error::other("the server's layout of the disk does not fit the disk")
}
