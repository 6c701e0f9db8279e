//! How new chunks are packed: up to 256 KiB of them, end to end, as one zstd frame, or as they are when
//! compression does not pay. The agent encodes, the server stores the payload verbatim, and each reader
//! decodes it and checks every fingerprint.

mod encoder;
pub mod sealed;

use crate::fingerprint::Fingerprint;
use crate::limits::{CHUNK_MAX_BYTES, REGION_CHUNKS_MAX, REGION_PLAIN_MAX_BYTES, REGION_STORED_MAX_BYTES};

pub use encoder::{DEFAULT_LEVEL, Encoder};

/// Representation of plain bytes in a region's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// The plain bytes as they are.
    Stored = 0,
    /// One zstd frame with its content size in the header.
    Zstd = 1,
    /// Encrypted by an agent, as [`sealed`] says; only who has the namespace's key can decode it.
    Sealed = 2,
}

impl Codec {
    /// Bytes of a payload at most.
    pub const fn payload_max_bytes(self) -> u32 {
        match self {
            Self::Stored | Self::Zstd => REGION_PLAIN_MAX_BYTES,
            Self::Sealed => REGION_STORED_MAX_BYTES,
        }
    }
}

impl TryFrom<u32> for Codec {
    type Error = RegionError;

    fn try_from(number: u32) -> Result<Self, RegionError> {
        match number {
            0 => Ok(Self::Stored),
            1 => Ok(Self::Zstd),
            2 => Ok(Self::Sealed),
            other => Err(RegionError::UnknownCodec(other)),
        }
    }
}

/// Why a region was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    #[error("region codec {0} is not known to this version")]
    UnknownCodec(u32),
    #[error("region has {0} chunks; 1 to {REGION_CHUNKS_MAX} are allowed")]
    ChunkCount(usize),
    #[error("region names {fingerprints} fingerprints but {lengths} lengths")]
    CountMismatch { fingerprints: usize, lengths: usize },
    #[error("chunk {index} of the region is {bytes} bytes long; 1 to {CHUNK_MAX_BYTES} are allowed")]
    ChunkLength { index: usize, bytes: u32 },
    #[error("region's chunks are {sum} bytes long together, but the region says {plain_bytes}")]
    LengthSum { sum: u64, plain_bytes: u32 },
    #[error("region holds {plain_bytes} plain bytes; the limit is {REGION_PLAIN_MAX_BYTES}")]
    PlainTooLong { plain_bytes: u32 },
    #[error("region payload is {bytes} bytes long, which is more than its codec allows")]
    PayloadTooLong { bytes: usize },
    #[error("region frame decodes to {actual} bytes, not the {expected} it was said to hold")]
    DecodedLength { expected: u32, actual: u64 },
    #[error("region frame does not decode: {0}")]
    Frame(String),
    #[error(
        "region payload is {payload_bytes} bytes long but its zstd frame ends after {frame_bytes}; nothing may \
         follow the frame"
    )]
    Trailing { frame_bytes: usize, payload_bytes: usize },
    #[error("sealed region is {bytes} bytes long, which cannot hold {plain_bytes} plain bytes")]
    SealedLength { bytes: usize, plain_bytes: u32 },
    #[error("sealed region is not what was sent: its commitment does not match")]
    Commitment,
    #[error("sealed region was made for other chunks than it is said to hold")]
    Table,
    #[error(
        "region cannot be opened with the namespace's key: it was not sealed with it, or was changed since"
    )]
    Opening,
    #[error("region is encrypted end to end: only an agent with the key of its namespace can read it")]
    Sealed,
    #[error("chunk {index} of the region hashes to {actual}, not to {expected}")]
    Fingerprint { index: usize, expected: Fingerprint, actual: Fingerprint },
}

/// A region's payload and how to read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedRegion {
    pub codec: Codec,
    pub plain_bytes: u32,
    pub payload: Vec<u8>,
}

/// Decompresses regions; keeps zstd's working memory between them.
pub struct Decoder {
    zstd: zstd::bulk::Decompressor<'static>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decoder")
    }
}

impl Decoder {
    /// A decoder.
    ///
    /// # Errors
    /// When zstd is out of memory.
    pub fn new() -> Result<Self, RegionError> {
        let zstd = zstd::bulk::Decompressor::new().map_err(|e| RegionError::Frame(e.to_string()))?;
        Ok(Self { zstd })
    }

    /// Decodes a payload that must hold exactly `plain_bytes`. A frame that would grow beyond that is
    /// refused before anything beyond it is written (R3). Fingerprints are *not* checked here.
    ///
    /// # Errors
    /// Any [`RegionError`] about lengths or the frame.
    pub fn decode(&mut self, codec: Codec, payload: &[u8], plain_bytes: u32) -> Result<Vec<u8>, RegionError> {
        let mut plain = Vec::new();
        self.decode_into(codec, payload, plain_bytes, &mut plain)?;
        Ok(plain)
    }

