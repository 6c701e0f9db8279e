//! Trust in clients: owners of VMs, and digests that proved false.

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{NamespaceId, VmId};

use crate::sqlite::{Catalog, trust};
use crate::{FalseDigest, Result, VmOwner, validate};

/// Used when a backup starts, and by what reads backups.
///
/// Across processes: each function is one transaction. A VM gets its owner in the transaction that commits its
/// first backup ([`commit_backup`](crate::Catalog::commit_backup)); of two owners that commit at once, one wins.
impl Catalog {
    /// Returns the owner of the VM of this name; `None` when there is no such VM.
    pub fn vm_owner(&self, namespace: NamespaceId, vm: &str) -> Result<Option<VmOwner>> {
        self.look_up(|c| trust::vm_owner(c, namespace, vm))
    }

    /// Gives the VM to another owner, with an entry in the audit log that names both, on behalf of `who`. Returns
    /// the owner before. `NotFound`: no such VM. `Invalid`: not a name.
    pub fn set_vm_owner(&self, vm: VmId, owner: &str, who: &str) -> Result<Option<String>> {
        validate::name("owner", owner)?;
        self.write(|tx| trust::set_vm_owner(tx, self.clock.as_ref(), vm, owner, who))
    }

    /// Keeps digests found false. What is known already is left as it is.
    pub fn add_false_digests(&self, found: &[FalseDigest]) -> Result<()> {
        self.write(|tx| trust::add_false_digests(tx, found))
    }

    /// Returns, for each pair of an extent node and a digest claimed of it, true if that was found false.
    pub fn are_false(
        &self,
        namespace: NamespaceId,
        claimed: &[(Fingerprint, Fingerprint)],
    ) -> Result<Vec<bool>> {
        self.look_up(|c| trust::are_false(c, namespace, claimed))
    }
}
