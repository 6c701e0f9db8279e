//! A caller, and what they may do in which namespaces.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_engine::catalog::token::{Action, Role, TokenRecord};
use holdfast_engine::catalog::{BackupRecord, Catalog, DEFAULT_NAMESPACE, NamespaceRecord};
use holdfast_engine::ids::NamespaceId;
use holdfast_proto::ErrorCode;

use crate::error::ServiceError;

/// A caller with a valid token.
#[derive(Debug, Clone)]
pub struct Caller {
    pub token: TokenRecord,
    pub peer: Option<SocketAddr>,
    /// Set once a refusal of this call is in the audit log.
    refusal_noted: Arc<AtomicBool>,
}

impl Caller {
    pub(super) fn new(token: TokenRecord, peer: Option<SocketAddr>) -> Self {
        Self { token, peer, refusal_noted: Arc::default() }
    }

    /// Notes that a refusal of this call is in the audit log. Returns true if it was already.
    pub(crate) fn refusal_noted(&self) -> bool {
        self.refusal_noted.swap(true, Ordering::Relaxed)
    }

    /// Checks the role alone.
    ///
    /// # Errors
    /// `Forbidden` when it may do this nowhere.
    pub fn check_role(&self, action: Action) -> Result<(), ServiceError> {
        if self.token.role.may(action) {
            return Ok(());
        }
        let (name, role) = (&self.token.name, self.token.role);
        let may: Vec<_> =
            Role::ALL.iter().filter(|role| role.may(action)).map(|role| role.as_str()).collect();
        Err(ServiceError::new(
            ErrorCode::Forbidden,
            format!(
                "token {name:?} has the role {role}, which may not do this; use a token with the role {}",
                may.join(" or ")
            ),
        ))
    }

    /// The namespace called `name`, in which the caller may do `action`. An empty name means the token's
    /// only namespace, or the default one when the token is for all. Blocks.
    ///
    /// # Errors
    /// `Forbidden` by role or scope; `NotFound` when the token is for all and there is no such namespace.
    pub fn namespace(
        &self,
        catalog: &Catalog,
        name: &str,
        action: Action,
    ) -> Result<NamespaceRecord, ServiceError> {
        self.check_role(action)?;
        if name.is_empty() {
            return self.implied_namespace(catalog);
        }
        holdfast_proto::limits::check_name("namespace", name).map_err(ServiceError::invalid)?;
        match catalog.namespace_by_name(name)? {
            Some(namespace) if self.token.covers(namespace.id) => Ok(namespace),
            None if self.token.namespaces.is_empty() => Err(ServiceError::new(
                ErrorCode::NotFound,
                format!(
                    "there is no namespace {name:?}; create it by creating a token for it: \
                     'holdfast-server token create --namespace'"
                ),
            )),
            _ => Err(ServiceError::new(
                ErrorCode::Forbidden,
                format!(
                    "token {:?} is not valid for namespace {name:?}; use a token that is",
                    self.token.name
                ),
            )),
        }
    }

    fn implied_namespace(&self, catalog: &Catalog) -> Result<NamespaceRecord, ServiceError> {
        let found = match self.token.namespaces.as_slice() {
            [] => catalog.namespace_by_name(DEFAULT_NAMESPACE)?,
            [only] => catalog.namespace(*only)?,
            _ => {
                let name = &self.token.name;
                return Err(ServiceError::invalid(format!(
                    "token {name:?} is valid for several namespaces; name the one to use"
                )));
            }
        };
        found.ok_or_else(|| ServiceError::new(ErrorCode::NotFound, "the token's namespace does not exist"))
    }

    /// Returns true if the caller may do `action` to something in `namespace` that they named by its identifier.
    pub fn may(&self, action: Action, namespace: NamespaceId) -> bool {
        self.token.may(action, namespace)
    }

