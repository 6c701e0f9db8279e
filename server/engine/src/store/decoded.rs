//! The regions decoded last; of those that agents sealed, what was checked.

use std::collections::VecDeque;

use holdfast_types::ids::ContainerId;
use parking_lot::Mutex;

use crate::container::CheckedBytes;

/// A small cache, least recently used out first. So few entries that a scan beats hashing.
#[derive(Debug)]
pub(super) struct DecodedRegions {
    limit: usize,
    kept: Mutex<VecDeque<(ContainerId, u16, CheckedBytes)>>,
}

impl DecodedRegions {
    pub(super) const fn new(limit: usize) -> Self {
        Self { limit, kept: Mutex::new(VecDeque::new()) }
    }

    pub(super) fn get(&self, container: ContainerId, region: u16) -> Option<CheckedBytes> {
        let mut kept = self.kept.lock();
        let place = kept.iter().position(|(c, r, _)| (*c, *r) == (container, region))?;
        let entry = kept.remove(place)?;
        let checked = entry.2.clone();
        kept.push_front(entry);
        Some(checked)
    }

    pub(super) fn insert(&self, container: ContainerId, region: u16, checked: CheckedBytes) {
        let mut kept = self.kept.lock();
        kept.push_front((container, region, checked));
        kept.truncate(self.limit);
    }
}
