//! Index runs: sorted entries (key → location) in checksummed 4 KiB pages, then the binary-fuse filters,
//! the fences and a footer. `docs/FORMAT.md` has the byte map; the tests pin the bytes.
//!
//! A reader needs the header (identity), the footer (counts) and the two sections in memory; it then finds
//! any key with one page read.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::RepositoryId;

/// First bytes of a run.
pub const RUN_MAGIC: [u8; 8] = *b"HFIXRUN\n";
/// First bytes of a run's footer.
pub const END_MAGIC: [u8; 8] = *b"HFIXEND\n";
/// The version this code writes, and the newest it reads.
pub const RUN_VERSION: u16 = 1;
/// One page: what is read for one lookup. The header takes one as well, so that pages are aligned.
pub const PAGE_BYTES: usize = 4096;
/// Key and location.
pub const ENTRY_BYTES: usize = 20;
/// First bytes of a keyed hash; what entries are sorted by.
pub const KEY_BYTES: usize = 12;
/// 204 × 20 = 4,080 bytes, and 16 for the trailer.
pub const PAGE_ENTRIES: usize = (PAGE_BYTES - size_of::<PageTrailer>()) / ENTRY_BYTES;
/// Keys are split into this many shards by their first bits.
pub const SHARD_BITS: u32 = 6;
/// Shards of an index.
pub const SHARDS: u16 = 1 << SHARD_BITS;
/// Pages of a run at most, so that a page number fits its trailer with room to spare: 8 TiB.
pub const RUN_PAGES_MAX: u32 = 1 << 31;

/// Why bytes are no run or manifest of this index.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexFormatError {
    #[error("the {part} does not begin with its magic")]
    Magic { part: &'static str },
    #[error("version {found} is newer than this program understands ({supported}); use a newer Holdfast")]
    Unsupported { found: u16, supported: u16 },
    #[error("the {part} does not match its checksum")]
    Checksum { part: &'static str },
    #[error("the {part} contradicts itself: {why}")]
    Inconsistent { part: &'static str, why: &'static str },
    #[error("belongs to repository {found}, not to {expected}")]
    Repository { found: RepositoryId, expected: RepositoryId },
    #[error("is {len} bytes long, which no such file is")]
    Length { len: u64 },
}

/// CRC32C (Castagnoli), as everywhere in the index.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// One entry: a key and a packed location.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Entry {
    /// Ascending within a run.
    pub key: [u8; KEY_BYTES],
    /// [`crate::ids::Location::pack`]; descending among equal keys, so that the newest container is first.
    pub location: U64,
}

impl Entry {
    /// The first eight key bytes as a number: what fences, filters and interpolation work with.
    pub fn prefix(&self) -> u64 {
        key_prefix(&self.key)
    }

    /// Sorts as entries are sorted on disk.
    pub fn order(&self) -> (u64, u32, u64) {
        (self.prefix(), key_suffix(&self.key), !self.location.get())
    }
}

/// The first eight bytes of a key, most significant first.
pub fn key_prefix(key: &[u8; KEY_BYTES]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *key;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The last four bytes of a key, most significant first.
pub fn key_suffix(key: &[u8; KEY_BYTES]) -> u32 {
    let [.., i, j, k, l] = *key;
    u32::from_be_bytes([i, j, k, l])
}

/// What a run is: the first bytes of its first page.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeaderBytes {
    magic: [u8; 8],
    version: U16,
    shard_first: U16,
    shard_count: U16,
    zero: U16,
    run: U64,
    repository: [u8; 16],
    padding: [u8; PAGE_BYTES - 44],
    /// Of all bytes of the page before it, in every version.
    crc: U32,
}

/// A run's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunHeader {
    pub run: u64,
    pub repository: RepositoryId,
    /// The shards whose keys the run may hold.
    pub shards: ShardRange,
}

/// Consecutive shards: one, or all of them in runs fresh from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardRange {
    first: u16,
    count: u16,
}

impl ShardRange {
    /// Every shard.
    pub const ALL: Self = Self { first: 0, count: SHARDS };

    /// `None` when there are no such shards.
    pub const fn new(first: u16, count: u16) -> Option<Self> {
        if count > 0 && first < SHARDS && count <= SHARDS - first {
            Some(Self { first, count })
        } else {
            None
        }
    }

    /// The first shard.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// How many shards.
    pub const fn count(self) -> u16 {
        self.count
    }

    /// Smallest and largest key prefix of these shards.
    pub const fn prefixes(self) -> (u64, u64) {
        let shift = u64::BITS - SHARD_BITS;
        let last = (self.first + self.count - 1) as u64;
        ((self.first as u64) << shift, (last << shift) | (u64::MAX >> SHARD_BITS))
    }
}

