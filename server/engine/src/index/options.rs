//! Options and figures of an index, and its merge policy.
//!
//! The policy is pure decisions from sizes, so that the promise (few sorted runs to ask, few times written) is tested
//! without any data. A full memtable becomes a *wide* sorted run, of all shards: one durable file, not 64. Four wide runs
//! become one (while they are small) or one run a shard. A shard's runs merge when there are more than a few, the newest
//! first, and older ones as long as they are not much larger than the merged: that writes each entry O(log n) times with few
//! runs at any time.

use std::sync::Arc;

use holdfast_types::ids::ContainerId;

use super::error::IndexError;
use crate::health::Health;
use crate::space::Ledger;

/// Returns true if a container's chunks may still be read. Must say yes to every container that is not condemned,
/// those just sealed included: an entry it rejects is gone.
pub type LiveFn = Arc<dyn Fn(ContainerId) -> bool + Send + Sync>;

/// Write buffer by default: two memtables of 32 MiB, 1.4 million entries each.
pub const WRITE_BUFFER_BYTES: usize = 64 << 20;
/// Options of an index.
#[derive(Clone)]
pub struct IndexOptions {
    /// Memory for new entries: half for the memtable that fills, half for the one being written out. 20
    /// bytes a slot, 7/8 of the slots used.
    pub write_buffer_bytes: usize,
    /// Bytes that merges write per second at most while nothing is urgent.
    pub merge_bytes_per_sec: u64,
    /// Entries that must have gathered before they are distributed to the shards: 64 files of less than
    /// 32 Ki entries (640 KiB) are not worth 64 flushes to disk.
    pub split_entries: u64,
    /// Flush and merge in a thread; otherwise in the caller's, one deterministic step after the other.
    pub background: bool,
    /// Containers whose entries merges keep.
    pub live: LiveFn,
    /// Secret of an index that does not exist yet; random when `None`.
    pub new_secret: Option<[u8; 32]>,
    /// The latch that a lasting failure of maintenance sets.
    pub(crate) health: Arc<Health>,
    /// Whom sorted runs ask for room; no one when `None`.
    pub(crate) ledger: Option<Arc<Ledger>>,
    /// Memory that filters and fences may take.
    pub(crate) resident_bytes_max: u64,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            write_buffer_bytes: WRITE_BUFFER_BYTES,
            merge_bytes_per_sec: 128 << 20,
            split_entries: 2 << 20,
            background: true,
            live: Arc::new(|_| true),
            new_secret: None,
            health: Arc::default(),
            ledger: None,
            resident_bytes_max: u64::MAX,
        }
    }
}

/// Memory that filters and fences take for 100 entries: 1.2 bytes of filter an entry (measured: 1.13 to 1.2), and a fence
/// of 8 bytes for each page of 204.
const RESIDENT_BYTES_PER_100: u64 = 125;

impl IndexOptions {
    /// Fails unless the filters and fences of so many entries fit into memory.
    ///
    /// # Errors
    /// [`IndexError::TooLarge`].
    pub(super) const fn check_resident(&self, entries: u64) -> Result<(), IndexError> {
        let needed_bytes = entries.saturating_mul(RESIDENT_BYTES_PER_100) / 100;
        let limit_bytes = self.resident_bytes_max;
        if needed_bytes > limit_bytes {
            return Err(IndexError::TooLarge { entries, needed_bytes, limit_bytes });
        }
        Ok(())
    }
}

impl std::fmt::Debug for IndexOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexOptions")
            .field("write_buffer_bytes", &self.write_buffer_bytes)
            .field("merge_bytes_per_sec", &self.merge_bytes_per_sec)
            .field("background", &self.background)
            .finish_non_exhaustive()
    }
}

/// Wide runs that trigger a merge.
const WIDE_RUNS_MAX: usize = 4;
/// Wide runs at which flushing waits for merging, so that insertion does (back-pressure).
pub(super) const WIDE_RUNS_STALL: usize = 12;
/// Runs of a shard at which splitting waits for merging.
const SHARD_RUNS_STALL: usize = 12;
/// An arriving slice is merged at once with runs up to this many times its size.
const FOLD_FACTOR: u64 = 4;

/// Ways of merging the wide runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WideMerge {
    /// Merge this many of the newest into one.
    Together(usize),
    /// Distribute all of them to the shards.
    Split,
}

/// Decides about the wide runs, given their sizes newest first, how many entries are worth a split, and the
/// most runs any shard has.
pub(super) fn wide_merge(sizes: &[u64], split_entries: u64, shard_runs: usize) -> Option<WideMerge> {
    if sizes.len() < WIDE_RUNS_MAX {
        None
    } else if sizes.iter().sum::<u64>() < split_entries {
        Some(WideMerge::Together(suffix(sizes)))
    } else if shard_runs < SHARD_RUNS_STALL {
        Some(WideMerge::Split)
    } else {
        None
    }
}

