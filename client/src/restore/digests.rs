//! Extents whose bytes do not hash to what their backup recorded.
//!
//! Every chunk of such an extent hashes to its fingerprint: so it is what was sent when it was backed up. Its digest is what
//! the agent of that backup said of the bytes on the disk.

use std::collections::BTreeSet;

use holdfast_proto::limits::FALSE_DIGESTS_MAX;
use parking_lot::Mutex;

/// Extents of one disk that do not hash to what they should.
#[derive(Debug, Default)]
pub(super) struct FalseDigests(Mutex<(u64, BTreeSet<u64>)>);

impl FalseDigests {
    pub(super) fn add(&self, extent: u64) {
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

    /// Returns the number of false digests, and the first few extents that have one.
    pub(super) fn found(&self) -> (u64, Vec<u64>) {
        let (count, extents) = &*self.0.lock();
        (*count, extents.iter().copied().collect())
    }
}
