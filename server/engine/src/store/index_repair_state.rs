//! A repair of the index under way.

use std::sync::atomic::{AtomicU64, Ordering};

use roaring::RoaringTreemap;

use crate::index::BadPages;

/// A repair under way.
#[derive(Debug)]
pub(super) struct Repair {
    pub(super) bad: BadPages,
    /// Numbers of containers.
    pub(super) done: RoaringTreemap,
    pub(super) left: RoaringTreemap,
}

/// How far it is, for readers that must not wait for a step.
#[derive(Debug, Default)]
pub(super) struct RepairProgress {
    pub(super) done: AtomicU64,
    pub(super) total: AtomicU64,
}

impl RepairProgress {
    pub(super) fn store(&self, repair: &Repair) {
        self.total.store(repair.done.len() + repair.left.len(), Ordering::Relaxed);
        self.done.store(repair.done.len(), Ordering::Relaxed);
    }
}
