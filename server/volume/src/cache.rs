//! A volume that remembers what was read: blocks of fixed size, the least recently used leave first.
//!
//! - Only bytes of sealed blobs are remembered, and [`Volume::open`] always asks the volume inside: what is not
//!   sealed, or is removed, is never served to a new handle.
//! - A removal makes the cache forget the blob, and no handle opened before it shares blocks with one opened
//!   after it, even when the name is used again; see [`blocks`].
//! - What is remembered was not verified. A caller that finds it damaged calls [`CacheVolume::forget`] before
//!   it reads again, or it is given the same bytes.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::blob::check_range;
use crate::{Blob, BlobName, Volume, VolumeError};

mod blocks;

use blocks::{BlobId, Blocks};

/// A read of more than this part of the cache goes past it, so that one scan does not empty it.
const LARGEST_READ_DIVISOR: u64 = 8;

/// A read that lacks this many neighbouring blocks is not rounded to whole blocks: restores read large pieces one behind the
/// other, and each would bring what its neighbours bring as well.
const EXACT_BLOCKS: u64 = 4;

/// How much a cache may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Of memory, bookkeeping included. Reads under way take more: each up to its own length and two blocks.
    pub capacity_bytes: u64,
    /// What is read and remembered at a time. A range read of S3 costs a request whatever its size, so there
    /// take a few hundred KiB.
    pub block_bytes: NonZeroUsize,
}

/// See the module's text.
#[derive(Debug)]
pub struct CacheVolume {
    inner: Arc<dyn Volume>,
    cache: Arc<Cache>,
}

impl CacheVolume {
    /// Remembers what is read of `inner`.
    pub fn new(inner: Arc<dyn Volume>, limits: CacheLimits) -> Self {
        let blocks = Mutex::new(Blocks::new(limits.capacity_bytes));
        Self { inner, cache: Arc::new(Cache { limits, blocks }) }
    }

    /// Forgets what was read of a blob.
    pub fn forget(&self, name: &BlobName) {
        self.cache.blocks.lock().forget(name);
    }

    /// Bytes of memory held, bookkeeping included.
    pub fn held_bytes(&self) -> u64 {
        self.cache.blocks.lock().held_bytes()
    }
}

#[derive(Debug)]
struct Cache {
    limits: CacheLimits,
    blocks: Mutex<Blocks>,
}

impl Volume for CacheVolume {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let begun = self.cache.blocks.lock().begin_open(name);
        let opened = self.inner.open(name);
        let Some(id) = begun else { return opened };
        let mut blocks = self.cache.blocks.lock();
        match opened {
            Ok(inner) if blocks.is_current(name, id) => {
                Ok(Arc::new(CacheBlob { name: name.clone(), id, inner, cache: Arc::clone(&self.cache) }))
            }
            // Failed, or a removal came in between: which blob of the name this is cannot be told, so
            // nothing of it is remembered.
            other => {
                blocks.closed(id);
                other
            }
        }
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        self.cache.blocks.lock().begin_removal(name);
        let result = self.inner.remove(name);
        self.cache.blocks.lock().end_removal(name);
        result
    }

    crate::pass_on!(create_for, list, discard_unfinished, space, remove_empty_folders, handles_outlive_removal, evict, freeze to inner);
}

#[derive(Debug)]
struct CacheBlob {
    name: BlobName,
    id: BlobId,
    inner: Arc<dyn Blob>,
    cache: Arc<Cache>,
}

impl Drop for CacheBlob {
    fn drop(&mut self) {
        self.cache.blocks.lock().closed(self.id);
    }
}

impl CacheBlob {
    fn block_bytes(&self) -> u64 {
        self.cache.limits.block_bytes.get() as u64
    }

    /// Blocks from `first` to before `end` that are not remembered, up to the first that is.
    fn missing_from(&self, first: u64, end: u64) -> u64 {
        let blocks = self.cache.blocks.lock();
        (first..end).find(|block| blocks.has(self.id, *block)).unwrap_or(end)
    }

