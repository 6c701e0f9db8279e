//! [`Trust`] on SQLite.

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{NamespaceId, VmId};

use super::super::{SqliteCatalog, trust};
use crate::{FalseDigest, Result, Trust, VmOwner, validate};

impl Trust for SqliteCatalog {
    fn vm_owner(&self, namespace: NamespaceId, vm: &str) -> Result<Option<VmOwner>> {
        self.look_up(|c| trust::vm_owner(c, namespace, vm))
    }

    fn set_vm_owner(&self, vm: VmId, owner: &str, who: &str) -> Result<Option<String>> {
        validate::name("owner", owner)?;
        self.write(|tx| trust::set_vm_owner(tx, self.clock.as_ref(), vm, owner, who))
    }

    fn add_false_digests(&self, found: &[FalseDigest]) -> Result<()> {
        self.write(|tx| trust::add_false_digests(tx, found))
    }

    fn are_false(&self, namespace: NamespaceId, claimed: &[(Fingerprint, Fingerprint)]) -> Result<Vec<bool>> {
        self.look_up(|c| trust::are_false(c, namespace, claimed))
    }
}
