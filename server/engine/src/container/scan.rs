//! Reads a whole container from where it lies, and reports everything that is wrong with it, not only the first thing.
//!
//! When header, directory or footer cannot be believed, regions are found by their own headers, one after the other, and by
//! looking for the next one after a header that is damaged. Nothing found so is believed for where it lies: a region counts
//! when its payload matches the checksum in its header, and its chunks are named by the hash of their bytes.

use holdfast_proto::limits::CONTAINER_MAX_BYTES;
use holdfast_proto::region::{Codec, sealed};
use holdfast_types::ids::{ContainerClass, ContainerId, RepositoryId};
use holdfast_volume::Volume;

use super::reader::{Parts, length};
use super::{ContainerError, ContainerName, Directory};
use crate::format::container::{
    FIRST_REGION_OFFSET, REGION_HEADER_BYTES, REGIONS_MAX, RegionRecord, region_magic,
};
use crate::format::{Defect, FormatError};

/// Results of a scan.
#[derive(Debug, Default)]
pub struct ScanReport {
    /// Regions looked at; all of them when the directory is whole.
    pub regions: u64,
    /// Chunks whose fingerprints were checked and are right.
    pub sound_chunks: u64,
    /// Bytes of the file.
    pub stored_bytes: u64,
    /// Every damage. Empty: the container is sound.
    pub findings: Vec<ContainerError>,
}

/// Checks header, footer, directory, and of every region header, payload, frame and fingerprints.
pub fn scan_container(
    volume: &dyn Volume,
    repository: RepositoryId,
    id: ContainerId,
    class: ContainerClass,
) -> ScanReport {
    // Told to go on, it does.
    scan_container_while(volume, repository, id, class, &mut |_| true).unwrap_or_default()
}

