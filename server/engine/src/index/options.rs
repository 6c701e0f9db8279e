//! How an index behaves.

use std::sync::Arc;

use holdfast_types::ids::ContainerId;

use super::error::IndexError;
use crate::health::Health;
use crate::space::Ledger;

/// Whether a container's chunks may still be read. Must say yes to every container that is not condemned,
/// those just sealed included: an entry it rejects is gone.
pub type LiveFn = Arc<dyn Fn(ContainerId) -> bool + Send + Sync>;

/// Write buffer by default: two memtables of 32 MiB, 1.4 million entries each.
pub const WRITE_BUFFER_BYTES: usize = 64 << 20;
/// How an index behaves.
#[derive(Clone)]
pub struct IndexOptions {
    /// Memory for new entries: half for the memtable that fills, half for the one being written out. 20
    /// bytes a slot, 7/8 of the slots used.
    pub write_buffer_bytes: usize,
    /// What merges write per second at most while nothing is urgent.
    pub merge_bytes_per_sec: u64,
    /// Entries that must have gathered before they are distributed to the shards: 64 files of less than
    /// 32 Ki entries (640 KiB) are not worth 64 flushes to disk.
    pub split_entries: u64,
    /// Flush and merge in a thread; otherwise in the caller's, one deterministic step after the other.
    pub background: bool,
    /// What merges may keep.
    pub live: LiveFn,
    /// Secret of an index that does not exist yet; random when `None`.
    pub new_secret: Option<[u8; 32]>,
    /// What a failure of maintenance that does not pass by itself stops.
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
    /// Whether the filters and fences of so many entries fit into memory.
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
