//! One namespace's account: what the catalog knows, and what sessions have added since. Pure.

use std::collections::HashMap;

use holdfast_catalog::{JOBS_PER_NAMESPACE_MAX, Quota, StartAccount, Usage, VMS_PER_NAMESPACE_MAX};
use holdfast_types::ids::{ContainerClass, SessionId};

use super::RECIPE_ALLOWANCE_BYTES;
use super::text::{bytes, refusal};
use crate::error::EngineError;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Account {
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

/// What one session has added so far.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Charged {
    data_bytes: u64,
    recipe_bytes: u64,
    /// What its VM's newest restore point protects.
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
    pub(super) fn refresh(&mut self, quota: Quota, usage: Usage) {
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

    /// Whether a backup may start: at least an unchanged one would fit.
    pub(super) fn check_start(
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

    pub(super) fn open(&mut self, session: SessionId, before_bytes: u64) {
        self.sessions.insert(session, Charged { before_bytes, ..Charged::default() });
    }

    /// Whether a session may add that.
    pub(super) fn has_room_for(&self, session: SessionId, class: ContainerClass, added: u64) -> bool {
        if !is_over(self.quota.stored_bytes, self.stored_now().saturating_add(added)) {
            return true;
        }
        let recipe_bytes = self.sessions.get(&session).map_or(0, |charged| charged.recipe_bytes);
        class == ContainerClass::Recipe && recipe_bytes.saturating_add(added) <= RECIPE_ALLOWANCE_BYTES
    }

    pub(super) fn add_stored(&mut self, session: SessionId, class: ContainerClass, added: u64) {
        let Some(charged) = self.sessions.get_mut(&session) else { return };
        let sum = match class {
            ContainerClass::Data => &mut charged.data_bytes,
            ContainerClass::Recipe => &mut charged.recipe_bytes,
        };
        *sum = sum.saturating_add(added);
        self.stored_bytes = self.stored_bytes.saturating_add(added);
    }

    /// Counts data of a session's restore point. `false`: the namespace now protects more than it may.
    pub(super) fn add_protected(&mut self, session: SessionId, added: u64) -> bool {
        let Some(charged) = self.sessions.get_mut(&session) else { return true };
        let before = charged.growth_bytes();
        charged.protected_bytes = charged.protected_bytes.saturating_add(added);
        let grown = charged.growth_bytes() - before;
        self.growth_bytes = self.growth_bytes.saturating_add(grown);
        grown == 0 || self.is_protected_within(0)
    }

    /// Whether the namespace protects no more than it may, with `added`.
    pub(super) fn is_protected_within(&self, added: u64) -> bool {
        !is_over(self.quota.protected_bytes, self.protected_now().saturating_add(added))
    }

    pub(super) const fn begin_end(&mut self) {
        self.ending += 1;
    }

    pub(super) const fn end_ended(&mut self) {
        self.ending = self.ending.saturating_sub(1);
    }

    /// Moves a session from this account to what the catalog knows, at one moment.
    pub(super) fn recorded(&mut self, session: SessionId, stored_bytes: u64, restore_point: bool) {
        let Some(charged) = self.close(session) else { return };
        self.usage.stored_bytes = self.usage.stored_bytes.saturating_add(stored_bytes);
        if restore_point {
            self.usage.restore_points = self.usage.restore_points.saturating_add(1);
            let others = self.usage.protected_bytes.saturating_sub(charged.before_bytes);
            self.usage.protected_bytes = others.saturating_add(charged.protected_bytes);
        }
    }

    pub(super) fn close(&mut self, session: SessionId) -> Option<Charged> {
        let charged = self.sessions.remove(&session)?;
        self.stored_bytes = self.stored_bytes.saturating_sub(charged.stored_bytes());
        self.growth_bytes = self.growth_bytes.saturating_sub(charged.growth_bytes());
        Some(charged)
    }

    pub(super) fn stored_error(&self, namespace: &str) -> EngineError {
        let used = format!("{} are used, backups in progress included", bytes(self.stored_now()));
        let what =
            "ask an administrator to raise the limit; until then, backups that bring no new data still work";
        refusal(namespace, "stored bytes", &used, &bytes(self.quota.stored_bytes.unwrap_or(0)), what)
    }

    pub(super) fn protected_error(&self, namespace: &str) -> EngineError {
        let used = format!("{} are protected, backups in progress included", bytes(self.protected_now()));
        let what = "back up fewer or smaller disks, or ask an administrator to raise the limit";
        refusal(namespace, "protected bytes", &used, &bytes(self.quota.protected_bytes.unwrap_or(0)), what)
    }

    pub(super) fn sessions_error(&self, namespace: &str) -> EngineError {
        let used = format!("{} were started since midnight UTC", self.usage.sessions_today);
        let what = "start again tomorrow, or ask an administrator to raise the limit";
        let limit = self.quota.sessions_per_day.unwrap_or(0).to_string();
        refusal(namespace, "backups a day", &used, &limit, what)
    }
}
