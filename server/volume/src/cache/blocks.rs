//! The blocks in memory, and which blob each belongs to.
//!
//! A blob is known by an id, not by its name, because a name can be used again after a removal. Handles share
//! blocks by sharing an id, so an id must never stand for two blobs. An id is given to a handle only when it
//! was its name's id before the volume inside opened the blob and still is after, and no removal was under way
//! before. A removal takes the id from the name when it begins and ids are never used again, so no
//! removal overlapped that time or any time since the id exists: all its handles show one blob.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use crate::BlobName;

/// Memory that a block takes besides its bytes: entries in two B-trees, 16 + 40 and 8 + 16 bytes in nodes that
/// are half full at worst (160), the allocation's header and counters (64), and its part of a blob's entries.
/// The latter, with a name of 200 bytes twice, is some 600 bytes when the blob has a single block.
const BLOCK_OVERHEAD_BYTES: u64 = 160 + 64 + 600;

/// A blob, for as long as the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlobId(u64);

#[derive(Debug)]
struct Block {
    bytes: Bytes,
    /// Key in `by_use`.
    used: u64,
}

/// A blob that has handles or blocks.
#[derive(Debug)]
struct BlobState {
    name: BlobName,
    /// Opens under way included.
    handles: u64,
    blocks: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Blocks {
    capacity_bytes: u64,
    held_bytes: u64,
    /// By blob and number of the block.
    blocks: BTreeMap<(BlobId, u64), Block>,
    /// From the least to the most recently used.
    by_use: BTreeMap<u64, (BlobId, u64)>,
    next_use: u64,
    next_id: u64,
    ids: HashMap<BlobName, BlobId>,
    blobs: HashMap<BlobId, BlobState>,
    /// Removals under way.
    removing: HashMap<BlobName, u64>,
}

impl Blocks {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            held_bytes: 0,
            blocks: BTreeMap::new(),
            by_use: BTreeMap::new(),
            next_use: 0,
            next_id: 0,
            ids: HashMap::new(),
            blobs: HashMap::new(),
            removing: HashMap::new(),
        }
    }

    pub(super) const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Before the volume inside is asked to open a blob: an id with one more handle, to be given back by
    /// [`Blocks::closed`]. `None` while a removal is under way.
    pub(super) fn begin_open(&mut self, name: &BlobName) -> Option<BlobId> {
        if self.removing.contains_key(name) {
            return None;
        }
        let id = self.ids.get(name).copied().unwrap_or_else(|| {
            let id = BlobId(self.next_id);
            self.next_id += 1;
            self.ids.insert(name.clone(), id);
            id
        });
        let new = || BlobState { name: name.clone(), handles: 0, blocks: 0 };
        self.blobs.entry(id).or_insert_with(new).handles += 1;
        Some(id)
    }

    /// After it was opened: whether no removal came in between. Its beginning takes the id away, so this also
    /// answers for a removal that has not ended.
    pub(super) fn is_current(&self, name: &BlobName, id: BlobId) -> bool {
        self.ids.get(name) == Some(&id)
    }

    /// A handle was dropped, or did not come to be.
    pub(super) fn closed(&mut self, id: BlobId) {
        if let Some(blob) = self.blobs.get_mut(&id) {
            assert!(blob.handles > 0, "{} was closed more often than opened", blob.name);
            blob.handles -= 1;
        }
        self.forget_if_unused(id);
    }

    pub(super) fn begin_removal(&mut self, name: &BlobName) {
        *self.removing.entry(name.clone()).or_default() += 1;
        self.forget(name);
        if let Some(id) = self.ids.remove(name) {
            self.blobs.remove(&id);
        }
    }

    pub(super) fn end_removal(&mut self, name: &BlobName) {
        if let Some(count) = self.removing.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.removing.remove(name);
            }
        }
    }

    /// Drops the blocks of a blob; its handles keep sharing.
    pub(super) fn forget(&mut self, name: &BlobName) {
        let Some(&id) = self.ids.get(name) else { return };
        let found: Vec<u64> =
            self.blocks.range((id, 0)..=(id, u64::MAX)).map(|((_, block), _)| *block).collect();
        for block in found {
            self.drop_block(id, block);
        }
        self.forget_if_unused(id);
    }

    pub(super) fn has(&self, id: BlobId, block: u64) -> bool {
        self.blocks.contains_key(&(id, block))
    }

    pub(super) fn get(&mut self, id: BlobId, block: u64) -> Option<Bytes> {
        let found = self.blocks.get_mut(&(id, block))?;
        self.by_use.remove(&found.used);
        found.used = self.next_use;
        self.by_use.insert(self.next_use, (id, block));
        self.next_use += 1;
        Some(found.bytes.clone())
    }

    /// Remembers a block, unless its blob was removed or the block is larger than the whole cache.
    pub(super) fn insert(&mut self, id: BlobId, block: u64, bytes: Bytes) {
        let weight = weight(&bytes);
        if weight > self.capacity_bytes || !self.blobs.contains_key(&id) {
            return;
        }
        self.drop_block(id, block);
        while self.held_bytes + weight > self.capacity_bytes {
            let oldest = self.by_use.first_key_value().map(|(_, key)| *key);
            let Some((oldest_id, oldest_block)) = oldest else { break };
            self.drop_block(oldest_id, oldest_block);
            self.forget_if_unused(oldest_id);
        }
        let Some(blob) = self.blobs.get_mut(&id) else { return };
        blob.blocks += 1;
        self.held_bytes += weight;
        self.by_use.insert(self.next_use, (id, block));
        self.blocks.insert((id, block), Block { bytes, used: self.next_use });
        self.next_use += 1;
        assert!(self.held_bytes <= self.capacity_bytes, "a cache of {} bytes overflows", self.capacity_bytes);
        debug_assert_eq!(
            self.blocks.len(),
            self.by_use.len(),
            "a block without its place in the order of use"
        );
    }

    fn drop_block(&mut self, id: BlobId, block: u64) {
        let Some(dropped) = self.blocks.remove(&(id, block)) else { return };
        self.by_use.remove(&dropped.used);
        self.held_bytes -= weight(&dropped.bytes);
        if let Some(blob) = self.blobs.get_mut(&id) {
            blob.blocks -= 1;
        }
    }

    /// So that ids are as many as handles and blocks, however many blobs were ever opened.
    fn forget_if_unused(&mut self, id: BlobId) {
        if let Some(blob) = self.blobs.get(&id).filter(|blob| blob.handles == 0 && blob.blocks == 0) {
            self.ids.remove(&blob.name);
            self.blobs.remove(&id);
        }
    }

    #[cfg(test)]
    pub(super) fn known_blobs(&self) -> usize {
        assert_eq!(self.ids.len(), self.blobs.len());
        self.blobs.len()
    }
}

const fn weight(bytes: &Bytes) -> u64 {
    bytes.len() as u64 + BLOCK_OVERHEAD_BYTES
}
