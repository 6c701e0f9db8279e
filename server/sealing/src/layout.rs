//! Layout of a sealed blob.
//!
//! ```text
//! 0            64                 64 + (P + 16) · i                           len − 64
//! ┌────────────┬────────┬─────┬── ─ ──┬─────────────────────────┬─────┬────────────┐
//! │ header     │ page 0 │ tag │       │ last page, 0 to P bytes │ tag │ header     │
//! │ 64 B       │ P B    │ 16 B│       │                         │ 16 B│ 64 B       │
//! └────────────┴────────┴─────┴── ─ ──┴─────────────────────────┴─────┴────────────┘
//! ```
//!
//! P is 64 KiB: a read of a region decrypts at most two pages more than it needs, and tags add 0.025 %. In the index,
//! where single pages of 4 KiB are looked up, P is 4 KiB. The header is there twice, because without its salt nothing of
//! the blob can be read. There is always a last page, if need be an empty one: it says that nothing was cut off.

use holdfast_keys::{DataKeyId, SALT_BYTES, TAG_BYTES};
use holdfast_volume::BlobName;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header.
pub(crate) const SEALED_HEADER_BYTES: usize = 64;

/// The version that this build writes, and the only one it reads.
const VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"HFSB";

/// Page sizes of an index blob and of any other, as powers of two.
const INDEX_PAGE_SHIFT: u8 = 12;
const PAGE_SHIFT: u8 = 16;

/// Folder with small pages.
const INDEX: &str = "index/";

/// Names that are never sealed: the identity of the repository, and the keys themselves.
const LEFT_OPEN: [&str; 2] = ["repository", "keys"];

/// Suffixes of the name of a sealed blob, and of one that was sealed anew with another data key: for a moment
/// both exist. No character of a name sorts before `-`, so a listing of sealed names is in the order of the names
/// they stand for.
const SUFFIXES: [&str; 2] = ["-", "--"];

/// Form of a blob on the volume below, in lookup order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    Sealed,
    /// Under the other name: a blob that is sealed anew changes from one name to the other, and back the next time.
    Resealed,
    /// Unsealed: written before the repository was encrypted.
    Plain,
}

impl Form {
    /// Returns the name of `name` in this form; `None`: it would be too long, or `name` is that of a sealed form.
    pub(crate) fn of(self, name: &BlobName) -> Option<BlobName> {
        let [sealed, resealed] = SUFFIXES;
        if name.as_str().ends_with(sealed) {
            return None;
        }
        match self {
            Self::Sealed => BlobName::new(format!("{name}{sealed}")),
            Self::Resealed => BlobName::new(format!("{name}{resealed}")),
            Self::Plain => Some(name.clone()),
        }
    }

    /// Parses the name `below` of a form into the blob's name and its form.
    pub(crate) fn parse(below: &BlobName) -> (BlobName, Self) {
        let [sealed, resealed] = SUFFIXES;
        for (suffix, form) in [(resealed, Self::Resealed), (sealed, Self::Sealed)] {
            if let Some(name) = below.as_str().strip_suffix(suffix).and_then(BlobName::new) {
                return (name, form);
            }
        }
        (below.clone(), Self::Plain)
    }

    /// Last name in a listing of the volume below that stands for `name`.
    pub(crate) fn last_of(name: &BlobName) -> BlobName {
        let last = Self::Resealed.of(name).or_else(|| Self::Sealed.of(name));
        last.unwrap_or_else(|| name.clone())
    }
}

