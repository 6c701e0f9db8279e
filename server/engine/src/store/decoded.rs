//! The regions decoded last.

use std::collections::VecDeque;

use bytes::Bytes;
use holdfast_types::ids::ContainerId;
use parking_lot::Mutex;

/// A small cache, least recently used out first. So few entries that a scan beats hashing.
#[derive(Debug)]
pub(super) struct DecodedRegions {
    limit: usize,
    kept: Mutex<VecDeque<(ContainerId, u16, Bytes)>>,
}

impl DecodedRegions {
    pub(super) const fn new(limit: usize) -> Self {
        Self { limit, kept: Mutex::new(VecDeque::new()) }
    }

    pub(super) fn get(&self, container: ContainerId, region: u16) -> Option<Bytes> {
        let mut kept = self.kept.lock();
        let place = kept.iter().position(|(c, r, _)| (*c, *r) == (container, region))?;
        let entry = kept.remove(place)?;
        let plain = entry.2.clone();
        kept.push_front(entry);
        Some(plain)
    }

    pub(super) fn insert(&self, container: ContainerId, region: u16, plain: Bytes) {
        let mut kept = self.kept.lock();
        kept.push_front((container, region, plain));
        kept.truncate(self.limit);
    }
}
