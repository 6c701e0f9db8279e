//! Figures about an index, for people and tests.

/// A snapshot; parts of it may be from slightly different moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexStats {
    /// Entries in sorted runs and in memory. Copies not yet merged away count twice.
    pub entries: u64,
    pub runs: u64,
    /// The most sorted runs one lookup may have to ask.
    pub depth: u64,
    /// Memory of the filters.
    pub filter_bytes: u64,
    /// Memory of the fences (8 bytes for every 204 entries).
    pub fence_bytes: u64,
    /// Memory of the write buffer when all of it is touched.
    pub memtable_bytes: u64,
    pub memtable_entries: u64,
    pub disk_bytes: u64,
    pub covered_containers: u64,
    /// Containers whose directories would be replayed after a crash now.
    pub uncovered_containers: u64,
    /// Since opening: entries written out of memory, and entries written by merges.
    pub flushed_entries: u64,
    pub merged_entries: u64,
}

impl IndexStats {
    /// Bytes of memory a chunk takes, the write buffer not counted.
    pub fn ram_bytes_per_entry(&self) -> f64 {
        let in_runs = self.entries.saturating_sub(self.memtable_entries).max(1);
        lossy(self.filter_bytes + self.fence_bytes) / lossy(in_runs)
    }

    /// How many times an entry was written on average since opening.
    pub fn write_amplification(&self) -> f64 {
        lossy(self.flushed_entries + self.merged_entries) / lossy(self.flushed_entries.max(1))
    }
}

fn lossy(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let float = number as f64;
    float
}
