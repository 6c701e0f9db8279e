//! The name of a chunk: BLAKE3-256 of its plain bytes; and how maps hash it.

use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 32;

/// BLAKE3-256 of plain bytes. All zero and all 0xFF have meanings of their own and are no hash of anything
/// known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Fingerprint([u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    /// Stands for bytes that are all zero.
    pub const ZERO: Self = Self([0; FINGERPRINT_BYTES]);
    /// Stands for "not known": an extent digest that equals nothing.
    pub const UNKNOWN: Self = Self([0xFF; FINGERPRINT_BYTES]);

    /// The fingerprint of `plain`.
    pub fn of(plain: &[u8]) -> Self {
        Self(*blake3::hash(plain).as_bytes())
    }

    /// From its 32 bytes.
    pub const fn from_bytes(bytes: [u8; FINGERPRINT_BYTES]) -> Self {
        Self(bytes)
    }

    /// From a slice of exactly 32 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns its 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; FINGERPRINT_BYTES] {
        &self.0
    }

    /// Returns true if it stands for zeros.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Splits concatenated fingerprints; `None` when the length is no multiple of 32.
    pub fn split_list(list: &[u8]) -> Option<impl ExactSizeIterator<Item = Self> + '_> {
        let (whole, rest) = list.as_chunks::<FINGERPRINT_BYTES>();
        rest.is_empty().then(|| whole.iter().map(|bytes| Self(*bytes)))
    }

    /// The first 12 hexadecimal digits, for messages people read.
    pub fn short(&self) -> String {
        let mut hex = self.to_string();
        hex.truncate(12);
        hex
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// The text is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is 64 hexadecimal digits, not {0:?}")]
pub struct NotAFingerprint(String);

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        blake3::Hash::from_hex(text)
            .map(|hash| Self(*hash.as_bytes()))
            .map_err(|_| NotAFingerprint(text.chars().take(80).collect()))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Hashes a [`Fingerprint`] to its first eight bytes, for maps and sets: it is a hash already. Not for other keys.
#[derive(Debug, Default, Clone, Copy)]
pub struct FingerprintHasher(u64);

impl Hasher for FingerprintHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// The length before the bytes is always the same.
    fn write_usize(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, BuildHasherDefault};

    use super::*;

    #[test]
    fn text_round_trips_and_is_blake3() {
        let fingerprint = Fingerprint::of(b"");
        let text = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(fingerprint.to_string(), text);
        assert_eq!(text.parse(), Ok(fingerprint));
        assert!("af13".parse::<Fingerprint>().is_err());
    }

    #[test]
    fn lists_must_be_whole() {
        let list = [7u8; 64];
        assert_eq!(Fingerprint::split_list(&list).unwrap().len(), 2);
        assert!(Fingerprint::split_list(&list[..63]).is_none());
    }

    #[test]
    fn a_fingerprint_hashes_to_its_first_eight_bytes() {
        let hash = BuildHasherDefault::<FingerprintHasher>::default().hash_one(Fingerprint::of(b""));
        assert_eq!(hash.to_le_bytes(), [0xAF, 0x13, 0x49, 0xB9, 0xF5, 0xF9, 0xA1, 0xA6]);
    }
}
