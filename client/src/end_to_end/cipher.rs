//! What an agent does to chunks on their way out and back: with a namespace's key, or without one.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use holdfast_keys::{SecretRandom, SystemRandom};
use holdfast_proto::region::sealed::{
    SALT_BYTES, SealedParts, TableHash, assemble, inner, split, split_inner,
};
use holdfast_proto::region::{Codec, Decoder, EncodedRegion, RegionError};
use holdfast_proto::{Fingerprint, KeyId};

use super::NamespaceKey;
use crate::error::ClientError;

/// A key encrypts one region, so its only nonce may be anything.
const NONCE: [u8; NONCE_LEN] = [0; NONCE_LEN];

/// How chunks are named and protected.
#[derive(Debug, Clone, Default)]
pub enum Cipher {
    /// By plain hashes, and not at all.
    #[default]
    Plain,
    /// By a namespace's key.
    Sealed(Arc<NamespaceKey>),
}

impl Cipher {
    /// The name of the key; `None` without one.
    pub fn key_id(&self) -> Option<KeyId> {
        match self {
            Self::Plain => None,
            Self::Sealed(key) => Some(key.id()),
        }
    }

    /// Fails unless the server says that what it has is protected by this key: `field` is what it says, of `what`.
    ///
    /// # Errors
    /// [`ClientError::Key`], which says what to do.
    pub(crate) fn check(&self, field: &str, what: &str) -> Result<(), ClientError> {
        let theirs = KeyId::from_field(field).map_err(|error| ClientError::Protocol(error.to_string()))?;
        let message = match (self.key_id(), theirs) {
            (ours, theirs) if ours == theirs => return Ok(()),
            (None, Some(theirs)) => format!(
                "{what} is end-to-end encrypted with key {theirs}, and no key was given: name its file with \
                 --namespace-key, or a command that prints it with --namespace-key-command"
            ),
            (Some(ours), Some(theirs)) => format!(
                "{what} is end-to-end encrypted with key {theirs}, and the key that was given is {ours}: give the right one"
            ),
            (Some(ours), None) => format!(
                "key {ours} was given, but the server says that {what} is not end-to-end encrypted, so that what it \
                 sends could be anyone's: leave the key out if that is right"
            ),
            (None, None) => return Ok(()),
        };
        Err(ClientError::Key(message))
    }

    /// The name of a chunk.
    pub fn fingerprint(&self, chunk: &[u8]) -> Fingerprint {
        match self {
            Self::Plain => Fingerprint::of(chunk),
            Self::Sealed(key) => finished(key.names().update(chunk)),
        }
    }

    /// Hashes an extent to its digest.
    pub(crate) fn digest_hasher(&self) -> blake3::Hasher {
        match self {
            Self::Plain => blake3::Hasher::new(),
            Self::Sealed(key) => key.digests(),
        }
    }

    /// The digest of an extent.
    pub(crate) fn digest(&self, extent: &[u8]) -> Fingerprint {
        finished(self.digest_hasher().update(extent))
    }

    /// Protects a region that holds these chunks.
    ///
    /// # Errors
    /// [`ClientError::Internal`] without random numbers; nothing is ever sent unsealed instead.
    pub fn seal(
        &self,
        region: EncodedRegion,
        fingerprints: &[Fingerprint],
        lengths: &[u32],
    ) -> Result<EncodedRegion, ClientError> {
        match self {
            Self::Plain => Ok(region),
            Self::Sealed(key) => seal(key, &region, (fingerprints, lengths), &SystemRandom),
        }
    }

    /// Decodes a region's payload to exactly `plain_bytes` in `plain`; `opened` is memory to work in. Fingerprints are
    /// *not* checked here.
    ///
    /// # Errors
    /// Any [`RegionError`] about lengths or the frame; [`RegionError::Opening`] when it was not sealed with this key, or
    /// was changed since; what is not sealed is refused where there is a key.
    pub(crate) fn decode_into(
        &self,
        decoder: &mut Decoder,
        (codec, payload, plain_bytes): (Codec, &[u8], u32),
        plain: &mut Vec<u8>,
        opened: &mut Vec<u8>,
    ) -> Result<(), RegionError> {
        match (self, codec) {
            // Of a sealed one the decoder says that it is.
            (Self::Plain, _) => decoder.decode_into(codec, payload, plain_bytes, plain),
            (Self::Sealed(key), Codec::Sealed) => {
                let (codec, payload) = open(key, &split(payload, plain_bytes)?, opened)?;
                decoder.decode_into(codec, payload, plain_bytes, plain)
            }
            (Self::Sealed(_), Codec::Stored | Codec::Zstd) => Err(RegionError::Opening),
        }
    }
}

fn finished(hasher: &blake3::Hasher) -> Fingerprint {
    Fingerprint::from_bytes(*hasher.finalize().as_bytes())
}

fn seal(
    key: &NamespaceKey,
    region: &EncodedRegion,
    (fingerprints, lengths): (&[Fingerprint], &[u32]),
    random: &dyn SecretRandom,
) -> Result<EncodedRegion, ClientError> {
    let table = TableHash::of(fingerprints, lengths, region.plain_bytes);
    let mut bytes = inner(region);
    let salt = key.salt(&table, &bytes, random)?;
    let failed = |_| ClientError::Internal("a region could not be encrypted");
    region_key(key, &salt)
        .and_then(|key| {
            key.seal_in_place_append_tag(nonce(), Aad::from(table.as_bytes()), &mut bytes)
                .map_err(|_| RegionError::Opening)
        })
        .map_err(failed)?;
    let payload = assemble(&salt, &table, &bytes);
    Ok(EncodedRegion { codec: Codec::Sealed, plain_bytes: region.plain_bytes, payload })
}

/// Opens a sealed region in `opened`; what is in it, and how.
fn open<'a>(
    key: &NamespaceKey,
    parts: &SealedParts<'_>,
    opened: &'a mut Vec<u8>,
) -> Result<(Codec, &'a [u8]), RegionError> {
    opened.clear();
    opened.extend_from_slice(parts.ciphertext);
    let key = region_key(key, parts.salt)?;
    let aad = Aad::from(parts.table.as_bytes());
    let inner = key.open_in_place(nonce(), aad, opened).map_err(|_| RegionError::Opening)?;
    split_inner(inner)
}

fn region_key(key: &NamespaceKey, salt: &[u8; SALT_BYTES]) -> Result<LessSafeKey, RegionError> {
    let bytes = key.region(salt);
    UnboundKey::new(&AES_256_GCM, bytes.as_slice()).map(LessSafeKey::new).map_err(|_| RegionError::Opening)
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key(NONCE)
}

#[cfg(test)]
mod tests;
