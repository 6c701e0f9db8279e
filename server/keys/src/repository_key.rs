//! The repository key: wraps data keys, and is itself kept in slots.

use holdfast_types::ids::RepositoryId;

use crate::crypto;
use crate::id::RepositoryKeyId;
use crate::random::{RandomError, SecretRandom};
use crate::secret::Secret;

const ID_LABEL: &[u8] = b"holdfast repository key id v1\0";

/// 256 random bits.
#[derive(Debug, Clone)]
pub(crate) struct RepositoryKey {
    repository: RepositoryId,
    id: RepositoryKeyId,
    secret: Secret,
}

impl RepositoryKey {
    /// A new key.
    pub(crate) fn generate(repository: RepositoryId, random: &dyn SecretRandom) -> Result<Self, RandomError> {
        Ok(Self::new(repository, Secret::random(random)?))
    }

    /// The key with these bits.
    pub(crate) fn new(repository: RepositoryId, secret: Secret) -> Self {
        let id = RepositoryKeyId(crypto::identify(&secret, ID_LABEL, &repository.to_bytes()));
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
