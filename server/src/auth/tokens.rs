//! Creating and revoking tokens, with their entries in the audit log: the same for the command line and the REST
//! API (H5).

use std::time::Duration;

use holdfast_engine::catalog::token::{self, Role, TokenRecord, TokenText};
use holdfast_engine::catalog::{
    AuditEntry, Catalog, NAMESPACES_PER_FILTER_MAX, NamespaceRecord, TokenSpec, VM_PATTERNS_MAX,
};
use holdfast_engine::clock::Clock;
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;
use holdfast_proto::limits::check_name;

use crate::error::ServiceError;

/// A token to be created.
#[derive(Debug)]
pub(crate) struct NewToken<'a> {
    pub(crate) name: &'a str,
    pub(crate) role: Role,
    /// Names; created when they do not exist. Empty: all.
    pub(crate) namespaces: &'a [String],
    /// Owner of the VMs it writes. `None`: an owner called as the token.
    pub(crate) owner: Option<&'a str>,
    /// VM names it is for; empty: all.
    pub(crate) vm_patterns: &'a [String],
    /// `None`: it never expires.
    pub(crate) expires_in: Option<Duration>,
}

impl NewToken<'_> {
    fn owner(&self) -> &str {
        self.owner.unwrap_or(self.name)
    }

    /// Checks the request. Returns when the token would expire, as Unix milliseconds.
    ///
    /// # Errors
    /// The problem with the request, for a person.
    pub(crate) fn check(&self, now_ms: i64) -> Result<Option<i64>, String> {
        check_name("token", self.name)?;
        if self.role == Role::Admin && !self.namespaces.is_empty() {
            return Err(
                "an admin token is always valid for every namespace; leave the namespaces out".to_owned()
            );
        }
        if self.namespaces.len() > NAMESPACES_PER_FILTER_MAX {
            return Err(format!(
                "a token can name at most {NAMESPACES_PER_FILTER_MAX} namespaces; without any it is valid for all"
            ));
        }
        for name in self.namespaces {
            check_name("namespace", name)?;
        }
        check_name("owner", self.owner())?;
        if self.role == Role::Admin && !self.vm_patterns.is_empty() {
            return Err("an admin token is always valid for every VM; leave the VM names out".to_owned());
        }
        if self.vm_patterns.len() > VM_PATTERNS_MAX {
            return Err(format!(
                "a token can have at most {VM_PATTERNS_MAX} VM name patterns; without any it is valid for all"
            ));
        }
        for pattern in self.vm_patterns {
            check_name("VM name pattern", pattern)?;
        }
        let Some(after) = self.expires_in else { return Ok(None) };
        let after_ms = i64::try_from(after.as_millis()).ok();
        let end_ms = after_ms.and_then(|after_ms| now_ms.checked_add(after_ms));
        let fits = |end_ms: &i64| jiff::Timestamp::from_millisecond(*end_ms).is_ok();
        end_ms.filter(fits).map(Some).ok_or_else(|| "the token would expire too far in the future".to_owned())
    }

    /// The token to create, as the catalog takes it. Creates namespaces that do not exist.
    ///
    /// # Errors
    /// `Invalid`; the catalog's errors.
    pub(super) fn spec(
        &self,
        catalog: &Catalog,
        clock: &dyn Clock,
        id: TokenId,
    ) -> Result<TokenSpec, ServiceError> {
        let expires_ms = self.check(clock.now_ms()).map_err(ServiceError::invalid)?;
        let mut namespaces = Vec::with_capacity(self.namespaces.len());
        for name in self.namespaces {
            namespaces.push(catalog.ensure_namespace(name)?.id);
        }
        let (name, owner) = (self.name.to_owned(), self.owner().to_owned());
        let vm_patterns = self.vm_patterns.to_vec();
        Ok(TokenSpec { id, name, role: self.role, namespaces, owner, vm_patterns, expires_ms })
    }

    /// In words, for the audit log.
    pub(super) fn detail(&self) -> String {
        format!(
            "{:?}, role {}, {}, owner {:?}, {}",
            self.name,
            self.role,
            scope(self.namespaces),
            self.owner(),
            vms(self.vm_patterns)
        )
    }
}

