//! (A12) Quotas of namespaces: asked when a backup starts, and before every byte it adds.
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
//! A backup that adds nothing is never refused: at the limit of stored bytes an unchanged one goes on, for which every
//! session may add [`RECIPE_ALLOWANCE_BYTES`] of recipes.
//!
//! A crash loses what is kept here, and with it the sessions it was about.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_catalog::{
    Catalog, JOBS_PER_NAMESPACE_MAX, NamespaceRecord, Quota, StartAccount, Usage, VMS_PER_NAMESPACE_MAX,
};
use holdfast_types::ids::{ContainerClass, NamespaceId, SessionId};
use parking_lot::Mutex;

use crate::error::EngineError;
use crate::fair::Tenant;

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

/// A session that asks for admission under the quotas of its namespace.
#[derive(Debug, Clone)]
pub(crate) struct Applicant<'a> {
    pub(crate) namespace: &'a NamespaceRecord,
    pub(crate) tenant: Tenant,
    pub(crate) session: SessionId,
    pub(crate) vm: &'a str,
    pub(crate) job: &'a str,
}

impl Quotas {
    /// Quotas of the namespaces of `catalog`.
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

    /// Guard to be held while the session's end is written to the catalog: until then no one may look there for sums,
    /// in which the session would be counted twice.
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

fn refusal(namespace: &str, quota: &str, used: &str, limit: &str, advice: &str) -> EngineError {
    EngineError::Quota(format!(
        "namespace {namespace:?} has reached its quota of {quota}: {used}, the limit is {limit}; {advice}"
    ))
}

/// A number of bytes with its size in words: `1.5 TB (1500000000000 bytes)`.
fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match UNITS.iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => {
            let tenths = u128::from(count) * 10 / u128::from(*unit);
            format!("{}.{} {name} ({count} bytes)", tenths / 10, tenths % 10)
        }
        None => format!("{count} bytes"),
    }
}

/// One namespace's account: what the catalog knows, and what sessions have added since. Pure.
#[derive(Debug, Default)]
struct Account {
    quota: Quota,
    /// As the catalog has it, sessions that ended since included.
    usage: Usage,
    sessions: HashMap<SessionId, Charged>,
    /// Sums over `sessions`.
    stored_bytes: u64,
    growth_bytes: u64,
    /// Sessions whose end is being written: the catalog may have it or not.
    ending: usize,
}

/// Bytes that one session has added so far.
#[derive(Debug, Default, Clone, Copy)]
struct Charged {
    data_bytes: u64,
    recipe_bytes: u64,
    /// Bytes that its VM's newest restore point protects.
    before_bytes: u64,
    protected_bytes: u64,
}

impl Charged {
    const fn stored_bytes(&self) -> u64 {
        self.data_bytes.saturating_add(self.recipe_bytes)
    }

    const fn growth_bytes(&self) -> u64 {
        self.protected_bytes.saturating_sub(self.before_bytes)
    }
}

fn is_over(limit: Option<u64>, value: u64) -> bool {
    limit.is_some_and(|limit| value > limit)
}

impl Account {
    /// Takes over what the catalog says. While a session's end is being written its sums are left out: they may
    /// have that session, which is counted here.
    fn refresh(&mut self, quota: Quota, usage: Usage) {
        self.quota = quota;
        let sessions_today = usage.sessions_today;
        if self.ending == 0 {
            self.usage = usage;
        }
        self.usage.sessions_today = sessions_today;
    }

    const fn stored_now(&self) -> u64 {
        self.usage.stored_bytes.saturating_add(self.stored_bytes)
    }

    const fn protected_now(&self) -> u64 {
        self.usage.protected_bytes.saturating_add(self.growth_bytes)
    }

    fn points_now(&self) -> u64 {
        self.usage.restore_points.saturating_add(self.sessions.len() as u64)
    }

    /// Fails unless a backup may start: at least an unchanged one would fit.
    fn check_start(
        &self,
        namespace: &str,
        found: &StartAccount,
        (vm, job): (&str, &str),
    ) -> Result<(), EngineError> {
        if self.quota.sessions_per_day.is_some_and(|limit| self.usage.sessions_today >= limit) {
            return Err(self.sessions_error(namespace));
        }
        if let Some(limit) = self.quota.restore_points
            && self.points_now() >= limit
        {
            let (used, under_way) = (self.usage.restore_points, self.sessions.len());
            let used = format!("{used} exist and {under_way} more are being made");
            let what = "ask an administrator to raise the limit";
            return Err(refusal(namespace, "restore points", &used, &limit.to_string(), what));
        }
        let first = found.vm_protected_bytes.is_none();
        if first && self.quota.protected_bytes.is_some_and(|limit| self.protected_now() >= limit) {
            return Err(self.protected_error(namespace));
        }
        if first && self.quota.stored_bytes.is_some_and(|limit| self.stored_now() >= limit) {
            return Err(self.stored_error(namespace));
        }
        let names = [
            ("VMs", vm, found.knows_vm, found.usage.vms, VMS_PER_NAMESPACE_MAX),
            ("jobs", job, found.knows_job, found.usage.jobs, JOBS_PER_NAMESPACE_MAX),
        ];
        for (what, name, known, used, limit) in names {
            if !known && used >= limit {
                let used = format!("{used} are on record, and {name:?} is not among them");
                let advice = "use a name that is, or another namespace";
                return Err(refusal(namespace, what, &used, &limit.to_string(), advice));
            }
        }
        Ok(())
    }

