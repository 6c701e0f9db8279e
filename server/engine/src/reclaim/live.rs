//! Live chunks of containers (a bit for each, set by several threads), and the containers a round looks at.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use holdfast_catalog::{Catalog, ContainerRecord, ContainerState};
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, VmId};
use parking_lot::RwLock;
use roaring::RoaringTreemap;

use crate::container::OpenContainer;
use crate::error::EngineError;

const WORD_BITS: u32 = u64::BITS;

/// Chunks of one container, by number: the position in its directory. None and all cost no memory but this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotSet {
    chunks: u32,
    live: u32,
    /// A bit a chunk; empty while none or all are in the set.
    words: Box<[u64]>,
}

impl SlotSet {
    /// Creates the empty set, for a container that has `chunks`.
    pub(crate) fn new(chunks: u32) -> Self {
        Self { chunks, live: 0, words: Box::default() }
    }

    /// Creates the set of all chunks of a container that has `chunks`.
    pub(crate) fn full(chunks: u32) -> Self {
        Self { chunks, live: chunks, words: Box::default() }
    }

    /// Creates a set from one bit a chunk, the first chunk's the lowest of the first word. Bits past the last chunk do
    /// not count.
    pub(crate) fn from_words(chunks: u32, words: impl IntoIterator<Item = u64>) -> Self {
        let mut words: Box<[u64]> = words.into_iter().take(words_for(chunks)).collect();
        let past = chunks % WORD_BITS;
        if past != 0
            && words.len() == words_for(chunks)
            && let Some(last) = words.last_mut()
        {
            *last &= (1 << past) - 1;
        }
        let live = words.iter().map(|word| word.count_ones()).sum();
        let mut set = Self { chunks, live, words };
        set.shrink();
        set
    }

    /// Adds a chunk. Returns true if it is new. One past the last is never in the set.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        if number >= self.chunks || self.is_full() {
            return false;
        }
        if self.words.is_empty() {
            self.words = vec![0; words_for(self.chunks)].into();
        }
        let Some(word) = self.words.get_mut((number / WORD_BITS) as usize) else { return false };
        let bit = 1 << (number % WORD_BITS);
        let new = *word & bit == 0;
        *word |= bit;
        self.live += u32::from(new);
        self.shrink();
        new
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        if number >= self.chunks {
            return false;
        }
        let word = self.words.get((number / WORD_BITS) as usize);
        word.map_or(self.is_full(), |word| word >> (number % WORD_BITS) & 1 == 1)
    }

    /// Chunks in the set.
    pub(crate) const fn live(&self) -> u32 {
        self.live
    }

    /// Chunks of the container.
    pub(crate) const fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Returns true if all chunks are in the set: so it is of a container without any.
    pub(crate) const fn is_full(&self) -> bool {
        self.live == self.chunks
    }

    /// Returns true if no chunk is.
    pub(crate) const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The chunks in the set, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let all = if self.words.is_empty() { 0..self.live } else { 0..0 };
        let bits = (0u32..).step_by(WORD_BITS as usize).zip(&self.words).flat_map(|(first, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(first + bit)
            })
        });
        all.chain(bits)
    }

    fn shrink(&mut self) {
        if self.live == 0 || self.live == self.chunks {
            self.words = Box::default();
        }
    }
}

/// Words for a bit a chunk.
pub(crate) const fn words_for(chunks: u32) -> usize {
    chunks.div_ceil(WORD_BITS) as usize
}

/// Live chunks of every container looked at, and whose they are.
#[derive(Debug, Default)]
pub(crate) struct LiveMap {
    live: BTreeMap<ContainerId, SlotSet>,
    vms: BTreeMap<ContainerId, VmId>,
}

impl LiveMap {
    /// The live chunks of a container; `None` when it was not looked at.
    pub(crate) fn get(&self, id: ContainerId) -> Option<&SlotSet> {
        self.live.get(&id)
    }

    /// Says which chunks of a container are live.
    pub(crate) fn insert(&mut self, id: ContainerId, live: SlotSet) {
        self.live.insert(id, live);
    }

    /// Says whose restore points led to a container first.
    pub(crate) fn insert_vm(&mut self, id: ContainerId, vm: VmId) {
        self.vms.insert(id, vm);
    }

    /// A VM with live data in a container, mostly the one whose backup wrote it; `None`: nothing of it is live, or it
    /// was not looked at.
    pub(crate) fn vm(&self, id: ContainerId) -> Option<VmId> {
        self.vms.get(&id).copied()
    }

