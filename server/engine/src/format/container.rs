//! Container format, versions 1 and 2: header, regions, directory, footer. Version 2 is what containers have in which
//! regions are sealed by agents; nothing else is different.
//!
//! ```text
//! 0            64                                   directory_offset        total_bytes − 32
//! ┌────────────┬──────────┬──────────┬── ─ ──┬──────┬───────────────────────┬─────────────┐
//! │ header     │ region 0 │ region 1 │       │ r n  │ directory             │ footer      │
//! │ 64 B       │ 24 B + payload      │       │      │ directory_bytes       │ 32 B        │
//! └────────────┴──────────┴──────────┴── ─ ──┴──────┴───────────────────────┴─────────────┘
//! ```
//!
//! Regions lie end to end without gaps, so the directory's region records can be checked against each other
//! and against the footer, and every byte of the file is covered by a checksum.

use holdfast_proto::limits::{CONTAINER_MAX_BYTES, REGION_CHUNKS_MAX, REGION_PLAIN_MAX_BYTES};
use holdfast_proto::region::Codec;
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, RepositoryId};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc32c;
use super::{Defect, FormatError, check_equal, check_limit, with_crc};

mod directory;

pub use directory::{
    CONTAINER_MIN_BYTES, Contents, DirectoryHints, begins_directory, decode_directory, directory_bytes,
    directory_hints, encode_directory,
};

/// The version of containers of plain regions.
pub const CONTAINER_VERSION: u16 = 1;

/// The version of containers of sealed regions, and the newest this build reads.
pub const SEALED_VERSION: u16 = 2;

/// Offset of the first region: after the header.
pub const FIRST_REGION_OFFSET: u32 = 64;

/// Bytes of the header, of each region's header and of the footer.
pub const HEADER_BYTES: usize = FIRST_REGION_OFFSET as usize;
pub const REGION_HEADER_BYTES: usize = 24;
pub const FOOTER_BYTES: usize = 32;

/// Regions of a container at most: [`holdfast_types::ids::Location`] has 12 bits for them.
pub const REGIONS_MAX: usize = 1 << holdfast_types::ids::Location::PART_BITS;

const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"HFCN");
const REGION_MAGIC: u32 = u32::from_le_bytes(*b"HFRG");
const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"HFFT");

const HEADER: &str = "header";
const REGION_HEADER: &str = "region header";
const FOOTER: &str = "footer";

/// Identity and owner of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub class: ContainerClass,
    pub repository: RepositoryId,
    pub namespace: NamespaceId,
    pub id: ContainerId,
    /// Milliseconds since the Unix epoch.
    pub created_ms: i64,
    /// Set if its regions are sealed by agents.
    pub sealed: bool,
}

/// A region, as its header and the directory both describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionRecord {
    /// Offset of the region's header in the container; the payload follows it.
    pub offset: u32,
    /// Length of the payload.
    pub stored_bytes: u32,
    /// Length of what the payload decodes to.
    pub plain_bytes: u32,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    pub chunk_count: u16,
    pub codec: Codec,
}

