//! Which pages are known to be bad.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::sorted_run::SortedRun;

/// Bad pages by sorted run.
pub(crate) type BadPages = BTreeMap<u64, BTreeSet<u32>>;

/// The bad pages met so far, of runs that still count.
#[derive(Debug, Default)]
pub(super) struct Bad {
    pages: Mutex<BadPages>,
    /// Whether there are any, to be asked without a lock.
    any: AtomicBool,
}

impl Bad {
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether this run has bad pages.
    pub(super) fn has(&self, run: &SortedRun) -> bool {
        self.any() && self.pages.lock().contains_key(&run.record.run)
    }

    /// Changes what is known.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut BadPages) -> T) -> T {
        let mut pages = self.pages.lock();
        let done = change(&mut pages);
        self.any.store(!pages.is_empty(), Ordering::Release);
        done
    }
}
