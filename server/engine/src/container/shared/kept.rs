//! Which runs of regions are kept: in two parts, so that a restore that no one shares anything with does not push out
//! what others share right now.
//!
//! A run comes into the first part, which is least recently used out first. One that is asked for again moves to the
//! second. The first part may always have a quarter of the room, so that a new pair of restores is noticed; the second
//! has what it needs of the rest, for as long as it is in use: what was not asked for while twice the room was read is
//! let go before anything else.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use holdfast_types::ids::ContainerId;

use super::Run;

/// The first part's share of the room: one in so many.
const FIRST_PART: usize = 4;

/// After so many times the room was read without anyone asking for it, a run is of no more use than a new one.
const USEFUL_FOR: u64 = 2;

/// Memory of an entry beside its payload, per region: two table entries and the region's own fields.
const REGION_OVERHEAD_BYTES: usize = 256;

/// Runs, by region and by when they were last asked for.
#[derive(Debug, Default)]
pub(super) struct Kept {
    runs: HashMap<u64, Entry>,
    by_region: HashMap<(ContainerId, u16), u64>,
    first: Part,
    second: Part,
    next_number: u64,
    clock: u64,
    /// Bytes put in so far, to tell how long ago something was.
    read_bytes: u64,
}

#[derive(Debug)]
struct Entry {
    run: Arc<Run>,
    bytes: usize,
    /// Its key in its part.
    used: u64,
    /// `read_bytes` when it was last asked for.
    at: u64,
    in_second: bool,
}

/// Runs in order of use.
#[derive(Debug, Default)]
struct Part {
    order: BTreeMap<u64, u64>,
    bytes: usize,
}

impl Kept {
    /// The run that has a region; it counts as asked for.
    pub(super) fn get(&mut self, container: ContainerId, region: u16) -> Option<Arc<Run>> {
        let number = *self.by_region.get(&(container, region))?;
        let (clock, read_bytes) = (self.clock + 1, self.read_bytes);
        let entry = self.runs.get_mut(&number)?;
        let from = if entry.in_second { &mut self.second } else { &mut self.first };
        from.order.remove(&entry.used);
        from.bytes -= entry.bytes;
        self.clock = clock;
        (entry.used, entry.at, entry.in_second) = (clock, read_bytes, true);
        self.second.order.insert(clock, number);
        self.second.bytes += entry.bytes;
        Some(Arc::clone(&entry.run))
    }

    /// Keeps a run of regions none of which is kept, and at most `limit` bytes of all.
    pub(super) fn insert(&mut self, container: ContainerId, run: Arc<Run>, limit: usize) {
        let bytes = run.iter().map(|region| region.payload.len() + REGION_OVERHEAD_BYTES).sum();
        self.clock += 1;
        self.next_number += 1;
        self.read_bytes += bytes as u64;
        let number = self.next_number;
        for region in run.iter() {
            let before = self.by_region.insert((container, region.region), number);
            assert!(before.is_none(), "region {} of {container} is kept twice", region.region);
        }
        self.first.order.insert(self.clock, number);
        self.first.bytes += bytes;
        let entry = Entry { run, bytes, used: self.clock, at: self.read_bytes, in_second: false };
        self.runs.insert(number, entry);
        while self.bytes() > limit
            && let Some(oldest) = self.least_useful(limit)
        {
            self.remove(oldest);
        }
    }

    /// Forgets all regions of a container.
    pub(super) fn forget(&mut self, container: ContainerId) {
        let of = self.by_region.iter().filter(|((id, _), _)| *id == container).map(|(_, number)| *number);
        let numbers: Vec<u64> = of.collect();
        numbers.into_iter().for_each(|number| self.remove(number));
    }

    /// Bytes of memory held.
    pub(super) const fn bytes(&self) -> usize {
        self.first.bytes + self.second.bytes
    }

    fn least_useful(&self, limit: usize) -> Option<u64> {
        let first = self.first.order.first_key_value().map(|(_, number)| *number);
        let second = self.second.order.first_key_value().map(|(_, number)| *number);
        let useful_bytes = USEFUL_FOR * limit as u64;
        let is_stale = |number: &u64| {
            self.runs.get(number).is_some_and(|entry| self.read_bytes - entry.at > useful_bytes)
        };
        if second.as_ref().is_some_and(is_stale) || self.first.bytes <= limit / FIRST_PART {
            return second.or(first);
        }
        first.or(second)
    }

    fn remove(&mut self, number: u64) {
        let Some(Entry { run, bytes, used, in_second, .. }) = self.runs.remove(&number) else { return };
        let part = if in_second { &mut self.second } else { &mut self.first };
        part.order.remove(&used);
        part.bytes -= bytes;
        for region in run.iter() {
            self.by_region.remove(&(run.container, region.region));
        }
    }
}