    /// As [`Decoder::decode`], replacing what `plain` holds and reusing its memory.
    ///
    /// # Errors
    /// As [`Decoder::decode`]; `plain` then holds nothing of use.
    pub fn decode_into(
        &mut self,
        codec: Codec,
        payload: &[u8],
        plain_bytes: u32,
        plain: &mut Vec<u8>,
    ) -> Result<(), RegionError> {
        plain.clear();
        if plain_bytes > REGION_PLAIN_MAX_BYTES {
            return Err(RegionError::PlainTooLong { plain_bytes });
        }
        if payload.len() > codec.payload_max_bytes() as usize {
            return Err(RegionError::PayloadTooLong { bytes: payload.len() });
        }
        match codec {
            Codec::Sealed => return Err(RegionError::Sealed),
            Codec::Stored => plain.extend_from_slice(payload),
            Codec::Zstd => {
                one_frame(payload)?;
                let claimed = zstd::zstd_safe::get_frame_content_size(payload)
                    .map_err(|_| RegionError::Frame("not a zstd frame".into()))?;
                if claimed != Some(u64::from(plain_bytes)) {
                    let actual = claimed.unwrap_or(0);
                    return Err(RegionError::DecodedLength { expected: plain_bytes, actual });
                }
                plain.reserve_exact(plain_bytes as usize);
                self.zstd
                    .decompress_to_buffer(payload, plain)
                    .map_err(|e| RegionError::Frame(e.to_string()))?;
            }
        }
        if plain.len() != plain_bytes as usize {
            return Err(RegionError::DecodedLength { expected: plain_bytes, actual: plain.len() as u64 });
        }
        Ok(())
    }
}

/// First bytes of a zstd frame that holds data (RFC 8878, section 3.1.1): 0xFD2FB528 in little-endian order.
const ZSTD_MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// Checks that a payload is one zstd frame from its first byte to its last. zstd itself decodes any number of
/// frames one after another and skips those marked as skippable: both would let an agent store bytes that
/// no fingerprint covers. Costs one look at each block's header.
fn one_frame(payload: &[u8]) -> Result<(), RegionError> {
    if !payload.starts_with(&ZSTD_MAGIC) {
        return Err(RegionError::Frame("it does not begin with a zstd frame that holds data".to_owned()));
    }
    let frame_bytes = zstd::zstd_safe::find_frame_compressed_size(payload)
        .map_err(|code| RegionError::Frame(zstd::zstd_safe::get_error_name(code).to_owned()))?;
    if frame_bytes != payload.len() {
        return Err(RegionError::Trailing { frame_bytes, payload_bytes: payload.len() });
    }
    Ok(())
}

/// Checks the chunk list of a region against the limits and its plain length.
///
/// # Errors
/// The first rule broken.
pub fn check_chunks(fingerprints: usize, lengths: &[u32], plain_bytes: u32) -> Result<(), RegionError> {
    if fingerprints != lengths.len() {
        return Err(RegionError::CountMismatch { fingerprints, lengths: lengths.len() });
    }
    if lengths.is_empty() || lengths.len() > REGION_CHUNKS_MAX {
        return Err(RegionError::ChunkCount(lengths.len()));
    }
    for (index, &bytes) in lengths.iter().enumerate() {
        if bytes == 0 || bytes > CHUNK_MAX_BYTES {
            return Err(RegionError::ChunkLength { index, bytes });
        }
    }
    let sum: u64 = lengths.iter().map(|&n| u64::from(n)).sum();
    if plain_bytes > REGION_PLAIN_MAX_BYTES {
        return Err(RegionError::PlainTooLong { plain_bytes });
    }
    if sum != u64::from(plain_bytes) {
        return Err(RegionError::LengthSum { sum, plain_bytes });
    }
    Ok(())
}