    /// Every container looked at, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ContainerId, &SlotSet)> {
        self.live.iter().map(|(id, live)| (*id, live))
    }

    /// Containers looked at.
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }
}

/// Containers that a round can rely on.
///
/// A container that a session in progress sealed, or one that began after the round, may still be given up when the
/// session fails; so may the containers that failed sessions left. Where a chunk has another copy, that one is live.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// Containers with this number and above were sealed, or may have been, since the round began.
    pub(crate) below: u64,
    /// Numbers below that belong to sessions in progress, and what failed sessions left.
    pub(crate) unsettled: RoaringTreemap,
}

impl Scope {
    /// Creates a scope in which all containers count.
    pub(crate) fn all() -> Self {
        Self { below: u64::MAX, unsettled: RoaringTreemap::new() }
    }

    pub(crate) fn is_settled(&self, id: ContainerId) -> bool {
        id.get() < self.below && !self.unsettled.contains(id.get())
    }
}

/// Memory that the mark may keep for one window's containers: 128 MiB are 10⁹ chunks, 16 TB of data in chunks of 16 KiB. What
/// is stored beyond is looked at in a window of its own.
pub(crate) const WINDOW_BYTES: u64 = 128 << 20;

/// A container's share of [`WINDOW_BYTES`] beside a bit a chunk: its rows here and in the maps of a mark.
const CONTAINER_BYTES: u64 = 256;

const fn window_share(chunks: u32) -> u64 {
    CONTAINER_BYTES + (chunks / u8::BITS) as u64
}

/// Rows read from the catalog at a time.
const ROWS: u32 = 1000;

/// A container that a round looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) id: ContainerId,
    pub(crate) class: ContainerClass,
    pub(crate) namespace: NamespaceId,
    pub(crate) stored_bytes: u64,
    pub(crate) chunks: u32,
}

/// Returns true if a container's data counts for figures: what is damaged as a whole does not.
pub(crate) fn is_live_data(row: &ContainerRecord) -> bool {
    row.class == ContainerClass::Data && row.state == ContainerState::Live
}

/// The containers of one window, by number.
#[derive(Debug, Default)]
pub(crate) struct Candidates(Vec<Candidate>);

impl Candidates {
    /// The containers after `after` that `wanted` takes, as many as fit one window, and the last one that was looked
    /// at; `None` when there are no more. Those that are condemned go already.
    pub(crate) fn window(
        catalog: &Catalog,
        after: Option<ContainerId>,
        window_bytes: u64,
        wanted: impl Fn(&ContainerRecord) -> bool,
    ) -> Result<Option<(Self, ContainerId)>, EngineError> {
        let (mut found, mut last, mut bytes) = (Vec::new(), after, 0);
        loop {
            let rows = catalog.containers(last, ROWS)?;
            if rows.is_empty() {
                break;
            }
            for row in rows {
                let chunks = u32::try_from(row.chunk_count).unwrap_or(u32::MAX);
                if row.state != ContainerState::Condemned && wanted(&row) {
                    bytes += window_share(chunks);
                    // One container always fits, so that every window goes on.
                    if bytes > window_bytes && !found.is_empty() {
                        return Ok(last.map(|last| (Self(found), last)));
                    }
                    let ContainerRecord { id, class, namespace, stored_bytes, .. } = row;
                    found.push(Candidate { id, class, namespace, stored_bytes, chunks });
                }
                last = Some(row.id);
            }
        }
        Ok(last.filter(|_| last != after).map(|last| (Self(found), last)))
    }

    /// Creates candidates from these containers, in any order.
    #[cfg(test)]
    pub(crate) fn of(candidates: impl IntoIterator<Item = Candidate>) -> Self {
        let mut all: Vec<_> = candidates.into_iter().collect();
        all.sort_unstable_by_key(|one| one.id);
        Self(all)
    }

    pub(crate) fn get(&self, id: ContainerId) -> Option<&Candidate> {
        let place = self.0.binary_search_by_key(&id, |one| one.id).ok()?;
        self.0.get(place)
    }

    /// Iterates by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Candidate> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Memory that a mark may keep for them.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.0.iter().map(|one| window_share(one.chunks)).sum()
    }
}

/// One container's.
#[derive(Debug)]
pub(super) struct Bits {
    chunks: u32,
    words: Box<[AtomicU64]>,
    /// True if all of it counts as live: a chunk that is nowhere sound may still be got out of it one day.
    keep: AtomicBool,
    /// The VM whose restore point led here first.
    vm: OnceLock<VmId>,
}