    /// Reads the blocks from `first` to before `end` in one call, and remembers those that it has whole: all, or, of many, what
    /// of them is `asked` for. Returns where it begins.
    fn fetch(&self, first: u64, end: u64, asked: &Range<u64>) -> Result<(u64, Vec<u8>), VolumeError> {
        let block_bytes = self.block_bytes();
        let mut start = first * block_bytes;
        let mut stop = end.saturating_mul(block_bytes).min(self.inner.len());
        if end - first >= EXACT_BLOCKS {
            (start, stop) = (start.max(asked.start), stop.min(asked.end));
        }
        let wanted = stop - start;
        let out_of_range = || VolumeError::OutOfRange {
            name: self.name.clone(),
            len: self.inner.len(),
            offset: start,
            wanted,
        };
        let bytes =
            self.inner.read_vec(&self.name, start, usize::try_from(wanted).map_err(|_| out_of_range())?)?;
        let mut blocks = self.cache.blocks.lock();
        for block in start.div_ceil(block_bytes)..end {
            let block_end = (block + 1).saturating_mul(block_bytes).min(self.inner.len());
            let within = |at: u64| usize::try_from(at.checked_sub(start)?).ok();
            let range = within(block * block_bytes).zip(within(block_end));
            let Some(piece) = range.and_then(|(from, to)| bytes.get(from..to)) else { break };
            // A copy each: a slice of the whole would keep all of it in memory after its neighbours have left.
            blocks.insert(self.id, block, Bytes::copy_from_slice(piece));
        }
        drop(blocks);
        Ok((start, bytes))
    }

    fn read_through(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let block_bytes = self.block_bytes();
        // One behind the last: the range is inside the blob and not empty.
        let asked = offset..offset + buffer.len() as u64;
        let end_block = asked.end.div_ceil(block_bytes);
        let mut block = offset / block_bytes;
        while block < end_block {
            let known = self.cache.blocks.lock().get(self.id, block);
            if let Some(bytes) = known {
                copy_overlap(block * block_bytes, &bytes, offset, buffer);
                block += 1;
            } else {
                // At least one, also when another thread has fetched it in the meantime.
                let end = self.missing_from(block, end_block).max(block + 1);
                let (start, bytes) = self.fetch(block, end, &asked)?;
                copy_overlap(start, &bytes, offset, buffer);
                block = end;
            }
        }
        Ok(())
    }
}

impl Blob for CacheBlob {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_at_hand(&self) -> bool {
        self.inner.is_at_hand()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let wanted = buffer.len() as u64;
        check_range(&self.name, self.inner.len(), offset, wanted)?;
        if wanted == 0 {
            return Ok(());
        }
        if wanted > self.cache.limits.capacity_bytes / LARGEST_READ_DIVISOR {
            return self.inner.read_at(offset, buffer);
        }
        match self.read_through(offset, buffer) {
            // The blob was cut behind its handle. What is left may still hold the range, if not its blocks.
            Err(VolumeError::OutOfRange { .. }) => self.inner.read_at(offset, buffer),
            result => result,
        }
    }
}

/// Copies to `buffer`, which begins at byte `offset` of the blob, what `piece` has of it, which begins at
/// byte `start`.
fn copy_overlap(start: u64, piece: &[u8], offset: u64, buffer: &mut [u8]) {
    let stop = start + piece.len() as u64;
    let (from, to) = (start.max(offset), stop.min(offset + buffer.len() as u64));
    assert!(from < to, "bytes {start}..{stop} have nothing of a read at {offset}");
    let inside = |base: u64| usize::try_from(from - base).ok().zip(usize::try_from(to - base).ok());
    let source = inside(start).and_then(|(from, to)| piece.get(from..to));
    let target = inside(offset).and_then(|(from, to)| buffer.get_mut(from..to));
    match (source, target) {
        (Some(source), Some(target)) => target.copy_from_slice(source),
        _ => unreachable!("bytes {from}..{to} lie inside both"),
    }
}

#[cfg(test)]
mod tests;
