//! Reading and cutting: threads that each take an extent, read it, hash it while it is in the cache,
//! compare it with the parent, and cut it when it changed. They finish in any order; sequence numbers put
//! their findings back into disk order.
//!
//! Memory: one buffer a thread, plus those of changed extents until they are packed; all come from one
//! [`BufferPool`]. A thread takes its buffer *before* it claims an extent: the earliest extent not yet
//! delivered then always has one, and the pipeline cannot lock up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use holdfast_proto::Fingerprint;
use holdfast_proto::chunker::{Chunker, Piece, is_zero};
use holdfast_proto::limits::{EXTENT_BYTES, extent_len};
use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc;

use super::parent::ParentDigests;
use crate::error::ClientError;
use crate::pool::{Buffer, BufferPool};
use crate::source::SourceDisk;
use crate::source::extents::{ExtentWalk, Span};
use crate::stages::{Lap, Stage, Stages, Stopwatch};

/// Findings may run this far ahead of the oldest one not yet delivered. An unchanged extent's finding holds
/// no buffer, so this bounds them: 256 × some 100 bytes.
pub(crate) const LEAD_MAX: u64 = 256;

/// Read and hashed at a time: small enough that hashing finds it in a core's own cache (1 to 2 MiB).
const PIECE_BYTES: usize = 256 << 10;

/// What became of a span of the disk.
#[derive(Debug)]
pub(crate) enum Finding {
    Zero { first: u64, count: u64 },
    Accepted { first: u64, count: u64 },
    Unchanged { index: u64 },
    Changed(Changed),
}

/// An extent that is not what its parent was.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) index: u64,
    pub(crate) digest: Fingerprint,
    pub(crate) pieces: Vec<Piece>,
    /// One a piece; [`Fingerprint::ZERO`] for runs of zeros.
    pub(crate) fingerprints: Vec<Fingerprint>,
    /// The extent's bytes, from the start; it may be longer than the extent.
    pub(crate) buffer: Buffer,
}

/// A finding and its place in disk order.
pub(crate) type Scanned = (u64, Result<Finding, ClientError>);

/// The threads at work on one disk. Dropping it stops them.
#[derive(Debug)]
pub(crate) struct Scanner {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<SourceDisk>,
    pool: BufferPool,
    claims: Mutex<Claims>,
    lead: Lead,
    stages: Arc<Stages>,
    read_bytes: AtomicU64,
}

#[derive(Debug)]
struct Claims {
    walk: ExtentWalk,
    parent: ParentDigests,
    next_sequence: u64,
}

/// Keeps claims from running away from deliveries.
#[derive(Debug, Default)]
struct Lead {
    /// Deliveries so far; `None` once stopped.
    delivered: Mutex<Option<u64>>,
    moved: Condvar,
}

impl Lead {
    fn new() -> Self {
        Self { delivered: Mutex::new(Some(0)), moved: Condvar::new() }
    }

    /// Waits until `sequence` is near enough; false once stopped.
    fn wait(&self, sequence: u64) -> bool {
        let mut delivered = self.delivered.lock();
        loop {
            match *delivered {
                None => return false,
                Some(count) if sequence < count + LEAD_MAX => return true,
                Some(_) => self.moved.wait(&mut delivered),
            }
        }
    }

    fn set(&self, count: Option<u64>) {
        let mut delivered = self.delivered.lock();
        if delivered.is_some() {
            *delivered = count;
        }
        drop(delivered);
        self.moved.notify_all();
    }
}

/// A claimed step.
enum Claim {
    Done(Finding),
    Read { index: u64, solid: bool, parent: Fingerprint },
}

