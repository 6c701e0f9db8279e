//! How well data compresses and how large its chunks are, from the directories of a sample of containers.
//!
//! Directories only: a few hundred kilobytes a container, read one after the other past the cache, so that
//! looking on neither holds memory nor pushes out what backups and restores need.

use holdfast_types::ids::{ContainerClass, ContainerId};

use crate::container::{ContainerError, Directory, OpenContainer};
use crate::core::Core;
use crate::error::EngineError;

/// Containers looked at in one go at most: some 300 MB of directories.
const SAMPLE_MAX: usize = 1024;

/// Factors at which buckets of regions begin; a bucket ends where the next begins, the last never.
pub const FACTOR_EDGES: [f64; 10] = [1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0];

/// Plain bytes at which buckets of chunks begin, as above. Chunks are 8 to 64 KiB; the last one of an extent
/// may be shorter.
pub const CHUNK_EDGES_BYTES: [u32; 11] =
    [1, 4096, 8192, 10_240, 12_288, 16_384, 20_480, 24_576, 32_768, 49_152, 65_536];

/// Regions of similar compression added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegionBucket {
    pub regions: u64,
    pub plain_bytes: u64,
    /// Payloads, without headers.
    pub stored_bytes: u64,
}

/// Chunks of similar size added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkBucket {
    pub chunks: u64,
    pub bytes: u64,
}

/// Statistics from a sample of live data containers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StorageStatistics {
    /// Live data containers there are.
    pub containers: u64,
    /// Containers in the sample: evenly spaced by number. A container that could not be read is left out.
    pub sampled_containers: u64,
    pub regions: u64,
    pub chunks: u64,
    /// Regions kept uncompressed, because compressing saved too little.
    pub raw_regions: u64,
    /// Regions by `plain / stored`, as [`FACTOR_EDGES`].
    pub region_factor: [RegionBucket; FACTOR_EDGES.len()],
    /// Lengths of chunks, as [`CHUNK_EDGES_BYTES`].
    pub chunk_bytes: [ChunkBucket; CHUNK_EDGES_BYTES.len()],
}

pub(crate) fn sample(core: &Core, max_containers: usize) -> Result<StorageStatistics, EngineError> {
    let max = u32::try_from(max_containers.min(SAMPLE_MAX))
        .map_err(|_| EngineError::Internal(format!("a sample of {max_containers} containers")))?;
    let (ids, containers) = core.catalog.sample_containers(ContainerClass::Data, max)?;
    let mut statistics = StorageStatistics { containers, ..StorageStatistics::default() };
    for id in ids {
        if let Some(open) = open(core, id)? {
            statistics.sampled_containers += 1;
            statistics.add(open.directory());
        }
    }
    Ok(statistics)
}

/// `None`: damaged, or deleted meanwhile. Reading its data will note the damage.
fn open(core: &Core, id: ContainerId) -> Result<Option<OpenContainer>, EngineError> {
    match OpenContainer::open(&*core.volume, core.repository, id, ContainerClass::Data) {
        Ok(open) => Ok(Some(open)),
        Err(error) if error.is_damage() => Ok(None),
        Err(ContainerError::Volume(holdfast_volume::VolumeError::NotFound { .. })) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl StorageStatistics {
    fn add(&mut self, directory: &Directory) {
        for (record, ends) in directory.regions_with_ends() {
            self.regions += 1;
            let (plain, stored) = (record.plain_bytes, record.stored_bytes);
            self.raw_regions += u64::from(stored >= plain);
            let factor = f64::from(plain) / f64::from(stored.max(1));
            let place = bucket(&FACTOR_EDGES, |edge| *edge <= factor);
            if let Some(bucket) = self.region_factor.get_mut(place) {
                bucket.regions += 1;
                bucket.plain_bytes += u64::from(plain);
                bucket.stored_bytes += u64::from(stored);
            }
            let mut begin = 0;
            for &end in ends {
                self.add_chunk(end - begin);
                begin = end;
            }
        }
    }

    fn add_chunk(&mut self, bytes: u32) {
        self.chunks += 1;
        let place = bucket(&CHUNK_EDGES_BYTES, |edge| *edge <= bytes);
        if let Some(bucket) = self.chunk_bytes.get_mut(place) {
            bucket.chunks += 1;
            bucket.bytes += u64::from(bytes);
        }
    }
}

/// The last bucket that begins at or below the value; the first when none does.
fn bucket<T>(edges: &[T], at_or_below: impl Fn(&T) -> bool) -> usize {
    edges.partition_point(at_or_below).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_begin_at_their_edges() {
        let of = |factor: f64| bucket(&FACTOR_EDGES, |edge| *edge <= factor);
        assert_eq!([0.5, 1.0, 1.0999, 1.1, 1.99, 2.0, 19.9, 20.0, 1e9].map(of), [0, 0, 0, 1, 3, 4, 8, 9, 9]);
        let of = |bytes: u32| bucket(&CHUNK_EDGES_BYTES, |edge| *edge <= bytes);
        assert_eq!([0, 1, 4095, 4096, 65_535, 65_536].map(of), [0, 0, 0, 1, 9, 10]);
    }
}
