//! Extents of a window, put together from chunks that arrive in any order.
//!
//! An extent that is whole is compared with the digest its backup recorded (what the agent of that backup said of the
//! bytes on the disk), and goes to the target in one piece: the bytes are there once for both. Where that proves nothing,
//! because there is no digest, it is another, or something of the extent is lost, each chunk is compared with its
//! fingerprint (R2). What is known to be lost is left out, and so are zeros, which the target was told of before.
//!
//! Memory: [`EXTENTS_MAX`] extents of 4 MiB, or [`EXTENTS_MAX_SEVERAL`], from the window's beginning until they are
//! written. A window takes its room at once and before any of it arrives, so no thread that decodes ever waits for
//! room. Windows that arrive side by side may wait for each other here, each in a task of its own: one that has its
//! room needs nothing of the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{EXTENT_BYTES, WINDOW_EXTENTS};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::window::{Placed, WindowPlan};
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::pool::{ObjectPool, Pages};
use crate::slices::{part, part_mut};

/// Extents in memory at most: one window being written while the next arrives, 128 MiB.
pub(super) const EXTENTS_MAX: usize = 2 * WINDOW_EXTENTS;
/// As `EXTENTS_MAX`, when several connections bring windows side by side: 16, each one of the first spans.
pub(super) const EXTENTS_MAX_SEVERAL: usize = 64;

/// Buffers of extents, to be used again. What they hold is left over from their last use.
pub(super) type ExtentBuffers = ObjectPool<Pages>;

/// The extents of one window.
#[derive(Debug)]
pub(super) struct WindowExtents {
    plan: Arc<WindowPlan>,
    /// `None`: nothing of it arrives.
    extents: Vec<Option<Mutex<Open>>>,
    /// Number of extents that are neither whole nor lost yet.
    open: AtomicUsize,
}

/// An extent being put together.
#[derive(Debug)]
struct Open {
    digest: Option<Fingerprint>,
    /// Bytes of chunks that are still to come.
    missing: u64,
    /// Bytes of the extent; empty until the first chunk arrives.
    bytes: Pages,
    /// Offsets on the disk and lengths of what will not come.
    lost: Vec<(u64, u64)>,
    /// True if each chunk that came had been compared with its fingerprint.
    is_checked: bool,
    room: Option<OwnedSemaphorePermit>,
}

/// An extent all of which arrived, or will not. Nothing is said of what it holds.
#[derive(Debug)]
pub(super) struct SettledExtent {
    whole: WholeExtent,
    /// The digest of all its bytes, if it is known and nothing is lost.
    digest: Option<Fingerprint>,
    is_checked: bool,
    /// Offsets on the disk and lengths of what is not to be written, beside zeros.
    lost: Vec<(u64, u64)>,
}

/// An extent that is what it should be, but for what is left out of its runs.
#[derive(Debug)]
pub(super) struct WholeExtent {
    /// Offset of the extent on the disk.
    pub(super) offset: u64,
    /// Bytes of the extent; empty if no chunk of it arrived.
    pub(super) bytes: Pages,
    /// Ranges to write: offsets within the extent and lengths.
    pub(super) runs: Vec<(usize, usize)>,
    /// Room for the extent, given back when it is written.
    _room: Option<OwnedSemaphorePermit>,
}

/// An extent that was looked at.
#[derive(Debug)]
pub(super) struct Proof<'a> {
    pub(super) whole: WholeExtent,
    /// Chunks that do not hash to their fingerprints, each with its one place, and what they hash to. They are left out.
    pub(super) wrong: Vec<(Placed<'a>, Fingerprint)>,
    /// Set if all chunks match their fingerprints, but the extent does not match the digest its backup recorded.
    pub(super) is_false: bool,
}

impl WindowExtents {
    /// The extents of a window; waits until there is room for those of which something arrives.
    ///
    /// # Errors
    /// [`ClientError::Internal`] when `room` was closed.
    pub(super) async fn begin(plan: &Arc<WindowPlan>, room: &Arc<Semaphore>) -> Result<Self, ClientError> {
        let due = plan.due();
        let count = due.iter().filter(|(_, bytes)| *bytes > 0).count();
        let closed = ClientError::Internal("the room for extents was closed");
        let wanted = u32::try_from(count).unwrap_or(u32::MAX);
        let mut permits = Arc::clone(room).acquire_many_owned(wanted).await.map_err(|_| closed)?;
        let open = |(digest, missing)| {
            let room = if missing > 0 { permits.split(1) } else { None };
            let open =
                Open { digest, missing, bytes: Pages::default(), lost: Vec::new(), is_checked: true, room };
            (missing > 0).then(|| Mutex::new(open))
        };
        let extents = due.into_iter().map(open).collect();
        Ok(Self { plan: Arc::clone(plan), extents, open: count.into() })
    }

    /// Returns true once every extent of the window is whole or lost.
    pub(super) fn is_settled(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }

    /// Returns true if `offset` of the disk is in this window.
    pub(super) fn contains(&self, offset: u64) -> bool {
        (self.plan.start..self.plan.end).contains(&offset)
    }

