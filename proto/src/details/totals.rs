//! Totals per run, VM, job and repository.

use std::collections::BTreeMap;

use super::Factors;
use crate::api::{DetailRow, RowStatus};

/// Groups that totals are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    Run,
    Vm,
    Job,
    Repository,
}

/// Sums over rows. Failed rows count too: what they wrote is in the repository until it is reclaimed. In the factors they
/// count once a restore point came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Name of the group: a run's id, a VM's or job's name with its namespace; empty for the repository.
    pub name: String,
    pub rows: u64,
    pub failed: u64,
    pub virtual_bytes: u64,
    pub bytes: u64,
    pub read_bytes: u64,
    pub unchanged_bytes: u64,
    pub dup_bytes: u64,
    pub new_bytes: u64,
    pub post_lc: u64,
    pub meta_bytes: u64,
    pub wire_bytes: u64,
    pub chunks: u64,
    pub new_chunks: u64,
    pub started_ms: i64,
    pub finished_ms: i64,
    /// `bytes` of the rows that are done.
    pub done_bytes: u64,
    /// Their `new_bytes` and `post_lc`, with those of the attempts before them that made no restore point.
    pub done_new_bytes: u64,
    pub done_post_lc: u64,
}

impl Totals {
    /// Adds one row.
    pub fn add(&mut self, row: &DetailRow) {
        // A disk may claim a pebibyte: a sum stays at the largest number there is, and never becomes a small one.
        let add = |sum: &mut u64, value: u64| *sum = sum.saturating_add(value);
        self.started_ms = if self.rows == 0 { row.started_ms } else { self.started_ms.min(row.started_ms) };
        self.finished_ms = self.finished_ms.max(row.finished_ms);
        self.rows += 1;
        add(&mut self.virtual_bytes, row.virtual_bytes);
        add(&mut self.bytes, row.bytes);
        add(&mut self.read_bytes, row.read_bytes);
        add(&mut self.unchanged_bytes, row.unchanged_bytes);
        add(&mut self.dup_bytes, row.dup_bytes);
        add(&mut self.new_bytes, row.new_bytes);
        add(&mut self.post_lc, row.post_lc);
        add(&mut self.meta_bytes, row.meta_bytes);
        add(&mut self.wire_bytes, row.wire_bytes);
        add(&mut self.chunks, row.chunks);
        add(&mut self.new_chunks, row.new_chunks);
        if row.status != RowStatus::Done {
            self.failed += 1;
            return;
        }
        add(&mut self.done_bytes, row.bytes);
        add(&mut self.done_new_bytes, row.new_bytes.saturating_add(row.retried_new_bytes));
        add(&mut self.done_post_lc, row.post_lc.saturating_add(row.retried_post_lc));
    }

    /// The group's factors.
    pub fn factors(&self) -> Factors {
        Factors::of(self.done_bytes, self.done_new_bytes, self.done_post_lc)
    }

    /// From the first start to the last finish, in seconds.
    pub fn seconds(&self) -> f64 {
        super::seconds_between(self.started_ms, self.finished_ms)
    }
}

/// Totals of `rows`, in order of the group's name (for runs: of time).
pub fn totals(rows: &[DetailRow], by: GroupBy) -> Vec<Totals> {
    let mut groups: BTreeMap<String, Totals> = BTreeMap::new();
    for row in rows {
        let name = match by {
            GroupBy::Run => row.run.clone(),
            GroupBy::Vm => format!("{}/{}", row.namespace, row.vm),
            GroupBy::Job => format!("{}/{}", row.namespace, row.job),
            GroupBy::Repository => String::new(),
        };
        let group = groups.entry(name.clone()).or_default();
        group.name = name;
        group.add(row);
    }
    groups.into_values().collect()
}
