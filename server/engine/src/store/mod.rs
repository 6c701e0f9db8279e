//! Finding and reading chunks and recipe nodes: fingerprint → index → container → region → checked bytes.
//!
//! The one place that decides whether a stored chunk counts. An index hit is only a candidate; it counts when
//! the container's directory holds the whole fingerprint and nothing is known to be damaged there. Damage
//! met on the way is remembered, so that the next backup stores the chunk again and older backups heal.
//!
//! Read in this order: [`damage`] (what is known to be damaged, what is missing and when that is too much to believe, what
//! agents say of regions) → [`reach`] (where recipes' chunks lie), [`gone`] (containers on their way out), [`chunk_set`] and
//! [`leftovers`] (who counts on what, and what failed sessions left) → [`chunks`] (the store) → [`salvage`], [`notes`]
//! (taking note of damage, looking at it again), [`read`] (checked bytes, recipe nodes), [`copies`] (of what agents sealed,
//! and holds of them) → [`healing`] (damage that other copies make up for, and deletion), [`index_repair`] (pages of the
//! index that cannot be read).

mod chunk_set;
mod chunks;
mod copies;
mod damage;
mod gone;
mod healing;
mod index_repair;
mod leftovers;
mod notes;
mod reach;
mod read;
mod salvage;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId};
use parking_lot::Mutex;
use roaring::RoaringTreemap;

use crate::container::{CheckedBytes, OpenContainer};
use crate::index::{BadPages, Index, NamespaceKey};

pub(crate) use chunks::{ChunkStore, Found, StoreParts};
#[cfg(test)]
pub(crate) use damage::LOOK_AGAIN_MS;
pub use damage::OnLoss;
pub(crate) use leftovers::{Holds, Leftover, Leftovers};
pub(crate) use notes::{lost, region_is_sound};
pub(crate) use reach::Reach;
pub(crate) use read::{NodeReader, ReadChunk, ReadFrom};

/// Keys that a look-up is confined to. (A6) They are hashes of their own for every namespace. Data chunks and
/// recipe nodes are domains of their own, too: a disk that contains a copy of a recipe must not be answered
/// with the recipe.
#[derive(Debug, Clone)]
pub(crate) struct Domain {
    pub(crate) namespace: NamespaceId,
    data: NamespaceKey,
    recipe: NamespaceKey,
}

impl Domain {
    fn of(index: &Index, namespace: NamespaceId) -> Self {
        Self {
            namespace,
            data: index.key_for(namespace, ContainerClass::Data),
            recipe: index.key_for(namespace, ContainerClass::Recipe),
        }
    }

    pub(crate) const fn key(&self, class: ContainerClass) -> &NamespaceKey {
        match class {
            ContainerClass::Data => &self.data,
            ContainerClass::Recipe => &self.recipe,
        }
    }
}

/// A small cache, least recently used out first. So few entries that a scan beats hashing.
#[derive(Debug)]
struct DecodedRegions {
    limit: usize,
    kept: Mutex<VecDeque<(ContainerId, u16, CheckedBytes)>>,
}

impl DecodedRegions {
    const fn new(limit: usize) -> Self {
        Self { limit, kept: Mutex::new(VecDeque::new()) }
    }

    fn get(&self, container: ContainerId, region: u16) -> Option<CheckedBytes> {
        let mut kept = self.kept.lock();
        let place = kept.iter().position(|(c, r, _)| (*c, *r) == (container, region))?;
        let entry = kept.remove(place)?;
        let checked = entry.2.clone();
        kept.push_front(entry);
        Some(checked)
    }

    fn insert(&self, container: ContainerId, region: u16, checked: CheckedBytes) {
        let mut kept = self.kept.lock();
        kept.push_front((container, region, checked));
        kept.truncate(self.limit);
    }
}

/// A repair under way.
#[derive(Debug)]
struct Repair {
    bad: BadPages,
    /// Numbers of containers.
    done: RoaringTreemap,
    left: RoaringTreemap,
}

/// Progress of the repair, for readers that must not wait for a step.
#[derive(Debug, Default)]
struct RepairProgress {
    done: AtomicU64,
    total: AtomicU64,
}

impl RepairProgress {
    fn store(&self, repair: &Repair) {
        self.total.store(repair.done.len() + repair.left.len(), Ordering::Relaxed);
        self.done.store(repair.done.len(), Ordering::Relaxed);
    }
}

/// Damaged containers of which is kept what was found: a directory of some 20 KiB each, of 168 KiB at most, so 21 MiB.
const KEPT_MAX: usize = 128;

/// Containers made again by parity that are kept: 32 MiB each.
const WHOLE_MAX: usize = 2;

/// Results of reading damaged containers, kept for a while, the last one first.
#[derive(Debug, Default)]
struct SalvageCache {
    kept: Mutex<VecDeque<Kept>>,
    /// The region that was tried last, and whether it can be read: chunks that follow each other are asked about in turn.
    read_last: Mutex<Option<(Arc<OpenContainer>, u16, bool)>>,
}

/// The readable rest of a container, and whether that is all there was; `None`: nothing can be read.
type Left = Option<(Arc<OpenContainer>, bool)>;

#[derive(Debug)]
struct Kept {
    container: ContainerId,
    found: Left,
    looked_ms: i64,
    /// Set if it was reconstructed from parity, so that all its bytes are in memory.
    in_memory: bool,
}
