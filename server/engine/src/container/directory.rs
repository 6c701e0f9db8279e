//! What a container holds, in memory: about 50 bytes a chunk, and any fingerprint found in one or two steps.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use holdfast_proto::Fingerprint;

use crate::format::container::{Contents, RegionRecord};

/// A chunk of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRef {
    pub fingerprint: Fingerprint,
    /// Where it begins in its region's plain bytes.
    pub offset: u32,
    /// Its plain bytes.
    pub bytes: u32,
}

/// A container's directory.
#[derive(Debug, Clone)]
pub struct Directory {
    contents: Contents,
    /// Number of the first chunk of each region, and the number of all chunks as last.
    first_chunks: Vec<u32>,
    /// Open addressing with linear probing: a chunk's number plus one, or 0. The length is a power of two.
    table: Vec<u32>,
}

impl Directory {
    pub(super) fn new(contents: Contents) -> Self {
        let mut first_chunks = Vec::with_capacity(contents.regions.len() + 1);
        let mut first = 0;
        first_chunks.push(first);
        for record in &contents.regions {
            first += u32::from(record.chunk_count);
            first_chunks.push(first);
        }
        assert_eq!(first as usize, contents.fingerprints.len(), "chunks of regions and of the directory");
        assert_eq!(contents.ends.len(), contents.fingerprints.len(), "ends and fingerprints of chunks");
        let table = build_table(&contents.fingerprints);
        Self { contents, first_chunks, table }
    }

    /// Whether agents have sealed what is in it.
    pub fn is_sealed(&self) -> bool {
        self.contents.is_sealed()
    }

    /// Number of regions.
    pub const fn region_count(&self) -> usize {
        self.contents.regions.len()
    }

    /// Number of chunks.
    pub const fn chunk_count(&self) -> usize {
        self.contents.fingerprints.len()
    }

    /// Plain bytes of all chunks.
    pub fn plain_bytes(&self) -> u64 {
        self.contents.regions.iter().map(|record| u64::from(record.plain_bytes)).sum()
    }

    /// A region's record.
    pub fn region(&self, region: u16) -> Option<&RegionRecord> {
        self.contents.regions.get(usize::from(region))
    }

    /// The regions in order, each with the ends of its chunks in its plain bytes.
    pub fn regions_with_ends(&self) -> impl Iterator<Item = (&RegionRecord, &[u32])> {
        let mut rest = self.contents.ends.as_slice();
        self.contents.regions.iter().map(move |record| {
            // There are as many ends as the regions have chunks: asserted when the directory was made.
            let (ends, after) = rest.split_at(record.chunk_count.into());
            rest = after;
            (record, ends)
        })
    }

    /// Region and slot of a chunk; of the first when it is there twice.
    pub fn locate(&self, fingerprint: &Fingerprint) -> Option<(u16, u16)> {
        self.place_of(self.number_by_name(fingerprint)?)
    }

    /// The fingerprint of a chunk by its number.
    pub fn fingerprint(&self, number: u32) -> Option<&Fingerprint> {
        self.contents.fingerprints.get(number as usize)
    }

    /// As [`Directory::locate`], the chunk's number.
    pub fn number_by_name(&self, fingerprint: &Fingerprint) -> Option<u32> {
        let fingerprints = &self.contents.fingerprints;
        let mask = self.table.len().checked_sub(1)?;
        let mut place = home(fingerprint) & mask;
        // Ends at a free place; a quarter of them are.
        while let Some(number) = self.table.get(place)?.checked_sub(1) {
            if fingerprints.get(number as usize) == Some(fingerprint) {
                return Some(number);
            }
            place = (place + 1) & mask;
        }
        None
    }

    /// A chunk by its place.
    pub fn chunk(&self, region: u16, slot: u16) -> Option<ChunkRef> {
        let (first, count) = self.chunk_range(region)?;
        let slot = usize::from(slot);
        if slot >= count {
            return None;
        }
        let offset = match slot {
            0 => 0,
            _ => *self.contents.ends.get(first + slot - 1)?,
        };
        let end = *self.contents.ends.get(first + slot)?;
        Some(ChunkRef {
            fingerprint: *self.contents.fingerprints.get(first + slot)?,
            offset,
            bytes: end - offset,
        })
    }