impl RunHeader {
    /// The run's first page.
    pub fn encode(&self) -> Box<[u8; PAGE_BYTES]> {
        let mut header = HeaderBytes {
            magic: RUN_MAGIC,
            version: U16::new(RUN_VERSION),
            shard_first: U16::new(self.shards.first),
            shard_count: U16::new(self.shards.count),
            zero: U16::ZERO,
            run: U64::new(self.run),
            repository: self.repository.to_bytes(),
            padding: [0; PAGE_BYTES - 44],
            crc: U32::ZERO,
        };
        header.crc = U32::new(crc_before_last_word(header.as_bytes()));
        let mut page = Box::new([0; PAGE_BYTES]);
        page.copy_from_slice(header.as_bytes());
        page
    }

    /// Reads a run's first page.
    ///
    /// # Errors
    /// Any [`IndexFormatError`]; a newer version is `Unsupported`, never a checksum error.
    pub fn decode(page: &[u8; PAGE_BYTES]) -> Result<Self, IndexFormatError> {
        const PART: &str = "run header";
        let header: HeaderBytes = zerocopy::transmute!(*page);
        if header.magic != RUN_MAGIC {
            return Err(IndexFormatError::Magic { part: PART });
        }
        if header.crc.get() != crc_before_last_word(page) {
            return Err(IndexFormatError::Checksum { part: PART });
        }
        if header.version.get() != RUN_VERSION {
            return Err(version_error(PART, header.version.get(), RUN_VERSION));
        }
        let shards = ShardRange::new(header.shard_first.get(), header.shard_count.get())
            .ok_or(IndexFormatError::Inconsistent { part: PART, why: "no such shards" })?;
        let repository = RepositoryId::from_bytes(header.repository);
        Ok(Self { run: header.run.get(), repository, shards })
    }
}

/// Newer is unsupported; zero was never written.
pub(super) fn version_error(part: &'static str, found: u16, supported: u16) -> IndexFormatError {
    if found > supported {
        IndexFormatError::Unsupported { found, supported }
    } else {
        IndexFormatError::Inconsistent { part, why: "no such version" }
    }
}

/// CRC32C of all but the last four bytes.
fn crc_before_last_word(bytes: &[u8]) -> u32 {
    crc32c(bytes.get(..bytes.len().saturating_sub(4)).unwrap_or_default())
}

/// Last bytes of every page of entries.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PageTrailer {
    count: U16,
    zero: U16,
    /// Counting from 0, the header not counted: a page read from the wrong place is noticed.
    page: U32,
    /// Low 32 bits of the run's number: a page of another run is noticed.
    run_low: U32,
    /// Of all bytes of the page before it.
    crc: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PageBytes {
    entries: [Entry; PAGE_ENTRIES],
    trailer: PageTrailer,
}

/// Low 32 bits of a run's number.
const fn low_word(run: u64) -> u32 {
    (run & 0xFFFF_FFFF) as u32
}

/// A page of up to [`PAGE_ENTRIES`] entries; those beyond are ignored, and none is there to ignore.
pub fn encode_page(run: u64, page: u32, entries: &[Entry]) -> [u8; PAGE_BYTES] {
    let mut bytes = PageBytes {
        entries: [Entry::default(); PAGE_ENTRIES],
        trailer: PageTrailer {
            count: U16::new(u16::try_from(entries.len().min(PAGE_ENTRIES)).unwrap_or(u16::MAX)),
            zero: U16::ZERO,
            page: U32::new(page),
            run_low: U32::new(low_word(run)),
            crc: U32::ZERO,
        },
    };
    for (slot, entry) in bytes.entries.iter_mut().zip(entries) {
        *slot = *entry;
    }
    bytes.trailer.crc = U32::new(crc_before_last_word(bytes.as_bytes()));
    zerocopy::transmute!(bytes)
}

/// The entries of page `page` of run `run`.
///
/// # Errors
/// When the bytes are not that page.
pub fn decode_page(bytes: &[u8; PAGE_BYTES], run: u64, page: u32) -> Result<&[Entry], IndexFormatError> {
    const PART: &str = "page";
    let view: &PageBytes = zerocopy::transmute_ref!(bytes);
    if view.trailer.crc.get() != crc_before_last_word(bytes) {
        return Err(IndexFormatError::Checksum { part: PART });
    }
    if view.trailer.page.get() != page || view.trailer.run_low.get() != low_word(run) {
        return Err(IndexFormatError::Inconsistent { part: PART, why: "another page is stored here" });
    }
    match view.entries.get(..usize::from(view.trailer.count.get())) {
        Some(entries) if !entries.is_empty() => Ok(entries),
        _ => Err(IndexFormatError::Inconsistent { part: PART, why: "no such number of entries" }),
    }
}