/// Creates a token on behalf of `who`.
///
/// # Errors
/// `Invalid`; the catalog's errors.
pub(crate) fn create(
    catalog: &Catalog,
    clock: &dyn Clock,
    who: &str,
    new: &NewToken<'_>,
) -> Result<(TokenText, TokenRecord), ServiceError> {
    let (text, id, hash) = token::new_token(clock)?;
    let record = catalog.create_token(&new.spec(catalog, clock, id)?, &hash)?;
    audit(catalog, who, "token.create", id, new.detail())?;
    Ok((text, record))
}

/// Revokes `token` on behalf of `who`.
///
/// # Errors
/// The catalog's errors.
pub(crate) fn revoke(catalog: &Catalog, who: &str, token: &TokenRecord) -> Result<(), ServiceError> {
    catalog.revoke_token(token.id)?;
    audit(catalog, who, "token.revoke", token.id, format!("{:?}", token.name))
}

/// Lets a token that a recovery disabled be used again, on behalf of `who`.
///
/// # Errors
/// `Invalid`: it was revoked; the catalog's errors.
pub(crate) fn enable(catalog: &Catalog, who: &str, token: &TokenRecord) -> Result<(), ServiceError> {
    catalog.enable_token(token.id)?;
    audit(catalog, who, "token.enable", token.id, format!("{:?}", token.name))
}

/// The token of that id.
///
/// # Errors
/// `NotFound`; the catalog's errors.
pub(crate) fn find(catalog: &Catalog, id: TokenId) -> Result<TokenRecord, ServiceError> {
    let found = catalog.token(id)?.map(|(token, _)| token);
    found.ok_or_else(|| ServiceError::new(ErrorCode::NotFound, format!("there is no token {id}")))
}

/// Returns true if `token` is the only usable admin token.
pub(crate) fn is_last_admin(
    catalog: &Catalog,
    now_ms: i64,
    token: &TokenRecord,
) -> Result<bool, ServiceError> {
    let usable = |token: &TokenRecord| token.role == Role::Admin && token.is_usable(now_ms);
    Ok(usable(token) && catalog.list_tokens()?.iter().filter(|token| usable(token)).count() == 1)
}

/// A scope in words.
pub(crate) fn scope(namespaces: &[String]) -> String {
    if namespaces.is_empty() { "every namespace".to_owned() } else { format!("namespaces {namespaces:?}") }
}

/// VM name patterns in words.
pub(crate) fn vms(patterns: &[String]) -> String {
    if patterns.is_empty() { "every VM".to_owned() } else { format!("VMs {patterns:?}") }
}

/// The names of a token's namespaces, sorted.
///
/// # Errors
/// The catalog's errors.
pub(crate) fn namespace_names(catalog: &Catalog, token: &TokenRecord) -> Result<Vec<String>, ServiceError> {
    let mut names = Vec::with_capacity(token.namespaces.len());
    for id in &token.namespaces {
        // Left out, the token would look as if it had a smaller scope, or none: valid everywhere.
        let namespace = catalog.namespace(*id)?.ok_or_else(|| {
            ServiceError::defect(format!("token {} is for namespace {id}, which does not exist", token.id))
        })?;
        names.push(namespace.name);
    }
    names.sort_unstable();
    Ok(names)
}

pub(super) fn audit(
    catalog: &Catalog,
    who: &str,
    action: &str,
    token: TokenId,
    detail: String,
) -> Result<(), ServiceError> {
    let (who, action) = (who.to_owned(), action.to_owned());
    Ok(catalog.audit(&AuditEntry { who, action, object: token.to_string(), detail })?)
}

/// A VM's owner, before and after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerChange {
    /// `None`: it had none.
    pub(crate) before: Option<String>,
    pub(crate) after: String,
}

/// Gives a VM to `owner` on behalf of `who`, the same for the command line and the REST API (H5). Digests recorded for the
/// owner before are offered to no one from now on, so the next backup reads the whole VM.
///
/// # Errors
/// `Invalid`: not a name. `NotFound`: no such VM. The catalog's errors.
pub(crate) fn change_owner(
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
