//! Limits on the memory that the engine uses for its callers, and the account of memory held by backups in progress.
//!
//! A session's state outlives its connection, so it cannot be bounded by how many streams there may be: all of it
//! together has one bound. What a message would add beyond that is refused, and with it the session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_proto::limits::REGION_PLAIN_MAX_BYTES;
use parking_lot::Mutex;

/// Regions read for a restore with one request at most. Some 100 KB each as they are stored: one message's worth, and
/// no more to hold for a client that does not read.
pub(crate) const REGIONS_PER_READ_MAX: usize = 8;

/// Bytes that these take at most: 8 × 256 KiB.
pub(crate) const READ_BYTES_MAX: usize = REGIONS_PER_READ_MAX * REGION_PLAIN_MAX_BYTES as usize;

/// Bounds of what grows with what is stored and with what callers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBounds {
    /// Filters and fences of the index. An index that needs more does not open.
    pub index_resident_bytes: u64,
    /// Decoded regions that are kept.
    pub decoded_bytes: usize,
    /// Regions as they are stored, kept for other restores of the same; 0: each restore reads for itself.
    pub shared_bytes: usize,
    /// Bytes that restores read ahead, all of them together, beside one read of each.
    pub read_ahead_bytes: usize,
    /// Recipes being built, and chunks that wait for their extents, of all sessions together.
    pub sessions_bytes: u64,
}

impl Default for MemoryBounds {
    /// 16 MiB of decoded regions, 64 MiB of stored ones, 64 MiB read ahead; no bounds for the rest.
    fn default() -> Self {
        Self {
            index_resident_bytes: u64::MAX,
            decoded_bytes: 16 << 20,
            shared_bytes: 64 << 20,
            read_ahead_bytes: 64 << 20,
            sessions_bytes: u64::MAX,
        }
    }
}

/// The bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted {
    pub(crate) wanted_bytes: u64,
    pub(crate) limit_bytes: u64,
}

/// Memory that many share.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

impl MemoryPool {
    pub(crate) fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { limit_bytes, used_bytes: AtomicU64::new(0) })
    }

    /// One more who shares it; uses nothing yet.
    pub(crate) fn share(self: &Arc<Self>) -> MemoryShare {
        MemoryShare { pool: Arc::clone(self), held_bytes: 0 }
    }

    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

/// Share of one user of a pool. Gives it back when dropped.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    pool: Arc<MemoryPool>,
    held_bytes: u64,
}

impl MemoryShare {
    /// Says that `bytes` are used now, more or less than before.
    ///
    /// # Errors
    /// [`Exhausted`]; what was held before still is.
    pub(crate) fn set(&mut self, bytes: u64) -> Result<(), Exhausted> {
        let used = &self.pool.used_bytes;
        if bytes <= self.held_bytes {
            used.fetch_sub(self.held_bytes - bytes, Ordering::Relaxed);
        } else {
            let more = bytes - self.held_bytes;
            let limit = self.pool.limit_bytes;
            let fits = |used: u64| used.checked_add(more).filter(|&sum| sum <= limit);
            used.try_update(Ordering::Relaxed, Ordering::Relaxed, fits)
                .map_err(|_| Exhausted { wanted_bytes: bytes, limit_bytes: limit })?;
        }
        self.held_bytes = bytes;
        Ok(())
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.pool.used_bytes.fetch_sub(self.held_bytes, Ordering::Relaxed);
    }
}

/// Reads ahead that all readers share.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// Reads that may be held beside one of each reader.
    extra_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    readers: usize,
    extra: usize,
}

/// Share of one reader. Gives it back when dropped.
#[derive(Debug)]
pub(crate) struct ReaderShare {
    pool: Arc<ReadAhead>,
    reads: usize,
}

impl ReadAhead {
    /// `extra_max` reads, beside the one that every reader may always hold.
    pub(crate) fn new(extra_max: usize) -> Arc<Self> {
        Arc::new(Self { extra_max, state: Mutex::default() })
    }

    /// One more reader; holds nothing yet.
    pub(crate) fn join(self: &Arc<Self>) -> ReaderShare {
        self.state.lock().readers += 1;
        ReaderShare { pool: Arc::clone(self), reads: 0 }
    }

    /// Reads held beside the first of each reader.
    #[cfg(test)]
    pub(crate) fn extra(&self) -> usize {
        self.state.lock().extra
    }
}

impl ReaderShare {
    /// Takes one more read. The first is always granted, so that every reader goes on; others while there are any, and
    /// at most an equal share of them, so that the readers that came first, or whose clients do not read, leave some.
    pub(crate) fn take(&mut self) -> bool {
        let mut state = self.pool.state.lock();
        if self.reads > 0 {
            let share = self.pool.extra_max / state.readers.max(1);
            if self.reads > share || state.extra >= self.pool.extra_max {
                return false;
            }
            state.extra += 1;
        }
        self.reads += 1;
        true
    }

    /// Gives one back.
    ///
    /// # Panics
    /// When it holds none.
    pub(crate) fn give_back(&mut self) {
        assert!(self.reads > 0, "a read is given back that was not taken");
        self.reads -= 1;
        if self.reads > 0 {
            self.pool.state.lock().extra -= 1;
        }
    }

    /// Reads it holds.
    pub(crate) const fn reads(&self) -> usize {
        self.reads
    }
}

impl Drop for ReaderShare {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.readers -= 1;
        state.extra -= self.reads.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_exceed_the_pool() {
        let pool = MemoryPool::new(100);
        let (mut one, mut two) = (pool.share(), pool.share());
        one.set(60).unwrap();
        assert_eq!(two.set(41), Err(Exhausted { wanted_bytes: 41, limit_bytes: 100 }));
        two.set(40).unwrap();
        one.set(10).unwrap();
        two.set(90).unwrap();
        drop(one);
        two.set(100).unwrap();
        drop(two);
        assert_eq!(pool.used_bytes(), 0);
    }

    fn take_all(share: &mut ReaderShare) -> usize {
        while share.take() {}
        share.reads()
    }

    #[test]
    fn one_reader_has_all_of_it_and_many_have_one_at_least() {
        let pool = ReadAhead::new(6);
        let mut first = pool.join();
        assert_eq!(take_all(&mut first), 7);
        // The first does not give anything back: the others go on with one read each.
        let mut others: Vec<ReaderShare> = (0..10).map(|_| pool.join()).collect();
        for other in &mut others {
            assert_eq!(take_all(other), 1);
        }
        assert_eq!(pool.extra(), 6);
        drop(first);
        assert_eq!(pool.extra(), 0);
        others.truncate(2);
        assert_eq!(others.iter_mut().map(take_all).collect::<Vec<_>>(), [4, 4], "6 extra for 2");
        others[0].give_back();
        assert_eq!((pool.extra(), others[0].reads()), (5, 3));
        drop(others);
        let state = pool.state.lock();
        assert_eq!((state.readers, state.extra), (0, 0));
    }

    #[test]
    #[should_panic(expected = "given back that was not taken")]
    fn what_was_not_taken_cannot_be_given_back() {
        ReadAhead::new(1).join().give_back();
    }
}
