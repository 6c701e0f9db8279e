//! (A12) What namespaces may take: asked when a backup starts, and before every byte it adds.
//!
//! The catalog keeps the limits and the sums of what is committed. Here is added what backups in progress have taken so
//! far and the catalog does not know yet, all under one lock a namespace: so two backups cannot pass a limit together
//! that neither passes alone.
//!
//! | counts | from | until |
//! |---|---|---|
//! | a container's bytes, to the byte | before they are written | the catalog has the container, or the session has ended |
//! | what a VM protects more than its newest restore point | its extents are accepted | the same |
//! | one restore point | the start | the same |
//!
//! What adds nothing is never refused: at the limit of stored bytes an unchanged backup goes on, for which every
//! session may add [`RECIPE_ALLOWANCE_BYTES`] of recipes.
//!
//! A crash loses what is kept here, and with it the sessions it was about.

mod account;
mod text;

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_catalog::{Catalog, NamespaceRecord};
use holdfast_types::ids::{ContainerClass, NamespaceId, SessionId};
use parking_lot::Mutex;

use crate::error::EngineError;
use crate::fair::Tenant;
use account::Account;

/// Recipe bytes that a session may add whatever is used already: the nodes of some hundred changed extents whose
/// chunks the repository has.
const RECIPE_ALLOWANCE_BYTES: u64 = 1 << 20;

/// The accounts of all namespaces.
#[derive(Debug)]
pub(crate) struct Quotas {
    catalog: Arc<Catalog>,
    accounts: Mutex<HashMap<NamespaceId, Arc<Mutex<Account>>>>,
}

/// A session's part of its namespace's account. Leaves it when dropped.
#[derive(Debug)]
pub(crate) struct SessionCharge {
    quotas: Arc<Quotas>,
    account: Arc<Mutex<Account>>,
    namespace: NamespaceRecord,
    session: SessionId,
    tenant: Tenant,
}

/// A session whose end is being written to the catalog.
#[derive(Debug)]
pub(crate) struct Ending<'a>(&'a SessionCharge);

/// Who wants to start what.
#[derive(Debug, Clone)]
pub(crate) struct Applicant<'a> {
    pub(crate) namespace: &'a NamespaceRecord,
    pub(crate) tenant: Tenant,
    pub(crate) session: SessionId,
    pub(crate) vm: &'a str,
    pub(crate) job: &'a str,
}

impl Quotas {
    /// Of the namespaces of `catalog`.
    pub(crate) fn new(catalog: Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self { catalog, accounts: Mutex::default() })
    }

    /// Opens a session's account.
    ///
    /// # Errors
    /// [`EngineError::Quota`] when nothing it could bring would fit; the catalog's errors.
    pub(crate) fn admit(self: &Arc<Self>, applicant: &Applicant<'_>) -> Result<SessionCharge, EngineError> {
        let Applicant { namespace, tenant, session, .. } = applicant;
        let account = Arc::clone(self.accounts.lock().entry(namespace.id).or_default());
        let mut state = account.lock();
        let (vm, job) = (applicant.vm, applicant.job);
        let found = self.catalog.start_account(namespace.id, vm, job)?;
        state.refresh(found.quota, found.usage);
        state.check_start(&namespace.name, &found, (vm, job))?;
        state.open(*session, found.vm_protected_bytes.unwrap_or(0));
        drop(state);
        Ok(SessionCharge {
            quotas: Arc::clone(self),
            account,
            namespace: (*namespace).clone(),
            session: *session,
            tenant: *tenant,
        })
    }

    /// Looks again before something is refused: a limit may have been raised, and space freed.
    fn refresh(&self, namespace: NamespaceId, state: &mut Account) -> Result<(), EngineError> {
        let found = self.catalog.quotas(Some(&[namespace]))?;
        if let [found] = found.as_slice() {
            state.refresh(found.quota, found.usage);
        }
        Ok(())
    }
}

impl SessionCharge {
    /// On whose behalf the session works.
    pub(crate) const fn tenant(&self) -> Tenant {
        self.tenant
    }

    /// (A12) Counts bytes that are about to be added to a container.
    ///
    /// # Errors
    /// [`EngineError::Quota`]: they must not be written. The catalog's errors.
    pub(crate) fn add_stored(&self, class: ContainerClass, bytes: u64) -> Result<(), EngineError> {
        let mut state = self.account.lock();
        if !state.has_room_for(self.session, class, bytes) {
            self.quotas.refresh(self.namespace.id, &mut state)?;
            if !state.has_room_for(self.session, class, bytes) {
                return Err(state.stored_error(&self.namespace.name));
            }
        }
        state.add_stored(self.session, class, bytes);
        Ok(())
    }

    /// Counts bytes of data that the VM's new restore point is to have.
    ///
    /// # Errors
    /// [`EngineError::Quota`]: the restore point must not be made. The catalog's errors.
    pub(crate) fn add_protected(&self, bytes: u64) -> Result<(), EngineError> {
        if bytes == 0 {
            return Ok(());
        }
        let mut state = self.account.lock();
        if state.add_protected(self.session, bytes) {
            return Ok(());
        }
        self.quotas.refresh(self.namespace.id, &mut state)?;
        if state.is_protected_within(0) { Ok(()) } else { Err(state.protected_error(&self.namespace.name)) }
    }

    /// Counts the session among those of today.
    ///
    /// # Errors
    /// [`EngineError::Quota`] when there were as many as there may be; the catalog's errors.
    pub(crate) fn count_today(&self) -> Result<(), EngineError> {
        if self.quotas.catalog.count_session(self.namespace.id)? {
            return Ok(());
        }
        let mut state = self.account.lock();
        self.quotas.refresh(self.namespace.id, &mut state)?;
        Err(state.sessions_error(&self.namespace.name))
    }

    /// To be held while the session's end is written to the catalog: until then no one may look there for sums, in
    /// which the session would be counted twice.
    pub(crate) fn ending(&self) -> Ending<'_> {
        self.account.lock().begin_end();
        Ending(self)
    }
}

impl Ending<'_> {
    /// The catalog has the session's end: containers of `stored_bytes`, and a restore point unless it failed.
    pub(crate) fn recorded(self, stored_bytes: u64, restore_point: bool) {
        self.0.account.lock().recorded(self.0.session, stored_bytes, restore_point);
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.account.lock().end_ended();
    }
}

impl Drop for SessionCharge {
    fn drop(&mut self) {
        self.account.lock().close(self.session);
    }
}

#[cfg(test)]
mod tests;
