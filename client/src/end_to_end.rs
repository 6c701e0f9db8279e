//! End-to-end encryption: the agent names and seals chunks with a key that the server never sees.
//!
//! [`NamespaceKey`] is that key, and `source` where it comes from; [`Cipher`] is what backing up and reading back do with
//! it, or without one. The format of sealed regions, as far as a server checks it, is `holdfast_proto::region::sealed`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use holdfast_keys::slots::KdfCost;
use holdfast_keys::source::wrapped::WrappedKey;
use holdfast_keys::source::{command, key_file};
use holdfast_keys::{Secret, SecretBytes, SecretRandom, SystemRandom};
use holdfast_proto::region::sealed::{
    SALT_BYTES, SealedParts, TableHash, assemble, inner, split, split_inner,
};
use holdfast_proto::region::{Codec, Decoder, EncodedRegion, RegionError};
use holdfast_proto::{Fingerprint, KeyId};
use zeroize::Zeroizing;

use crate::error::ClientError;

const ID: &str = "holdfast 2026 namespace key v1 key id";
const NAMES: &str = "holdfast 2026 namespace key v1 names of chunks";
const DIGESTS: &str = "holdfast 2026 namespace key v1 digests of extents";
const SALTS: &str = "holdfast 2026 namespace key v1 salts of regions";
const REGIONS: &str = "holdfast 2026 namespace key v1 keys of regions";

/// The key of a namespace, and the keys that are derived from it.
///
/// Each use has a key of its own, derived by BLAKE3's key derivation (a context string for each), so that no use tells
/// anything of another:
///
/// ```text
/// namespace's key (256 random bits)
///   ├─ key id        64 bits, public
///   ├─ names         fingerprint of a chunk: BLAKE3, keyed
///   ├─ digests       digest of an extent: BLAKE3, keyed
///   ├─ salts         salt of a region: BLAKE3, keyed, of random bytes and of what is sealed
///   └─ regions       key of a region: BLAKE3, keyed, of its salt
/// ```
///
/// No pair of key and nonce is used twice for different bytes: every region has a key of its own, which encrypts once,
/// with the nonce zero. Two regions have one key only if they have one salt, of 256 bits. Salts are made of 256 random
/// bits *and* of what is sealed: should the random bits repeat, as in a virtual machine that was put back to a snapshot,
/// then either what is sealed is the same, and so is the outcome, or the salts differ all the same.
///
/// Wiped when it is dropped, and never shown.
pub struct NamespaceKey {
    id: KeyId,
    names: Secret,
    digests: Secret,
    salts: Secret,
    regions: Secret,
}

impl NamespaceKey {
    /// Hash of 256 random bits.
    pub fn new(secret: &Secret) -> Self {
        let derived = |context: &str| {
            let bytes = Zeroizing::new(blake3::derive_key(context, secret.expose()));
            Secret::from_bytes(&bytes)
        };
        let id = blake3::derive_key(ID, secret.expose());
        let [a, b, c, d, e, f, g, h, ..] = id;
        Self {
            id: KeyId::from_bytes([a, b, c, d, e, f, g, h]),
            names: derived(NAMES),
            digests: derived(DIGESTS),
            salts: derived(SALTS),
            regions: derived(REGIONS),
        }
    }

    /// Returns the id of the key, which the server knows.
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// Hashes the bytes of a chunk to its fingerprint.
    fn names(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(self.names.expose())
    }

    /// Hashes the bytes of an extent to its digest.
    fn digests(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(self.digests.expose())
    }

    /// A salt for a region with these chunks and bytes.
    fn salt(
        &self,
        table: &TableHash,
        inner: &[u8],
        random: &dyn SecretRandom,
    ) -> Result<[u8; SALT_BYTES], ClientError> {
        let mut bits = [0; SALT_BYTES];
        random.fill(&mut bits).map_err(|_| ClientError::Internal("the system has no random numbers"))?;
        let mut hasher = blake3::Hasher::new_keyed(self.salts.expose());
        hasher.update(&bits).update(table.as_bytes()).update(inner);
        Ok(*hasher.finalize().as_bytes())
    }