    /// Checks the token's VM name patterns.
    ///
    /// # Errors
    /// `Forbidden` when none matches.
    pub fn check_vm(&self, vm: &str) -> Result<(), ServiceError> {
        if self.token.covers_vm(vm) {
            return Ok(());
        }
        let TokenRecord { name, vm_patterns, .. } = &self.token;
        Err(ServiceError::new(
            ErrorCode::Forbidden,
            format!(
                "token {name:?} is for the VMs {}, not for VM {vm:?}; use a token that is",
                vm_patterns.join(", ")
            ),
        ))
    }

    /// Checks that the caller may have the content of a restore point, within their namespaces: VMs that the patterns
    /// match and, for a token that backs up, VMs of its owner. Blocks.
    ///
    /// # Errors
    /// `Forbidden`, saying which.
    pub fn check_contents(&self, catalog: &Catalog, backup: &BackupRecord) -> Result<(), ServiceError> {
        self.check_vm(&backup.vm)?;
        if self.token.role.may(Action::Restore) {
            return Ok(());
        }
        let owner = catalog.vm_owner(backup.namespace, &backup.vm)?.and_then(|vm| vm.owner);
        if owner.as_ref() == Some(&self.token.owner) {
            return Ok(());
        }
        let (name, vm) = (&self.token.name, &backup.vm);
        Err(ServiceError::new(
            ErrorCode::Forbidden,
            format!(
                "VM {vm:?} belongs to another owner than token {name:?}, which reads back only what its owner backed \
                 up; use a token with the role restore, or have an operator change the VM's owner: \
                 'holdfast-server vm owner'"
            ),
        ))
    }

    /// The namespaces to filter by: the one named, or all in the token's scope when the name is empty. Blocks.
    ///
    /// # Errors
    /// As [`Caller::namespace`].
    pub fn namespaces(
        &self,
        catalog: &Catalog,
        name: &str,
        action: Action,
    ) -> Result<Option<Vec<NamespaceId>>, ServiceError> {
        self.check_role(action)?;
        if name.is_empty() {
            return Ok(self.scope());
        }
        Ok(Some(vec![self.namespace(catalog, name, action)?.id]))
    }

    /// The token's scope as the catalog filters by it; `None` means all.
    pub fn scope(&self) -> Option<Vec<NamespaceId>> {
        (!self.token.namespaces.is_empty()).then(|| self.token.namespaces.clone())
    }
}

/// The requirement of a call. Each door has a table of its calls, and one check reads both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing.
    Open,
    /// A valid token.
    Any,
    /// A valid token whose role may do this; its scope narrows what is found.
    May(Action),
    /// The same for what concerns the repository as a whole, and therefore only for tokens that are valid for every
    /// namespace.
    Whole(Action),
    /// The same for what concerns VMs of every name, and therefore only for tokens without patterns.
    EveryVm(Action),
}

impl Access {
    /// Checks role, scope and patterns, as far as they are known before the call is read (H1).
    ///
    /// # Errors
    /// `Forbidden`, saying which.
    pub(crate) fn check(self, caller: &Caller) -> Result<(), ServiceError> {
        let (action, every_vm) = match self {
            Self::Open | Self::Any => return Ok(()),
            Self::May(action) => return caller.check_role(action),
            Self::Whole(action) => (action, false),
            Self::EveryVm(action) => (action, true),
        };
        caller.check_role(action)?;
        let name = &caller.token.name;
        if caller.scope().is_some() {
            return Err(ServiceError::new(
                ErrorCode::Forbidden,
                format!(
                    "this concerns the whole repository, but token {name:?} is valid for some namespaces only; use a \
                     token that is valid for all"
                ),
            ));
        }
        let patterns = &caller.token.vm_patterns;
        if every_vm && !patterns.is_empty() {
            return Err(ServiceError::new(
                ErrorCode::Forbidden,
                format!(
                    "this concerns every VM, but token {name:?} is for the VMs {} only; use a token that is for all",
                    patterns.join(", ")
                ),
            ));
        }
        Ok(())
    }
}
