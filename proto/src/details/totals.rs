//! Rows added up.

use super::Factors;
use crate::api::{DetailRow, RowStatus, Sums, Totals};

impl Totals {
    /// Adds one row.
    pub fn add(&mut self, row: &DetailRow) {
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

    /// Adds other rows' sums.
    pub fn merge(&mut self, other: &Self) {
        if other.rows == 0 {
            return;
        }
        self.started_ms =
            if self.rows == 0 { other.started_ms } else { self.started_ms.min(other.started_ms) };
        self.finished_ms = self.finished_ms.max(other.finished_ms);
        add(&mut self.rows, other.rows);
        add(&mut self.failed, other.failed);
        add(&mut self.virtual_bytes, other.virtual_bytes);
        add(&mut self.bytes, other.bytes);
        add(&mut self.read_bytes, other.read_bytes);
        add(&mut self.unchanged_bytes, other.unchanged_bytes);
        add(&mut self.dup_bytes, other.dup_bytes);
        add(&mut self.new_bytes, other.new_bytes);
        add(&mut self.post_lc, other.post_lc);
        add(&mut self.meta_bytes, other.meta_bytes);
        add(&mut self.wire_bytes, other.wire_bytes);
        add(&mut self.chunks, other.chunks);
        add(&mut self.new_chunks, other.new_chunks);
        add(&mut self.done_bytes, other.done_bytes);
        add(&mut self.done_new_bytes, other.done_new_bytes);
        add(&mut self.done_post_lc, other.done_post_lc);
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

/// Adds to a sum. A disk may claim a pebibyte: a sum stays at the largest number there is, and never becomes a small one.
const fn add(sum: &mut u64, value: u64) {
    *sum = sum.saturating_add(value);
}

impl From<Totals> for Sums {
    fn from(totals: Totals) -> Self {
        let Factors { global, local, total, reduction_pct } = totals.factors();
        Self { totals, global_factor: global, local_factor: local, total_factor: total, reduction_pct }
    }
}
