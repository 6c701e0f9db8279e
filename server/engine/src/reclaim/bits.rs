//! A bit for each chunk of the containers that a mark has met, set by several threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use holdfast_types::ids::{ContainerClass, ContainerId, VmId};
use parking_lot::RwLock;

use super::live::{Candidates, LiveMap, SlotSet, words_for};
use crate::container::OpenContainer;

/// One container's.
#[derive(Debug)]
pub(super) struct Bits {
    chunks: u32,
    words: Box<[AtomicU64]>,
    /// Whether all of it counts as live: a chunk that is nowhere sound may still be got out of it one day.
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

    /// As [`Bits::set`], one chunk by its number. Whether it was not set.
    pub(super) fn set_one(&self, number: u32) -> bool {
        let (place, mask) = split(number);
        self.set(place, mask) != 0
    }
}

/// Word and bit of a chunk.
pub(super) const fn split(number: u32) -> (usize, u64) {
    ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
}

/// Those of all containers that a mark has met: of data containers only the candidates', of recipe containers all,
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

    /// Nothing of a container may go.
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

    /// What is live of each candidate.
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
