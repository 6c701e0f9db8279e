//! Regions that agents have encrypted: what a server can check of them, which knows no key.
//!
//! ```text
//! 0      32      64                         len − 48      len − 32      len
//! ┌──────┬───────┬──────────────────────────┬─────────────┬─────────────┐
//! │ salt │ table │ codec (1 B) and payload, │ tag of      │ commitment  │
//! │ 32 B │ 32 B  │ encrypted                │ AES-GCM 16 B│ 32 B        │
//! └──────┴───────┴──────────────────────────┴─────────────┴─────────────┘
//! ```
//!
//! *table* is a hash of the region's list of chunks, *commitment* one of everything before it. Neither needs a key: they
//! say that these bytes were sent for these chunks, and find every accident. That the chunks are what their names say
//! only an agent can see, which has the key; to it the tag proves bytes and table.

use super::{Codec, EncodedRegion, RegionError};
use crate::fingerprint::Fingerprint;
use crate::limits::SEALED_OVERHEAD_BYTES;

/// Bytes of the salt that a region's own key is derived with.
pub const SALT_BYTES: usize = 32;
/// Bytes of the tag of AES-256-GCM.
pub const TAG_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

const TABLE_CONTEXT: &str = "holdfast 2026 sealed region v1 table of chunks";
const COMMITMENT_CONTEXT: &str = "holdfast 2026 sealed region v1 commitment";

const _: () = assert!(SEALED_OVERHEAD_BYTES as usize == SALT_BYTES + HASH_BYTES + 1 + TAG_BYTES + HASH_BYTES);

/// The hash of a region's list of chunks: what its bytes are bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableHash([u8; HASH_BYTES]);

impl TableHash {
    /// Hashes the chunks of a region, in their order, which hold `plain_bytes` together.
    pub fn of(fingerprints: &[Fingerprint], lengths: &[u32], plain_bytes: u32) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(TABLE_CONTEXT);
        hasher.update(&plain_bytes.to_le_bytes());
        hasher.update(&(fingerprints.len() as u64).to_le_bytes());
        for (fingerprint, length) in fingerprints.iter().zip(lengths) {
            hasher.update(fingerprint.as_bytes());
            hasher.update(&length.to_le_bytes());
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// Returns its bytes: the associated data of the encryption.
    pub const fn as_bytes(&self) -> &[u8; HASH_BYTES] {
        &self.0
    }
}

/// The parts of the payload of a sealed region.
#[derive(Debug, Clone, Copy)]
pub struct SealedParts<'a> {
    pub salt: &'a [u8; SALT_BYTES],
    pub table: TableHash,
    /// The ciphertext, with the tag at its end.
    pub ciphertext: &'a [u8],
}

/// Puts a payload together: `ciphertext` ends with its tag.
pub fn assemble(salt: &[u8; SALT_BYTES], table: &TableHash, ciphertext: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(ciphertext.len() + SALT_BYTES + 2 * HASH_BYTES);
    payload.extend_from_slice(salt);
    payload.extend_from_slice(&table.0);
    payload.extend_from_slice(ciphertext);
    let commitment = commitment(&payload);
    payload.extend_from_slice(&commitment);
    payload
}

/// The end of a sealed region: it names these very bytes.
pub type Commitment = [u8; HASH_BYTES];

/// The commitment of a payload, as it is. `None`: it is too short to have one.
pub fn commitment_of(payload: &[u8]) -> Option<&Commitment> {
    payload.last_chunk()
}

fn commitment(before: &[u8]) -> Commitment {
    *blake3::Hasher::new_derive_key(COMMITMENT_CONTEXT).update(before).finalize().as_bytes()
}

/// As [`split`], and checks the commitment.
///
/// # Errors
/// [`RegionError::SealedLength`] and [`RegionError::Commitment`].
pub fn parts(payload: &[u8], plain_bytes: u32) -> Result<SealedParts<'_>, RegionError> {
    let parts = split(payload, plain_bytes)?;
    let whole =
        payload.split_last_chunk::<HASH_BYTES>().is_some_and(|(before, kept)| commitment(before) == *kept);
    if whole { Ok(parts) } else { Err(RegionError::Commitment) }
}

/// Takes a payload apart that claims to hold `plain_bytes`. Only its length is checked: for who has the key, the tag
/// proves all but the commitment.
///
/// # Errors
/// [`RegionError::SealedLength`].
pub fn split(payload: &[u8], plain_bytes: u32) -> Result<SealedParts<'_>, RegionError> {
    // The encrypted part is never longer than the plain bytes, and never empty.
    let longest = plain_bytes as usize + SEALED_OVERHEAD_BYTES as usize;
    let wrong = || RegionError::SealedLength { bytes: payload.len(), plain_bytes };
    if payload.len() <= SEALED_OVERHEAD_BYTES as usize || payload.len() > longest {
        return Err(wrong());
    }
    let (before, _) = payload.split_last_chunk::<HASH_BYTES>().ok_or_else(wrong)?;
    let (salt, rest) = before.split_first_chunk::<SALT_BYTES>().ok_or_else(wrong)?;
    let (table, ciphertext) = rest.split_first_chunk::<HASH_BYTES>().ok_or_else(wrong)?;
    Ok(SealedParts { salt, table: TableHash(*table), ciphertext })
}

