//! A set of chunks by container and number, small where they are consecutive.

use holdfast_types::ids::ContainerId;
use roaring::RoaringTreemap;

/// Bits of a chunk's number: a container of 32 MiB holds fewer than 2²⁰ of at least 34 bytes each, directory included.
const NUMBER_BITS: u32 = 20;

/// Chunks added between two times of making the set smaller: 256 KiB of it at most.
const ADDED_MAX: u64 = 1 << 17;

/// A set that takes more is made [coarse](ChunkSet::coarsen).
const FINE_MAX_BYTES: u64 = 16 << 20;

/// Set of chunks by container and number. Chunks found one after the other cost nothing; others two bytes each, up to a
/// limit: then the set has all chunks of a container between the first and the last that were added, so that it takes
/// some bytes a container.
#[derive(Debug, Default)]
pub(super) struct ChunkSet {
    bits: RoaringTreemap,
    /// Memory when it was made smaller last, and chunks added since.
    measured: u64,
    added: u64,
}

fn key(container: ContainerId, number: u32) -> u64 {
    (container.get() << NUMBER_BITS) | u64::from(number)
}

impl ChunkSet {
    /// Adds a chunk. Returns true if it was not in the set.
    pub(super) fn insert(&mut self, container: ContainerId, number: u32) -> bool {
        assert!(number >> NUMBER_BITS == 0, "chunk {number} of container {container}");
        let is_news = self.bits.insert(key(container, number));
        self.added += u64::from(is_news);
        if self.added >= ADDED_MAX {
            self.make_smaller(FINE_MAX_BYTES);
        }
        is_news
    }

    fn make_smaller(&mut self, fine_max: u64) {
        self.bits.optimize();
        self.measure();
        if self.measured > fine_max {
            self.coarsen();
            self.measure();
        }
    }

    /// Estimates the memory used: up to twice the serialized size, as lists grow by doubling.
    fn measure(&mut self) {
        (self.measured, self.added) = (2 * self.bits.serialized_size() as u64, 0);
    }

    /// Memory it takes, about: a chunk added lately is one of a list of two bytes each.
    pub(super) const fn memory_bytes(&self) -> u64 {
        self.measured + 4 * self.added
    }

    /// (D3) Adds what lies between chunks of a container. Who counts on more than it needs keeps containers longer, and
    /// nothing else.
    fn coarsen(&mut self) {
        let (mut ranges, mut at) = (Vec::new(), self.bits.iter());
        while let Some(first) = at.next() {
            let end = ((first >> NUMBER_BITS) + 1) << NUMBER_BITS;
            let mut back = self.bits.iter();
            back.advance_back_to(end - 1);
            ranges.push(first..=back.next_back().unwrap_or(first));
            at.advance_to(end);
        }
        for range in ranges {
            self.bits.insert_range(range);
        }
        self.bits.optimize();
    }

    pub(super) fn remove(&mut self, container: ContainerId, number: u32) {
        self.bits.remove(key(container, number));
    }

    /// Returns true if `wanted` is true of every chunk of a container that is in the set.
    pub(super) fn all_of(&self, container: ContainerId, wanted: impl Fn(u32) -> bool) -> bool {
        self.of(container).all(wanted)
    }

    /// The chunks of a container that are in the set, in order.
    pub(super) fn of(&self, container: ContainerId) -> impl Iterator<Item = u32> + '_ {
        let (first, end) = (key(container, 0), (container.get() + 1) << NUMBER_BITS);
        let mut chunks = self.bits.iter();
        chunks.advance_to(first);
        let number = move |bit: u64| u32::try_from(bit - first).unwrap_or(u32::MAX);
        chunks.take_while(move |bit| *bit < end).map(number)
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.bits |= &other.bits;
        self.make_smaller(FINE_MAX_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ContainerId {
        ContainerId::new(number).unwrap()
    }

    #[test]
    fn containers_do_not_mix() {
        let mut set = ChunkSet::default();
        let last = (1 << NUMBER_BITS) - 1;
        let top = id((1 << ContainerId::BITS) - 1);
        for (container, number) in [(id(1), last), (id(2), 0), (id(2), 7), (id(3), 0), (top, last)] {
            assert!(set.insert(container, number));
        }
        assert!(!set.insert(id(2), 7));
        assert!(set.all_of(id(2), |number| [0, 7].contains(&number)));
        assert!(!set.all_of(id(2), |number| number == 7));
        assert!(set.of(id(2)).eq([0, 7]) && set.of(id(1)).eq([last]) && set.of(id(4)).next().is_none());
        assert!(set.all_of(id(4), |_| false), "none of it is in the set");
        assert!(!set.all_of(top, |_| false));
        set.remove(id(2), 0);
        assert!(set.all_of(id(2), |number| number == 7));
    }

    #[test]
    fn what_lies_together_costs_nothing() {
        let mut set = ChunkSet::default();
        for container in 0..1000 {
            for number in 0..2000 {
                set.insert(id(container), number);
            }
        }
        assert!(set.memory_bytes() < 600_000, "{} bytes for 2,000,000 chunks", set.memory_bytes());
    }

    /// (D3)
    #[test]
    fn what_is_scattered_is_counted_and_does_not_grow_without_end() {
        let mut set = ChunkSet::default();
        for container in 0..1000 {
            for number in (0..2000).step_by(3) {
                set.insert(id(container), number);
            }
        }
        let fine = set.memory_bytes();
        assert!((1_300_000..6_000_000).contains(&fine), "{fine} bytes for 667,000 chunks, scattered");
        set.make_smaller(fine / 2);
        assert!(set.memory_bytes() < 100_000, "{} bytes for 1,000 containers", set.memory_bytes());
        for container in [0, 1, 999] {
            assert!(set.of(id(container)).eq(0..=1998), "all between the first and the last");
        }
        assert!(set.of(id(1000)).next().is_none());
        // It goes on as before.
        assert!(set.insert(id(5), 1999) && !set.insert(id(5), 7) && set.insert(id(2000), 3));
        set.coarsen();
        assert!(set.of(id(2000)).eq([3]) && set.of(id(5)).eq(0..=1999));
    }
}
