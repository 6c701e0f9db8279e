//! The record of whom a VM was refused to.

use holdfast_engine::catalog::{AuditEntry, NamespaceRecord};

use crate::app::App;
use crate::auth::Caller;

/// Notes in the audit log that a VM was refused to a caller: counted in one entry for the same token, VM and act, so
/// that a caller who tries for ever does not fill the catalog.
pub(crate) fn note_refusal(app: &App, caller: &Caller, act: &str, namespace: &NamespaceRecord, vm: &str) {
    caller.refusal_noted();
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
