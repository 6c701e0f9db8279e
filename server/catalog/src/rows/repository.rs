//! The repository itself and its namespaces.

use holdfast_proto::KeyId;
use holdfast_proto::v1::ChunkerParams;
use holdfast_types::ids::{NamespaceId, RepositoryId};

/// The repository itself.
#[derive(Debug, Clone, PartialEq)]
pub struct RepositoryRecord {
    pub id: RepositoryId,
    pub created_ms: i64,
    /// Format of the repository, as [`REPOSITORY_FORMAT`](crate::REPOSITORY_FORMAT).
    pub format_version: u32,
    /// Parameters of the chunker, which never change.
    pub chunker: ChunkerParams,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceRecord {
    pub id: NamespaceId,
    pub name: String,
    pub created_ms: i64,
    /// Id of the key that agents name and encrypt its content with; `None`: they do not.
    pub key_id: Option<KeyId>,
}

impl NamespaceRecord {
    /// The namespace of containers of which no point has told the name yet.
    pub fn unnamed(id: NamespaceId) -> Self {
        let created_ms = i64::try_from(id.0.timestamp_ms()).unwrap_or(0);
        Self { id, name: format!("recovered-{id}"), created_ms, key_id: None }
    }

    /// Returns whether its name was [made up](Self::unnamed).
    pub fn is_unnamed(&self) -> bool {
        self.name == Self::unnamed(self.id).name
    }
}
