//! How far a disk's stream is, for readers that must not wait for it.
//!
//! A stream stores its position after each message; a reader takes what is there. The numbers may be of two
//! neighbouring messages. Each of them only grows, but for duplicates: a chunk that another stream was to bring is new
//! when this one brings it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where a stream is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) extents: u64,
    pub(super) unchanged_bytes: u64,
    pub(super) dup_bytes: u64,
    pub(super) new_bytes: u64,
    pub(super) wire_bytes: u64,
    pub(super) stored_bytes: u64,
    pub(super) finished: bool,
}

impl Position {
    /// Without what any message moves, such as one that says nothing new.
    pub(super) const fn work(self) -> Self {
        Self { wire_bytes: 0, ..self }
    }
}

/// The position a stream stored last.
#[derive(Debug, Default)]
pub(super) struct DiskProgress {
    extents: AtomicU64,
    unchanged_bytes: AtomicU64,
    dup_bytes: AtomicU64,
    new_bytes: AtomicU64,
    wire_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    finished: AtomicBool,
}

impl DiskProgress {
    /// A few plain stores, on a path that has just handled up to a megabyte.
    pub(super) fn store(&self, at: Position) {
        let store = |to: &AtomicU64, value| to.store(value, Ordering::Relaxed);
        store(&self.extents, at.extents);
        store(&self.unchanged_bytes, at.unchanged_bytes);
        store(&self.dup_bytes, at.dup_bytes);
        store(&self.new_bytes, at.new_bytes);
        store(&self.wire_bytes, at.wire_bytes);
        store(&self.stored_bytes, at.stored_bytes);
        self.finished.store(at.finished, Ordering::Relaxed);
    }

    pub(super) fn load(&self) -> Position {
        let load = |from: &AtomicU64| from.load(Ordering::Relaxed);
        Position {
            extents: load(&self.extents),
            unchanged_bytes: load(&self.unchanged_bytes),
            dup_bytes: load(&self.dup_bytes),
            new_bytes: load(&self.new_bytes),
            wire_bytes: load(&self.wire_bytes),
            stored_bytes: load(&self.stored_bytes),
            finished: self.finished.load(Ordering::Relaxed),
        }
    }
}
