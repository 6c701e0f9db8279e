//! Runs of a VM, its disks added up: its history as far as numbers go.

use holdfast_types::ids::RunId;
use serde::{Deserialize, Serialize};

/// Bytes of some disks in one run, as in [`DetailRow`](crate::DetailRow). New and stored ones include those of the attempts
/// before it that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amounts {
    pub bytes: u64,
    pub read_bytes: u64,
    pub dup_bytes: u64,
    pub new_bytes: u64,
    pub stored_bytes: u64,
    /// Part of `stored_bytes` that attempts before it stored.
    pub retried_bytes: u64,
}

impl Amounts {
    /// Adds `other`. Sums stay at the largest number there is.
    pub const fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.dup_bytes = self.dup_bytes.saturating_add(other.dup_bytes);
        self.new_bytes = self.new_bytes.saturating_add(other.new_bytes);
        self.stored_bytes = self.stored_bytes.saturating_add(other.stored_bytes);
        self.retried_bytes = self.retried_bytes.saturating_add(other.retried_bytes);
    }
}

/// Findings of a run of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingRow {
    pub namespace: String,
    pub job: String,
    pub vm: String,
    pub run: RunId,
    /// The finding, as it was recorded.
    pub found: String,
    /// The VM has a later restore point.
    pub is_over: bool,
}

/// A run of one VM that made a restore point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunSums {
    /// Time at which it began.
    pub started_ms: i64,
    pub finished_ms: i64,
    /// Disks with a restore point before it.
    pub known: Amounts,
    /// Disks without.
    pub first: Amounts,
}
