//! How many extent digests were proved, and how many proved false, since the start.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted while the engine runs.
#[derive(Debug, Default)]
pub(crate) struct DigestCounters {
    proved: AtomicU64,
    unproved: AtomicU64,
    refused: AtomicU64,
    found_false: AtomicU64,
}

/// Extent digests since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DigestStats {
    /// Claimed by agents and recomputed from what they sent.
    pub proved: u64,
    /// Claimed by agents and not recomputed: not all the extent's chunks were at hand.
    pub unproved: u64,
    /// Claimed by agents and found false at once; their backups ended.
    pub refused: u64,
    /// Recorded before and found false by reading.
    pub found_false: u64,
}

impl DigestCounters {
    pub(crate) fn proved(&self) {
        self.proved.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unproved(&self) {
        self.unproved.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn found_false(&self, count: u64) {
        self.found_false.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> DigestStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DigestStats {
            proved: read(&self.proved),
            unproved: read(&self.unproved),
            refused: read(&self.refused),
            found_false: read(&self.found_false),
        }
    }
}
