//! Reads planned regions and turns them into messages.

use bytes::Bytes;
use holdfast_proto::region::Codec;
use holdfast_proto::v1::RegionData;
use holdfast_types::ids::{ContainerClass, ContainerId};

use super::OpenDisk;
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
        let region = stored.next().map_or_else(|| open.read_region(read.region), Ok);
        match region.and_then(|region| message(&disk.core, &open, read, &region)) {
            Ok(message) => messages.push(message),
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
    let wanted_bytes: usize = read.wanted.iter().map(|wanted| wanted.bytes as usize).sum();
    let offset_of = |wanted: &Wanted| {
        open.directory().chunk(read.region, wanted.slot).map_or(u32::MAX, |chunk| chunk.offset)
    };
    let chunks = read.wanted.iter().map(|wanted| wanted.chunk).collect();
    if stored.payload.len() <= wanted_bytes {
        return Ok(RegionData {
            codec: stored.codec as u32,
            plain_bytes: stored.plain_bytes,
            payload: stored.payload.clone(),
            chunks,
            offsets: read.wanted.iter().map(offset_of).collect(),
        });
    }
    let plain = core.store.read_region(open.id(), ContainerClass::Data, read.region)?;
    let mut payload = Vec::with_capacity(wanted_bytes);
    let mut offsets = Vec::with_capacity(read.wanted.len());
    for wanted in &read.wanted {
        offsets.push(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        let start = offset_of(wanted) as usize;
        payload.extend_from_slice(plain.get(start..start + wanted.bytes as usize).unwrap_or_default());
    }
    Ok(as_stored(payload.into(), chunks, offsets))
}

fn as_stored(payload: Bytes, chunks: Vec<u32>, offsets: Vec<u32>) -> RegionData {
    let plain_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
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
    store.note_damage(container, region, &cause.to_string());
    let mut recent = RecentDirectories::default();
    let domain = disk.tree.source().domain();
    for Wanted { chunk, fingerprint, extent, .. } in &read.wanted {
        let bytes = store.read_chunk(domain, ContainerClass::Data, fingerprint, &mut recent)?;
        let bytes = bytes
            .ok_or_else(|| EngineError::Damaged(format!("extent {extent}: chunk {fingerprint}: {cause}")))?;
        messages.push(as_stored(bytes, vec![*chunk], vec![0]));
    }
    Ok(())
}
