//! Containers and their damage.

use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, RunId};

/// State of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerState {
    Live,
    /// Unusable as a whole. A container with damaged regions only stays live.
    Damaged,
    /// Being deleted: readers must not rely on it any more.
    Condemned,
}

impl ContainerState {
    /// The state in one word, as in the catalog and metrics.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Damaged => "damaged",
            Self::Condemned => "condemned",
        }
    }
}

/// A sealed container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRecord {
    pub id: ContainerId,
    pub class: ContainerClass,
    pub namespace: NamespaceId,
    /// Bytes of its file, headers and directory included.
    pub stored_bytes: u64,
    /// Chunks (or recipe nodes) in it, uncompressed.
    pub plain_bytes: u64,
    pub chunk_count: u64,
    pub created_ms: i64,
    /// The run that wrote it; `None` when adopted from a run that was never recorded.
    pub run: Option<RunId>,
    pub state: ContainerState,
}

/// Damage found in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamageRecord {
    pub container: ContainerId,
    /// `None`: the container as a whole.
    pub region: Option<u16>,
    pub reason: String,
    /// Time at which it was first found.
    pub found_ms: i64,
    /// Set if every chunk of it was found to have another sound copy: nothing is lost by it. It counts as damaged all
    /// the same.
    pub healed: bool,
}

/// Changes of the damage known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamageChanges {
    /// Containers whose damage changed, by number. One without a record in `damage` is sound again.
    pub containers: Vec<ContainerId>,
    /// All damage of these containers, by container and region.
    pub damage: Vec<DamageRecord>,
    /// The number of the latest change, to ask with the next time.
    pub last: u64,
}
