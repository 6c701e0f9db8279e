//! A point: all that a catalog needs to know of one restore point, in one small blob. `docs/FORMAT.md` has the byte
//! map of the header and the fields of the body, a protobuf message, so that later versions can add fields.

use holdfast_proto::limits::DISKS_PER_BACKUP_MAX;
use holdfast_types::ids::{BackupId, RepositoryId};
use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc32c;
use super::sorted_run::{check_crc, check_section, check_version};
use super::{Defect, FormatError, check_equal, check_limit, with_crc};

const MAGIC: u32 = u32::from_le_bytes(*b"HFPT");
const POINT: &str = "point";
/// The newest version this code reads, and writes for namespaces that agents encrypt: a version that did not know of that
/// would take plain data into them.
pub const POINT_VERSION: u16 = 2;
/// The version of all other points.
const PLAIN_VERSION: u16 = 1;
/// A point at most. One of 256 disks takes about 130 KiB: 256 × (200 bytes of name + 32 of root + 64 of version +
/// 22 numbers of 10 bytes); the rest is room for fields to come.
pub const POINT_MAX_BYTES: u64 = 1 << 20;
const HEADER_BYTES: usize = size_of::<RawHeader>();
/// The body's fields that repeat.
const DISK_FIELDS: [u32; 2] = [17, 20];

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U16,
    zero: U16,
    body_bytes: U32,
    /// Checksum of everything after the header.
    body_crc: U32,
    repository: [u8; 16],
    backup: [u8; 16],
    revision: U32,
    zero_too: [u8; 8],
    /// Checksum of the header's bytes before it, in every version.
    crc: U32,
}

/// A point as it lies on the volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub repository: RepositoryId,
    pub backup: BackupId,
    /// Revision, from 1 on; of one restore point the highest readable revision counts.
    pub revision: u32,
    pub body: PointBody,
}

/// The message. Identifiers are 16 bytes, most significant first; times are milliseconds since the Unix epoch.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PointBody {
    #[prost(bytes = "vec", tag = "2")]
    pub session: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub run: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub namespace: Vec<u8>,
    #[prost(string, tag = "5")]
    pub namespace_name: String,
    #[prost(int64, tag = "6")]
    pub namespace_created_ms: i64,
    #[prost(string, tag = "7")]
    pub vm: String,
    #[prost(string, tag = "8")]
    pub job: String,
    #[prost(string, tag = "9")]
    pub client_host: String,
    #[prost(string, tag = "10")]
    pub who: String,
    #[prost(int64, tag = "11")]
    pub started_ms: i64,
    #[prost(int64, tag = "12")]
    pub finished_ms: i64,
    /// The commit number.
    #[prost(uint64, tag = "13")]
    pub number: u64,
    /// Empty: not known, or none.
    #[prost(bytes = "vec", tag = "14")]
    pub parent: Vec<u8>,
    #[prost(uint64, tag = "15")]
    pub next_container: u64,
    /// Chunker parameters of the repository.
    #[prost(message, optional, tag = "16")]
    pub chunker: Option<PointChunker>,
    #[prost(message, repeated, tag = "17")]
    pub disks: Vec<PointDisk>,
    /// Owner of the run.
    #[prost(string, tag = "18")]
    pub owner: String,
    /// Owner of the VM.
    #[prost(string, tag = "19")]
    pub vm_owner: String,
    /// Disks of the VM that could not be read.
    #[prost(string, repeated, tag = "20")]
    pub missing_disks: Vec<String>,
    /// Locked until then.
    #[prost(int64, optional, tag = "21")]
    pub locked_until_ms: Option<i64>,
    #[prost(message, optional, tag = "22")]
    pub hold: Option<PointHold>,
    /// Lock clock when this revision was written.
    #[prost(int64, optional, tag = "23")]
    pub lock_time_ms: Option<i64>,
    /// 8 bytes: of the key that agents encrypt the namespace with. Empty: they do not.
    #[prost(bytes = "vec", tag = "24")]
    pub namespace_key: Vec<u8>,
    /// A disk was smaller than in the restore point before, or gone, which was accepted.
    #[prost(bool, tag = "25")]
    pub accepted_change: bool,
}

/// A legal hold.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PointHold {
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(string, tag = "2")]
    pub who: String,
    #[prost(int64, tag = "3")]
    pub since_ms: i64,
}

/// Chunker parameters of a repository; sizes in bytes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PointChunker {
    #[prost(string, tag = "1")]
    pub algorithm: String,
    #[prost(uint32, tag = "2")]
    pub min_bytes: u32,
    #[prost(uint32, tag = "3")]
    pub avg_bytes: u32,
    #[prost(uint32, tag = "4")]
    pub max_bytes: u32,
    #[prost(uint32, tag = "5")]
    pub extent_bytes: u32,
    #[prost(uint32, tag = "6")]
    pub region_bytes: u32,
}

