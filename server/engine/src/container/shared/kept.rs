//! Which runs of regions are kept: those that were asked for last.
//!
//! Every restore that takes a run makes it the newest again. So one stays when the next restore asks for it before all
//! restores together have gone through as much as there is room for: of restores that follow each other, all share when
//! the last is no further behind the first than that. A long restore that shares nothing takes of the room in proportion
//! to what it reads, and no more. (Two parts, of which the second holds what was asked for twice, did worse: what is new
//! then has a part of the room only, and the first restore that follows must be nearer.)

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use holdfast_types::ids::ContainerId;

use super::Run;

/// Memory of a region beside its payload: its own fields and two table entries.
const REGION_OVERHEAD_BYTES: usize = 256;

/// Runs, by region and by when they were last asked for.
#[derive(Debug, Default)]
pub(super) struct Kept {
    by_region: HashMap<(ContainerId, u16), u64>,
    /// The key is when it was last asked for; each is used once.
    runs: BTreeMap<u64, Arc<Run>>,
    clock: u64,
    bytes: usize,
}

impl Kept {
    /// The run that has a region; it is the newest now.
    pub(super) fn get(&mut self, container: ContainerId, region: u16) -> Option<Arc<Run>> {
        let used = *self.by_region.get(&(container, region))?;
        let run = self.runs.remove(&used)?;
        self.put(&run);
        Some(run)
    }

    /// Keeps a run of regions none of which is kept, and at most `limit` bytes of all.
    pub(super) fn insert(&mut self, run: &Arc<Run>, limit: usize) {
        let is_kept = |region: u16| self.by_region.contains_key(&(run.container, region));
        assert!(!run.iter().any(|stored| is_kept(stored.region)), "a region of {} twice", run.container);
        self.bytes += memory_bytes(run);
        self.put(run);
        while self.bytes > limit
            && let Some((_, oldest)) = self.runs.pop_first()
        {
            self.dropped(&oldest);
        }
    }

    /// Forgets all regions of a container.
    pub(super) fn forget(&mut self, container: ContainerId) {
        let forgotten: Vec<_> = self.runs.extract_if(.., |_, run| run.container == container).collect();
        forgotten.iter().for_each(|(_, run)| self.dropped(run));
    }

    /// Bytes of memory held.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn put(&mut self, run: &Arc<Run>) {
        self.clock += 1;
        for stored in run.iter() {
            self.by_region.insert((run.container, stored.region), self.clock);
        }
        self.runs.insert(self.clock, Arc::clone(run));
    }

    /// A run is no longer among `runs`.
    fn dropped(&mut self, run: &Run) {
        self.bytes -= memory_bytes(run);
        for stored in run.iter() {
            self.by_region.remove(&(run.container, stored.region));
        }
    }
}

fn memory_bytes(run: &Run) -> usize {
    run.iter().map(|stored| stored.payload.len() + REGION_OVERHEAD_BYTES).sum()
}