/// Number of a shard's newest runs to merge, if any, given the sizes newest first.
pub(super) fn shard_merge(sizes: &[u64]) -> Option<usize> {
    (sizes.len() > shard_runs_max(sizes)).then(|| suffix(sizes))
}

/// Number of a shard's newest runs that an arriving slice is merged with.
pub(super) fn fold(arriving: u64, sizes: &[u64]) -> usize {
    let with: Vec<u64> = std::iter::once(arriving).chain(sizes.iter().copied()).collect();
    let count = shard_merge(&with).unwrap_or(1) - 1;
    let folded: u64 = sizes.iter().take(count).sum();
    if folded <= arriving.saturating_mul(FOLD_FACTOR) { count } else { 0 }
}

/// Runs a shard may have: 3 up to 32 times what arrives, one more for every further factor of 8, because
/// the write amplification of k runs grows with the k-th root of that ratio.
fn shard_runs_max(sizes: &[u64]) -> usize {
    let smallest = sizes.iter().copied().min().unwrap_or(1).max(1);
    match sizes.iter().sum::<u64>() / smallest {
        0..32 => 3,
        32..256 => 4,
        256..2048 => 5,
        _ => 6,
    }
}

/// The two newest, and older ones while they are not twice as large as what is merged already.
fn suffix(sizes: &[u64]) -> usize {
    let mut merged: u64 = sizes.iter().take(2).sum();
    let mut count = sizes.len().min(2);
    for &older in sizes.iter().skip(2) {
        if older >= merged.saturating_mul(2) {
            break;
        }
        merged = merged.saturating_add(older);
        count += 1;
    }
    count
}

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

    /// Average number of times an entry was written since opening.
    pub fn write_amplification(&self) -> f64 {
        lossy(self.flushed_entries + self.merged_entries) / lossy(self.flushed_entries.max(1))
    }
}

fn lossy(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let float = number as f64;
    float
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPLIT: u64 = 2 << 20;

    /// Plays `flushes` flushes of the default write buffer; returns how many times an entry was written on
    /// average, and the most runs a lookup ever had to ask.
    fn play(flushes: u64) -> (f64, usize) {
        const FLUSH: u64 = 1_400_000;
        let (mut wide, mut shard, mut written, mut depth) = (Vec::new(), Vec::new(), 0, 0);
        for _ in 0..flushes {
            wide.insert(0, FLUSH);
            written += FLUSH;
            match wide_merge(&wide, SPLIT, shard.len()) {
                Some(WideMerge::Split) => {
                    let arriving = wide.drain(..).sum();
                    let folded = fold(arriving, &shard);
                    let merged = arriving + shard.drain(..folded).sum::<u64>();
                    shard.insert(0, merged);
                    written += merged;
                }
                Some(WideMerge::Together(_)) => panic!("full memtables are large enough to split"),
                None => {}
            }
            if let Some(count) = shard_merge(&shard) {
                let merged = shard.drain(..count).sum();
                shard.insert(0, merged);
                written += merged;
            }
            depth = depth.max(wide.len() + shard.len());
        }
        (written as f64 / (flushes * FLUSH) as f64, depth)
    }

    #[test]
    fn amplification_and_depth_stay_bounded() {
        for (flushes, amplification_max, depth_max) in [(71, 4.0, 6), (710, 6.5, 7), (7100, 10.0, 9)] {
            let (amplification, depth) = play(flushes);
            assert!(amplification <= amplification_max, "{flushes} flushes: written {amplification} times");
            assert!(depth <= depth_max, "{flushes} flushes: {depth} runs");
        }
    }

    #[test]
    fn small_wide_runs_stay_one_file() {
        let (mut wide, mut written) = (Vec::new(), 0);
        for _ in 0..100 {
            wide.insert(0, 1000);
            if let Some(merge) = wide_merge(&wide, SPLIT, 0) {
                let WideMerge::Together(count) = merge else { panic!("too small to split") };
                assert!(count >= 2);
                let merged = wide.drain(..count).sum();
                wide.insert(0, merged);
                written += merged;
            }
            assert!(wide.len() < WIDE_RUNS_MAX);
        }
        assert!(written < 100 * 1000 * 8, "written {written}");
    }

    #[test]
    fn a_full_shard_holds_back_splits() {
        let wide = [1_400_000; 5];
        assert_eq!(wide_merge(&wide, SPLIT, 0), Some(WideMerge::Split));
        assert_eq!(wide_merge(&wide, SPLIT, SHARD_RUNS_STALL), None);
        assert!(shard_merge(&[1; SHARD_RUNS_STALL]).is_some(), "or nothing would ever go on");
    }
}