impl Scanner {
    /// Starts `threads` threads over what `walk` yields.
    pub(crate) fn start(
        disk: Arc<SourceDisk>,
        walk: ExtentWalk,
        parent: ParentDigests,
        pool: BufferPool,
        threads: usize,
        stages: Arc<Stages>,
    ) -> Result<(Self, mpsc::Receiver<Scanned>), ClientError> {
        let claims = Mutex::new(Claims { walk, parent, next_sequence: 0 });
        let read_bytes = AtomicU64::new(0);
        let shared = Arc::new(Shared { disk, pool, claims, lead: Lead::new(), stages, read_bytes });
        let (sender, receiver) = mpsc::channel(usize::try_from(LEAD_MAX).unwrap_or(usize::MAX));
        let mut scanner = Self { shared: Arc::clone(&shared), threads: Vec::with_capacity(threads) };
        for number in 0..threads {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            let thread = std::thread::Builder::new()
                .name(format!("scan-{number}"))
                .spawn(move || shared.work(&sender))
                .map_err(|_| ClientError::Internal("a reading thread could not be started"))?;
            scanner.threads.push(thread);
        }
        Ok((scanner, receiver))
    }

    /// Tells that all findings before `sequence` were delivered.
    pub(crate) fn delivered(&self, sequence: u64) {
        self.shared.lead.set(Some(sequence));
    }

    /// Bytes read from the disk so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.shared.read_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Scanner {
    /// Stops the threads without waiting: one may sit in a read that takes its time.
    fn drop(&mut self) {
        self.shared.pool.close();
        self.shared.lead.set(None);
    }
}

impl Shared {
    fn work(&self, findings: &mpsc::Sender<Scanned>) {
        let mut spare: Option<Buffer> = None;
        loop {
            let Some(buffer) = spare.take().or_else(|| self.pool.take()) else { return };
            let Some((sequence, claim)) = self.claim() else { return };
            let result = match claim {
                Ok(Claim::Done(finding)) => Ok((finding, Some(buffer))),
                Ok(Claim::Read { index, solid, parent }) => self.examine(index, solid, parent, buffer),
                Err(error) => Err(error),
            };
            let finding = result.map(|(finding, unused)| {
                spare = unused;
                finding
            });
            let failed = finding.is_err();
            if findings.blocking_send((sequence, finding)).is_err() || failed {
                return;
            }
        }
    }

    /// The next step in disk order; `None` at the disk's end or when stopped.
    fn claim(&self) -> Option<(u64, Result<Claim, ClientError>)> {
        let mut claims = self.claims.lock();
        let sequence = claims.next_sequence;
        if !self.lead.wait(sequence) {
            return None;
        }
        let Claims { walk, parent, .. } = &mut *claims;
        let claim = match walk.next(&self.disk) {
            Ok(None) => return None,
            Ok(Some(Span::Zero { first, count })) => Ok(Claim::Done(Finding::Zero { first, count })),
            Ok(Some(Span::Accepted { first, count })) => Ok(Claim::Done(Finding::Accepted { first, count })),
            Ok(Some(Span::Read { index, solid })) => {
                parent.of_extent(index).map(|parent| Claim::Read { index, solid, parent })
            }
            Err(error) => Err(error.into()),
        };
        claims.next_sequence += 1;
        Some((sequence, claim))
    }

    /// Reads an extent and says what it is; the buffer comes back unless the extent changed.
    fn examine(
        &self,
        index: u64,
        solid: bool,
        parent: Fingerprint,
        mut buffer: Buffer,
    ) -> Result<(Finding, Option<Buffer>), ClientError> {
        let len = extent_len(self.disk.size_bytes(), index);
        let extent = buffer.get_mut(..len as usize).unwrap_or_default();
        let Some(digest) = self.read_and_digest(index, solid, extent)? else {
            return Ok((Finding::Zero { first: index, count: 1 }, Some(buffer)));
        };
        if digest == parent {
            return Ok((Finding::Unchanged { index }, Some(buffer)));
        }
        let extent: &[u8] = extent;
        let bytes = u64::from(len);
        let pieces = self.stages.measure(Stage::Chunk, bytes, || Chunker::default().cut(extent));
        let fingerprint = |piece: &Piece| {
            let start = piece.offset as usize;
            let chunk = extent.get(start..start + piece.len as usize).unwrap_or_default();
            if piece.zero { Fingerprint::ZERO } else { Fingerprint::of(chunk) }
        };
        let fingerprints =
            self.stages.measure(Stage::Fingerprint, bytes, || pieces.iter().map(fingerprint).collect());
        Ok((Finding::Changed(Changed { index, digest, pieces, fingerprints, buffer }), None))
    }