/// Footer of a container, which locates the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    pub directory_offset: u32,
    pub directory_bytes: u32,
    pub id: ContainerId,
    pub total_bytes: u32,
    /// Set if its regions are sealed by agents, as in the header.
    pub sealed: bool,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U16,
    class: u8,
    flags: u8,
    repository: [u8; 16],
    namespace: [u8; 16],
    id: U64,
    created_ms: I64,
    reserved: U32,
    crc: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRegionHeader {
    magic: U32,
    codec: u8,
    reserved: u8,
    chunk_count: U16,
    plain_bytes: U32,
    stored_bytes: U32,
    payload_crc: U32,
    crc: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFooter {
    directory_offset: U32,
    directory_bytes: U32,
    id: U64,
    total_bytes: U32,
    version: U16,
    reserved: U16,
    magic: U32,
    crc: U32,
}

/// The first bytes of every region.
pub const fn region_magic() -> [u8; 4] {
    REGION_MAGIC.to_le_bytes()
}

const CRC_BYTES: usize = 4;

/// CRC-32C of a structure whose last four bytes hold it.
fn crc_before_last<const N: usize>(bytes: &[u8; N]) -> u32 {
    crc32c(bytes.split_last_chunk::<CRC_BYTES>().map_or(&[], |(before, _)| before))
}

/// Fails unless magic and checksum are right.
fn check_frame<const N: usize>(
    structure: &'static str,
    bytes: &[u8; N],
    (magic, expected_magic): (U32, u32),
    crc: U32,
) -> Result<(), FormatError> {
    if magic.get() != expected_magic {
        let defect = Defect::Magic { found: magic.get().swap_bytes(), expected: expected_magic.swap_bytes() };
        return Err(FormatError::corrupt(structure, defect));
    }
    let computed = crc_before_last(bytes);
    if crc.get() != computed {
        let defect = Defect::Checksum { stored: crc.get().into(), computed: computed.into() };
        return Err(FormatError::corrupt(structure, defect));
    }
    Ok(())
}

/// Returns true if the container is of sealed regions.
fn check_version(structure: &'static str, version: u16) -> Result<bool, FormatError> {
    match version {
        CONTAINER_VERSION => Ok(false),
        SEALED_VERSION => Ok(true),
        _ => Err(FormatError::Unsupported { structure, version, supported: SEALED_VERSION }),
    }
}

const fn version(sealed: bool) -> u16 {
    if sealed { SEALED_VERSION } else { CONTAINER_VERSION }
}

fn container_id(structure: &'static str, id: u64) -> Result<ContainerId, FormatError> {
    ContainerId::new(id).ok_or_else(|| {
        let limit = (1 << ContainerId::BITS) - 1;
        FormatError::corrupt(structure, Defect::OverLimit { field: "container id", found: id, limit })
    })
}

const fn class_number(class: ContainerClass) -> u8 {
    match class {
        ContainerClass::Data => 1,
        ContainerClass::Recipe => 2,
    }
}

impl Header {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let raw = RawHeader {
            magic: HEADER_MAGIC.into(),
            version: version(self.sealed).into(),
            class: class_number(self.class),
            flags: 0,
            repository: self.repository.to_bytes(),
            namespace: self.namespace.to_bytes(),
            id: self.id.get().into(),
            created_ms: self.created_ms.into(),
            reserved: 0.into(),
            crc: 0.into(),
        };
        with_crc(zerocopy::transmute!(raw))
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// [`FormatError`]; a container of another version is told apart from a damaged one here.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FormatError> {
        let raw: &RawHeader = zerocopy::transmute_ref!(bytes);
        check_frame(HEADER, bytes, (raw.magic, HEADER_MAGIC), raw.crc)?;
        let sealed = check_version(HEADER, raw.version.get())?;
        check_equal(HEADER, "flags", raw.flags.into(), 0)?;
        check_equal(HEADER, "reserved field", raw.reserved.get().into(), 0)?;
        let class = match raw.class {
            1 => ContainerClass::Data,
            2 => ContainerClass::Recipe,
            other => {
                let defect = Defect::OverLimit { field: "class", found: other.into(), limit: 2 };
                return Err(FormatError::corrupt(HEADER, defect));
            }
        };
        Ok(Self {
            class,
            repository: RepositoryId::from_bytes(raw.repository),
            namespace: NamespaceId::from_bytes(raw.namespace),
            id: container_id(HEADER, raw.id.get())?,
            created_ms: raw.created_ms.get(),
            sealed,
        })
    }
}

impl RegionRecord {
    /// Offset of the payload.
    pub const fn payload_offset(&self) -> u64 {
        self.offset as u64 + REGION_HEADER_BYTES as u64
    }

    /// Offset of what follows the region.
    pub const fn end(&self) -> u64 {
        self.payload_offset() + self.stored_bytes as u64
    }

