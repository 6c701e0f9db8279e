//! A region before and after its bytes have been checked. Two types, so that nothing unchecked can be stored.
//!
//! Of a region that its agent sealed the server cannot see the chunks: there checked means that it is whole and was made
//! for the chunks it is said to hold (W1).

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_proto::region::sealed::check_sealed;
use holdfast_proto::region::{Codec, Decoder, Encoder, RegionError, check_chunks, check_fingerprints};

use crate::format::container::RegionRecord;
use crate::format::crc32c;

/// A region as it came over the wire: claims, no more.
#[derive(Debug, Clone)]
pub struct UnverifiedRegion {
    pub codec: Codec,
    /// Length of what the payload is said to decode to.
    pub plain_bytes: u32,
    pub fingerprints: Vec<Fingerprint>,
    /// Plain bytes of each chunk, as many as fingerprints.
    pub lengths: Vec<u32>,
    pub payload: Bytes,
}

/// A region whose payload decodes to chunks of these lengths and fingerprints; or, when it is sealed, is bound to them.
#[derive(Debug, Clone)]
pub struct VerifiedRegion {
    /// `offset` is 0 until the region is in a container.
    record: RegionRecord,
    fingerprints: Vec<Fingerprint>,
    lengths: Vec<u32>,
    payload: Bytes,
}

impl UnverifiedRegion {
    /// (W1, A3) Decodes and hashes everything: the only way from what a peer sent to what may be stored. Returns the
    /// plain bytes, too; `None` for a sealed region, of which (N1) everything is checked that needs no key.
    ///
    /// # Errors
    /// [`RegionError`] for the first claim that is not true.
    pub fn verify(self, decoder: &mut Decoder) -> Result<(VerifiedRegion, Option<Bytes>), RegionError> {
        check_chunks(self.fingerprints.len(), &self.lengths, self.plain_bytes)?;
        let plain = match self.codec {
            // Checked where it lies.
            Codec::Stored => {
                let actual = self.payload.len() as u64;
                if actual != u64::from(self.plain_bytes) {
                    return Err(RegionError::DecodedLength { expected: self.plain_bytes, actual });
                }
                check_fingerprints(&self.payload, &self.fingerprints, &self.lengths)?;
                Some(self.payload.clone())
            }
            Codec::Zstd => {
                let plain = decoder.decode(self.codec, &self.payload, self.plain_bytes)?;
                check_fingerprints(&plain, &self.fingerprints, &self.lengths)?;
                Some(Bytes::from(plain))
            }
            Codec::Sealed => {
                check_sealed(&self.payload, &self.fingerprints, &self.lengths, self.plain_bytes)?;
                None
            }
        };
        let Self { codec, plain_bytes, fingerprints, lengths, payload } = self;
        let region = VerifiedRegion::new(codec, plain_bytes, fingerprints, lengths, payload)?;
        Ok((region, plain))
    }
}

impl VerifiedRegion {
    /// Plain bytes of all its chunks.
    pub const fn plain_bytes(&self) -> u32 {
        self.record.plain_bytes
    }

    /// Returns true if an agent sealed it.
    pub fn is_sealed(&self) -> bool {
        self.record.codec == Codec::Sealed
    }

    /// Packs chunks made here.
    ///
    /// # Errors
    /// [`RegionError`] when the chunks break a limit or do not hash to their fingerprints.
    pub fn encode(chunks: &[(Fingerprint, &[u8])], encoder: &mut Encoder) -> Result<Self, RegionError> {
        let plain = chunks.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>().concat();
        let fingerprints: Vec<_> = chunks.iter().map(|(fingerprint, _)| *fingerprint).collect();
        let too_long = |_| RegionError::PayloadTooLong { bytes: plain.len() };
        let lengths: Vec<u32> = chunks
            .iter()
            .map(|(_, bytes)| u32::try_from(bytes.len()))
            .collect::<Result<_, _>>()
            .map_err(too_long)?;
        let plain_bytes = u32::try_from(plain.len()).map_err(too_long)?;
        check_chunks(fingerprints.len(), &lengths, plain_bytes)?;
        check_fingerprints(&plain, &fingerprints, &lengths)?;
        let encoded = encoder.encode(&plain)?;
        Self::new(encoded.codec, plain_bytes, fingerprints, lengths, encoded.payload.into())
    }

    fn new(
        codec: Codec,
        plain_bytes: u32,
        fingerprints: Vec<Fingerprint>,
        lengths: Vec<u32>,
        payload: Bytes,
    ) -> Result<Self, RegionError> {
        let record = RegionRecord {
            offset: 0,
            stored_bytes: u32::try_from(payload.len())
                .map_err(|_| RegionError::PayloadTooLong { bytes: payload.len() })?,
            plain_bytes,
            payload_crc: crc32c(&payload),
            chunk_count: u16::try_from(lengths.len()).map_err(|_| RegionError::ChunkCount(lengths.len()))?,
            codec,
        };
        Ok(Self { record, fingerprints, lengths, payload })
    }

    /// Fingerprints of its chunks, in order of slot.
    pub fn fingerprints(&self) -> &[Fingerprint] {
        &self.fingerprints
    }

    /// Plain bytes of its chunks, in order of slot.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// Bytes of its payload.
    pub const fn stored_bytes(&self) -> u32 {
        self.record.stored_bytes
    }

    /// Its payload, as it is stored.
    pub const fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The record of this region when it lies at `offset`.
    pub(super) const fn record_at(&self, offset: u32) -> RegionRecord {
        RegionRecord { offset, ..self.record }
    }
}
