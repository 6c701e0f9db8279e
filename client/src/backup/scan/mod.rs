//! Reading and cutting: threads that each take an extent and examine it. They finish in any order; sequence
//! numbers put their results back into disk order.
//!
//! Start with [`Scanner`]; `examine` is what is done with one extent, [`ReorderBuffer`] restores the order, and `Lead`
//! keeps scanning from running away from what uses its results.
//!
//! Memory: one buffer per thread, plus those of changed extents until they are packed; all come from one
//! [`BufferPool`]. A thread takes its buffer *before* it claims an extent: the earliest extent not yet
//! delivered then always has one, and the pipeline cannot lock up.
//!
//! A thread that panics reports it like an error: without its result the others would wait for ever.

mod examine;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use holdfast_proto::Fingerprint;
use holdfast_proto::chunker::Piece;
use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc;

use crate::backup::parent::ParentDigests;
use crate::backup::scan::examine::Examiner;
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::pool::{Buffer, BufferPool};
use crate::source::walk::{ExtentWalk, Span};
use crate::source::{Segment, Source};
use crate::stages::Stages;

/// The threads that scan one disk. Dropping it stops them.
#[derive(Debug)]
pub(crate) struct Scanner {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    examiner: Examiner,
    pool: BufferPool,
    claims: Mutex<Claims>,
    lead: Lead,
}

/// Spans of the disk not yet claimed.
#[derive(Debug)]
struct Claims {
    walk: ExtentWalk,
    parent: ParentDigests,
    next_sequence: u64,
}

/// A claimed step.
enum Claim {
    Done(ScanResult),
    Read { index: u64, segments: Vec<Segment>, parent: Fingerprint },
}

impl Scanner {
    /// Starts `threads` threads over what `walk` yields.
    pub(crate) fn start(
        disk: Arc<dyn Source>,
        walk: ExtentWalk,
        parent: ParentDigests,
        pool: BufferPool,
        threads: usize,
        (cipher, stages): (Cipher, Arc<Stages>),
    ) -> Result<(Self, mpsc::Receiver<Scanned>), ClientError> {
        let claims = Mutex::new(Claims { walk, parent, next_sequence: 0 });
        let examiner = Examiner { disk, cipher, stages, read_bytes: AtomicU64::new(0) };
        let shared = Arc::new(Shared { examiner, pool, claims, lead: Lead::new() });
        let (sender, receiver) = mpsc::channel(LEAD_MAX);
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

    /// Tells that the first `count` results were delivered.
    pub(crate) fn delivered(&self, count: u64) {
        self.shared.lead.delivered(count);
    }

    /// Bytes read from the disk so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.shared.examiner.read_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Scanner {
    /// Stops the threads without waiting for them: one may be in a read that takes its time.
    fn drop(&mut self) {
        self.shared.pool.close();
        self.shared.lead.stop();
    }
}

impl Shared {
    fn work(&self, results: &mpsc::Sender<Scanned>) {
        let _report = PanicReport { results };
        let mut spare: Option<Buffer> = None;
        loop {
            let Some(buffer) = spare.take().or_else(|| self.pool.take()) else { return };
            let Some((sequence, claim)) = self.claim() else { return };
            let examined = claim.and_then(|claim| match claim {
                Claim::Done(result) => Ok((result, Some(buffer))),
                Claim::Read { index, segments, parent } => {
                    self.examiner.examine(index, &segments, parent, buffer)
                }
            });
            let scanned = examined.map(|(result, unused)| {
                spare = unused;
                (sequence, result)
            });
            let failed = scanned.is_err();
            if results.blocking_send(scanned).is_err() || failed {
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
        let claim = match walk.next(&*self.examiner.disk) {
            Ok(None) => return None,
            Ok(Some(span)) => claim_of(span, parent),
            Err(error) => Err(error.into()),
        };
        claims.next_sequence += 1;
        Some((sequence, claim))
    }
}

/// Turns a span into a claim. Only an extent whose digest the parent has can be left unread because the
/// source says it is unchanged.
fn claim_of(span: Span, parent: &mut ParentDigests) -> Result<Claim, ClientError> {
    let done = |result| Ok(Claim::Done(result));
    match span {
        Span::Zero { first, count } => done(ScanResult::Zero { first, count }),
        Span::Accepted { first, count } => done(ScanResult::Accepted { first, count }),
        Span::Read { index, segments } => {
            parent.of_extent(index).map(|parent| Claim::Read { index, segments, parent })
        }
        Span::Unchanged { index, segments } => match parent.of_extent(index)? {
            Fingerprint::UNKNOWN => Ok(Claim::Read { index, segments, parent: Fingerprint::UNKNOWN }),
            Fingerprint::ZERO => done(ScanResult::Zero { first: index, count: 1 }),
            _ => done(ScanResult::Unchanged { index }),
        },
    }
}

/// Sends an error when its thread panics.
struct PanicReport<'a> {
    results: &'a mpsc::Sender<Scanned>,
}

impl Drop for PanicReport<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = ClientError::Internal("a reading thread panicked");
            // Without a receiver the scan has ended anyway.
            drop(self.results.blocking_send(Err(error)));
        }
    }
}