/// One binary-fuse filter of a run: it covers the keys from `first` up to the next filter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FilterRecord {
    /// Prefix of the first key.
    pub first: U64,
    pub seed: U64,
    pub segment_length: U32,
    pub segment_count_length: U32,
    /// Length of its table in bytes; the tables follow the records in the same order.
    pub table_bytes: U32,
    /// Different key prefixes in it.
    pub keys: U32,
}

/// Bytes of a [`FilterRecord`].
pub const FILTER_RECORD_BYTES: usize = size_of::<FilterRecord>();
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = size_of::<FooterBytes>();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FooterBytes {
    magic: [u8; 8],
    version: U16,
    zero: U16,
    filters: U32,
    run: U64,
    entries: U64,
    filter_bytes: U64,
    pages: U32,
    filter_crc: U32,
    fence_crc: U32,
    zero_too: U64,
    crc: U32,
}

/// Counts and checksums of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFooter {
    pub run: u64,
    pub entries: u64,
    /// Pages of entries, the header not counted. One fence each.
    pub pages: u32,
    pub filters: u32,
    /// Records and tables together.
    pub filter_bytes: u64,
    pub filter_crc: u32,
    pub fence_crc: u32,
}

impl RunFooter {
    /// The run's last bytes.
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut footer = FooterBytes {
            magic: END_MAGIC,
            version: U16::new(RUN_VERSION),
            zero: U16::ZERO,
            filters: U32::new(self.filters),
            run: U64::new(self.run),
            entries: U64::new(self.entries),
            filter_bytes: U64::new(self.filter_bytes),
            pages: U32::new(self.pages),
            filter_crc: U32::new(self.filter_crc),
            fence_crc: U32::new(self.fence_crc),
            zero_too: U64::ZERO,
            crc: U32::ZERO,
        };
        footer.crc = U32::new(crc_before_last_word(footer.as_bytes()));
        zerocopy::transmute!(footer)
    }

    /// Reads the last bytes of a run of `len` bytes. All sections lie within the run when this returns `Ok`.
    ///
    /// # Errors
    /// Any [`IndexFormatError`].
    pub fn decode(bytes: &[u8; FOOTER_BYTES], len: u64) -> Result<Self, IndexFormatError> {
        const PART: &str = "run footer";
        let footer: FooterBytes = zerocopy::transmute!(*bytes);
        if footer.magic != END_MAGIC {
            return Err(IndexFormatError::Magic { part: PART });
        }
        if footer.crc.get() != crc_before_last_word(bytes) {
            return Err(IndexFormatError::Checksum { part: PART });
        }
        if footer.version.get() != RUN_VERSION {
            return Err(version_error(PART, footer.version.get(), RUN_VERSION));
        }
        let decoded = Self {
            run: footer.run.get(),
            entries: footer.entries.get(),
            pages: footer.pages.get(),
            filters: footer.filters.get(),
            filter_bytes: footer.filter_bytes.get(),
            filter_crc: footer.filter_crc.get(),
            fence_crc: footer.fence_crc.get(),
        };
        let pages = u64::from(decoded.pages);
        let filters_fit = u64::from(decoded.filters) * FILTER_RECORD_BYTES as u64 <= decoded.filter_bytes;
        let entries_fit = decoded.entries.div_ceil(PAGE_ENTRIES as u64) == pages;
        let whole = decoded.fences_at().checked_add(pages * 8 + FOOTER_BYTES as u64);
        if decoded.pages == 0 || decoded.pages > RUN_PAGES_MAX || !filters_fit || !entries_fit {
            return Err(IndexFormatError::Inconsistent { part: PART, why: "counts do not fit together" });
        }
        if whole != Some(len) {
            return Err(IndexFormatError::Length { len });
        }
        Ok(decoded)
    }

    /// Offset of a page of entries.
    pub const fn page_at(page: u32) -> u64 {
        (page as u64 + 1) * PAGE_BYTES as u64
    }

    /// Offset of the filter section.
    pub const fn filters_at(&self) -> u64 {
        Self::page_at(self.pages)
    }

    /// Offset of the fences: the key prefix of each page's first entry, little-endian.
    pub const fn fences_at(&self) -> u64 {
        self.filters_at().saturating_add(self.filter_bytes)
    }
}

#[cfg(test)]
mod tests;
