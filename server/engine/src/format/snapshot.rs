//! Header and footer of a catalog snapshot: a copy of the catalog, compressed as one zstd frame between the two.
//! `docs/FORMAT.md` has the byte maps.

use holdfast_types::ids::RepositoryId;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::sorted_run::{check_crc, check_version};
use super::{FormatError, check_equal, check_magic, with_crc};

const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"HFCN");
const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"HFCE");
const HEADER: &str = "catalog snapshot";
const FOOTER: &str = "catalog snapshot's footer";
/// The version this code writes, and the newest it reads.
pub const SNAPSHOT_VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = size_of::<RawHeader>();
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = size_of::<RawFooter>();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U16,
    /// Compression of the body: 1 zstd.
    codec: U16,
    number: U64,
    repository: [u8; 16],
    created_ms: U64,
    /// The highest commit number in the copy, at least.
    last_commit: U64,
    zero: [u8; 12],
    crc: U32,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFooter {
    magic: U32,
    version: U16,
    zero: U16,
    plain_bytes: U64,
    stored_bytes: U64,
    digest: [u8; 32],
    zero_too: U32,
    crc: U32,
}

const CODEC_ZSTD: u16 = 1;

/// Header of a catalog snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// Number, as in the name; the highest is the newest.
    pub number: u64,
    pub repository: RepositoryId,
    pub created_ms: i64,
    /// The catalog held every commit up to this number when the copy was begun.
    pub last_commit: u64,
}

/// Lengths and digest that the body must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotFooter {
    /// Bytes of the catalog.
    pub plain_bytes: u64,
    /// Bytes of the zstd frame.
    pub stored_bytes: u64,
    /// BLAKE3 of the catalog's bytes.
    pub digest: [u8; 32],
}

impl SnapshotHeader {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let raw = RawHeader {
            magic: U32::new(HEADER_MAGIC),
            version: U16::new(SNAPSHOT_VERSION),
            codec: U16::new(CODEC_ZSTD),
            number: U64::new(self.number),
            repository: self.repository.to_bytes(),
            created_ms: U64::new(self.created_ms.cast_unsigned()),
            last_commit: U64::new(self.last_commit),
            zero: [0; 12],
            crc: U32::ZERO,
        };
        with_crc(zerocopy::transmute!(raw))
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// `FormatError`.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FormatError> {
        let raw: &RawHeader = zerocopy::transmute_ref!(bytes);
        check_magic(HEADER, raw.magic.get(), HEADER_MAGIC)?;
        check_crc(HEADER, bytes)?;
        check_version(HEADER, raw.version.get(), SNAPSHOT_VERSION)?;
        check_equal(HEADER, "codec", raw.codec.get().into(), CODEC_ZSTD.into())?;
        Ok(Self {
            number: raw.number.get(),
            repository: RepositoryId::from_bytes(raw.repository),
            created_ms: raw.created_ms.get().cast_signed(),
            last_commit: raw.last_commit.get(),
        })
    }
}

impl SnapshotFooter {
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let raw = RawFooter {
            magic: U32::new(FOOTER_MAGIC),
            version: U16::new(SNAPSHOT_VERSION),
            zero: U16::ZERO,
            plain_bytes: U64::new(self.plain_bytes),
            stored_bytes: U64::new(self.stored_bytes),
            digest: self.digest,
            zero_too: U32::ZERO,
            crc: U32::ZERO,
        };
        with_crc(zerocopy::transmute!(raw))
    }

    /// Decodes a footer.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(bytes: &[u8; FOOTER_BYTES]) -> Result<Self, FormatError> {
        let raw: &RawFooter = zerocopy::transmute_ref!(bytes);
        check_magic(FOOTER, raw.magic.get(), FOOTER_MAGIC)?;
        check_crc(FOOTER, bytes)?;
        check_version(FOOTER, raw.version.get(), SNAPSHOT_VERSION)?;
        Ok(Self {
            plain_bytes: raw.plain_bytes.get(),
            stored_bytes: raw.stored_bytes.get(),
            digest: raw.digest,
        })
    }
}

#[cfg(test)]
mod tests;
