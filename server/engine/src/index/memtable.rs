//! New entries in memory: per shard an open-addressing table whose hash is the key itself. Linear probing
//! that keeps each cluster sorted keeps the whole table sorted, because the hash is monotone in the key: no
//! sorting when it is written out, misses end at the first larger key, and there is no overhead but the
//! empty slots.
//!
//! A crash loses it; the containers it knows are not *covered* and their directories are read again.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use zerocopy::FromZeros;

use super::error::IndexError;
use super::{IndexKey, shard_of};
use crate::format::sorted_run::{ENTRY_BYTES, Entry, SHARD_BITS, SHARDS};

/// Slots of a shard at least.
const SHARD_SLOTS_MIN: usize = 16;
/// A shard is full when 7/8 of its home slots are taken: a lookup then walks 4 slots (80 bytes, sorted
/// clusters end early), an insertion moves about 30.
const LOAD_NUMERATOR: usize = 7;
const LOAD_DENOMINATOR: usize = 8;
/// Share of a shard's slots that lies behind the last home slot and takes its overflow. 2 % of 26,000 slots
/// are 500; clusters at 7/8 load are 30 long on average.
const SLACK_DIVISOR: usize = 48;

/// An empty slot is all zeros: locations are kept inverted, and no container has the number that would
/// make one zero. So a new table is untouched zero pages of the operating system.
const EMPTY: u64 = 0;

/// All shards.
#[derive(Debug)]
pub(super) struct Memtable {
    /// Counts the tables of this process, from 1.
    pub(super) generation: u64,
    shards: Vec<RwLock<Shard>>,
    entries: AtomicU64,
}

#[derive(Debug)]
struct Shard {
    /// `location` is inverted.
    slots: Vec<Entry>,
    home_slots: usize,
    taken: usize,
}

/// The table, or a shard of it, takes no more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Memtable {
    /// A table that takes at most `bytes`: 20 a slot. At 64 shards and 7/8 load, 32 MiB hold about 1.4
    /// million entries.
    ///
    /// # Errors
    /// [`IndexError::OutOfMemory`].
    pub(super) fn new(generation: u64, bytes: usize) -> Result<Self, IndexError> {
        let per_shard = (bytes / ENTRY_BYTES / usize::from(SHARDS)).max(SHARD_SLOTS_MIN);
        let shards = (0..SHARDS).map(|_| Shard::new(per_shard).map(RwLock::new)).collect::<Result<_, _>>()?;
        Ok(Self { generation, shards, entries: AtomicU64::new(0) })
    }

    /// Entries in it.
    pub(super) fn len(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Memory it takes when all slots were touched.
    pub(super) fn ram_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| (shard.read().slots.len() * ENTRY_BYTES) as u64).sum()
    }

    /// Adds an entry unless it is there.
    pub(super) fn insert(&self, entry: &Entry) -> Result<(), Full> {
        let Some(shard) = self.shards.get(shard_of(entry.prefix())) else { return Err(Full) };
        if shard.write().insert(entry)? {
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Appends the locations of a key, newest container first.
    pub(super) fn locations(&self, key: &IndexKey, found: &mut Vec<u64>) {
        if let Some(shard) = self.shards.get(key.shard()) {
            shard.read().locations(key, found);
        }
    }

    /// Gives every entry, in order.
    pub(super) fn for_each(
        &self,
        mut each: impl FnMut(&Entry) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        for shard in &self.shards {
            let shard = shard.read();
            for slot in shard.slots.iter().filter(|slot| slot.location.get() != EMPTY) {
                each(&Entry { key: slot.key, location: (!slot.location.get()).into() })?;
            }
        }
        Ok(())
    }
}

impl Shard {
    fn new(slots: usize) -> Result<Self, IndexError> {
        let home_slots = slots - (slots / SLACK_DIVISOR).max(8);
        let bytes = slots * ENTRY_BYTES;
        let slots = Entry::new_vec_zeroed(slots).map_err(|_| IndexError::OutOfMemory { bytes })?;
        Ok(Self { slots, home_slots, taken: 0 })
    }

    /// Preferred slot of a key, if it is free.
    fn home(&self, prefix: u64) -> usize {
        let scaled = u128::from(prefix << SHARD_BITS) * self.home_slots as u128;
        usize::try_from(scaled >> 64).unwrap_or(0)
    }

    /// `false` when it was there.
    fn insert(&mut self, entry: &Entry) -> Result<bool, Full> {
        if self.taken >= self.home_slots * LOAD_NUMERATOR / LOAD_DENOMINATOR {
            return Err(Full);
        }
        let slot = Entry { key: entry.key, location: (!entry.location.get()).into() };
        let rank = entry.order();
        let home = self.home(entry.prefix());
        let tail = self.slots.get_mut(home..).unwrap_or_default();
        let place =
            tail.iter().position(|at| at.location.get() == EMPTY || slot_rank(at) >= rank).ok_or(Full)?;
        let tail = tail.get_mut(place..).unwrap_or_default();
        if tail.first().is_some_and(|at| *at == slot) {
            return Ok(false);
        }
        let gap = tail.iter().position(|at| at.location.get() == EMPTY).ok_or(Full)?;
        tail.copy_within(..gap, 1);
        if let Some(first) = tail.first_mut() {
            *first = slot;
        }
        self.taken += 1;
        Ok(true)
    }

    fn locations(&self, key: &IndexKey, found: &mut Vec<u64>) {
        let wanted = (key.prefix(), key.suffix());
        let tail = self.slots.get(self.home(wanted.0)..).unwrap_or_default();
        for slot in tail {
            let (prefix, suffix, inverted) = slot_rank(slot);
            if inverted == EMPTY || (prefix, suffix) > wanted {
                return;
            }
            if (prefix, suffix) == wanted {
                found.push(!inverted);
            }
        }
    }
}

/// Order of a slot, as [`Entry::order`]; its location is inverted already.
fn slot_rank(slot: &Entry) -> (u64, u32, u64) {
    let key = IndexKey(slot.key);
    (key.prefix(), key.suffix(), slot.location.get())
}

#[cfg(test)]
mod tests;