/// Checks that `plain`, cut into pieces of `lengths`, hashes to `fingerprints`. The lengths must have passed
/// [`check_chunks`].
///
/// # Errors
/// [`RegionError::Fingerprint`] naming the first chunk that does not match.
pub fn check_fingerprints(
    plain: &[u8],
    fingerprints: &[Fingerprint],
    lengths: &[u32],
) -> Result<(), RegionError> {
    let mut rest = plain;
    for (index, (expected, &length)) in fingerprints.iter().zip(lengths).enumerate() {
        let Some((chunk, tail)) = rest.split_at_checked(length as usize) else {
            let sum = lengths.iter().map(|&n| u64::from(n)).sum();
            return Err(RegionError::LengthSum {
                sum,
                plain_bytes: u32::try_from(plain.len()).unwrap_or(u32::MAX),
            });
        };
        let actual = Fingerprint::of(chunk);
        if actual != *expected {
            return Err(RegionError::Fingerprint { index, expected: *expected, actual });
        }
        rest = tail;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(plain: &[u8]) -> EncodedRegion {
        let encoded = Encoder::new(DEFAULT_LEVEL).unwrap().encode(plain).unwrap();
        let back =
            Decoder::new().unwrap().decode(encoded.codec, &encoded.payload, encoded.plain_bytes).unwrap();
        assert_eq!(back, plain);
        encoded
    }

    #[test]
    fn text_is_compressed_and_noise_is_stored() {
        assert_eq!(round_trip(&b"holdfast ".repeat(1000)).codec, Codec::Zstd);
        let mut noise = vec![0; 100_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        assert_eq!(round_trip(&noise).codec, Codec::Stored);
    }

    #[test]
    fn bombs_and_lies_are_refused() {
        let mut decoder = Decoder::new().unwrap();
        let bomb = zstd::bulk::compress(&vec![0u8; 64 << 20], 3).unwrap();
        assert!(bomb.len() < 10_000);
        for plain_bytes in [1, 4096, REGION_PLAIN_MAX_BYTES, REGION_PLAIN_MAX_BYTES + 1, u32::MAX] {
            assert!(decoder.decode(Codec::Zstd, &bomb, plain_bytes).is_err());
        }
        let frame = zstd::bulk::compress(b"hello", 3).unwrap();
        assert_eq!(
            decoder.decode(Codec::Zstd, &frame, 6),
            Err(RegionError::DecodedLength { expected: 6, actual: 5 })
        );
        assert!(decoder.decode(Codec::Stored, b"hello", 6).is_err());
        assert_eq!(decoder.decode(Codec::Zstd, &frame, 5).unwrap(), b"hello", "a refusal leaves no trace");
    }

    #[test]
    fn a_payload_is_one_frame_and_nothing_else() {
        let frame = zstd::bulk::compress(b"hello", 3).unwrap();
        let empty = zstd::bulk::compress(b"", 3).unwrap();
        // Magic number, length and content of a skippable frame of 3 bytes.
        let skippable = [&0x184D_2A50_u32.to_le_bytes()[..], &3_u32.to_le_bytes(), b"abc"].concat();
        let decode = |parts: &[&[u8]], plain_bytes| {
            Decoder::new().unwrap().decode(Codec::Zstd, &parts.concat(), plain_bytes)
        };
        assert_eq!(decode(&[&frame], 5).unwrap(), b"hello");
        assert_eq!(decode(&[&empty], 0).unwrap(), b"");
        for second in [&b"\0"[..], &frame, &empty, &skippable] {
            let refused = decode(&[&frame, second], 5).unwrap_err();
            let payload_bytes = frame.len() + second.len();
            assert_eq!(refused, RegionError::Trailing { frame_bytes: frame.len(), payload_bytes });
        }
        for payload in [&[&skippable[..]][..], &[&skippable, &frame], &[]] {
            assert!(matches!(decode(payload, 0), Err(RegionError::Frame(_))));
            assert!(matches!(decode(payload, 5), Err(RegionError::Frame(_))));
        }
        let cut = frame.get(..frame.len() - 1).unwrap();
        assert!(matches!(decode(&[cut], 5), Err(RegionError::Frame(_))));
    }

    #[test]
    fn chunk_lists_are_checked() {
        assert_eq!(check_chunks(2, &[10, 20], 30), Ok(()));
        assert!(check_chunks(1, &[10, 20], 30).is_err());
        assert!(check_chunks(2, &[10, 20], 31).is_err());
        assert!(check_chunks(2, &[0, 30], 30).is_err());
        assert!(check_chunks(0, &[], 0).is_err());
        assert!(check_chunks(1, &[CHUNK_MAX_BYTES + 1], CHUNK_MAX_BYTES + 1).is_err());
        assert!(check_chunks(5, &[CHUNK_MAX_BYTES; 5], 5 * CHUNK_MAX_BYTES).is_err(), "over 256 KiB");
    }

    #[test]
    fn a_wrong_fingerprint_is_named() {
        let fingerprints = [Fingerprint::of(b"ab"), Fingerprint::of(b"cd")];
        assert_eq!(check_fingerprints(b"abcd", &fingerprints, &[2, 2]), Ok(()));
        let error = check_fingerprints(b"abcx", &fingerprints, &[2, 2]).unwrap_err();
        assert!(matches!(error, RegionError::Fingerprint { index: 1, .. }), "{error}");
    }

    proptest! {
        #[test]
        fn any_payload_decodes_or_errs(payload in proptest::collection::vec(any::<u8>(), 0..2000),
                                       plain_bytes in 0u32..300_000, zstd in any::<bool>()) {
            let codec = if zstd { Codec::Zstd } else { Codec::Stored };
            if let Ok(plain) = Decoder::new().unwrap().decode(codec, &payload, plain_bytes) {
                prop_assert_eq!(plain.len(), plain_bytes as usize);
            }
        }
    }
}