    /// The region's header as bytes.
    pub fn encode_header(&self) -> [u8; REGION_HEADER_BYTES] {
        let raw = RawRegionHeader {
            magic: REGION_MAGIC.into(),
            codec: self.codec as u8,
            reserved: 0,
            chunk_count: self.chunk_count.into(),
            plain_bytes: self.plain_bytes.into(),
            stored_bytes: self.stored_bytes.into(),
            payload_crc: self.payload_crc.into(),
            crc: 0.into(),
        };
        with_crc(zerocopy::transmute!(raw))
    }

    /// Decodes the header of a region, found at `offset`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`]; a region's version is that of its container.
    pub fn decode_header(offset: u32, bytes: &[u8; REGION_HEADER_BYTES]) -> Result<Self, FormatError> {
        let raw: &RawRegionHeader = zerocopy::transmute_ref!(bytes);
        check_frame(REGION_HEADER, bytes, (raw.magic, REGION_MAGIC), raw.crc)?;
        check_equal(REGION_HEADER, "reserved field", raw.reserved.into(), 0)?;
        let record = Self {
            offset,
            stored_bytes: raw.stored_bytes.get(),
            plain_bytes: raw.plain_bytes.get(),
            payload_crc: raw.payload_crc.get(),
            chunk_count: raw.chunk_count.get(),
            codec: codec(REGION_HEADER, raw.codec)?,
        };
        record.check_limits(REGION_HEADER)?;
        Ok(record)
    }

    fn check_limits(&self, structure: &'static str) -> Result<(), FormatError> {
        check_limit(
            structure,
            "payload length",
            self.stored_bytes.into(),
            self.codec.payload_max_bytes().into(),
        )?;
        check_limit(structure, "plain length", self.plain_bytes.into(), REGION_PLAIN_MAX_BYTES.into())?;
        check_limit(structure, "chunk count", self.chunk_count.into(), REGION_CHUNKS_MAX as u64)?;
        // A chunk has at least one byte, and a region at least one chunk.
        check_limit(structure, "chunk count", self.chunk_count.into(), self.plain_bytes.into())?;
        check_limit(structure, "number of regions without a chunk", u64::from(self.chunk_count == 0), 0)
    }
}

fn codec(structure: &'static str, number: u8) -> Result<Codec, FormatError> {
    Codec::try_from(u32::from(number)).map_err(|_| {
        FormatError::corrupt(structure, Defect::OverLimit { field: "codec", found: number.into(), limit: 2 })
    })
}

impl Footer {
    /// Encodes the footer.
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let raw = RawFooter {
            directory_offset: self.directory_offset.into(),
            directory_bytes: self.directory_bytes.into(),
            id: self.id.get().into(),
            total_bytes: self.total_bytes.into(),
            version: version(self.sealed).into(),
            reserved: 0.into(),
            magic: FOOTER_MAGIC.into(),
            crc: 0.into(),
        };
        with_crc(zerocopy::transmute!(raw))
    }

    /// Decodes the last bytes of a container of `container_bytes`. The directory it locates is within the container.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(bytes: &[u8; FOOTER_BYTES], container_bytes: u64) -> Result<Self, FormatError> {
        let raw: &RawFooter = zerocopy::transmute_ref!(bytes);
        check_frame(FOOTER, bytes, (raw.magic, FOOTER_MAGIC), raw.crc)?;
        let sealed = check_version(FOOTER, raw.version.get())?;
        check_equal(FOOTER, "reserved field", raw.reserved.get().into(), 0)?;
        let footer = Self {
            directory_offset: raw.directory_offset.get(),
            directory_bytes: raw.directory_bytes.get(),
            id: container_id(FOOTER, raw.id.get())?,
            total_bytes: raw.total_bytes.get(),
            sealed,
        };
        check_limit(FOOTER, "container length", footer.total_bytes.into(), CONTAINER_MAX_BYTES.into())?;
        check_equal(FOOTER, "container length", footer.total_bytes.into(), container_bytes)?;
        let end = u64::from(footer.directory_offset)
            + u64::from(footer.directory_bytes)
            + const { FOOTER_BYTES as u64 };
        check_equal(FOOTER, "directory's end", end, container_bytes)?;
        Ok(footer)
    }
}

#[cfg(test)]
mod tests;
