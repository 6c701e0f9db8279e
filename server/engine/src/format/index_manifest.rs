//! The index manifest: which runs are the index, which containers they cover, and the secret that keys are
//! derived with. One blob per sequence number, written whole. `docs/FORMAT.md` has the byte map.

use roaring::RoaringTreemap;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::index_run::{IndexFormatError, SHARDS, ShardRange, crc32c, version_error};
use crate::ids::RepositoryId;

/// First bytes of a manifest.
pub const MANIFEST_MAGIC: [u8; 8] = *b"HFIXMAN\n";
/// The version this code writes, and the newest it reads.
pub const MANIFEST_VERSION: u16 = 1;
/// A manifest at most. 64 MiB is 2 million runs, or the bitmap of 500 million scattered containers
/// (8 KiB for each 65,536), which is 16 EiB of chunks.
pub const MANIFEST_MAX_BYTES: u64 = 64 << 20;
/// Bytes of the fixed part.
const HEADER_BYTES: usize = size_of::<HeaderBytes>();
const RECORD_BYTES: usize = size_of::<RecordBytes>();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeaderBytes {
    magic: [u8; 8],
    version: U16,
    shards: U16,
    runs: U32,
    sequence: U64,
    repository: [u8; 16],
    secret: [u8; 32],
    next_run: U64,
    covered_bytes: U64,
    zero: [u8; 32],
    /// Of everything after the header.
    body_crc: U32,
    /// Of the header's bytes before it, in every version.
    crc: U32,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecordBytes {
    run: U64,
    entries: U64,
    bytes: U64,
    shard_first: U16,
    shard_count: U16,
    zero: U32,
}

/// A run as the manifest knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunRecord {
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
    /// What namespace keys are derived from; random, and worth nothing without the index.
    pub secret: [u8; 32],
    /// Every run's number is below it.
    pub next_run: u64,
    /// Newest first among those of the same shards.
    pub runs: Vec<RunRecord>,
    /// Containers all of whose entries are in these runs.
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
    /// As bytes.
    ///
    /// # Errors
    /// [`IndexFormatError::Length`] when it would be longer than [`MANIFEST_MAX_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>, IndexFormatError> {
        let covered_bytes = self.covered.serialized_size();
        let len = HEADER_BYTES + self.runs.len() * RECORD_BYTES + covered_bytes;
        if len as u64 > MANIFEST_MAX_BYTES {
            return Err(IndexFormatError::Length { len: len as u64 });
        }
        let mut body = Vec::with_capacity(len - HEADER_BYTES);
        for record in &self.runs {
            let bytes = RecordBytes {
                run: U64::new(record.run),
                entries: U64::new(record.entries),
                bytes: U64::new(record.bytes),
                shard_first: U16::new(record.shards.first()),
                shard_count: U16::new(record.shards.count()),
                zero: U32::ZERO,
            };
            body.extend_from_slice(bytes.as_bytes());
        }
        let bitmap = self.covered.serialize_into(&mut body);
        bitmap.map_err(|_| IndexFormatError::Inconsistent { part: "manifest", why: "bitmap" })?;
        let mut header = HeaderBytes {
            magic: MANIFEST_MAGIC,
            version: U16::new(MANIFEST_VERSION),
            shards: U16::new(SHARDS),
            runs: U32::new(u32::try_from(self.runs.len()).unwrap_or(u32::MAX)),
            sequence: U64::new(self.sequence),
            repository: self.repository.to_bytes(),
            secret: self.secret,
            next_run: U64::new(self.next_run),
            covered_bytes: U64::new(covered_bytes as u64),
            zero: [0; 32],
            body_crc: U32::new(crc32c(&body)),
            crc: U32::ZERO,
        };
        header.crc = U32::new(header_crc(&header));
        let mut bytes = header.as_bytes().to_vec();
        bytes.append(&mut body);
        Ok(bytes)
    }

    /// From bytes.
    ///
    /// # Errors
    /// Any [`IndexFormatError`]; a newer version is `Unsupported`, never a checksum error.
    pub fn decode(bytes: &[u8]) -> Result<Self, IndexFormatError> {
        const PART: &str = "manifest";
        let (header, body) = HeaderBytes::read_from_prefix(bytes)
            .map_err(|_| IndexFormatError::Length { len: bytes.len() as u64 })?;
        if header.magic != MANIFEST_MAGIC {
            return Err(IndexFormatError::Magic { part: PART });
        }
        if header.crc.get() != header_crc(&header) {
            return Err(IndexFormatError::Checksum { part: "manifest header" });
        }
        if header.version.get() != MANIFEST_VERSION {
            return Err(version_error(PART, header.version.get(), MANIFEST_VERSION));
        }
        if header.body_crc.get() != crc32c(body) {
            return Err(IndexFormatError::Checksum { part: PART });
        }
        let records_bytes = u64::from(header.runs.get()) * RECORD_BYTES as u64;
        if header.shards.get() != SHARDS
            || records_bytes.checked_add(header.covered_bytes.get()) != Some(body.len() as u64)
        {
            return Err(IndexFormatError::Inconsistent { part: PART, why: "counts do not fit together" });
        }
        let (records, bitmap) =
            body.split_at_checked(usize::try_from(records_bytes).unwrap_or(usize::MAX)).unwrap_or_default();
        let covered = RoaringTreemap::deserialize_from(bitmap)
            .map_err(|_| IndexFormatError::Inconsistent { part: PART, why: "covered containers" })?;
        let next_run = header.next_run.get();
        let runs =
            records.as_chunks().0.iter().map(|b| decode_record(b, next_run)).collect::<Result<_, _>>()?;
        Ok(Self {
            sequence: header.sequence.get(),
            repository: RepositoryId::from_bytes(header.repository),
            secret: header.secret,
            next_run,
            runs,
            covered,
        })
    }
}

fn header_crc(header: &HeaderBytes) -> u32 {
    crc32c(header.as_bytes().get(..HEADER_BYTES - 4).unwrap_or_default())
}

fn decode_record(bytes: &[u8; RECORD_BYTES], next_run: u64) -> Result<RunRecord, IndexFormatError> {
    let record: RecordBytes = zerocopy::transmute!(*bytes);
    let run = record.run.get();
    match ShardRange::new(record.shard_first.get(), record.shard_count.get()) {
        Some(shards) if run < next_run && (shards.count() == 1 || shards == ShardRange::ALL) => {
            Ok(RunRecord { run, entries: record.entries.get(), bytes: record.bytes.get(), shards })
        }
        _ => Err(IndexFormatError::Inconsistent { part: "manifest", why: "a run that cannot be" }),
    }
}

#[cfg(test)]
mod tests;
