//! Sorted runs of the index: entries (key → location) in checksummed 4 KiB pages, then the binary-fuse filters,
//! the fences and a footer. `docs/FORMAT.md` has the byte map; the tests pin the bytes.
//!
//! ```text
//! 0          4096                 4096 × (1 + pages)
//! ┌──────────┬────────┬── ─ ──┬───┬───────────────────────────┬────────────┬────────┐
//! │ header   │ page 0 │       │ n │ filters: records, tables  │ fences     │ footer │
//! │ 4096 B   │ 4096 B │       │   │ filter_bytes              │ 8 B a page │ 64 B   │
//! └──────────┴────────┴── ─ ──┴───┴───────────────────────────┴────────────┴────────┘
//! ```
//!
//! A reader needs the header (identity), the footer (counts) and the two sections in memory; it then finds
//! any key with one page read.

use holdfast_types::ids::RepositoryId;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Defect, FormatError, check_equal, check_limit, check_magic, crc32c, with_crc};

/// First bytes of a sorted run, of its footer.
const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"HFIR");
const END_MAGIC: u32 = u32::from_le_bytes(*b"HFIE");

const HEADER: &str = "sorted run header";
const FOOTER: &str = "sorted run footer";

/// The version this code writes, and the newest it reads.
pub const SORTED_RUN_VERSION: u16 = 1;
/// One page: what is read for one lookup. The header takes one as well, so that pages are aligned.
pub const PAGE_BYTES: usize = 4096;
/// Keys are split into this many shards by their first bits.
pub const SHARD_BITS: u32 = 6;
/// Shards of an index.
pub const SHARDS: u16 = 1 << SHARD_BITS;
/// A CRC-32C, always last.
const CRC_BYTES: usize = 4;
/// Pages of a sorted run at most, so that a page number fits its trailer with room to spare: 8 TiB.
pub const SORTED_RUN_PAGES_MAX: u32 = 1 << 31;

/// Identity of a sorted run: the first bytes of its first page.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U16,
    shard_first: U16,
    shard_count: U16,
    zero: [u8; 6],
    run: U64,
    repository: [u8; 16],
    padding: [u8; PAGE_BYTES - 44],
    /// Checksum of all bytes of the page before it, in every version.
    crc: U32,
}

/// A sorted run's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortedRunHeader {
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

    /// Number of shards.
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

impl SortedRunHeader {
    /// The sorted run's first page.
    pub fn encode(&self) -> [u8; PAGE_BYTES] {
        let raw = RawHeader {
            magic: U32::new(HEADER_MAGIC),
            version: U16::new(SORTED_RUN_VERSION),
            shard_first: U16::new(self.shards.first),
            shard_count: U16::new(self.shards.count),
            zero: [0; 6],
            run: U64::new(self.run),
            repository: self.repository.to_bytes(),
            padding: [0; PAGE_BYTES - 44],
            crc: U32::ZERO,
        };
        with_crc(zerocopy::transmute!(raw))
    }

    /// Reads a run's first page.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(page: &[u8; PAGE_BYTES]) -> Result<Self, FormatError> {
        let raw: &RawHeader = zerocopy::transmute_ref!(page);
        check_ends(HEADER, raw.magic.get(), HEADER_MAGIC, page)?;
        check_version(HEADER, raw.version.get(), SORTED_RUN_VERSION)?;
        let (first, count) = (raw.shard_first.get(), raw.shard_count.get());
        check_limit(HEADER, "last shard", u64::from(first) + u64::from(count), u64::from(SHARDS))?;
        let shards = ShardRange::new(first, count).ok_or_else(|| {
            FormatError::corrupt(HEADER, Defect::Mismatch { field: "shard count", found: 0, expected: 1 })
        })?;
        Ok(Self { run: raw.run.get(), repository: RepositoryId::from_bytes(raw.repository), shards })
    }
}

/// Fails unless a structure begins with its magic and ends with its CRC-32C.
fn check_ends<const N: usize>(
    structure: &'static str,
    found: u32,
    expected: u32,
    bytes: &[u8; N],
) -> Result<(), FormatError> {
    check_magic(structure, found, expected)?;
    check_crc(structure, bytes)
}

/// Fails unless the last four bytes are the CRC-32C of those before.
pub(super) fn check_crc<const N: usize>(structure: &'static str, bytes: &[u8; N]) -> Result<(), FormatError> {
    let (before, stored) = bytes.split_last_chunk::<CRC_BYTES>().unwrap_or((&[], &[0; CRC_BYTES]));
    check_section(structure, u32::from_le_bytes(*stored), before)
}

/// Fails unless `bytes` have this CRC-32C.
///
/// # Errors
/// [`Defect::Checksum`].
pub fn check_section(structure: &'static str, stored: u32, bytes: &[u8]) -> Result<(), FormatError> {
    let computed = crc32c(bytes);
    if stored == computed {
        return Ok(());
    }
    let defect = Defect::Checksum { stored: stored.into(), computed: computed.into() };
    Err(FormatError::corrupt(structure, defect))
}

