//! The directory of a container: 24 bytes of header, then a record a region, a length a chunk, a fingerprint a
//! chunk, and a CRC-64 over all of it.

use holdfast_proto::Fingerprint;
use holdfast_proto::fingerprint::FINGERPRINT_BYTES;
use holdfast_proto::region::Codec;
use holdfast_types::ids::ContainerId;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FOOTER_BYTES, HEADER_BYTES, REGIONS_MAX, RegionRecord};
use super::{check_version, codec, container_id, version};
use crate::format::crc64;
use crate::format::{Defect, FormatError, check_equal, check_limit};

const DIRECTORY_MAGIC: u32 = u32::from_le_bytes(*b"HFDR");
const DIRECTORY: &str = "directory";

const LENGTH_BYTES: usize = 2;
const CRC_BYTES: usize = 8;

/// Contents of a container: its regions and their chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Regions in the order of the file.
    pub regions: Vec<RegionRecord>,
    /// A chunk's end in its region's plain bytes; chunks in order of region and slot.
    pub ends: Vec<u32>,
    /// One for each of `ends`.
    pub fingerprints: Vec<Fingerprint>,
}

impl Contents {
    /// Returns true if agents sealed its regions.
    pub fn is_sealed(&self) -> bool {
        self.regions.iter().any(|record| record.codec == Codec::Sealed)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDirectory {
    magic: U32,
    version: U16,
    region_count: U16,
    chunk_count: U32,
    reserved: U32,
    id: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    offset: U32,
    stored_bytes: U32,
    plain_bytes: U32,
    payload_crc: U32,
    chunk_count: U16,
    codec: u8,
    reserved: u8,
}

/// Bytes of a directory of so many regions and chunks.
pub const fn directory_bytes(regions: usize, chunks: usize) -> usize {
    size_of::<RawDirectory>()
        + regions * size_of::<RawRecord>()
        + chunks * (LENGTH_BYTES + FINGERPRINT_BYTES)
        + CRC_BYTES
}

fn corrupt(defect: Defect) -> FormatError {
    FormatError::corrupt(DIRECTORY, defect)
}

/// Encodes a directory.
///
/// # Errors
/// When `contents` break the format's limits, which a container writer keeps.
pub fn encode_directory(id: ContainerId, contents: &Contents) -> Result<Vec<u8>, FormatError> {
    let (regions, chunks) = (contents.regions.len(), contents.fingerprints.len());
    check_limit(DIRECTORY, "region count", regions as u64, REGIONS_MAX as u64)?;
    let over = |field, found: usize| corrupt(Defect::OverLimit { field, found: found as u64, limit: 0 });
    let header = RawDirectory {
        magic: DIRECTORY_MAGIC.into(),
        version: version(contents.is_sealed()).into(),
        region_count: u16::try_from(regions).map_err(|_| over("region count", regions))?.into(),
        chunk_count: u32::try_from(chunks).map_err(|_| over("chunk count", chunks))?.into(),
        reserved: 0.into(),
        id: id.get().into(),
    };
    let mut bytes = Vec::with_capacity(directory_bytes(regions, chunks));
    bytes.extend_from_slice(header.as_bytes());
    for record in &contents.regions {
        let raw = RawRecord {
            offset: record.offset.into(),
            stored_bytes: record.stored_bytes.into(),
            plain_bytes: record.plain_bytes.into(),
            payload_crc: record.payload_crc.into(),
            chunk_count: record.chunk_count.into(),
            codec: record.codec as u8,
            reserved: 0,
        };
        bytes.extend_from_slice(raw.as_bytes());
    }
    let mut ends = contents.ends.iter();
    for record in &contents.regions {
        let mut start = 0;
        for &end in ends.by_ref().take(record.chunk_count.into()) {
            // 1 to 65,536 fits when one less is written.
            let less_one = end.checked_sub(start + 1).and_then(|less_one| u16::try_from(less_one).ok());
            let less_one = less_one.ok_or_else(|| over("chunk length", 0))?;
            bytes.extend_from_slice(&less_one.to_le_bytes());
            start = end;
        }
    }
    for fingerprint in &contents.fingerprints {
        bytes.extend_from_slice(fingerprint.as_bytes());
    }
    check_equal(
        DIRECTORY,
        "length",
        (bytes.len() + CRC_BYTES) as u64,
        directory_bytes(regions, chunks) as u64,
    )?;
    bytes.extend_from_slice(&crc64(&bytes).to_le_bytes());
    Ok(bytes)
}

/// Decodes a directory, at `offset` of the container `id`. When this returns, the regions fill the container from its
/// header to the directory, every chunk lies within its region, and every number is within its limit.
///
/// # Errors
/// [`FormatError`].
pub fn decode_directory(bytes: &[u8], id: ContainerId, offset: u32) -> Result<Contents, FormatError> {
    let too_short =
        || corrupt(Defect::TooShort { len: bytes.len() as u64, needed: directory_bytes(0, 0) as u64 });
    let (body, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or_else(too_short)?;
    let (header, rest) = RawDirectory::ref_from_prefix(body).map_err(|_| too_short())?;
    if header.magic.get() != DIRECTORY_MAGIC {
        let found = header.magic.get().swap_bytes();
        return Err(corrupt(Defect::Magic { found, expected: DIRECTORY_MAGIC.swap_bytes() }));
    }
    let (stored, computed) = (u64::from_le_bytes(*crc), crc64(body));
    if stored != computed {
        return Err(corrupt(Defect::Checksum { stored, computed }));
    }
    let sealed = check_version(DIRECTORY, header.version.get())?;
    check_equal(DIRECTORY, "reserved field", header.reserved.get().into(), 0)?;
    let found = container_id(DIRECTORY, header.id.get())?;
    if found != id {
        let (found, expected) = (found.to_string(), id.to_string());
        return Err(corrupt(Defect::Foreign { field: "container", found, expected }));
    }
    let regions = usize::from(header.region_count.get());
    let chunks = usize::try_from(header.chunk_count.get()).unwrap_or(usize::MAX);
    check_limit(DIRECTORY, "region count", regions as u64, REGIONS_MAX as u64)?;
    // Bounds the chunk count too: each takes 34 of the bytes that are there.
    check_limit(DIRECTORY, "chunk count", chunks as u64, (rest.len() / FINGERPRINT_BYTES) as u64)?;
    check_equal(DIRECTORY, "length", bytes.len() as u64, directory_bytes(regions, chunks) as u64)?;

    let needed = || corrupt(Defect::TooShort { len: rest.len() as u64, needed: chunks as u64 });
    let (records, rest) = <[RawRecord]>::ref_from_prefix_with_elems(rest, regions).map_err(|_| needed())?;
    let (lengths, fingerprints) = <[U16]>::ref_from_prefix_with_elems(rest, chunks).map_err(|_| needed())?;
    let regions = records.iter().map(decode_record).collect::<Result<Vec<_>, _>>()?;
    check_layout(&regions, offset)?;
    // All of one kind, which the version gives.
    for record in &regions {
        check_equal(
            DIRECTORY,
            "number of sealed regions",
            u64::from(record.codec == Codec::Sealed),
            u64::from(sealed),
        )?;
    }
    let ends = chunk_ends(&regions, lengths)?;
    let fingerprints = Fingerprint::split_list(fingerprints).ok_or_else(needed)?.collect();
    Ok(Contents { regions, ends, fingerprints })
}

fn decode_record(raw: &RawRecord) -> Result<RegionRecord, FormatError> {
    check_equal(DIRECTORY, "reserved field of a region", raw.reserved.into(), 0)?;
    let record = RegionRecord {
        offset: raw.offset.get(),
        stored_bytes: raw.stored_bytes.get(),
        plain_bytes: raw.plain_bytes.get(),
        payload_crc: raw.payload_crc.get(),
        chunk_count: raw.chunk_count.get(),
        codec: codec(DIRECTORY, raw.codec)?,
    };
    record.check_limits(DIRECTORY)?;
    Ok(record)
}

/// Regions lie end to end between the header and the directory.
fn check_layout(regions: &[RegionRecord], directory_offset: u32) -> Result<(), FormatError> {
    let mut end = const { HEADER_BYTES as u64 };
    for record in regions {
        check_equal(DIRECTORY, "region offset", record.offset.into(), end)?;
        end = record.end();
    }
    check_equal(DIRECTORY, "last region's end", end, directory_offset.into())
}

/// Adds lengths up; those of a region must give its plain bytes, and there must be none left over.
fn chunk_ends(regions: &[RegionRecord], lengths: &[U16]) -> Result<Vec<u32>, FormatError> {
    let expected: u64 = regions.iter().map(|record| u64::from(record.chunk_count)).sum();
    check_equal(DIRECTORY, "chunk count", lengths.len() as u64, expected)?;
    let mut ends = Vec::with_capacity(lengths.len());
    let mut lengths = lengths.iter();
    for record in regions {
        let mut end = 0u32;
        for less_one in lengths.by_ref().take(record.chunk_count.into()) {
            // 4,096 × 65,536 at most.
            end += u32::from(less_one.get()) + 1;
            ends.push(end);
        }
        check_equal(DIRECTORY, "sum of chunk lengths", end.into(), record.plain_bytes.into())?;
    }
    Ok(ends)
}

/// The shortest container: no region at all.
pub const CONTAINER_MIN_BYTES: usize = HEADER_BYTES + directory_bytes(0, 0) + FOOTER_BYTES;

/// Contents of a damaged directory, to be believed only where the regions confirm them.
#[derive(Debug)]
pub struct DirectoryHints {
    /// Offset and chunk count of each region, as far as known: from the regions found, else from their records.
    regions: Vec<(Option<u32>, usize)>,
    lengths: Vec<u32>,
    fingerprints: Vec<Fingerprint>,
}

impl DirectoryHints {
    /// Lengths and fingerprints of the chunks of a region, by its number or, without, by where it lies.
    pub fn region(
        &self,
        record: &RegionRecord,
        number: Option<usize>,
    ) -> Option<(Vec<u32>, Vec<Fingerprint>)> {
        let by_place = || self.regions.iter().position(|(offset, _)| *offset == Some(record.offset));
        let number = number.or_else(by_place)?;
        let first: usize = self.regions.iter().take(number).map(|(_, chunks)| chunks).sum();
        let range = first..first + usize::from(record.chunk_count);
        Some((self.lengths.get(range.clone())?.to_vec(), self.fingerprints.get(range)?.to_vec()))
    }
}

/// Returns true if `bytes` begin like a directory.
pub fn begins_directory(bytes: &[u8]) -> bool {
    bytes.starts_with(&DIRECTORY_MAGIC.to_le_bytes())
}

/// Looks for what is left of a directory in a container's bytes. `regions`: those found by walking, which end at
/// `end`. `None` when nothing after them can have been one.
pub fn directory_hints(
    bytes: &[u8],
    end: usize,
    regions: &[(RegionRecord, Option<usize>)],
) -> Option<DirectoryHints> {
    let (start, count, chunks) = place_of_directory(bytes, end, regions)?;
    let needed = directory_bytes(count, chunks);
    let mut directory = bytes.get(start..)?.iter().copied().take(needed).collect::<Vec<u8>>();
    // Bytes that were cut off count as zeros.
    directory.resize(needed, 0);
    let rest = directory.get(size_of::<RawDirectory>()..)?;
    let (records, rest) = <[RawRecord]>::ref_from_prefix_with_elems(rest, count).ok()?;
    let (lengths, rest) = <[U16]>::ref_from_prefix_with_elems(rest, chunks).ok()?;
    let names = rest.get(..chunks * FINGERPRINT_BYTES)?;
    let mut places: Vec<_> =
        records.iter().map(|raw| (Some(raw.offset.get()), usize::from(raw.chunk_count.get()))).collect();
    for (record, number) in regions {
        if let Some(place) = number.and_then(|number| places.get_mut(number)) {
            *place = (Some(record.offset), record.chunk_count.into());
        }
    }
    Some(DirectoryHints {
        regions: places,
        lengths: lengths.iter().map(|less_one| u32::from(less_one.get()) + 1).collect(),
        fingerprints: Fingerprint::split_list(names)?.collect(),
    })
}

/// Offset of a directory, and its numbers of regions and chunks: by the footer, its own header and the regions, as far
/// as they agree.
fn place_of_directory(
    bytes: &[u8],
    end: usize,
    regions: &[(RegionRecord, Option<usize>)],
) -> Option<(usize, usize, usize)> {
    let footer = bytes.last_chunk().and_then(|footer| super::Footer::decode(footer, bytes.len() as u64).ok());
    let after = bytes.get(end..)?;
    let magic = after.windows(CRC_BYTES / 2).position(begins_directory).map(|place| end + place);
    let walked = (regions.len(), regions.iter().map(|(record, _)| usize::from(record.chunk_count)).sum());
    let starts = [footer.map(|footer| footer.directory_offset as usize), magic, Some(end)];
    for start in starts.into_iter().flatten() {
        let Some(left) = bytes.len().checked_sub(start) else { continue };
        let said = bytes.get(start..).and_then(|rest| RawDirectory::ref_from_prefix(rest).ok());
        let said = said.map(|(header, _)| {
            let chunks = usize::try_from(header.chunk_count.get()).unwrap_or(usize::MAX);
            (usize::from(header.region_count.get()), chunks)
        });
        // (R3) Nothing is longer than what is there; only one that the regions describe may have been cut off.
        let fits = |(regions, chunks): &(usize, usize)| {
            *regions <= REGIONS_MAX && *chunks <= left && directory_bytes(*regions, *chunks) <= left
        };
        if let Some((regions, chunks)) =
            said.filter(fits).filter(|said| said.0 >= walked.0 && said.1 >= walked.1)
        {
            return Some((start, regions, chunks));
        }
        if walked.1 <= bytes.len() {
            return Some((start, walked.0, walked.1));
        }
    }
    None
}
