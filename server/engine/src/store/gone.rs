//! Containers that are being deleted, or are in an archive.
//!
//! A container is *refused* while it is decided whether it goes: no one may begin to count on it, and readers go on
//! reading. Then it is *gone*, and nothing is found in it, or it counts again. So a reader never misses a chunk of a
//! container that stays. (D2)
//!
//! Containers that are in an archive, or on their way there, are *cold*: no one may begin to rely on these either, and
//! readers go on. (T10)

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_types::ids::ContainerId;
use parking_lot::RwLock;
use roaring::RoaringTreemap;

/// Numbers of containers that are refused, gone or cold.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// Set once there are any: all that most look-ups read in a repository in which nothing was deleted.
    any: AtomicBool,
    /// Grows with every change.
    changes: AtomicU64,
    sets: RwLock<Sets>,
}

#[derive(Debug, Default)]
struct Sets {
    refused: RoaringTreemap,
    /// Numbers are never used again, so it only grows: a bit or two each.
    gone: RoaringTreemap,
    /// Containers in an archive, or about to be.
    cold: RoaringTreemap,
}

impl Gone {
    /// Refuses the container: from now on no one begins to rely on it. Returns true if that is news.
    pub(super) fn refuse(&self, id: ContainerId) -> bool {
        let mut sets = self.sets.write();
        let is_news = !sets.gone.contains(id.get()) && sets.refused.insert(id.get());
        self.changed();
        is_news
    }

    /// Marks the container cold: from now on no one begins to rely on it, and it is not refused: it stays.
    pub(super) fn freeze(&self, id: ContainerId) {
        self.sets.write().cold.insert(id.get());
        self.changed();
    }

    /// Unmarks a container that does not go to the archive after all.
    pub(super) fn keep_warm(&self, id: ContainerId) {
        self.sets.write().cold.remove(id.get());
        self.changed();
    }

    pub(super) fn is_cold(&self, id: ContainerId) -> bool {
        self.any.load(Ordering::Acquire) && self.sets.read().cold.contains(id.get())
    }

    /// Returns true if any container is cold.
    pub(super) fn has_cold(&self) -> bool {
        self.any.load(Ordering::Acquire) && !self.sets.read().cold.is_empty()
    }

    pub(super) fn has_cold_of(&self, containers: &RoaringTreemap) -> bool {
        self.any.load(Ordering::Acquire) && !self.sets.read().cold.is_disjoint(containers)
    }

    /// Ends the refusal: the container stays, and counts again.
    pub(super) fn take_back(&self, id: ContainerId) {
        let mut sets = self.sets.write();
        sets.refused.remove(id.get());
        sets.gone.remove(id.get());
        self.changed();
    }

    /// Marks the container gone: from now on nothing is found in it.
    pub(super) fn insert(&self, id: ContainerId) {
        let mut sets = self.sets.write();
        sets.refused.remove(id.get());
        sets.gone.insert(id.get());
        self.changed();
    }

    /// Under the lock, so that who sees the change sees the number.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.any.store(true, Ordering::Release);
    }

    pub(super) fn contains(&self, id: ContainerId) -> bool {
        self.any.load(Ordering::Acquire) && self.sets.read().gone.contains(id.get())
    }

    pub(super) fn is_refused(&self, id: ContainerId) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let sets = self.sets.read();
        let id = id.get();
        // (T10)
        sets.refused.contains(id) || sets.gone.contains(id) || sets.cold.contains(id)
    }

    pub(super) fn has_any_of(&self, containers: &RoaringTreemap) -> bool {
        self.any.load(Ordering::Acquire) && !self.sets.read().gone.is_disjoint(containers)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}
