//! Data keys, which seal the blobs of one owner, and the repository key, which wraps them and is itself kept in slots.

use std::fmt;

use holdfast_types::ids::RepositoryId;

use crate::blob::{BlobKey, BlobSealer, SealError};
use crate::crypto::{self, CryptoError, SALT_BYTES};
use crate::id::{DataKeyId, RepositoryKeyId};
use crate::secret::{RandomError, Secret, SecretRandom};

const DATA_KEY_ID_LABEL: &[u8] = b"holdfast data key id v1\0";

/// A data key: 256 random bits.
#[derive(Clone)]
pub struct DataKey {
    id: DataKeyId,
    secret: Secret,
}

impl DataKey {
    /// Generates a new key.
    ///
    /// # Errors
    /// When no randomness is available.
    pub fn generate(random: &dyn SecretRandom) -> Result<Self, RandomError> {
        Ok(Self::new(Secret::random(random)?))
    }

    /// The key with these bits.
    pub fn new(secret: Secret) -> Self {
        let id = DataKeyId(crypto::identify(&secret, DATA_KEY_ID_LABEL, &[]));
        Self { id, secret }
    }

    pub const fn id(&self) -> DataKeyId {
        self.id
    }

    pub(crate) const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Creates the sealer for one writing of the blob `name`: with a fresh salt, so with a key that no other writing
    /// has.
    ///
    /// # Errors
    /// [`SealError::Random`], [`SealError::Crypto`].
    pub fn blob_sealer(
        &self,
        repository: RepositoryId,
        name: &str,
        random: &dyn SecretRandom,
    ) -> Result<BlobSealer, SealError> {
        let mut salt = [0; SALT_BYTES];
        random.fill(&mut salt)?;
        Ok(BlobSealer::new(salt, self.blob_key(&salt, repository, name)?))
    }

    /// Derives the key that opens the blob `name`, whose header has `salt` and this key's id. A wrong blob is detected
    /// when its pages are opened.
    ///
    /// # Errors
    /// When AWS-LC has no memory.
    pub fn blob_key(
        &self,
        salt: &[u8; SALT_BYTES],
        repository: RepositoryId,
        name: &str,
    ) -> Result<BlobKey, CryptoError> {
        BlobKey::derive(&self.secret, salt, repository, name)
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataKey({})", self.id)
    }
}

const REPOSITORY_KEY_ID_LABEL: &[u8] = b"holdfast repository key id v1\0";

/// A repository key: 256 random bits.
#[derive(Debug, Clone)]
pub(crate) struct RepositoryKey {
    repository: RepositoryId,
    id: RepositoryKeyId,
    secret: Secret,
}

impl RepositoryKey {
    /// Generates a new key.
    pub(crate) fn generate(repository: RepositoryId, random: &dyn SecretRandom) -> Result<Self, RandomError> {
        Ok(Self::new(repository, Secret::random(random)?))
    }

    /// The key with these bits.
    pub(crate) fn new(repository: RepositoryId, secret: Secret) -> Self {
        let id = RepositoryKeyId(crypto::identify(&secret, REPOSITORY_KEY_ID_LABEL, &repository.to_bytes()));
        Self { repository, id, secret }
    }

    pub(crate) const fn id(&self) -> RepositoryKeyId {
        self.id
    }

    pub(crate) const fn repository(&self) -> RepositoryId {
        self.repository
    }

    pub(crate) const fn secret(&self) -> &Secret {
        &self.secret
    }
}
