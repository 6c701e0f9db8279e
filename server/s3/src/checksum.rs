//! Checksums as S3 encodes them: base64 of the number, its most significant byte first.

use crc_fast::{CrcAlgorithm, Digest};
use holdfast_volume::BlobChecksum;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A kind of checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checksum {
    Crc64Nvme,
    Crc32c,
}

impl Checksum {
    pub(crate) fn digest(self) -> Digest {
        Digest::new(match self {
            Self::Crc64Nvme => CrcAlgorithm::Crc64Nvme,
            Self::Crc32c => CrcAlgorithm::Crc32Iscsi,
        })
    }

    /// Encodes a checksum as S3 does.
    pub(crate) fn text(self, value: u64) -> String {
        let bytes = value.to_be_bytes();
        match self {
            Self::Crc64Nvme => encode(&bytes),
            Self::Crc32c => encode(bytes.last_chunk::<4>().map_or(&[][..], |chunk| &chunk[..])),
        }
    }
}

/// Parses the checksum of a whole object from the fields of an answer.
pub(crate) fn parse(crc64: Option<&str>, crc32c: Option<&str>) -> Option<BlobChecksum> {
    let crc64 = crc64.and_then(decode).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    let crc32c = crc32c.and_then(decode).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    crc64
        .map(|bytes| BlobChecksum::Crc64Nvme(u64::from_be_bytes(bytes)))
        .or_else(|| crc32c.map(|bytes| BlobChecksum::Crc32c(u32::from_be_bytes(bytes))))
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let index = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or_default();
            let letter = ALPHABET.get(index).copied().unwrap_or(b'=');
            text.push(if place <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in digits.bytes() {
        let digit = ALPHABET.iter().position(|known| *known == letter)?;
        bits = bits << 6 | u32::try_from(digit).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xFF).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_goes_both_ways() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).unwrap(), bytes);
        }
        assert_eq!(decode("!"), None);
    }

    /// The check values of both, from their catalogues.
    #[test]
    fn checksums_have_these_texts() {
        for (kind, value, text) in [
            (Checksum::Crc64Nvme, 0xAE8B_1486_0A79_9888_u64, "rosUhgp5mIg="),
            (Checksum::Crc32c, 0xE306_9283, "4waSgw=="),
        ] {
            let mut digest = kind.digest();
            digest.update(b"123456789");
            assert_eq!(digest.finalize(), value);
            assert_eq!(kind.text(value), text);
        }
        assert_eq!(parse(Some("rosUhgp5mIg="), None), Some(BlobChecksum::Crc64Nvme(0xAE8B_1486_0A79_9888)));
        assert_eq!(parse(None, Some("4waSgw==")), Some(BlobChecksum::Crc32c(0xE306_9283)));
        assert_eq!(parse(Some("x"), None), None);
    }
}
