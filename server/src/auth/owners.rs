//! Owners of VMs: what an operator changes, the same for the command line and the REST API (H5).

use holdfast_engine::catalog::{Catalog, NamespaceRecord};
use holdfast_proto::ErrorCode;
use holdfast_proto::limits::check_name;

use crate::error::ServiceError;

/// A VM's owner, before and after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerChange {
    /// `None`: it had none.
    pub(crate) before: Option<String>,
    pub(crate) after: String,
}

/// Gives a VM to `owner` on behalf of `who`. Digests recorded for the owner before are offered to no one from now
/// on, so the next backup reads the whole VM.
///
/// # Errors
/// `Invalid`: not a name. `NotFound`: no such VM. The catalog's errors.
pub(crate) fn change(
    catalog: &Catalog,
    who: &str,
    namespace: &NamespaceRecord,
    vm: &str,
    owner: &str,
) -> Result<OwnerChange, ServiceError> {
    check_name("VM", vm).map_err(ServiceError::invalid)?;
    check_name("owner", owner).map_err(ServiceError::invalid)?;
    let found = catalog.vm_owner(namespace.id, vm)?.ok_or_else(|| {
        let name = &namespace.name;
        ServiceError::new(ErrorCode::NotFound, format!("there is no VM {vm:?} in namespace {name:?}"))
    })?;
    let before = catalog.set_vm_owner(found.id, owner, who)?;
    Ok(OwnerChange { before, after: owner.to_owned() })
}