impl Bits {
    fn new(chunks: u32) -> Self {
        let words = (0..words_for(chunks)).map(|_| AtomicU64::new(0)).collect();
        Self { chunks, words, keep: AtomicBool::new(false), vm: OnceLock::new() }
    }

    /// A restore point of this VM leads here; the first one counts.
    pub(super) fn met_by(&self, vm: VmId) {
        self.vm.get_or_init(|| vm);
    }

    /// Sets the bits of `mask` in word `place`; those of them that were not set.
    pub(super) fn set(&self, place: usize, mask: u64) -> u64 {
        let Some(word) = self.words.get(place) else { return 0 };
        // Most are set already, and to look is cheaper than to change.
        if word.load(Ordering::Relaxed) & mask == mask {
            return 0;
        }
        mask & !word.fetch_or(mask, Ordering::Relaxed)
    }

    /// Sets the bit of one chunk, as [`Bits::set`]. Returns true if it was not set.
    pub(super) fn set_one(&self, number: u32) -> bool {
        let (place, mask) = split(number);
        self.set(place, mask) != 0
    }
}

/// Word and bit of a chunk.
pub(super) const fn split(number: u32) -> (usize, u64) {
    ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
}

/// Bits of all containers that a mark has met: of data containers only the candidates', of recipe containers all,
/// because a node's bit says that it was visited.
#[derive(Debug)]
pub(super) struct AllBits<'a> {
    candidates: &'a Candidates,
    met: RwLock<HashMap<ContainerId, Arc<Bits>>>,
}

impl<'a> AllBits<'a> {
    pub(super) fn new(candidates: &'a Candidates) -> Self {
        Self { candidates, met: RwLock::default() }
    }

    /// A container's; `None` when it is not looked at.
    pub(super) fn of(&self, container: &OpenContainer) -> Option<Arc<Bits>> {
        let (id, class) = (container.id(), container.class());
        let wanted = match class {
            ContainerClass::Recipe => true,
            ContainerClass::Data => self.candidates.get(id).is_some_and(|one| one.class == class),
        };
        let chunks = u32::try_from(container.directory().chunk_count()).unwrap_or(u32::MAX);
        wanted.then(|| self.get_or_add(id, chunks))
    }

    /// Keeps all of a container.
    pub(super) fn keep(&self, id: ContainerId) {
        if let Some(candidate) = self.candidates.get(id) {
            self.get_or_add(id, candidate.chunks).keep.store(true, Ordering::Relaxed);
        }
    }

    fn get_or_add(&self, id: ContainerId, chunks: u32) -> Arc<Bits> {
        if let Some(bits) = self.met.read().get(&id) {
            return Arc::clone(bits);
        }
        Arc::clone(self.met.write().entry(id).or_insert_with(|| Arc::new(Bits::new(chunks))))
    }

    /// Asserts that the bits of the window's containers keep to what was said of them: what the window was cut by, and
    /// the rest of a word for each.
    pub(super) fn check_bound(&self) {
        let met = self.met.read();
        let taken = |(id, bits): (&ContainerId, &Arc<Bits>)| {
            self.candidates.get(*id).map(|_| (size_of_val(&*bits.words) + size_of::<Bits>()) as u64)
        };
        let bytes: u64 = met.iter().filter_map(taken).sum();
        let bound = self.candidates.memory_bytes();
        assert!(bytes <= bound, "the mark's bits take {bytes} bytes; the window was said to take {bound}");
    }

    /// Live chunks of each candidate.
    pub(super) fn into_map(self) -> LiveMap {
        let mut met = self.met.into_inner();
        let mut map = LiveMap::default();
        for candidate in self.candidates.iter() {
            // Taken out one by one, so that two copies of one container's are there at a time and never of all.
            let live = match met.remove(&candidate.id) {
                None => SlotSet::new(candidate.chunks),
                Some(bits) if bits.keep.load(Ordering::Relaxed) => SlotSet::full(bits.chunks),
                Some(bits) => {
                    if let Some(vm) = bits.vm.get() {
                        map.insert_vm(candidate.id, *vm);
                    }
                    let words = bits.words.iter().map(|word| word.load(Ordering::Relaxed));
                    SlotSet::from_words(bits.chunks, words)
                }
            };
            map.insert(candidate.id, live);
        }
        map
    }
}

#[cfg(test)]
mod tests;