/// Returns true if a blob of this name is never sealed.
pub fn is_left_open(name: &BlobName) -> bool {
    LEFT_OPEN.iter().any(|open| {
        name.as_str().strip_prefix(open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Returns the name of the sealed form of `name`; `None`: it would be too long, or `name` is that of a sealed form.
pub(crate) fn sealed_name(name: &BlobName) -> Option<BlobName> {
    Form::Sealed.of(name)
}

/// All names below of the blob that is called `name` above, sealed or not.
pub fn names_below(name: &BlobName) -> impl Iterator<Item = BlobName> {
    [Form::Sealed, Form::Resealed, Form::Plain].into_iter().filter_map(|form| form.of(name))
}

/// Returns true if `name` is that of a sealed blob.
pub fn is_sealed_name(name: &BlobName) -> bool {
    Form::parse(name).1 != Form::Plain
}

/// Returns the name above of the blob that is called `below`, sealed or not.
pub fn name_above(below: &BlobName) -> BlobName {
    Form::parse(below).0
}

/// Arrangement of a blob's bytes in its sealed form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    shift: u8,
}

const TAG: u64 = TAG_BYTES as u64;
const HEADER: u64 = SEALED_HEADER_BYTES as u64;

impl Geometry {
    /// Returns the geometry for a blob's name (not that of its sealed form).
    pub(crate) fn of(name: &BlobName) -> Self {
        Self { shift: if name.as_str().starts_with(INDEX) { INDEX_PAGE_SHIFT } else { PAGE_SHIFT } }
    }

    /// Bytes of every page but the last.
    pub(crate) const fn page_bytes(self) -> u64 {
        1 << self.shift
    }

    const fn sealed_page_bytes(self) -> u64 {
        self.page_bytes() + TAG
    }

    /// Offset of a page.
    pub(crate) const fn page_offset(self, page: u64) -> u64 {
        HEADER + page * self.sealed_page_bytes()
    }

    /// Length of the part of a sealed form that contains the first `bytes` of its blob: the header and whole pages.
    pub(crate) const fn head_of(self, bytes: u64) -> u64 {
        self.page_offset(bytes.div_ceil(self.page_bytes()))
    }

    /// Upper bound of the part at the end of a sealed form that contains the last `bytes`, wherever its last page ends.
    pub(crate) const fn tail_of(self, bytes: u64) -> u64 {
        (bytes.div_ceil(self.page_bytes()) + 1) * self.sealed_page_bytes() + HEADER
    }

    /// Returns the length of the blob whose sealed form has this length, and its last page; `None`: no sealed form
    /// has that length.
    pub(crate) fn opened(self, sealed_bytes: u64) -> Option<(u64, u64)> {
        let body = sealed_bytes.checked_sub(2 * HEADER)?;
        let pages = body.div_ceil(self.sealed_page_bytes());
        let last = pages.checked_sub(1)?;
        let in_last = (body - last * self.sealed_page_bytes()).checked_sub(TAG)?;
        // Only a single page may be empty.
        (in_last > 0 || last == 0).then_some((last * self.page_bytes() + in_last, last))
    }
}

/// Header of a sealed blob: what opens it besides its data key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealedHeader {
    pub(crate) key: DataKeyId,
    pub(crate) salt: [u8; SALT_BYTES],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    version: U16,
    page_shift: u8,
    flags: u8,
    key: [u8; 16],
    salt: [u8; SALT_BYTES],
    reserved: U32,
    crc: U32,
}

/// Why bytes are not a valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("the header of an encrypted blob is damaged")]
    Damaged,
    #[error("it is encrypted in version {0}, and this build reads version {VERSION}: upgrade")]
    Newer(u16),
}

fn crc(bytes: &[u8]) -> u32 {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(sum & u64::from(u32::MAX)).unwrap_or_default()
}

impl SealedHeader {
    pub(crate) fn encode(&self, geometry: Geometry) -> [u8; SEALED_HEADER_BYTES] {
        let mut raw = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            page_shift: geometry.shift,
            flags: 0,
            key: self.key.0,
            salt: self.salt,
            reserved: 0.into(),
            crc: 0.into(),
        };
        raw.crc = crc(raw.before_crc()).into();
        zerocopy::transmute!(raw)
    }

    pub(crate) fn decode(bytes: &[u8; SEALED_HEADER_BYTES], geometry: Geometry) -> Result<Self, HeaderError> {
        let raw: &RawHeader = zerocopy::transmute_ref!(bytes);
        if raw.magic != MAGIC || raw.crc.get() != crc(raw.before_crc()) {
            return Err(HeaderError::Damaged);
        }
        if raw.version.get() != VERSION {
            return Err(HeaderError::Newer(raw.version.get()));
        }
        if raw.page_shift != geometry.shift || raw.flags != 0 || raw.reserved.get() != 0 {
            return Err(HeaderError::Damaged);
        }
        Ok(Self { key: DataKeyId(raw.key), salt: raw.salt })
    }
}