    /// The key of the region that has this salt.
    fn region(&self, salt: &[u8; SALT_BYTES]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(*blake3::keyed_hash(self.regions.expose(), salt).as_bytes())
    }
}

impl fmt::Debug for NamespaceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A key encrypts one region, so its only nonce may be anything.
const NONCE: [u8; NONCE_LEN] = [0; NONCE_LEN];

/// Naming and protection of chunks.
#[derive(Debug, Clone, Default)]
pub enum Cipher {
    /// Chunks are named by plain hashes, and not protected.
    #[default]
    Plain,
    /// Chunks are named and encrypted with a namespace's key.
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

/// Source of a namespace's key: a key file, which a passphrase may have wrapped, or a command that prints what is in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file that only its owner can read.
    File(PathBuf),
    /// A command of the shell, whose output is the line of such a file.
    Command(String),
}

/// Says the passphrase of a key that is wrapped by one; asked only then.
pub type AskPassphrase<'a> = &'a dyn Fn() -> Result<SecretBytes, ClientError>;

impl KeySource {
    /// Fetches the key.
    ///
    /// # Errors
    /// [`ClientError::Key`]. Never has anything secret.
    pub fn cipher(&self, ask: AskPassphrase<'_>) -> Result<Cipher, ClientError> {
        Ok(Cipher::Sealed(Arc::new(NamespaceKey::new(&self.secret(ask)?))))
    }

    fn secret(&self, ask: AskPassphrase<'_>) -> Result<Secret, ClientError> {
        let (wrapped, place) = match self {
            Self::File(path) => match WrappedKey::read(path).map_err(|error| failed(&error))? {
                Some(wrapped) => (wrapped, path.display().to_string()),
                None => return key_file::read(path).map_err(|error| failed(&error)),
            },
            Self::Command(text) => match from_command(text)? {
                Found::Plain(secret) => return Ok(secret),
                Found::Wrapped(wrapped) => (wrapped, "what the command printed".to_owned()),
            },
        };
        let opened = wrapped.open(&ask()?);
        opened.map_err(|error| ClientError::Key(format!("the namespace's key ({place}): {error}")))
    }
}

enum Found {
    Plain(Secret),
    Wrapped(WrappedKey),
}

fn from_command(text: &str) -> Result<Found, ClientError> {
    let line = command::run_line(text, command::TIME_LIMIT).map_err(|error| failed(&error))?;
    if let Some(wrapped) = WrappedKey::parse(line.expose()).map_err(|error| failed(&error))? {
        return Ok(Found::Wrapped(wrapped));
    }
    key_file::parse(line.expose()).map(Found::Plain).ok_or_else(|| {
        ClientError::Key(
            "what the command of --namespace-key-command printed is not the line of a key file, as 'holdfast \
             namespace-key new' makes one"
                .to_owned(),
        )
    })
}

/// Makes a key file with a new key.
///
/// # Errors
/// [`ClientError::Key`]; a file that is there already is not touched.
pub fn create_key_file(path: &Path) -> Result<NamespaceKey, ClientError> {
    let secret = key_file::create(path, &SystemRandom).map_err(|error| failed(&error))?;
    Ok(NamespaceKey::new(&secret))
}

/// Makes a key file that `passphrase` opens: with the key of `source`, which `ask` may be asked for, or with a new one.
///
/// # Errors
/// [`ClientError::Key`]; a file that is there already is not touched.
pub fn create_wrapped_key_file(
    path: &Path,
    source: Option<(&KeySource, AskPassphrase<'_>)>,
    passphrase: &SecretBytes,
) -> Result<NamespaceKey, ClientError> {
    let secret = match source {
        Some((source, ask)) => source.secret(ask)?,
        None => Secret::random(&SystemRandom)
            .map_err(|_| ClientError::Internal("the system has no random numbers"))?,
    };
    WrappedKey::wrap(&secret, passphrase, KdfCost::DEFAULT, &SystemRandom)
        .and_then(|wrapped| wrapped.create(path, &SystemRandom))
        .map_err(|error| failed(&error))?;
    Ok(NamespaceKey::new(&secret))
}

fn failed(error: &dyn std::error::Error) -> ClientError {
    ClientError::Key(error.to_string())
}
