//! Reads planned regions and turns them into messages.

use bytes::Bytes;
use holdfast_proto::region::Codec;
use holdfast_proto::v1::RegionData;
use holdfast_types::ids::{ContainerClass, ContainerId};

use super::open::OpenDisk;
use super::plan::{ReadJob, RegionRead, Wanted};
use crate::container::{ContainerError, OpenContainer, RecentDirectories, StoredRegion};
use crate::core::Core;
use crate::error::EngineError;

/// Reads a job's regions with one request; region by region when that fails, so that one damaged region
/// does not take its neighbours with it.
pub(super) fn run(disk: &OpenDisk, job: &ReadJob) -> Result<Vec<RegionData>, EngineError> {
    let mut messages = Vec::with_capacity(job.regions.len());
    let open = match disk.core.store.containers.get(job.container, ContainerClass::Data) {
        Ok(open) => open,
        Err(error) => {
            for read in &job.regions {
                replace(disk, job.container, None, read, &error, &mut messages)?;
            }
            return Ok(messages);
        }
    };
    let mut stored = all_at_once(&open, job).into_iter().flatten();
    for read in &job.regions {
        // (R2) Either way the payload was checked against its CRC.
        let region = stored.next().map_or_else(|| open.read_region(read.region), Ok);
        match region.and_then(|region| message(&disk.core, &open, read, &region)) {
            Ok(message) => messages.push(message),
            // (R4) Noted, and the chunks are taken from elsewhere.
            Err(error) => replace(disk, job.container, Some(read.region), read, &error, &mut messages)?,
        }
    }
    Ok(messages)
}

fn all_at_once(open: &OpenContainer, job: &ReadJob) -> Option<Vec<StoredRegion>> {
    let first = job.regions.first()?.region;
    let last = job.regions.last()?.region;
    open.read_regions(first..last + 1).ok()
}

/// The message that carries what is wanted of a region: whole as stored, or only the wanted chunks when
/// they are fewer bytes.
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
    if stored.payload.len() <= wanted_bytes {
        return Ok(RegionData {
            codec: stored.codec as u32,
            plain_bytes: stored.plain_bytes,
            payload: stored.payload.clone(),
            chunks,
            offsets: read.wanted.iter().map(|wanted| wanted.offset).collect(),
        });
    }
    let plain = core.store.decode_region(open, stored)?;
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
    container: ContainerId,
    region: Option<u16>,
    read: &RegionRead,
    cause: &ContainerError,
    messages: &mut Vec<RegionData>,
) -> Result<(), EngineError> {
    if !cause.is_damage() {
        return Err(EngineError::Internal(cause.to_string()));
    }
    let store = &disk.core.store;
    store.note_failure(container, region, cause);
    let mut recent = RecentDirectories::default();
    let domain = disk.tree.source().domain();
    for Wanted { chunk, fingerprint, extent, bytes: expected, .. } in &read.wanted {
        let bytes = store.read_chunk(domain, ContainerClass::Data, fingerprint, &mut recent)?;
        let bytes = bytes
            .ok_or_else(|| EngineError::Damaged(format!("extent {extent}: chunk {fingerprint}: {cause}")))?;
        if bytes.len() != *expected as usize {
            let is = bytes.len();
            return Err(EngineError::Damaged(format!(
                "extent {extent}: chunk {fingerprint} is {is} bytes long, the recipe says {expected}"
            )));
        }
        messages.push(as_stored(bytes, *expected, vec![*chunk], vec![0]));
    }
    Ok(())
}