impl RawHeader {
    fn before_crc(&self) -> &[u8] {
        self.as_bytes().split_last_chunk::<4>().map_or(&[], |(before, _)| before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> BlobName {
        BlobName::new(text).unwrap()
    }

    /// Golden bytes, as stored on volumes.
    #[test]
    fn a_header_has_these_bytes() {
        let header = SealedHeader { key: DataKeyId([0xAB; 16]), salt: [0xCD; SALT_BYTES] };
        let geometry = Geometry::of(&name("containers/0000000/0000000001.data"));
        let bytes = header.encode(geometry);
        assert_eq!(&bytes[..8], b"HFSB\x01\x00\x10\x00");
        assert_eq!((&bytes[8..24], &bytes[24..56]), (&[0xAB; 16][..], &[0xCD; 32][..]));
        assert_eq!(bytes[56..60], [0; 4]);
        assert_eq!(SealedHeader::decode(&bytes, geometry), Ok(header));
        let index = Geometry::of(&name("index/runs/0000000001"));
        assert_eq!(header.encode(index)[6], 12);
        assert_eq!(SealedHeader::decode(&bytes, index), Err(HeaderError::Damaged));
        for at in 0..bytes.len() {
            let mut flipped = bytes;
            flipped[at] ^= 1;
            assert_eq!(SealedHeader::decode(&flipped, geometry), Err(HeaderError::Damaged), "byte {at}");
        }
        let mut newer: RawHeader = zerocopy::transmute!(bytes);
        newer.version = 2.into();
        newer.crc = crc(newer.before_crc()).into();
        assert_eq!(SealedHeader::decode(&zerocopy::transmute!(newer), geometry), Err(HeaderError::Newer(2)));
    }

    #[test]
    fn lengths_go_both_ways() {
        for geometry in [Geometry::of(&name("index/x")), Geometry::of(&name("points/x"))] {
            let page = geometry.page_bytes();
            for len in [0, 1, page - 1, page, page + 1, 2 * page - 1, 2 * page, 5 * page + 7] {
                let last = len.saturating_sub(1) / page;
                let sealed = 2 * HEADER + len + TAG * (last + 1);
                assert_eq!(geometry.opened(sealed), Some((len, last)), "{len}");
            }
            for none in [
                0,
                2 * HEADER,
                2 * HEADER + TAG - 1,
                2 * HEADER + page + 2 * TAG,
                2 * HEADER + page + TAG + 5,
            ] {
                assert_eq!(geometry.opened(none), None, "{none}");
            }
            assert!(geometry.opened(u64::MAX).is_some_and(|(len, _)| len < u64::MAX));
        }
    }

    #[test]
    fn names_keep_their_order() {
        let mut plain: Vec<_> =
            ["a", "a.b", "a/b", "a0", "a-b", "ab", "b", "a-b.c", "a-b-c"].into_iter().map(name).collect();
        plain.sort();
        let plain: Vec<_> = plain.into_iter().filter(|name| !name.as_str().ends_with('-')).collect();
        let all =
            |name: &BlobName| [Form::Plain, Form::Sealed, Form::Resealed].map(|form| (name.clone(), form));
        let below: Vec<_> = plain.iter().flat_map(all).map(|(name, form)| form.of(&name).unwrap()).collect();
        assert!(below.is_sorted(), "all forms of a name lie side by side");
        for (name, form) in plain.iter().flat_map(all) {
            assert_eq!(Form::parse(&form.of(&name).unwrap()), (name, form));
        }
        assert_eq!(Form::last_of(&name("a")).as_str(), "a--");
        assert_eq!(sealed_name(&name("a-")), None);
        assert!(is_sealed_name(&name("a-")) && is_sealed_name(&name("a--")) && !is_sealed_name(&name("a")));
        assert!(is_left_open(&name("repository")) && is_left_open(&name("keys/0000000001")));
        assert!(!is_left_open(&name("repository-x")) && !is_left_open(&name("points/keys")));
    }
}
