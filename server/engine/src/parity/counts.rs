//! What parity was good for since the start.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted while the engine runs.
#[derive(Debug, Default)]
pub struct ParityCounters {
    read: AtomicU64,
    repaired: AtomicU64,
}

/// Since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParityStats {
    /// Damaged containers made again in memory, because something was to be read of them.
    pub read: u64,
    /// Damaged containers of which everything damaged was written into sound ones.
    pub repaired: u64,
}

impl ParityCounters {
    pub fn read(&self) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    pub fn repaired(&self) {
        self.repaired.fetch_add(1, Ordering::Relaxed);
    }

    pub fn stats(&self) -> ParityStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ParityStats { read: count(&self.read), repaired: count(&self.repaired) }
    }
}