/// All that can be checked without the key: that the payload is whole, and was made for exactly these chunks. These must
/// have passed [`check_chunks`](super::check_chunks).
///
/// # Errors
/// As [`parts`]; [`RegionError::Table`] when it was made for others.
pub fn check_sealed(
    payload: &[u8],
    fingerprints: &[Fingerprint],
    lengths: &[u32],
    plain_bytes: u32,
) -> Result<(), RegionError> {
    let parts = parts(payload, plain_bytes)?;
    if parts.table == TableHash::of(fingerprints, lengths, plain_bytes) {
        return Ok(());
    }
    Err(RegionError::Table)
}

/// Returns the plaintext of a sealed region: its codec, then its payload.
pub fn inner(region: &EncodedRegion) -> Vec<u8> {
    let mut inner = Vec::with_capacity(region.payload.len() + 1);
    inner.push(region.codec as u8);
    inner.extend_from_slice(&region.payload);
    inner
}

/// The codec and payload of what was decrypted.
///
/// # Errors
/// [`RegionError::UnknownCodec`]; a sealed region within another is refused.
pub fn split_inner(inner: &[u8]) -> Result<(Codec, &[u8]), RegionError> {
    let (codec, payload) = inner.split_first().ok_or(RegionError::Frame("it is empty".to_owned()))?;
    match Codec::try_from(u32::from(*codec))? {
        Codec::Sealed => Err(RegionError::UnknownCodec((*codec).into())),
        codec => Ok((codec, payload)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::REGION_PLAIN_MAX_BYTES;

    fn names(count: u8) -> (Vec<Fingerprint>, Vec<u32>) {
        ((0..count).map(|n| Fingerprint::from_bytes([n; 32])).collect(), vec![10; count.into()])
    }

    #[test]
    fn a_sealed_payload_is_these_bytes() {
        let (fingerprints, lengths) = names(2);
        let table = TableHash::of(&fingerprints, &lengths, 20);
        let payload = assemble(&[7; 32], &table, &[9; 18]);
        assert_eq!(payload.len(), 18 + 96);
        assert_eq!(
            blake3::hash(&payload).to_hex().as_str(),
            "67925fceff2e2c08da6044d2396830cf684ada52520980082d84d9587712e1a6",
            "the format of sealed regions has changed"
        );
        assert_eq!(check_sealed(&payload, &fingerprints, &lengths, 20), Ok(()));
    }

    #[test]
    fn every_changed_byte_and_every_other_table_is_refused() {
        let (fingerprints, lengths) = names(3);
        let payload = assemble(&[7; 32], &TableHash::of(&fingerprints, &lengths, 30), &[9; 40]);
        let check = |payload: &[u8]| check_sealed(payload, &fingerprints, &lengths, 30);
        assert_eq!(check(&payload), Ok(()));
        for at in 0..payload.len() {
            let mut changed = payload.clone();
            changed[at] ^= 1;
            assert_eq!(check(&changed), Err(RegionError::Commitment), "byte {at}");
            assert!(check(&payload[..at]).is_err(), "cut off at {at}");
        }
        let swapped = [fingerprints[1], fingerprints[0], fingerprints[2]];
        assert_eq!(check_sealed(&payload, &swapped, &lengths, 30), Err(RegionError::Table));
        assert_eq!(check_sealed(&payload, &fingerprints, &[10, 9, 11], 30), Err(RegionError::Table));
        assert_eq!(check_sealed(&payload, &fingerprints[..2], &[10, 20], 30), Err(RegionError::Table));
    }

    #[test]
    fn a_sealed_payload_is_no_longer_than_what_it_holds() {
        let (fingerprints, lengths) = names(1);
        let table = TableHash::of(&fingerprints, &lengths, 10);
        let with = |inner: usize| {
            let payload = assemble(&[0; 32], &table, &vec![0; inner + 1 + TAG_BYTES]);
            check_sealed(&payload, &fingerprints, &lengths, 10)
        };
        assert_eq!((with(1), with(10)), (Ok(()), Ok(())));
        assert!(matches!(with(0), Err(RegionError::SealedLength { .. })), "nothing in it");
        assert!(matches!(with(11), Err(RegionError::SealedLength { .. })));
        let longest = vec![0; REGION_PLAIN_MAX_BYTES as usize + 1 + TAG_BYTES];
        let payload = assemble(&[0; 32], &table, &longest);
        assert!(parts(&payload, REGION_PLAIN_MAX_BYTES).is_ok());
        assert_eq!(payload.len(), crate::limits::REGION_STORED_MAX_BYTES as usize);
    }

    #[test]
    fn what_is_inside_is_no_sealed_region() {
        assert_eq!(split_inner(&[1, 5, 6]), Ok((Codec::Zstd, &[5, 6][..])));
        assert_eq!(split_inner(&[2, 5]), Err(RegionError::UnknownCodec(2)));
        assert_eq!(split_inner(&[9]), Err(RegionError::UnknownCodec(9)));
        assert!(split_inner(&[]).is_err());
    }
}
