//! Whose word counts: owners of VMs, and digests that proved false.

use std::fmt;

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{NamespaceId, VmId};

use crate::Result;
use crate::rows::{FalseDigest, VmOwner};

/// Asked when a backup starts, and by what reads backups.
///
/// Across processes: each function is one transaction. A VM gets its owner in the transaction that commits its
/// first backup ([`commit_backup`](crate::Backups::commit_backup)); of two owners that commit at once, one wins.
pub trait Trust: Send + Sync + fmt::Debug {
    /// Whose the VM of this name is; `None` when there is no such VM.
    fn vm_owner(&self, namespace: NamespaceId, vm: &str) -> Result<Option<VmOwner>>;
    /// Gives the VM to another owner, with an entry in the audit log that names both, on behalf of `who`. Returns
    /// the owner before. `NotFound`: no such VM. `Invalid`: not a name.
    fn set_vm_owner(&self, vm: VmId, owner: &str, who: &str) -> Result<Option<String>>;

    /// Keeps digests found false. What is known already is left as it is.
    fn add_false_digests(&self, found: &[FalseDigest]) -> Result<()>;
    /// Of each pair of an extent node and a digest claimed of it, whether that was found false.
    fn are_false(&self, namespace: NamespaceId, claims: &[(Fingerprint, Fingerprint)]) -> Result<Vec<bool>>;
}
