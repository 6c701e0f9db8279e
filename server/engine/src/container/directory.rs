//! The directory of a container in memory: about 50 bytes a chunk, and any fingerprint found in one or two steps.
//!
//! [`cut`] finds where the chunks of a region end when the directory cannot be believed. Lengths and fingerprints that a
//! damaged directory still has are hints: lengths count when they fill the region, and a chunk that hashes to a fingerprint
//! of the directory is proved. Where hints are missing, data is cut again, as the agent once did, and recipe nodes say
//! themselves how long they are. A wrong cut makes no wrong byte: chunks are named by the hash of their bytes, so one that
//! never was is never asked for. But what was there under its right name is not found any more: only a proved cut says that
//! nothing of a region is lost.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use holdfast_proto::Fingerprint;
use holdfast_proto::chunker::Chunker;
use holdfast_proto::limits::CHUNK_MAX_BYTES;
use holdfast_types::ids::ContainerClass;

use crate::format::container::{Contents, RegionRecord};
use crate::format::recipe::node_bytes;

/// A chunk of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRef {
    pub fingerprint: Fingerprint,
    /// Offset in its region's plain bytes.
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

    /// Returns true if agents have sealed what is in it.
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

    /// Finds the chunk's number, as [`Directory::locate`].
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

/// Slot to look at first. (I5) Agents choose the names of chunks that they seal, and must not choose their slots as
/// well: all in one slot would take minutes.
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
            // (I5) If a chunk is there twice, the first is found.
            if fingerprints.get(other as usize) == Some(fingerprint) {
                break;
            }
            place = (place + 1) & (len - 1);
        }
    }
    table
}

/// Remains of a directory about one region: as many lengths and fingerprints as it has chunks.
#[derive(Debug, Clone, Default)]
pub(super) struct Hints {
    pub(super) lengths: Vec<u32>,
    pub(super) fingerprints: Vec<Fingerprint>,
}

/// Division of a region into chunks.
pub(super) struct Cut {
    /// The length of each chunk.
    pub(super) lengths: Vec<u32>,
    /// True when these are the chunks that were stored: the directory has their lengths, which fill the region, or the
    /// name of every one; or each is a recipe node, and there are as many as the region's header says.
    pub(super) is_proved: bool,
}

/// Cuts `plain`, which is not empty, into the chunks of a region whose header says `chunk_count`. They fill it.
pub(super) fn cut(plain: &[u8], class: ContainerClass, chunk_count: u16, hints: &Hints) -> Cut {
    let total: u64 = hints.lengths.iter().map(|length| u64::from(*length)).sum();
    if total == plain.len() as u64
        && hints.lengths.iter().all(|length| (1..=CHUNK_MAX_BYTES).contains(length))
    {
        let is_proved = hints.lengths.len() == usize::from(chunk_count);
        return Cut { lengths: hints.lengths.clone(), is_proved };
    }
    let mut lengths = Vec::new();
    let mut rest = plain;
    // One search that finds nothing means that the place is wrong, and so would be all that follow.
    let mut may_search = true;
    let (mut named, mut nodes) = (0, 0);
    while !rest.is_empty() {
        let slot = lengths.len();
        let guess = guess(rest, class);
        let length = match hints.fingerprints.get(slot) {
            Some(expected) => {
                let hinted = hints.lengths.get(slot).map(|length| *length as usize);
                let likely = hinted.into_iter().chain([guess]).find(|length| is(rest, *length, expected));
                let searched = || {
                    let found = may_search.then(|| search(rest, expected)).flatten();
                    may_search = found.is_some();
                    found
                };
                likely.or_else(searched).unwrap_or(guess)
            }
            None => guess,
        };
        let length = length.clamp(1, rest.len());
        named += usize::from(hints.fingerprints.get(slot).is_some_and(|name| is(rest, length, name)));
        nodes += usize::from(class == ContainerClass::Recipe && node_bytes(rest) == Some(length));
        lengths.push(u32::try_from(length).unwrap_or(CHUNK_MAX_BYTES));
        rest = rest.get(length..).unwrap_or_default();
    }
    let is_proved =
        lengths.len() == usize::from(chunk_count) && (lengths.len() == named || lengths.len() == nodes);
    Cut { lengths, is_proved }
}

fn guess(rest: &[u8], class: ContainerClass) -> usize {
    match class {
        ContainerClass::Data => Chunker::default().first_chunk(rest),
        ContainerClass::Recipe => node_bytes(rest).unwrap_or(rest.len().min(CHUNK_MAX_BYTES as usize)),
    }
}

fn is(rest: &[u8], length: usize, expected: &Fingerprint) -> bool {
    rest.get(..length).is_some_and(|chunk| Fingerprint::of(chunk) == *expected)
}

/// The length at which the bytes hash to `expected`: a chunk that ended with its extent, or before zeros. Each length
/// takes a microsecond.
fn search(rest: &[u8], expected: &Fingerprint) -> Option<usize> {
    let mut hasher = blake3::Hasher::new();
    let chunk = rest.iter().take(CHUNK_MAX_BYTES as usize).enumerate();
    for (place, byte) in chunk {
        hasher.update(std::slice::from_ref(byte));
        if hasher.finalize().as_bytes() == expected.as_bytes() {
            return Some(place + 1);
        }
    }
    None
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
