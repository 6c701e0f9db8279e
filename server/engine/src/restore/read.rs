//! Reads planned regions and turns them into messages.

use bytes::Bytes;
use holdfast_proto::region::Codec;
use holdfast_proto::v1::{self, RegionData};
use holdfast_types::ids::{ContainerClass, ContainerId};

use super::open::{OnDamage, OpenDisk};
use super::plan::{Lost, ReadJob, RegionRead, Wanted};
use crate::container::{ContainerError, OpenContainer, RecentDirectories, StoredRegion};
use crate::core::Core;
use crate::error::EngineError;
use crate::store::ReadChunk;

/// Reads a job's regions, or those that another restore has just read, unless only the volume counts. One that is damaged does not take its neighbours with it.
pub(super) fn run(
    disk: &OpenDisk,
    job: &ReadJob,
    from_volume: bool,
    on_damage: OnDamage,
) -> Result<Found, EngineError> {
    let mut found = Found { regions: Vec::with_capacity(job.regions.len()), lost: Vec::new(), on_damage };
    let open = match disk.core.store.containers.get(job.container, ContainerClass::Data) {
        Ok(open) => open,
        Err(error) if found.goes_on(&error) => {
            for read in &job.regions {
                replace(disk, (job.container, None), read, &error, &mut found)?;
            }
            return Ok(found);
        }
        Err(error) => return Err(error.into()),
    };
    // (R2) Wherever it comes from, the payload was checked against its CRC.
    let shared = disk.core.store.containers.shared();
    let stored =
        if from_volume { shared.read_from_volume(&open, job.span()) } else { shared.read(&open, job.span()) };
    assert_eq!(stored.len(), job.regions.len(), "regions of {} for a restore", open.name());
    for (read, region) in job.regions.iter().zip(stored) {
        match region.and_then(|region| message(&disk.core, &open, read, &region)) {
            Ok(message) => found.regions.push(message),
            // (R4) Noted, and the chunks are taken from elsewhere.
            Err(error) if found.goes_on(&error) => {
                replace(disk, (job.container, Some(read.region)), read, &error, &mut found)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Result of a read job.
pub(super) struct Found {
    pub(super) regions: Vec<RegionData>,
    pub(super) lost: Vec<Lost>,
    on_damage: OnDamage,
}

impl Found {
    /// Returns true if the data that failed is looked for elsewhere, or lost. (R4) Data that the volume cannot give now is neither.
    const fn goes_on(&self, error: &ContainerError) -> bool {
        error.is_damage()
            || matches!(self.on_damage, OnDamage::Report) && !matches!(error, ContainerError::Volume(_))
    }
}

/// The message that carries what is wanted of a region: whole as stored, or only the wanted chunks when
/// they are fewer bytes and the server can decode it.
fn message(
    core: &Core,
    open: &OpenContainer,
    read: &RegionRead,
    stored: &StoredRegion,
) -> Result<RegionData, ContainerError> {
    let ranges = read
        .wanted
        .iter()
        .map(|wanted| open.chunk_range(read.region, &wanted.place(), stored.plain_bytes as usize))
        .collect::<Result<Vec<_>, _>>()?;
    let wanted_bytes: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    let chunks = read.wanted.iter().map(|wanted| wanted.chunk).collect();
    if stored.codec == Codec::Sealed || stored.payload.len() <= wanted_bytes {
        return Ok(RegionData {
            codec: stored.codec as u32,
            plain_bytes: stored.plain_bytes,
            payload: stored.payload.clone(),
            chunks,
            offsets: read.wanted.iter().map(|wanted| wanted.offset).collect(),
        });
    }
    let plain = core.store.decode_for_agent(open, stored)?;
    assert_eq!(plain.len(), stored.plain_bytes as usize, "a decoded region of {}", open.name());
    let mut payload = Vec::with_capacity(wanted_bytes);
    let mut offsets = Vec::with_capacity(read.wanted.len());
    let mut offset = 0;
    for (wanted, range) in read.wanted.iter().zip(ranges) {
        offsets.push(offset);
        offset += wanted.bytes;
        payload.extend_from_slice(&plain.slice(range));
    }
    assert_eq!(payload.len(), wanted_bytes, "chunks wanted of {}", open.name());
    Ok(as_stored(payload.into(), offset, chunks, offsets))
}

/// `plain_bytes` is the payload's length.
fn as_stored(payload: Bytes, plain_bytes: u32, chunks: Vec<u32>, offsets: Vec<u32>) -> RegionData {
    RegionData { codec: Codec::Stored as u32, plain_bytes, payload, chunks, offsets }
}

/// Notes damage and takes the wanted chunks from elsewhere in the repository.
fn replace(
    disk: &OpenDisk,
    (container, region): (ContainerId, Option<u16>),
    read: &RegionRead,
    cause: &ContainerError,
    found: &mut Found,
) -> Result<(), EngineError> {
    if cause.is_damage() {
        disk.core.store.note_failure(container, region, cause);
    }
    let mut recent = RecentDirectories::default();
    for wanted in &read.wanted {
        match elsewhere(disk, wanted, cause, &mut recent) {
            Ok(chunk) => found.regions.push(by_itself(chunk, wanted)),
            Err(error) if found.on_damage.goes_on(&error) => {
                // The chunk's name says nothing to a reader of a long list, and would keep neighbours apart.
                let damage = v1::Damage { reason: cause.to_string(), container: container.to_string() };
                found.lost.push(Lost { chunk: wanted.chunk, damage });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The message that carries one chunk.
fn by_itself(chunk: ReadChunk, wanted: &Wanted) -> RegionData {
    match chunk {
        ReadChunk::Plain(bytes) => as_stored(bytes, wanted.bytes, vec![wanted.chunk], vec![0]),
        ReadChunk::Sealed { stored, offset, .. } => RegionData {
            codec: stored.codec as u32,
            plain_bytes: stored.plain_bytes,
            payload: stored.payload,
            chunks: vec![wanted.chunk],
            offsets: vec![offset],
        },
    }
}

/// A chunk from wherever else it is.
fn elsewhere(
    disk: &OpenDisk,
    wanted: &Wanted,
    cause: &ContainerError,
    recent: &mut RecentDirectories,
) -> Result<ReadChunk, EngineError> {
    let Wanted { fingerprint, extent, bytes: expected, .. } = wanted;
    let domain = disk.tree.source().domain();
    let chunk = disk.core.store.read_stored(domain, ContainerClass::Data, fingerprint, recent)?;
    let chunk = chunk
        .ok_or_else(|| EngineError::Damaged(format!("extent {extent}: chunk {fingerprint}: {cause}")))?;
    if chunk.len() != *expected as usize {
        let is = chunk.len();
        return Err(EngineError::Damaged(format!(
            "extent {extent}: chunk {fingerprint} is {is} bytes long, the recipe says {expected}"
        )));
    }
    Ok(chunk)
}
