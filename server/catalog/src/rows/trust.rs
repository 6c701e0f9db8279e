//! Claims of clients, and owners of VMs.

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{NamespaceId, VmId};

/// A VM and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmOwner {
    pub id: VmId,
    /// `None`: no backup of it was ever committed.
    pub owner: Option<String>,
}

/// An extent digest that is not the digest of what an extent node is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FalseDigest {
    pub namespace: NamespaceId,
    /// Name of the extent node.
    pub node: Fingerprint,
    /// The digest that was claimed.
    pub digest: Fingerprint,
    pub found_ms: i64,
}
