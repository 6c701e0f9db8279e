//! The index manifest: which sorted runs are the index, which containers they cover, and the secret that keys are
//! derived with. One blob per sequence number, written whole. `docs/FORMAT.md` has the byte map.

use holdfast_types::ids::RepositoryId;
use roaring::RoaringTreemap;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc32c;
use super::sorted_run::{SHARDS, ShardRange, check_crc, check_section, check_version};
use super::{Defect, FormatError, check_equal, check_limit, with_crc};

const MAGIC: u32 = u32::from_le_bytes(*b"HFIM");
const MANIFEST: &str = "index manifest";
/// The version this code writes, and the newest it reads.
pub const MANIFEST_VERSION: u16 = 1;
/// A manifest at most. 64 MiB is 2 million sorted runs, or the bitmap of 500 million scattered containers
/// (8 KiB for each 65,536), which is 16 EiB of chunks.
pub const MANIFEST_MAX_BYTES: u64 = 64 << 20;
/// Bytes of the fixed part.
const HEADER_BYTES: usize = size_of::<RawHeader>();
const RECORD_BYTES: usize = size_of::<RawRecord>();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U16,
    shards: U16,
    runs: U32,
    zero: U32,
    sequence: U64,
    repository: [u8; 16],
    secret: [u8; 32],
    next_run: U64,
    covered_bytes: U64,
    zero_too: [u8; 32],
    /// Checksum of everything after the header.
    body_crc: U32,
    /// Checksum of the header's bytes before it, in every version.
    crc: U32,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    run: U64,
    entries: U64,
    bytes: U64,
    shard_first: U16,
    shard_count: U16,
    zero: U32,
}

/// A sorted run as the manifest knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortedRunRecord {
    pub run: u64,
    pub entries: u64,
    /// Length of its blob.
    pub bytes: u64,
    pub shards: ShardRange,
}

/// The whole index at one moment.
#[derive(Clone, PartialEq)]
pub struct Manifest {
    /// The highest valid one counts.
    pub sequence: u64,
    pub repository: RepositoryId,
    /// Secret that namespace keys are derived from; random, and worth nothing without the index.
    pub secret: [u8; 32],
    /// Every sorted run's number is below it.
    pub next_run: u64,
    /// Newest first among those of the same shards.
    pub runs: Vec<SortedRunRecord>,
    /// Containers all of whose entries are in these sorted runs.
    pub covered: RoaringTreemap,
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("sequence", &self.sequence)
            .field("runs", &self.runs.len())
            .field("covered", &self.covered.len())
            .finish_non_exhaustive()
    }
}

impl Manifest {
    /// Encodes the manifest.
    ///
    /// # Errors
    /// [`Defect::OverLimit`] when it would be longer than [`MANIFEST_MAX_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let covered_bytes = self.covered.serialized_size();
        let len = HEADER_BYTES + self.runs.len() * RECORD_BYTES + covered_bytes;
        check_limit(MANIFEST, "length", len as u64, MANIFEST_MAX_BYTES)?;
        let mut body = Vec::with_capacity(len - HEADER_BYTES);
        for record in &self.runs {
            let raw = RawRecord {
                run: U64::new(record.run),
                entries: U64::new(record.entries),
                bytes: U64::new(record.bytes),
                shard_first: U16::new(record.shards.first()),
                shard_count: U16::new(record.shards.count()),
                zero: U32::ZERO,
            };
            body.extend_from_slice(raw.as_bytes());
        }
        self.covered.serialize_into(&mut body).map_err(|_| not_a_bitmap(covered_bytes as u64))?;
        let raw = RawHeader {
            magic: U32::new(MAGIC),
            version: U16::new(MANIFEST_VERSION),
            shards: U16::new(SHARDS),
            runs: U32::new(u32::try_from(self.runs.len()).unwrap_or(u32::MAX)),
            zero: U32::ZERO,
            sequence: U64::new(self.sequence),
            repository: self.repository.to_bytes(),
            secret: self.secret,
            next_run: U64::new(self.next_run),
            covered_bytes: U64::new(covered_bytes as u64),
            zero_too: [0; 32],
            body_crc: U32::new(crc32c(&body)),
            crc: U32::ZERO,
        };
        let header: [u8; HEADER_BYTES] = with_crc(zerocopy::transmute!(raw));
        let mut bytes = header.to_vec();
        bytes.append(&mut body);
        Ok(bytes)
    }

    /// Decodes a manifest.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| {
            let (len, needed) = (bytes.len() as u64, HEADER_BYTES as u64);
            FormatError::corrupt(MANIFEST, Defect::TooShort { len, needed })
        })?;
        let raw: &RawHeader = zerocopy::transmute_ref!(header);
        if raw.magic.get() != MAGIC {
            let defect = Defect::Magic { found: raw.magic.get(), expected: MAGIC };
            return Err(FormatError::corrupt(MANIFEST, defect));
        }
        check_crc(MANIFEST, header)?;
        check_version(MANIFEST, raw.version.get(), MANIFEST_VERSION)?;
        check_section(MANIFEST, raw.body_crc.get(), body)?;
        check_equal(MANIFEST, "shard count", raw.shards.get().into(), SHARDS.into())?;
        let record_bytes = u64::from(raw.runs.get()) * RECORD_BYTES as u64;
        let body_bytes = record_bytes.saturating_add(raw.covered_bytes.get());
        check_equal(MANIFEST, "length", body.len() as u64, body_bytes)?;
        let split = usize::try_from(record_bytes).unwrap_or(usize::MAX);
        let (records, bitmap) = body.split_at_checked(split).unwrap_or_default();
        let covered =
            RoaringTreemap::deserialize_from(bitmap).map_err(|_| not_a_bitmap(raw.covered_bytes.get()))?;
        let next_run = raw.next_run.get();
        let records = records.as_chunks().0.iter();
        Ok(Self {
            sequence: raw.sequence.get(),
            repository: RepositoryId::from_bytes(raw.repository),
            secret: raw.secret,
            next_run,
            runs: records.map(|bytes| decode_record(bytes, next_run)).collect::<Result<_, _>>()?,
            covered,
        })
    }
}

/// The bytes have the right checksum, but no bitmap library wrote them.
fn not_a_bitmap(len: u64) -> FormatError {
    FormatError::corrupt(MANIFEST, Defect::Mismatch { field: "bitmap length", found: len, expected: 0 })
}

fn decode_record(bytes: &[u8; RECORD_BYTES], next_run: u64) -> Result<SortedRunRecord, FormatError> {
    let raw: &RawRecord = zerocopy::transmute_ref!(bytes);
    let (first, count) = (raw.shard_first.get(), raw.shard_count.get());
    let run = raw.run.get();
    check_limit(MANIFEST, "run number", run, next_run.saturating_sub(1))?;
    match ShardRange::new(first, count) {
        Some(shards) if count == 1 || shards == ShardRange::ALL => {
            Ok(SortedRunRecord { run, entries: raw.entries.get(), bytes: raw.bytes.get(), shards })
        }
        _ => Err(FormatError::corrupt(
            MANIFEST,
            Defect::Mismatch { field: "shard count of a run", found: count.into(), expected: 1 },
        )),
    }
}

#[cfg(test)]
mod tests;