    fn open(&mut self, session: SessionId, before_bytes: u64) {
        self.sessions.insert(session, Charged { before_bytes, ..Charged::default() });
    }

    /// Returns true if a session may add that.
    fn has_room_for(&self, session: SessionId, class: ContainerClass, added: u64) -> bool {
        if !is_over(self.quota.stored_bytes, self.stored_now().saturating_add(added)) {
            return true;
        }
        let recipe_bytes = self.sessions.get(&session).map_or(0, |charged| charged.recipe_bytes);
        class == ContainerClass::Recipe && recipe_bytes.saturating_add(added) <= RECIPE_ALLOWANCE_BYTES
    }

    fn add_stored(&mut self, session: SessionId, class: ContainerClass, added: u64) {
        let Some(charged) = self.sessions.get_mut(&session) else { return };
        let sum = match class {
            ContainerClass::Data => &mut charged.data_bytes,
            ContainerClass::Recipe => &mut charged.recipe_bytes,
        };
        *sum = sum.saturating_add(added);
        self.stored_bytes = self.stored_bytes.saturating_add(added);
    }

    /// Counts data of a session's restore point. `false`: the namespace now protects more than it may.
    fn add_protected(&mut self, session: SessionId, added: u64) -> bool {
        let Some(charged) = self.sessions.get_mut(&session) else { return true };
        let before = charged.growth_bytes();
        charged.protected_bytes = charged.protected_bytes.saturating_add(added);
        let grown = charged.growth_bytes() - before;
        self.growth_bytes = self.growth_bytes.saturating_add(grown);
        grown == 0 || self.is_protected_within(0)
    }

    /// Returns true if the namespace protects no more than it may, with `added`.
    fn is_protected_within(&self, added: u64) -> bool {
        !is_over(self.quota.protected_bytes, self.protected_now().saturating_add(added))
    }

    const fn begin_end(&mut self) {
        self.ending += 1;
    }

    const fn end_ended(&mut self) {
        self.ending = self.ending.saturating_sub(1);
    }

    /// Moves a session from this account to what the catalog knows, at one moment.
    fn recorded(&mut self, session: SessionId, stored_bytes: u64, restore_point: bool) {
        let Some(charged) = self.close(session) else { return };
        self.usage.stored_bytes = self.usage.stored_bytes.saturating_add(stored_bytes);
        if restore_point {
            self.usage.restore_points = self.usage.restore_points.saturating_add(1);
            let others = self.usage.protected_bytes.saturating_sub(charged.before_bytes);
            self.usage.protected_bytes = others.saturating_add(charged.protected_bytes);
        }
    }

    fn close(&mut self, session: SessionId) -> Option<Charged> {
        let charged = self.sessions.remove(&session)?;
        self.stored_bytes = self.stored_bytes.saturating_sub(charged.stored_bytes());
        self.growth_bytes = self.growth_bytes.saturating_sub(charged.growth_bytes());
        Some(charged)
    }

    fn stored_error(&self, namespace: &str) -> EngineError {
        let used = format!("{} are used, backups in progress included", bytes(self.stored_now()));
        let what =
            "ask an administrator to raise the limit; until then, backups that bring no new data still work";
        refusal(namespace, "stored bytes", &used, &bytes(self.quota.stored_bytes.unwrap_or(0)), what)
    }

    fn protected_error(&self, namespace: &str) -> EngineError {
        let used = format!("{} are protected, backups in progress included", bytes(self.protected_now()));
        let what = "back up fewer or smaller disks, or ask an administrator to raise the limit";
        refusal(namespace, "protected bytes", &used, &bytes(self.quota.protected_bytes.unwrap_or(0)), what)
    }

    fn sessions_error(&self, namespace: &str) -> EngineError {
        let used = format!("{} were started since midnight UTC", self.usage.sessions_today);
        let what = "start again tomorrow, or ask an administrator to raise the limit";
        let limit = self.quota.sessions_per_day.unwrap_or(0).to_string();
        refusal(namespace, "backups a day", &used, &limit, what)
    }
}

#[cfg(test)]
mod tests;
