//! Comparing what extents hash to with what their backup says.
//!
//! Every chunk is checked against its fingerprint anyway: so an extent is what was sent when it was backed up.
//! Its digest is what the agent of that backup said of the bytes on the disk. Chunks arrive in any order, so each
//! extent of a window is put together in a buffer, hashed when it is whole, and the buffer is used again: at most
//! one window of 64 MiB and what is decoded ahead of the next.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{EXTENT_BYTES, FALSE_DIGESTS_MAX};
use parking_lot::Mutex;

use super::window::WindowPlan;
use crate::pool::ObjectPool;
use crate::slices::part_mut;

/// Buffers of extents, to be used again.
pub(super) type ExtentBuffers = ObjectPool<Vec<u8>>;

/// Extents of one disk that do not hash to what they should.
#[derive(Debug, Default)]
pub(super) struct FalseDigests(Mutex<(u64, BTreeSet<u64>)>);

impl FalseDigests {
    fn add(&self, extent: u64) {
        let (count, extents) = &mut *self.0.lock();
        // Read twice after a lost connection, it counts once, as far as is remembered.
        if extents.contains(&extent) {
            return;
        }
        *count += 1;
        if extents.len() < FALSE_DIGESTS_MAX {
            extents.insert(extent);
        }
    }

    /// How many, and the numbers of the first few.
    pub(super) fn found(&self) -> (u64, Vec<u64>) {
        let (count, extents) = &*self.0.lock();
        (*count, extents.iter().copied().collect())
    }
}

/// The extents of a window that have a digest to be compared.
#[derive(Debug)]
pub(super) struct WindowDigests {
    plan: Arc<WindowPlan>,
    extents: Vec<Option<Mutex<Open>>>,
}

/// An extent being put together.
#[derive(Debug)]
struct Open {
    digest: Fingerprint,
    /// Bytes of chunks that are still to come.
    missing: u64,
    /// Empty until the first chunk arrives.
    bytes: Vec<u8>,
}

impl WindowDigests {
    pub(super) fn of(plan: &Arc<WindowPlan>) -> Self {
        let open = |(digest, missing)| Mutex::new(Open { digest, missing, bytes: Vec::new() });
        let extents = plan.claims().into_iter().map(|claim| claim.map(open)).collect();
        Self { plan: Arc::clone(plan), extents }
    }

    /// A chunk that was checked, at `offset` of the disk. Hashes the extent when it was the last of it.
    pub(super) fn chunk(&self, offset: u64, chunk: &[u8], buffers: &ExtentBuffers, found: &FalseDigests) {
        let number = self.plan.extent_of(offset);
        let Some(Some(extent)) = self.extents.get(number) else { return };
        let start = self.plan.start + number as u64 * u64::from(EXTENT_BYTES);
        let whole = {
            let mut open = extent.lock();
            if open.bytes.is_empty() {
                open.bytes = self.buffer(start, buffers);
            }
            let at = usize::try_from(offset - start).unwrap_or(usize::MAX);
            part_mut(&mut open.bytes, at, chunk.len()).copy_from_slice(chunk);
            open.missing = open.missing.saturating_sub(chunk.len() as u64);
            if open.missing > 0 {
                return;
            }
            std::mem::take(&mut open.bytes)
        };
        if Fingerprint::of(&whole) != extent.lock().digest {
            found.add(start / u64::from(EXTENT_BYTES));
        }
        buffers.put(whole);
    }

    /// A buffer as long as the extent at `start`, zeros where it has any; the rest is whatever it was.
    fn buffer(&self, start: u64, buffers: &ExtentBuffers) -> Vec<u8> {
        let end = self.plan.end.min(start + u64::from(EXTENT_BYTES));
        let mut bytes = buffers.take_or(|| Ok::<_, std::convert::Infallible>(Vec::new())).unwrap_or_default();
        bytes.resize(usize::try_from(end - start).unwrap_or_default(), 0);
        let place = |offset: u64| usize::try_from(offset.clamp(start, end) - start).unwrap_or_default();
        for &(offset, len) in &self.plan.zeros {
            let (from, to) = (place(offset), place(offset.saturating_add(len)));
            part_mut(&mut bytes, from, to - from).fill(0);
        }
        bytes
    }
}