/// Newer is unsupported; zero was never written.
pub(super) fn check_version(
    structure: &'static str,
    version: u16,
    supported: u16,
) -> Result<(), FormatError> {
    if version > supported {
        return Err(FormatError::Unsupported { structure, version, supported });
    }
    check_equal(structure, "version", version.into(), supported.into())
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

/// Bytes of a fence.
pub const FENCE_BYTES: u64 = 8;
/// Bytes of a [`FilterRecord`].
pub const FILTER_RECORD_BYTES: usize = size_of::<FilterRecord>();
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = size_of::<RawFooter>();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFooter {
    magic: U32,
    version: U16,
    zero: U16,
    filters: U32,
    pages: U32,
    run: U64,
    entries: U64,
    filter_bytes: U64,
    filter_crc: U32,
    fence_crc: U32,
    zero_too: [u8; 12],
    crc: U32,
}

/// Counts and checksums of a sorted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortedRunFooter {
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

impl SortedRunFooter {
    /// The run's last bytes.
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let raw = RawFooter {
            magic: U32::new(END_MAGIC),
            version: U16::new(SORTED_RUN_VERSION),
            zero: U16::ZERO,
            filters: U32::new(self.filters),
            pages: U32::new(self.pages),
            run: U64::new(self.run),
            entries: U64::new(self.entries),
            filter_bytes: U64::new(self.filter_bytes),
            filter_crc: U32::new(self.filter_crc),
            fence_crc: U32::new(self.fence_crc),
            zero_too: [0; 12],
            crc: U32::ZERO,
        };
        with_crc(zerocopy::transmute!(raw))
    }

    /// Reads the last bytes of a run of `len` bytes. All sections lie within the run when this returns `Ok`.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(bytes: &[u8; FOOTER_BYTES], len: u64) -> Result<Self, FormatError> {
        let raw: &RawFooter = zerocopy::transmute_ref!(bytes);
        check_ends(FOOTER, raw.magic.get(), END_MAGIC, bytes)?;
        check_version(FOOTER, raw.version.get(), SORTED_RUN_VERSION)?;
        let footer = Self {
            run: raw.run.get(),
            entries: raw.entries.get(),
            pages: raw.pages.get(),
            filters: raw.filters.get(),
            filter_bytes: raw.filter_bytes.get(),
            filter_crc: raw.filter_crc.get(),
            fence_crc: raw.fence_crc.get(),
        };
        let pages = u64::from(footer.pages);
        check_limit(FOOTER, "page count", pages, SORTED_RUN_PAGES_MAX.into())?;
        check_equal(FOOTER, "page count", pages, footer.entries.div_ceil(PAGE_ENTRIES as u64).max(1))?;
        let records = u64::from(footer.filters) * FILTER_RECORD_BYTES as u64;
        check_limit(FOOTER, "filter count", records, footer.filter_bytes)?;
        let whole = footer.fences_at().saturating_add(pages * FENCE_BYTES + FOOTER_BYTES as u64);
        check_equal(FOOTER, "run length", len, whole)?;
        Ok(footer)
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

const PAGE: &str = "index page";
/// Key and location.
pub const ENTRY_BYTES: usize = 20;
/// First bytes of a keyed hash; what entries are sorted by.
pub const KEY_BYTES: usize = 12;
/// 204 × 20 = 4,080 bytes, and 16 for the trailer.
pub const PAGE_ENTRIES: usize = (PAGE_BYTES - size_of::<PageTrailer>()) / ENTRY_BYTES;

/// One entry: a key and a packed location.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Entry {
    /// Ascending within a run.
    pub key: [u8; KEY_BYTES],
    /// [`holdfast_types::ids::Location::pack`]; descending among equal keys, so that the newest container is first.
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
    /// Checksum of all bytes of the page before it.
    crc: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPage {
    entries: [Entry; PAGE_ENTRIES],
    trailer: PageTrailer,
}

/// Low 32 bits of a run's number.
const fn low_word(run: u64) -> u32 {
    (run & 0xFFFF_FFFF) as u32
}

/// A page of up to [`PAGE_ENTRIES`] entries; those beyond are ignored, and none is there to ignore.
pub fn encode_page(run: u64, page: u32, entries: &[Entry]) -> [u8; PAGE_BYTES] {
    let mut raw = RawPage {
        entries: [Entry::default(); PAGE_ENTRIES],
        trailer: PageTrailer {
            count: U16::new(u16::try_from(entries.len().min(PAGE_ENTRIES)).unwrap_or(u16::MAX)),
            zero: U16::ZERO,
            page: U32::new(page),
            run_low: U32::new(low_word(run)),
            crc: U32::ZERO,
        },
    };
    for (slot, entry) in raw.entries.iter_mut().zip(entries) {
        *slot = *entry;
    }
    with_crc(zerocopy::transmute!(raw))
}

/// The entries of page `page` of run `run`.
///
/// # Errors
/// When the bytes are not that page.
pub fn decode_page(bytes: &[u8; PAGE_BYTES], run: u64, page: u32) -> Result<&[Entry], FormatError> {
    check_crc(PAGE, bytes)?;
    let raw: &RawPage = zerocopy::transmute_ref!(bytes);
    check_equal(PAGE, "number", raw.trailer.page.get().into(), page.into())?;
    check_equal(PAGE, "run", raw.trailer.run_low.get().into(), low_word(run).into())?;
    let count = raw.trailer.count.get();
    let entries = raw.entries.get(..usize::from(count)).filter(|entries| !entries.is_empty());
    entries.ok_or_else(|| {
        let defect =
            Defect::OverLimit { field: "entry count", found: count.into(), limit: PAGE_ENTRIES as u64 };
        FormatError::corrupt(PAGE, defect)
    })
}

#[cfg(test)]
mod tests;