    /// Fills `extent` from the disk and hashes it piece by piece, while each is in the cache. `None`: all
    /// zeros.
    fn read_and_digest(
        &self,
        index: u64,
        solid: bool,
        extent: &mut [u8],
    ) -> Result<Option<Fingerprint>, ClientError> {
        let start = index * u64::from(EXTENT_BYTES);
        let (mut read, mut hash) = (Lap::default(), Lap::default());
        let mut watch = Stopwatch::start();
        let mut hasher = blake3::Hasher::new();
        let (mut filled, mut zero, mut from_disk) = (0, true, 0);
        while filled < extent.len() {
            let end = (filled + PIECE_BYTES).min(extent.len());
            let piece = extent.get_mut(filled..end).unwrap_or_default();
            from_disk += self.fill(start + filled as u64, solid, piece)?;
            read += watch.lap();
            let extent: &[u8] = extent;
            if zero && !extent.get(filled..end).is_some_and(is_zero) {
                zero = false;
                hasher.update(extent.get(..filled).unwrap_or_default());
            }
            if !zero {
                hasher.update(extent.get(filled..end).unwrap_or_default());
            }
            hash += watch.lap();
            filled = end;
        }
        self.stages.add(Stage::Read, read, from_disk);
        self.stages.add(Stage::Digest, hash, filled as u64);
        self.read_bytes.fetch_add(from_disk, Ordering::Relaxed);
        Ok((!zero).then(|| Fingerprint::from_bytes(*hasher.finalize().as_bytes())))
    }

    /// Fills `piece` from `offset`, reading only what is not in a hole unless the extent is `solid`. Returns
    /// the bytes read.
    fn fill(&self, offset: u64, solid: bool, piece: &mut [u8]) -> Result<u64, ClientError> {
        if solid {
            self.disk.read_at(offset, piece)?;
            return Ok(piece.len() as u64);
        }
        let end = offset + piece.len() as u64;
        let within = |at: u64| usize::try_from(at.clamp(offset, end) - offset).unwrap_or(usize::MAX);
        let (mut position, mut read) = (offset, 0);
        while position < end {
            let segment = self.disk.next_data(position)?;
            let (from, to) = segment.map_or((end, end), |s| (s.start.min(end), s.end.min(end)));
            piece.get_mut(within(position)..within(from)).unwrap_or_default().fill(0);
            self.disk.read_at(from, piece.get_mut(within(from)..within(to)).unwrap_or_default())?;
            read += to - from;
            position = to.max(position + 1);
        }
        Ok(read)
    }
}

/// Puts findings back into disk order.
#[derive(Debug, Default)]
pub(crate) struct InOrder {
    /// At most [`LEAD_MAX`].
    early: BTreeMap<u64, Finding>,
    next: u64,
}

impl InOrder {
    /// Takes one in.
    pub(crate) fn put(&mut self, sequence: u64, finding: Finding) {
        self.early.insert(sequence, finding);
    }

    /// The next one in order, if it has come.
    pub(crate) fn take(&mut self) -> Option<Finding> {
        let finding = self.early.remove(&self.next)?;
        self.next += 1;
        Some(finding)
    }

    /// How many were taken.
    pub(crate) const fn taken(&self) -> u64 {
        self.next
    }

    /// Whether none wait.
    pub(crate) fn is_empty(&self) -> bool {
        self.early.is_empty()
    }
}

#[cfg(test)]
mod tests;