/// One disk with its compression details.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PointDisk {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub size_bytes: u64,
    #[prost(uint64, tag = "3")]
    pub data_bytes: u64,
    #[prost(uint64, tag = "4")]
    pub extent_count: u64,
    /// 32 bytes.
    #[prost(bytes = "vec", tag = "5")]
    pub root: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub started_ms: i64,
    #[prost(int64, tag = "7")]
    pub finished_ms: i64,
    #[prost(uint64, tag = "8")]
    pub bytes: u64,
    #[prost(uint64, tag = "9")]
    pub read_bytes: u64,
    #[prost(uint64, tag = "10")]
    pub unchanged_bytes: u64,
    #[prost(uint64, tag = "11")]
    pub dup_bytes: u64,
    #[prost(uint64, tag = "12")]
    pub new_bytes: u64,
    #[prost(uint64, tag = "13")]
    pub post_lc: u64,
    #[prost(uint64, tag = "14")]
    pub meta_bytes: u64,
    #[prost(uint64, tag = "15")]
    pub wire_bytes: u64,
    #[prost(uint64, tag = "16")]
    pub chunks: u64,
    #[prost(uint64, tag = "17")]
    pub new_chunks: u64,
    /// No parent had the disk.
    #[prost(bool, tag = "18")]
    pub first_full: bool,
    /// Compression level; 0: not known.
    #[prost(uint32, tag = "19")]
    pub level: u32,
    /// The agent's version; empty: not known.
    #[prost(string, tag = "20")]
    pub agent: String,
    /// Milliseconds of the agent's threads: reading, compressing, waiting.
    #[prost(uint64, tag = "21")]
    pub reading_ms: u64,
    #[prost(uint64, tag = "22")]
    pub compressing_ms: u64,
    #[prost(uint64, tag = "23")]
    pub waiting_ms: u64,
}

impl PointBody {
    const fn version(&self) -> u16 {
        if self.namespace_key.is_empty() { PLAIN_VERSION } else { POINT_VERSION }
    }
}

impl Point {
    /// Encodes the point.
    ///
    /// # Errors
    /// [`Defect::OverLimit`] when it would be longer than [`POINT_MAX_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let body = self.body.encode_to_vec();
        check_limit(POINT, "length", (HEADER_BYTES + body.len()) as u64, POINT_MAX_BYTES)?;
        let raw = RawHeader {
            magic: U32::new(MAGIC),
            version: U16::new(self.body.version()),
            zero: U16::ZERO,
            body_bytes: U32::new(u32::try_from(body.len()).unwrap_or(u32::MAX)),
            body_crc: U32::new(crc32c(&body)),
            repository: self.repository.to_bytes(),
            backup: self.backup.to_bytes(),
            revision: U32::new(self.revision),
            zero_too: [0; 8],
            crc: U32::ZERO,
        };
        let header: [u8; HEADER_BYTES] = with_crc(zerocopy::transmute!(raw));
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    /// Decodes a point. (R3) Allocations are bounded by the length of `bytes` and [`DISKS_PER_BACKUP_MAX`].
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        check_limit(POINT, "length", bytes.len() as u64, POINT_MAX_BYTES)?;
        let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| {
            let (len, needed) = (bytes.len() as u64, HEADER_BYTES as u64);
            FormatError::corrupt(POINT, Defect::TooShort { len, needed })
        })?;
        let raw: &RawHeader = zerocopy::transmute_ref!(header);
        if raw.magic.get() != MAGIC {
            let defect = Defect::Magic { found: raw.magic.get(), expected: MAGIC };
            return Err(FormatError::corrupt(POINT, defect));
        }
        check_crc(POINT, header)?;
        let version = raw.version.get();
        if version != PLAIN_VERSION {
            check_version(POINT, version, POINT_VERSION)?;
        }
        check_equal(POINT, "length", body.len() as u64, raw.body_bytes.get().into())?;
        check_section(POINT, raw.body_crc.get(), body)?;
        // Before anything is decoded: an empty disk takes 2 bytes here and 200 in memory.
        let disks = count_disks(body).ok_or_else(|| not_a_message(body))?;
        check_limit(POINT, "number of disks", disks, DISKS_PER_BACKUP_MAX as u64)?;
        let message = PointBody::decode(body).map_err(|_| not_a_message(body))?;
        check_equal(POINT, "version", version.into(), message.version().into())?;
        Ok(Self {
            repository: RepositoryId::from_bytes(raw.repository),
            backup: BackupId::from_bytes(raw.backup),
            revision: raw.revision.get(),
            body: message,
        })
    }
}

/// Number of disks, and of names of missing ones, in a body; `None`: it is no message.
fn count_disks(mut body: &[u8]) -> Option<u64> {
    let mut disks = 0;
    while !body.is_empty() {
        let (tag, wire) = decode_key(&mut body).ok()?;
        disks += u64::from(DISK_FIELDS.contains(&tag) && wire == WireType::LengthDelimited);
        skip_field(wire, tag, &mut body, DecodeContext::default()).ok()?;
    }
    Some(disks)
}

/// The bytes have the right checksum, but are no such message.
const fn not_a_message(body: &[u8]) -> FormatError {
    let defect = Defect::Mismatch { field: "body's message length", found: body.len() as u64, expected: 0 };
    FormatError::corrupt(POINT, defect)
}

#[cfg(test)]
mod tests;