/// Results may be this far ahead of the oldest one not yet delivered. An unchanged extent's result holds no
/// buffer, so this bounds them: 256 × some 100 bytes.
pub(crate) const LEAD_MAX: usize = 256;

/// Makes scanning wait for deliveries.
#[derive(Debug)]
struct Lead {
    /// Deliveries so far; `None` once stopped.
    delivered: Mutex<Option<u64>>,
    moved: Condvar,
}

impl Lead {
    const fn new() -> Self {
        Self { delivered: Mutex::new(Some(0)), moved: Condvar::new() }
    }

    /// Waits until `sequence` is near enough; false once stopped.
    fn wait(&self, sequence: u64) -> bool {
        let mut delivered = self.delivered.lock();
        loop {
            match *delivered {
                None => return false,
                Some(count) if sequence < count + LEAD_MAX as u64 => return true,
                Some(_) => self.moved.wait(&mut delivered),
            }
        }
    }

    /// The first `count` results were delivered.
    fn delivered(&self, count: u64) {
        if let Some(delivered) = &mut *self.delivered.lock() {
            assert!(count >= *delivered, "{count} results delivered after {delivered}");
            *delivered = count;
        }
        self.moved.notify_all();
    }

    /// Stops all threads.
    fn stop(&self) {
        *self.delivered.lock() = None;
        self.moved.notify_all();
    }
}

/// Takes results in any order and gives them in the order of their numbers, from 0 on.
#[derive(Debug, Default)]
pub(crate) struct ReorderBuffer {
    early: BTreeMap<u64, ScanResult>,
    next: u64,
}

impl ReorderBuffer {
    /// Takes one in.
    ///
    /// # Panics
    /// When the number was there before, or is further ahead than scanning may be.
    pub(crate) fn put(&mut self, sequence: u64, result: ScanResult) {
        let ahead = self.next..self.next + LEAD_MAX as u64;
        assert!(ahead.contains(&sequence), "scan result {sequence}, but {ahead:?} are due");
        let twice = self.early.insert(sequence, result);
        assert!(twice.is_none(), "scan result {sequence} came twice");
    }

    /// The next one in order, if it has come.
    pub(crate) fn take(&mut self) -> Option<ScanResult> {
        let result = self.early.remove(&self.next)?;
        self.next += 1;
        Some(result)
    }

    /// Returns the number of results taken.
    pub(crate) const fn taken(&self) -> u64 {
        self.next
    }

    /// Returns true if none wait.
    pub(crate) fn is_empty(&self) -> bool {
        self.early.is_empty()
    }
}

/// Result of scanning one or more extents.
#[derive(Debug)]
pub(crate) enum ScanResult {
    Zero { first: u64, count: u64 },
    Accepted { first: u64, count: u64 },
    Unchanged { index: u64 },
    Changed(Changed),
}

/// A result with its number in disk order, or the error that ends the scan.
pub(crate) type Scanned = Result<(u64, ScanResult), ClientError>;

impl ScanResult {
    /// The first extent it is about, and how many.
    pub(crate) const fn extents(&self) -> (u64, u64) {
        match self {
            Self::Zero { first, count } | Self::Accepted { first, count } => (*first, *count),
            Self::Unchanged { index } | Self::Changed(Changed { index, .. }) => (*index, 1),
        }
    }
}

/// An extent that differs from its parent, cut into chunks.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) index: u64,
    pub(crate) digest: Fingerprint,
    pub(crate) pieces: Vec<Piece>,
    /// One per piece; [`Fingerprint::ZERO`] for runs of zeros.
    pub(crate) fingerprints: Vec<Fingerprint>,
    /// The extent's bytes, from the start; it may be longer than the extent.
    pub(crate) buffer: Buffer,
}

impl Changed {
    /// # Panics
    /// When the pieces are not exactly the extent's `len` bytes, or have other fingerprints than pieces:
    /// the server would be told of another extent than was read.
    pub(crate) fn new(
        index: u64,
        len: u32,
        digest: Fingerprint,
        pieces: Vec<Piece>,
        fingerprints: Vec<Fingerprint>,
        buffer: Buffer,
    ) -> Self {
        let mut end = 0;
        for piece in &pieces {
            assert!(piece.offset == end && piece.len > 0, "extent {index}: {piece:?} at {end}");
            end += piece.len;
        }
        assert!(
            end == len && len as usize <= buffer.len(),
            "extent {index}: pieces of {end} bytes, not {len}"
        );
        assert_eq!(fingerprints.len(), pieces.len(), "extent {index}: fingerprints, pieces");
        Self { index, digest, pieces, fingerprints, buffer }
    }
}
