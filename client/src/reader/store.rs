//! Data of disks that is in memory, or on its way.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::EXTENT_BYTES;
use parking_lot::Mutex;

use super::cache::Cache;
use super::flight::Flight;
use super::layout::Layout;

/// Memory of layouts.
const LAYOUTS_BYTES: usize = 64 << 20;
/// Memory that a chunk takes besides its bytes.
pub(super) const CHUNK_OVERHEAD: usize = 128;

/// Chunks and layouts in memory, and those on their way.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) chunks: Cache<Fingerprint, [u8]>,
    /// By the disk's number and the window's.
    pub(super) layouts: Cache<(u32, u64), Layout>,
    pub(super) coming: Mutex<Coming>,
    /// Bytes of disks that are read ahead and have not arrived.
    pub(super) ahead_bytes: AtomicU64,
}

impl Store {
    /// An empty one, with room for `cache_bytes` of chunks.
    pub(super) fn new(cache_bytes: usize) -> Self {
        Self {
            chunks: Cache::new(cache_bytes),
            layouts: Cache::new(LAYOUTS_BYTES),
            coming: Mutex::default(),
            ahead_bytes: AtomicU64::new(0),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Coming {
    pub(super) chunks: HashMap<Fingerprint, Arc<Flight>>,
    pub(super) layouts: HashMap<(u32, u64), Arc<Flight>>,
}

/// A part of a disk that the server is asked for.
#[derive(Debug)]
pub(super) struct Part {
    /// The window, when its layout is what is wanted.
    pub(super) window: Option<(u32, u64)>,
    /// Bytes of the disk: whole chunks, or a whole window.
    pub(super) bytes: Range<u64>,
    pub(super) chunks: Vec<Fingerprint>,
    pub(super) is_ahead: bool,
    pub(super) flight: Arc<Flight>,
}

impl Part {
    pub(super) fn ahead_bytes(&self) -> u64 {
        if self.is_ahead { self.bytes.end - self.bytes.start } else { 0 }
    }

    /// Nothing more of it comes. What has come is in the caches before.
    pub(super) fn end(&self, store: &Store, outcome: Result<(), Arc<str>>) {
        self.leave(store, &mut store.coming.lock());
        self.flight.end(outcome);
    }

    pub(super) fn leave(&self, store: &Store, coming: &mut Coming) {
        store.ahead_bytes.fetch_sub(self.ahead_bytes(), Ordering::Relaxed);
        let is_this = |flight: &mut Arc<Flight>| Arc::ptr_eq(flight, &self.flight);
        for fingerprint in &self.chunks {
            if coming.chunks.get_mut(fingerprint).is_some_and(is_this) {
                coming.chunks.remove(fingerprint);
            }
        }
        if let Some(window) = self.window {
            coming.layouts.remove(&window);
        }
    }
}

/// Number and count of the extents that these bytes lie in.
pub(super) fn extents_of(bytes: &Range<u64>) -> (u64, u64) {
    let extent = u64::from(EXTENT_BYTES);
    let first = bytes.start / extent;
    (first, bytes.end.div_ceil(extent).saturating_sub(first))
}