    /// A chunk at `offset` of the disk; `is_checked`: it hashes to its fingerprint. Returns the extent when this was the last
    /// of it.
    pub(super) fn chunk(
        &self,
        offset: u64,
        (chunk, is_checked): (&[u8], bool),
        buffers: &ExtentBuffers,
    ) -> Option<SettledExtent> {
        let (start, extent) = self.extent(offset)?;
        let mut open = extent.lock();
        if open.bytes.is_empty() {
            open.bytes = self.buffer(start, open.digest.is_some(), buffers);
        }
        let at = usize::try_from(offset - start).unwrap_or(usize::MAX);
        part_mut(&mut open.bytes, at, chunk.len()).copy_from_slice(chunk);
        open.is_checked &= is_checked;
        self.settle(start, &mut open, chunk.len() as u64)
    }

    /// (R2) Proves an extent: all of it, by its digest, or else each chunk by its fingerprint.
    pub(super) fn prove(&self, settled: SettledExtent, cipher: &Cipher) -> Proof<'_> {
        let SettledExtent { mut whole, digest, is_checked, mut lost } = settled;
        let is_right = digest.map(|digest| cipher.digest(&whole.bytes) == digest);
        let mut wrong = Vec::new();
        if is_right != Some(true) && !is_checked {
            for chunk in self.plan.within(whole.offset..self.end(whole.offset)) {
                let place = chunk.places.first().copied().unwrap_or_default();
                if lost.iter().any(|(offset, _)| *offset == place) {
                    continue;
                }
                let at = usize::try_from(place - whole.offset).unwrap_or(usize::MAX);
                let actual = cipher.fingerprint(part(&whole.bytes, at, chunk.len as usize));
                if actual != chunk.fingerprint {
                    wrong.push((chunk, actual));
                }
            }
        }
        lost.extend(
            wrong.iter().flat_map(|(chunk, _)| chunk.places.iter().map(|at| (*at, chunk.len.into()))),
        );
        whole.runs = self.runs(whole.offset, &lost);
        Proof { whole, is_false: is_right == Some(false) && wrong.is_empty(), wrong }
    }

    /// A chunk that will not come. Returns the extent when this was the last of it. Nothing, for an extent of which
    /// nothing was to come.
    pub(super) fn lose(&self, offset: u64, len: u64) -> Option<SettledExtent> {
        let (start, extent) = self.extent(offset)?;
        let mut open = extent.lock();
        open.lost.push((offset, len));
        self.settle(start, &mut open, len)
    }

    /// The extent at `offset` of the disk, and where it begins.
    fn extent(&self, offset: u64) -> Option<(u64, &Mutex<Open>)> {
        let number = self.plan.extent_of(offset);
        let extent = self.extents.get(number)?.as_ref()?;
        Some((self.plan.start + number as u64 * u64::from(EXTENT_BYTES), extent))
    }

    /// `bytes` of the extent are no longer missing.
    fn settle(&self, start: u64, open: &mut Open, bytes: u64) -> Option<SettledExtent> {
        let Some(missing) = open.missing.checked_sub(bytes) else {
            unreachable!(
                "{bytes} bytes more for the extent at {start}, of which {} are missing",
                open.missing
            );
        };
        open.missing = missing;
        if missing > 0 {
            return None;
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        let lost = std::mem::take(&mut open.lost);
        let digest = open.digest.filter(|_| lost.is_empty());
        let (bytes, room) = (std::mem::take(&mut open.bytes), open.room.take());
        let whole = WholeExtent { offset: start, bytes, runs: Vec::new(), _room: room };
        Some(SettledExtent { whole, digest, is_checked: open.is_checked, lost })
    }

    /// Returns the ranges of the extent at `start` whose data arrived: all but zeros and what is lost.
    fn runs(&self, start: u64, lost: &[(u64, u64)]) -> Vec<(usize, usize)> {
        let end = self.end(start);
        let mut gaps: Vec<(u64, u64)> = self.zeros(start, end).chain(lost.iter().copied()).collect();
        gaps.sort_unstable();
        let mut runs = Vec::with_capacity(gaps.len() + 1);
        let mut from = start;
        for (offset, len) in gaps.into_iter().chain([(end, 0)]) {
            if offset > from {
                let place = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
                runs.push((place(from - start), place(offset - from)));
            }
            from = from.max(offset + len);
        }
        runs
    }

    /// A buffer as long as the extent at `start`; with `zeros`, zeros where it has any. The rest is whatever it was.
    fn buffer(&self, start: u64, zeros: bool, buffers: &ExtentBuffers) -> Pages {
        let end = self.end(start);
        let mut bytes = buffers.take_or(|| Err(())).unwrap_or_else(|()| Pages::new(EXTENT_BYTES as usize));
        bytes.set_len(usize::try_from(end - start).unwrap_or_default());
        for (offset, len) in self.zeros(start, end).filter(|_| zeros) {
            let place = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
            part_mut(&mut bytes, place(offset - start), place(len)).fill(0);
        }
        bytes
    }

    /// Zeros between `start` and `end`.
    fn zeros(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let clip = move |&(offset, len): &(u64, u64)| {
            let (from, to) = (offset.max(start), offset.saturating_add(len).min(end));
            (from < to).then(|| (from, to - from))
        };
        self.plan.zeros.iter().filter_map(clip)
    }

    fn end(&self, start: u64) -> u64 {
        self.plan.end.min(start + u64::from(EXTENT_BYTES))
    }
}
