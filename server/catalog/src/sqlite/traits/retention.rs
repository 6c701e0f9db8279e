//! [`Retention`] on SQLite.

use holdfast_types::ids::{BackupId, NamespaceId, PolicyId, VmId};

use super::super::{SqliteCatalog, deletions, lock_clock, locks, point_states, points, policies, renames};
use crate::{
    DeletionRecord, LockChange, NamedVm, PointRecord, PointState, Result, Retention, RetentionLock,
    RetentionPolicy, validate,
};

impl Retention for SqliteCatalog {
    fn begin_deletion(&self, ids: &[BackupId], who: &str, reason: &str) -> Result<Vec<DeletionRecord>> {
        validate::retention_ids(ids)?;
        self.write_on_full_disk(|tx| deletions::begin(tx, self.clock.as_ref(), ids, who, reason))
    }

    fn deletions(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<DeletionRecord>> {
        self.look_up(|c| deletions::list(c, after, limit))
    }

    fn finish_deletion(&self, ids: &[BackupId]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.write_on_full_disk(|tx| deletions::finish(tx, ids))
    }

    fn change_locks(&self, ids: &[BackupId], change: &LockChange, who: &str) -> Result<Vec<BackupId>> {
        validate::retention_ids(ids)?;
        self.write(|tx| locks::change(tx, self.clock.as_ref(), ids, change, who))
    }

    fn rehearse_lock(&self, id: BackupId, change: &LockChange) -> Result<Option<PointRecord>> {
        self.look_up(|c| points::rehearse(c, self.clock.as_ref(), id, change))
    }

    fn lock_time(&self) -> Result<Option<i64>> {
        self.look_up(lock_clock::shows)
    }

    fn advance_lock_clock(&self) -> Result<i64> {
        // Held across the change, so that no time is counted twice.
        let mut asked_ms = self.lock_clock_asked_ms.lock();
        let now_ms = self.clock.monotonic_ms();
        // (L4) While the time of day is behind it nothing is saved up, which one jump forward would spend.
        if let Some(shown_ms) = self.look_up(lock_clock::shows)?
            && self.clock.now_ms() <= shown_ms
        {
            *asked_ms = now_ms;
            return Ok(shown_ms);
        }
        let elapsed_ms = now_ms.saturating_sub(*asked_ms);
        let shown = self.write(|tx| lock_clock::advance(tx, self.clock.as_ref(), elapsed_ms))?;
        *asked_ms = now_ms;
        Ok(shown)
    }

    fn has_locks(&self) -> Result<bool> {
        self.look_up(locks::any)
    }

    fn locked_backups(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<(BackupId, RetentionLock)>> {
        self.report(|c| locks::list(c, after, limit))
    }

    fn policy_lock(&self, namespace: NamespaceId, vm: &str, job: &str) -> Result<Option<i64>> {
        self.look_up(|c| policies::lock_until(c, self.clock.as_ref(), namespace, vm, job))
    }

    fn point_state(&self, id: BackupId) -> Result<Option<PointState>> {
        self.look_up(|c| point_states::of(c, id))
    }

    fn point_states(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<PointState>> {
        self.report(|c| point_states::list(c, after, limit))
    }

    fn stale_points(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<BackupId>> {
        self.look_up(|c| point_states::stale(c, after, limit))
    }

    fn mark_point_stale(&self, id: BackupId, above: u32) -> Result<()> {
        self.write(|tx| point_states::mark_stale(tx, id, above))
    }

    fn note_point_sealed(&self, id: BackupId, revision: u32) -> Result<()> {
        self.write(|tx| point_states::note_sealed(tx, id, revision))
    }

    fn named_vm(&self, namespace: NamespaceId, vm: &str) -> Result<Option<NamedVm>> {
        self.look_up(|c| renames::vm(c, namespace, vm))
    }

    fn backups_of_vm(&self, vm: VmId, after: Option<BackupId>, limit: u32) -> Result<Vec<BackupId>> {
        self.look_up(|c| renames::backups_of(c, vm, after, limit))
    }

    fn rename_vm(&self, vm: VmId, name: &str, who: &str) -> Result<()> {
        validate::name("VM", name)?;
        self.write(|tx| renames::rename_vm(tx, self.clock.as_ref(), vm, name, who))
    }

    fn remove_vm(&self, vm: VmId, who: &str) -> Result<()> {
        self.write(|tx| renames::remove_vm(tx, self.clock.as_ref(), vm, who))
    }

    fn rename_job(&self, namespace: NamespaceId, job: &str, name: &str, who: &str) -> Result<()> {
        validate::name("job", name)?;
        self.write(|tx| renames::rename_job(tx, self.clock.as_ref(), namespace, job, name, who))
    }

    fn policies(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<RetentionPolicy>> {
        validate::scope(namespaces)?;
        self.look_up(|c| policies::list(c, namespaces))
    }

    fn policy(&self, id: PolicyId) -> Result<Option<RetentionPolicy>> {
        self.look_up(|c| policies::by_id(c, id))
    }

    fn set_policy(&self, policy: &RetentionPolicy, who: &str) -> Result<()> {
        validate::policy(policy)?;
        self.write(|tx| policies::set(tx, self.clock.as_ref(), policy, who))
    }

    fn rest_policies(&self) -> Result<u64> {
        let now_ms = self.clock.now_ms();
        self.write(|tx| policies::rest(tx, now_ms))
    }

    fn remove_policy(&self, id: PolicyId, who: &str) -> Result<()> {
        self.write(|tx| policies::remove(tx, self.clock.as_ref(), id, who))
    }
}
