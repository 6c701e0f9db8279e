//! Entries, and the pages of them.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PAGE_BYTES, check_crc, with_crc};
use crate::format::{Defect, FormatError, check_equal};

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
    /// Of all bytes of the page before it.
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
