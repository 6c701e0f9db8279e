//! Parity of a group of containers: header, parity, table. `docs/FORMAT.md` has the byte map.
//!
//! Every container of a group is cut into windows of 64 KiB, the last ones filled up with zeros to the longest; each
//! window of the group has its own parity. The table has a checksum for each window of each container and of the parity
//! itself, so it is known which of them are wrong, and what is wrong in one window costs no other.

use holdfast_proto::limits::CONTAINER_MAX_BYTES;
use holdfast_types::ids::{ContainerClass, ContainerId, RepositoryId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc64;
use super::sorted_run::{check_crc, check_version};
use super::{Defect, FormatError, check_equal, check_limit, check_magic, with_crc};

const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"HFPA");
const TABLE_MAGIC: u32 = u32::from_le_bytes(*b"HFPT");
const HEADER: &str = "parity";
const TABLE: &str = "parity's table";
const CRC_BYTES: usize = 8;
/// The version this code writes, and the newest it reads.
pub const PARITY_VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = size_of::<RawHeader>();
/// Bytes of a window.
pub const WINDOW_BYTES: u32 = 64 << 10;
/// Containers are filled up to a multiple of this.
pub const SHARD_UNIT_BYTES: u32 = 64;
/// Containers of a group at most.
pub const MEMBERS_MAX: u8 = 32;
/// Containers of a group that may be lost at most.
pub const SPARES_MAX: u8 = 4;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U16,
    members: u8,
    spares: u8,
    number: U64,
    repository: [u8; 16],
    created_ms: U64,
    shard_bytes: U32,
    window_bytes: U32,
    zero: [u8; 12],
    crc: U32,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTable {
    magic: U32,
    version: U16,
    zero: U16,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMember {
    container: U64,
    stored_bytes: U32,
    class: u8,
    zero: [u8; 3],
    crc: U64,
}

/// Header of a parity blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParityHeader {
    /// Number, as in its name.
    pub number: u64,
    pub repository: RepositoryId,
    pub created_ms: i64,
    /// Containers of the group.
    pub members: u8,
    /// Number of containers that may be lost.
    pub spares: u8,
    /// The longest container, filled up.
    pub shard_bytes: u32,
}

/// A container of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParityMember {
    pub id: ContainerId,
    pub class: ContainerClass,
    pub stored_bytes: u32,
    /// CRC-64 of all its bytes.
    pub crc: u64,
}

/// Members of a group of parity, and the checksum of each window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParityTable {
    pub members: Vec<ParityMember>,
    /// CRC-64 of each window of each container, then of each parity; the windows of one lie together.
    pub sums: Vec<u64>,
}

impl ParityHeader {
    /// Windows of a container.
    pub const fn windows(&self) -> u32 {
        self.shard_bytes.div_ceil(WINDOW_BYTES)
    }

    /// Offset and length of a window in a container.
    pub fn window(&self, window: u32) -> (u32, u32) {
        let start = window.saturating_mul(WINDOW_BYTES).min(self.shard_bytes);
        (start, WINDOW_BYTES.min(self.shard_bytes - start))
    }

    /// Offset of the parity of a window in the blob.
    pub fn parity_offset(&self, window: u32, spare: u8) -> u64 {
        let (start, len) = self.window(window);
        HEADER_BYTES as u64 + u64::from(start) * u64::from(self.spares) + u64::from(len) * u64::from(spare)
    }

    /// Offset of the table.
    pub const fn table_offset(&self) -> u64 {
        HEADER_BYTES as u64 + self.shard_bytes as u64 * self.spares as u64
    }

