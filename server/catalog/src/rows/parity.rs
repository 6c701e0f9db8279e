//! Groups of containers that parity protects.

use holdfast_types::ids::ContainerId;

/// A group of containers with its parity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParityGroup {
    /// The number of its blob.
    pub number: ContainerId,
    pub members: Vec<ContainerId>,
    pub stored_bytes: u64,
    pub created_ms: i64,
}

/// Totals of parity groups and of the containers in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParityTotals {
    pub groups: u64,
    /// Bytes of the parity itself.
    pub stored_bytes: u64,
    /// Containers in groups.
    pub containers: u64,
    /// Groups whose parity was found damaged or missing, and not made anew yet.
    pub damaged: u64,
}
