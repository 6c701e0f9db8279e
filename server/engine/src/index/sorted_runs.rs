//! The set of sorted runs at one moment, and the lookup through it.

use std::sync::Arc;

use super::sorted_run::SortedRun;
use crate::format::index_manifest::SortedRunRecord;
use crate::format::sorted_run::{SHARDS, ShardRange};

/// Immutable; every change makes a new one.
#[derive(Debug, Clone)]
pub(super) struct SortedRuns {
    /// Runs of all shards, newest first.
    pub(super) wide: Vec<Arc<SortedRun>>,
    /// Runs of each shard, newest first; all older than the wide ones.
    shards: Vec<Vec<Arc<SortedRun>>>,
    /// The most runs of any one shard.
    shard_depth: usize,
}

impl SortedRuns {
    /// No sorted runs.
    pub(super) fn new() -> Self {
        Self { wide: Vec::new(), shards: vec![Vec::new(); usize::from(SHARDS)], shard_depth: 0 }
    }

    /// From runs in the manifest's order.
    pub(super) fn from_runs(runs: Vec<SortedRun>) -> Self {
        let mut set = Self::new();
        for run in runs {
            set.list_mut(run.record.shards).push(Arc::new(run));
        }
        set.measured()
    }

    /// The runs of one shard that are not wide.
    pub(super) fn shard(&self, shard: usize) -> &[Arc<SortedRun>] {
        self.shards.get(shard).map(Vec::as_slice).unwrap_or_default()
    }

    fn list_mut(&mut self, shards: ShardRange) -> &mut Vec<Arc<SortedRun>> {
        match self.shards.get_mut(usize::from(shards.first())) {
            Some(list) if shards.count() == 1 => list,
            _ => &mut self.wide,
        }
    }

    /// Every run, in the manifest's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<SortedRun>> {
        self.wide.iter().chain(self.shards.iter().flatten())
    }

    /// As the manifest keeps it.
    pub(super) fn records(&self) -> Vec<SortedRunRecord> {
        self.iter().map(|run| run.record).collect()
    }

    /// Replaces runs by others. A new run takes the place of the newest replaced run of its list, or comes
    /// first.
    pub(super) fn replace(&self, old: &[Arc<SortedRun>], new: &[Arc<SortedRun>]) -> Self {
        let gone = |run: &Arc<SortedRun>| old.iter().any(|other| other.record.run == run.record.run);
        let mut set = self.clone();
        for run in new {
            let list = set.list_mut(run.record.shards);
            let place = list.iter().position(gone).unwrap_or(0);
            list.insert(place, Arc::clone(run));
        }
        set.wide.retain(|run| !gone(run));
        for list in &mut set.shards {
            list.retain(|run| !gone(run));
        }
        set.measured()
    }

    fn measured(mut self) -> Self {
        self.shard_depth = self.shards.iter().map(Vec::len).max().unwrap_or(0);
        self
    }

    /// The most runs a lookup in any one shard may have to ask.
    pub(super) fn depth(&self) -> usize {
        self.wide.len() + self.shard_depth()
    }

    /// The most runs of any one shard, wide ones not counted.
    pub(super) fn shard_depth(&self) -> usize {
        self.shard_depth
    }
}