    /// Bytes of the table; at most 36 × 512 checksums and 32 members, some 145 KiB.
    pub const fn table_bytes(&self) -> usize {
        let sums = (self.members as usize + self.spares as usize) * self.windows() as usize;
        size_of::<RawTable>() + self.members as usize * size_of::<RawMember>() + sums * 8 + CRC_BYTES
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let raw = RawHeader {
            magic: U32::new(HEADER_MAGIC),
            version: U16::new(PARITY_VERSION),
            members: self.members,
            spares: self.spares,
            number: U64::new(self.number),
            repository: self.repository.to_bytes(),
            created_ms: U64::new(self.created_ms.cast_unsigned()),
            shard_bytes: U32::new(self.shard_bytes),
            window_bytes: U32::new(WINDOW_BYTES),
            zero: [0; 12],
            crc: U32::ZERO,
        };
        with_crc(zerocopy::transmute!(raw))
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FormatError> {
        let raw: &RawHeader = zerocopy::transmute_ref!(bytes);
        check_magic(HEADER, raw.magic.get(), HEADER_MAGIC)?;
        check_crc(HEADER, bytes)?;
        check_version(HEADER, raw.version.get(), PARITY_VERSION)?;
        check_equal(HEADER, "window", raw.window_bytes.get().into(), WINDOW_BYTES.into())?;
        // (R3) All allocations for it follow from these.
        check_limit(HEADER, "containers", raw.members.into(), MEMBERS_MAX.into())?;
        check_limit(HEADER, "spares", raw.spares.into(), SPARES_MAX.into())?;
        let shard_bytes = raw.shard_bytes.get();
        check_limit(HEADER, "length", shard_bytes.into(), CONTAINER_MAX_BYTES.into())?;
        check_equal(HEADER, "length modulo 64", (shard_bytes % SHARD_UNIT_BYTES).into(), 0)?;
        if raw.members == 0 || raw.spares == 0 || shard_bytes == 0 {
            let defect = Defect::Mismatch { field: "containers, spares or length", found: 0, expected: 1 };
            return Err(FormatError::corrupt(HEADER, defect));
        }
        Ok(Self {
            number: raw.number.get(),
            repository: RepositoryId::from_bytes(raw.repository),
            created_ms: raw.created_ms.get().cast_signed(),
            members: raw.members,
            spares: raw.spares,
            shard_bytes,
        })
    }
}

impl ParityTable {
    /// Checksum of a window: of container `shard`, or, behind the containers, of a parity.
    pub fn sum(&self, header: &ParityHeader, shard: usize, window: u32) -> Option<u64> {
        self.sums.get(shard * header.windows() as usize + window as usize).copied()
    }

    pub fn encode(&self) -> Vec<u8> {
        let head =
            RawTable { magic: U32::new(TABLE_MAGIC), version: U16::new(PARITY_VERSION), zero: U16::ZERO };
        let mut bytes = head.as_bytes().to_vec();
        for member in &self.members {
            let raw = RawMember {
                container: U64::new(member.id.get()),
                stored_bytes: U32::new(member.stored_bytes),
                class: match member.class {
                    ContainerClass::Data => 0,
                    ContainerClass::Recipe => 1,
                },
                zero: [0; 3],
                crc: U64::new(member.crc),
            };
            bytes.extend_from_slice(raw.as_bytes());
        }
        for sum in &self.sums {
            bytes.extend_from_slice(&sum.to_le_bytes());
        }
        bytes.extend_from_slice(&crc64(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes a table.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(header: &ParityHeader, bytes: &[u8]) -> Result<Self, FormatError> {
        check_equal(TABLE, "length", bytes.len() as u64, header.table_bytes() as u64)?;
        let short = || FormatError::corrupt(TABLE, Defect::TooShort { len: bytes.len() as u64, needed: 1 });
        let (body, stored) = bytes.split_last_chunk::<CRC_BYTES>().ok_or_else(short)?;
        let (head, rest) = RawTable::ref_from_prefix(body).map_err(|_| short())?;
        check_magic(TABLE, head.magic.get(), TABLE_MAGIC)?;
        let (stored, computed) = (u64::from_le_bytes(*stored), crc64(body));
        if stored != computed {
            return Err(FormatError::corrupt(TABLE, Defect::Checksum { stored, computed }));
        }
        check_version(TABLE, head.version.get(), PARITY_VERSION)?;
        let (members, sums) =
            <[RawMember]>::ref_from_prefix_with_elems(rest, header.members.into()).map_err(|_| short())?;
        let members = members.iter().map(|raw| member(header, raw)).collect::<Result<Vec<_>, _>>()?;
        let sums = <[U64]>::ref_from_bytes(sums).map_err(|_| short())?;
        Ok(Self { members, sums: sums.iter().map(|sum| sum.get()).collect() })
    }
}

fn member(header: &ParityHeader, raw: &RawMember) -> Result<ParityMember, FormatError> {
    let class = match raw.class {
        0 => ContainerClass::Data,
        1 => ContainerClass::Recipe,
        other => {
            let defect = Defect::OverLimit { field: "class", found: other.into(), limit: 1 };
            return Err(FormatError::corrupt(TABLE, defect));
        }
    };
    check_limit(TABLE, "container's length", raw.stored_bytes.get().into(), header.shard_bytes.into())?;
    let number = raw.container.get();
    let limit = (1 << ContainerId::BITS) - 1;
    let defect = Defect::OverLimit { field: "container", found: number, limit };
    let id = ContainerId::new(number).ok_or(FormatError::corrupt(TABLE, defect))?;
    Ok(ParityMember { id, class, stored_bytes: raw.stored_bytes.get(), crc: raw.crc.get() })
}

#[cfg(test)]
mod tests;