/// Scans as [`scan_container`], and can be ended early: `go_on` is told of stored bytes after each region was read.
/// `None`: it returned false.
pub fn scan_container_while(
    volume: &dyn Volume,
    repository: RepositoryId,
    id: ContainerId,
    class: ContainerClass,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Option<ScanReport> {
    let mut report = ScanReport::default();
    let wanted = ContainerName { id, class };
    let parts = match Parts::open(volume, wanted) {
        Ok(parts) => parts,
        Err(error) => {
            report.findings.push(error);
            return Some(report);
        }
    };
    parts.blob.drop_cached();
    report.stored_bytes = parts.blob.len();
    match parts.header(repository, wanted) {
        Ok(_) => {}
        // The rest of a newer container means nothing to this build.
        Err(error @ ContainerError::Structure { source: FormatError::Unsupported { .. }, .. }) => {
            report.findings.push(error);
            return Some(report);
        }
        Err(error) => report.findings.push(error),
    }
    match parts.directory(id) {
        Ok(directory) => {
            if !scan_regions(&parts, &directory, &mut report, go_on) {
                return None;
            }
        }
        Err(error) => {
            report.findings.push(error);
            walk_headers(&parts, &mut report);
        }
    }
    Some(report)
}

/// Scans every region that the directory names. Returns true if it came to the end.
fn scan_regions(
    parts: &Parts,
    directory: &Directory,
    report: &mut ScanReport,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> bool {
    for number in 0u16.. {
        let Some(record) = directory.region(number) else { break };
        report.regions += 1;
        if let Err(error) = check_header(parts, number, record) {
            report.findings.push(error);
        }
        match check_content(parts, number, record, directory) {
            Ok(()) => report.sound_chunks += u64::from(record.chunk_count),
            Err(error) => report.findings.push(error),
        }
        if !go_on(record.stored_bytes.into()) {
            return false;
        }
    }
    true
}

fn check_header(parts: &Parts, number: u16, record: &RegionRecord) -> Result<(), ContainerError> {
    let found = header_at(parts, number, record.offset)?;
    if found == *record {
        return Ok(());
    }
    let difference = [
        ("payload length", found.stored_bytes, record.stored_bytes),
        ("plain length", found.plain_bytes, record.plain_bytes),
        ("payload checksum", found.payload_crc, record.payload_crc),
        ("chunk count", found.chunk_count.into(), record.chunk_count.into()),
        ("codec", found.codec as u32, record.codec as u32),
    ]
    .into_iter()
    .find(|(_, found, expected)| found != expected);
    let Some((field, found, expected)) = difference else { return Ok(()) };
    let defect = Defect::Mismatch { field, found: found.into(), expected: expected.into() };
    let source = FormatError::corrupt("region header", defect);
    Err(ContainerError::in_region(&parts.name, Some(number), source))
}

fn header_at(parts: &Parts, number: u16, offset: u32) -> Result<RegionRecord, ContainerError> {
    parts.twice(|| {
        let bytes = parts.read_array::<REGION_HEADER_BYTES>(Some(number), offset.into())?;
        RegionRecord::decode_header(offset, &bytes)
            .map_err(|source| ContainerError::in_region(&parts.name, Some(number), source))
    })
}

fn check_content(
    parts: &Parts,
    number: u16,
    record: &RegionRecord,
    directory: &Directory,
) -> Result<(), ContainerError> {
    let stored = parts.stored_region(number, record)?;
    stored.checked_against(&parts.name, directory).map(drop)
}

/// Scans regions without a directory, by their own headers alone: from the container's header on, one after the other,
/// up to the first that is not readable.
fn walk_headers(parts: &Parts, report: &mut ScanReport) {
    let mut offset = FIRST_REGION_OFFSET;
    for number in 0u16.. {
        let record = match header_at(parts, number, offset) {
            Ok(record) => record,
            // The end of the regions, as far as can be told now.
            Err(ContainerError::RegionStructure { source, .. }) if is_no_header(&source) => return,
            Err(error) => {
                report.findings.push(error);
                return;
            }
        };
        report.regions += 1;
        let decoded = parts.stored_region(number, &record).and_then(|stored| {
            let decoded = match stored.codec {
                Codec::Sealed => sealed::parts(&stored.payload, stored.plain_bytes).map(drop),
                _ => stored.decode().map(drop),
            };
            decoded.map_err(|source| {
                let container = parts.name.clone();
                ContainerError::Content { container, region: number, source }
            })
        });
        if let Err(error) = decoded {
            report.findings.push(error);
        }
        let Ok(next) = u32::try_from(record.end()) else { return };
        offset = next;
    }
}

const fn is_no_header(error: &FormatError) -> bool {
    matches!(error, FormatError::Corrupt { defect: Defect::Magic { .. } | Defect::TooShort { .. }, .. })
}

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

/// Regions that a walk found.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Regions in the order of the file, each with its number when that is known: up to the first gap.
    pub(super) regions: Vec<(RegionRecord, Option<usize>)>,
    /// End of the last region.
    pub(super) end: usize,
    /// True if something between the regions could not be read.
    pub(super) gaps: bool,
}

/// Walks `bytes` from the first region to `end` at most, where directory and footer begin.
pub(super) fn walk(bytes: &[u8]) -> Walked {
    let mut walked = Walked { end: FIRST_REGION_OFFSET as usize, ..Walked::default() };
    let mut offset = walked.end;
    while walked.regions.len() < REGIONS_MAX {
        match walked_header_at(bytes, offset) {
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
fn walked_header_at(bytes: &[u8], offset: usize) -> Option<RegionRecord> {
    let header = bytes.get(offset..)?.first_chunk::<REGION_HEADER_BYTES>()?;
    let record = RegionRecord::decode_header(u32::try_from(offset).ok()?, header).ok()?;
    (record.end() <= bytes.len() as u64).then_some(record)
}

/// Offset of the next header. Bounded by the container's length; a magic is compared before a checksum is computed.
fn next_header(bytes: &[u8], from: usize) -> Option<usize> {
    let magic = region_magic();
    let rest = bytes.get(from..)?;
    let found = rest.windows(magic.len()).enumerate().filter(|(_, window)| *window == magic);
    found.map(|(place, _)| from + place).find(|place| walked_header_at(bytes, *place).is_some())
}
