//! Owners of VMs: what an operator changes, the same for the command line and the REST API (H5), and the record of
//! whom a VM was refused to.

use holdfast_engine::catalog::{AuditEntry, Catalog, NamespaceRecord};
use holdfast_proto::ErrorCode;
use holdfast_proto::limits::check_name;

use super::Caller;
use crate::app::App;
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
    catalog: &dyn Catalog,
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

/// Notes in the audit log that a VM was refused to a caller: counted in one entry for the same token, VM and act, so
/// that a caller who tries for ever does not fill the catalog.
pub(crate) fn note_refusal(app: &App, caller: &Caller, act: &str, namespace: &NamespaceRecord, vm: &str) {
    let token = &caller.token;
    let owner = match app.catalog().vm_owner(namespace.id, vm) {
        Ok(found) => {
            found.and_then(|found| found.owner).map_or("no owner".to_owned(), |o| format!("owner {o:?}"))
        }
        Err(error) => format!("an owner that cannot be looked up ({error})"),
    };
    let patterns = if token.vm_patterns.is_empty() { "*".to_owned() } else { token.vm_patterns.join(", ") };
    let entry = AuditEntry {
        who: token.name.clone(),
        action: act.to_owned(),
        object: vm.to_owned(),
        detail: format!(
            "VM {vm:?} in namespace {:?} has {owner}; token {:?} ({}) is of owner {:?}, for the VMs {patterns}",
            namespace.name, token.name, token.id, token.owner
        ),
    };
    let text = entry.detail.clone();
    if app.auth.audit_log().note(entry, format!("{} {vm}", namespace.id)) {
        tracing::warn!(vm, token = token.name, "{act}: {text}");
    }
}
