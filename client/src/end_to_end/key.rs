//! The key of a namespace, and the keys that are derived from it.
//!
//! Each use has a key of its own, derived by BLAKE3's key derivation (a context string for each), so that no use tells
//! anything of another:
//!
//! ```text
//! namespace's key (256 random bits)
//!   ├─ key id        64 bits, public
//!   ├─ names         fingerprint of a chunk: BLAKE3, keyed
//!   ├─ digests       digest of an extent: BLAKE3, keyed
//!   ├─ salts         salt of a region: BLAKE3, keyed, of random bytes and of what is sealed
//!   └─ regions       key of a region: BLAKE3, keyed, of its salt
//! ```
//!
//! No pair of key and nonce is used twice for different bytes: every region has a key of its own, which encrypts once,
//! with the nonce zero. Two regions have one key only if they have one salt, of 256 bits. Salts are made of 256 random
//! bits *and* of what is sealed: should the random bits repeat, as in a virtual machine that was put back to a snapshot,
//! then either what is sealed is the same, and so is the outcome, or the salts differ all the same.

use std::fmt;

use holdfast_keys::{Secret, SecretRandom};
use holdfast_proto::KeyId;
use holdfast_proto::region::sealed::{SALT_BYTES, TableHash};
use zeroize::Zeroizing;

use crate::error::ClientError;

const ID: &str = "holdfast 2026 namespace key v1 key id";
const NAMES: &str = "holdfast 2026 namespace key v1 names of chunks";
const DIGESTS: &str = "holdfast 2026 namespace key v1 digests of extents";
const SALTS: &str = "holdfast 2026 namespace key v1 salts of regions";
const REGIONS: &str = "holdfast 2026 namespace key v1 keys of regions";

/// See the module. Wiped when it is dropped, and never shown.
pub struct NamespaceKey {
    id: KeyId,
    names: Secret,
    digests: Secret,
    salts: Secret,
    regions: Secret,
}

impl NamespaceKey {
    /// Of 256 random bits.
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

    /// Its name, which the server knows.
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// Hashes the bytes of a chunk to its fingerprint.
    pub(super) fn names(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(self.names.expose())
    }

    /// Hashes the bytes of an extent to its digest.
    pub(super) fn digests(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(self.digests.expose())
    }

    /// A salt for a region with these chunks and bytes.
    pub(super) fn salt(
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
    pub(super) fn region(&self, salt: &[u8; SALT_BYTES]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(*blake3::keyed_hash(self.regions.expose(), salt).as_bytes())
    }
}

impl fmt::Debug for NamespaceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceKey").field("id", &self.id).finish_non_exhaustive()
    }
}