    /// The chunks of a region in order of slot: their fingerprints and their ends in its plain bytes.
    pub fn region_chunks(&self, region: u16) -> Option<(&[Fingerprint], &[u32])> {
        let (first, count) = self.chunk_range(region)?;
        let range = first..first + count;
        Some((self.contents.fingerprints.get(range.clone())?, self.contents.ends.get(range)?))
    }

    /// Every chunk: fingerprint, region, slot.
    pub fn iter(&self) -> impl Iterator<Item = (Fingerprint, u16, u16)> + '_ {
        let mut fingerprints = self.contents.fingerprints.iter();
        (0u16..).zip(&self.contents.regions).flat_map(move |(region, record)| {
            let chunks: Vec<_> = (0..record.chunk_count)
                .zip(fingerprints.by_ref())
                .map(|(slot, fingerprint)| (*fingerprint, region, slot))
                .collect();
            chunks
        })
    }

    /// Bytes of memory this takes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.contents.regions.capacity() * size_of::<RegionRecord>()
            + self.contents.ends.capacity() * size_of::<u32>()
            + self.contents.fingerprints.capacity() * size_of::<Fingerprint>()
            + self.first_chunks.capacity() * size_of::<u32>()
            + self.table.capacity() * size_of::<u32>()
    }

    fn chunk_range(&self, region: u16) -> Option<(usize, usize)> {
        let count = self.region(region)?.chunk_count;
        Some((*self.first_chunks.get(usize::from(region))? as usize, usize::from(count)))
    }

    /// A chunk's number: its position among all chunks of the container, in order of region and slot.
    pub fn number_of(&self, region: u16, slot: u16) -> Option<u32> {
        let (first, count) = self.chunk_range(region)?;
        let number = first.checked_add(usize::from(slot))?;
        (usize::from(slot) < count).then(|| u32::try_from(number).ok()).flatten()
    }

    /// Region and slot of a chunk by its [number](Directory::number_of).
    pub fn place_of(&self, number: u32) -> Option<(u16, u16)> {
        if number as usize >= self.chunk_count() {
            return None;
        }
        // The last region that begins at or before the chunk; no region is empty.
        let region = self.first_chunks.partition_point(|&first| first <= number).checked_sub(1)?;
        let slot = number - self.first_chunks.get(region)?;
        Some((u16::try_from(region).ok()?, u16::try_from(slot).ok()?))
    }
}

/// Where to look first. (I5) Who chooses the names of chunks, as agents that seal them can, must not choose their places in a
/// table as well: all in one place would take minutes.
fn home(fingerprint: &Fingerprint) -> usize {
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    usize::try_from(SECRET.hash_one(fingerprint.as_bytes()) & u64::from(u32::MAX)).unwrap_or(0)
}

fn build_table(fingerprints: &[Fingerprint]) -> Vec<u32> {
    if fingerprints.is_empty() {
        return Vec::new();
    }
    // At most three quarters full.
    let len = (fingerprints.len() + fingerprints.len() / 3 + 1).next_power_of_two();
    let mut table = vec![0u32; len];
    for (number_plus_one, fingerprint) in (1u32..).zip(fingerprints) {
        let mut place = home(fingerprint) & (len - 1);
        while let Some(entry) = table.get_mut(place) {
            let Some(other) = entry.checked_sub(1) else {
                *entry = number_plus_one;
                break;
            };
            // (I5) Of a chunk that is there twice the first is found.
            if fingerprints.get(other as usize) == Some(fingerprint) {
                break;
            }
            place = (place + 1) & (len - 1);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// (I5) Otherwise each would be passed by to find a place for the next.
    #[test]
    fn a_chunk_that_is_there_often_takes_one_place() {
        let (one, other) = (Fingerprint::of(b"one"), Fingerprint::of(b"other"));
        let mut all = vec![one; 4000];
        all.insert(7, other);
        let table = build_table(&all);
        let mut taken: Vec<u32> = table.into_iter().filter(|entry| *entry != 0).collect();
        taken.sort_unstable();
        assert_eq!(taken, [1, 8], "the first of each");
    }

    /// (I5)
    #[test]
    fn names_that_end_alike_have_places_of_their_own() {
        let alike = |number: u32| {
            let mut bytes = [7; 32];
            bytes[8..12].copy_from_slice(&number.to_be_bytes());
            Fingerprint::from_bytes(bytes)
        };
        let homes: HashSet<usize> = (0..1000).map(|number| home(&alike(number))).collect();
        assert!(homes.len() > 990, "{} places for 1,000 names", homes.len());
    }
}
