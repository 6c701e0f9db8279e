//! Finds the regions of a container whose header, directory or footer cannot be believed: by their own headers, one
//! after the other, and by looking for the next one after a header that is damaged.
//!
//! Nothing found here is believed for where it lies. A region counts when its payload matches the checksum in its
//! header; what its chunks are called is computed from its bytes.

use holdfast_proto::limits::CONTAINER_MAX_BYTES;

use super::error::ContainerError;
use super::reader::{Parts, length};
use crate::format::container::{
    FIRST_REGION_OFFSET, REGION_HEADER_BYTES, REGIONS_MAX, RegionRecord, region_magic,
};

/// Bytes read at a time, and after a failure: what the disk cannot read of these is taken for zeros.
const READ_BYTES: u64 = 1 << 20;
const RETRY_BYTES: u64 = 4 << 10;

/// A container's bytes, as far as they can be read.
///
/// # Errors
/// (R4) When it cannot be read at the moment.
pub(super) fn read_all(parts: &Parts) -> Result<Vec<u8>, ContainerError> {
    // (R3) A file that is longer than any container is not read beyond the longest.
    let len = parts.blob.len().min(CONTAINER_MAX_BYTES.into());
    let mut bytes = Vec::with_capacity(length(len));
    while (bytes.len() as u64) < len {
        let offset = bytes.len() as u64;
        let step = READ_BYTES.min(len - offset);
        match parts.read(None, offset, length(step)) {
            Ok(read) => bytes.extend(read),
            Err(_) => read_piecewise(parts, offset, offset + step, &mut bytes)?,
        }
    }
    Ok(bytes)
}

fn read_piecewise(parts: &Parts, from: u64, to: u64, bytes: &mut Vec<u8>) -> Result<(), ContainerError> {
    let mut offset = from;
    while offset < to {
        let step = RETRY_BYTES.min(to - offset);
        match parts.read(None, offset, length(step)) {
            Ok(read) => bytes.extend(read),
            Err(error) if error.is_damage() => bytes.resize(bytes.len() + length(step), 0),
            Err(error) => return Err(error),
        }
        offset += step;
    }
    Ok(())
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Regions in the order of the file, each with its number when that is known: up to the first gap.
    pub(super) regions: Vec<(RegionRecord, Option<usize>)>,
    /// Where the last region ends.
    pub(super) end: usize,
    /// Whether something between the regions could not be read.
    pub(super) gaps: bool,
}

/// Walks `bytes` from the first region to `end` at most, where directory and footer begin.
pub(super) fn walk(bytes: &[u8]) -> Walked {
    let mut walked = Walked { end: FIRST_REGION_OFFSET as usize, ..Walked::default() };
    let mut offset = walked.end;
    while walked.regions.len() < REGIONS_MAX {
        match header_at(bytes, offset) {
            Some(record) => {
                let number = (!walked.gaps).then_some(walked.regions.len());
                walked.regions.push((record, number));
                offset += REGION_HEADER_BYTES + record.stored_bytes as usize;
                walked.end = offset;
            }
            None => match next_header(bytes, offset + 1) {
                Some(next) => {
                    walked.gaps = true;
                    offset = next;
                }
                None => break,
            },
        }
    }
    walked
}

/// A region's header whose checksum is right and whose payload lies within the bytes.
fn header_at(bytes: &[u8], offset: usize) -> Option<RegionRecord> {
    let header = bytes.get(offset..)?.first_chunk::<REGION_HEADER_BYTES>()?;
    let record = RegionRecord::decode_header(u32::try_from(offset).ok()?, header).ok()?;
    (record.end() <= bytes.len() as u64).then_some(record)
}

/// Where the next header lies. Bounded by the container's length; a magic is compared before a checksum is computed.
fn next_header(bytes: &[u8], from: usize) -> Option<usize> {
    let magic = region_magic();
    let rest = bytes.get(from..)?;
    let found = rest.windows(magic.len()).enumerate().filter(|(_, window)| *window == magic);
    found.map(|(place, _)| from + place).find(|place| header_at(bytes, *place).is_some())
}
