//! What a chunk takes on the volume, as everything that counts live, freed and attributed bytes counts it.
//!
//! A chunk's part of its region's stored bytes by its plain length, and an equal part of what the container has beside
//! its regions (header, region headers, directory, footer). Parts are differences of rounded prefixes, so those of all
//! chunks of a container add up to the length of its file, to the byte.

use crate::container::OpenContainer;

/// Of one container.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    overhead_bytes: u64,
    chunks: u64,
}

impl Shares {
    pub(super) fn of(container: &OpenContainer) -> Self {
        let regions = container.directory().regions_with_ends();
        let stored: u64 = regions.map(|(record, _)| u64::from(record.stored_bytes)).sum();
        let chunks = container.directory().chunk_count() as u64;
        Self { overhead_bytes: container.stored_bytes().saturating_sub(stored), chunks }
    }

    /// What chunk `number` of the same container takes.
    pub(super) fn bytes(&self, container: &OpenContainer, number: u32) -> u64 {
        let directory = container.directory();
        let place = directory.place_of(number);
        let chunk = place.and_then(|(region, slot)| {
            let (record, chunk) = (directory.region(region)?, directory.chunk(region, slot)?);
            let upto = |end: u32| part(record.stored_bytes.into(), end.into(), record.plain_bytes.into());
            Some(upto(chunk.offset + chunk.bytes) - upto(chunk.offset))
        });
        let number = u64::from(number);
        let overhead = part(self.overhead_bytes, number + 1, self.chunks)
            - part(self.overhead_bytes, number, self.chunks);
        chunk.unwrap_or(0) + overhead
    }
}

/// `bytes` × `of` ÷ `all`, rounded down. Bounded by the container's 32 MiB squared.
const fn part(bytes: u64, of: u64, all: u64) -> u64 {
    match (bytes * of).checked_div(all) {
        Some(part) => part,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_volume::MemoryVolume;

    use super::*;
    use crate::container::testing::{open, sample_regions, seal};

    #[test]
    fn the_shares_of_all_chunks_add_up_to_the_file() {
        let volume = MemoryVolume::new();
        for number in 1..20u8 {
            seal(&volume, number.into(), &sample_regions(number));
            let container = open(&volume, number.into());
            let shares = Shares::of(&container);
            let chunks = u32::try_from(container.directory().chunk_count()).unwrap();
            let of_chunks: Vec<u64> = (0..chunks).map(|chunk| shares.bytes(&container, chunk)).collect();
            assert_eq!(of_chunks.iter().sum::<u64>(), container.stored_bytes());
            assert!(of_chunks.iter().all(|bytes| *bytes > 0), "{of_chunks:?}");
            assert!(of_chunks[2] > of_chunks[3], "40 bytes of noise take more than one byte");
        }
        seal(&volume, 99, &[]);
        assert_eq!(Shares::of(&open(&volume, 99)).bytes(&open(&volume, 99), 0), 0);
    }
}
