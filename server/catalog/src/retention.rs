//! Deleting restore points, and what keeps them from being deleted: locks until a date, legal holds, and the clock that
//! locks are compared with. Retention policies. VMs that are removed, and VMs and jobs that get another name.

use holdfast_types::ids::{BackupId, NamespaceId, PolicyId, VmId};

use crate::sqlite::{Catalog, deletions, lock_clock, locks, point_states, points, policies, renames};
use crate::{
    DeletionRecord, LockChange, NamedVm, PointRecord, PointState, Result, RetentionLock, RetentionPolicy,
    validate,
};

/// Used by deletions, policies and commits.
///
/// A restore point that is being deleted is no restore point: from [`begin_deletion`](Catalog::begin_deletion) on,
/// no other function of the catalog knows it. What its runs cost stays in the compression details.
///
/// (L2) What is locked or held is refused by the catalog itself, in the transaction that would delete it, no matter who asks.
///
/// Across processes: each function that changes something is one transaction.
impl Catalog {
    /// Begins to delete restore points, each with an entry in the audit log: all of them or none. When, by whom and why
    /// is kept with their compression details. Those that are being
    /// deleted already are left out. `Locked`: one of them is. `NotFound`: there is no such restore point. `Invalid`:
    /// more than [`crate::RETENTION_IDS_MAX`].
    pub fn begin_deletion(&self, ids: &[BackupId], who: &str, reason: &str) -> Result<Vec<DeletionRecord>> {
        validate::retention_ids(ids)?;
        let now_ms = Some(self.clock.now_ms());
        self.write_on_full_disk(|tx| deletions::begin(tx, self.clock.as_ref(), ids, now_ms, (who, reason)))
    }

    /// Forgets a restore point of which no revision of its point is left, as one that was deleted at a time that is not known.
    /// `Locked`, `NotFound` as for [`Catalog::begin_deletion`].
    pub fn drop_deleted(&self, id: BackupId, who: &str, reason: &str) -> Result<()> {
        self.write_on_full_disk(|tx| {
            deletions::begin(tx, self.clock.as_ref(), &[id], None, (who, reason))?;
            deletions::finish(tx, &[id])
        })
    }

    /// Up to `limit` restore points that are being deleted, after `after`, by id.
    pub fn deletions(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<DeletionRecord>> {
        self.look_up(|c| deletions::list(c, after, limit))
    }

    /// Forgets restore points that are being deleted, once no revision of their points is left. One that is not being
    /// deleted is skipped.
    pub fn finish_deletion(&self, ids: &[BackupId]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.write_on_full_disk(|tx| deletions::finish(tx, ids))
    }

    /// Changes the locks of restore points, all of them or none; a lock never gets shorter. Each change has an entry in the
    /// audit log, and makes the point stale. Returns those that changed. `NotFound`; `Invalid`: no reason, the lock clock
    /// has passed that time, or it is more than [`crate::LOCK_DAYS_MAX`] ahead.
    pub fn change_locks(&self, ids: &[BackupId], change: &LockChange, who: &str) -> Result<Vec<BackupId>> {
        validate::retention_ids(ids)?;
        self.write(|tx| locks::change(tx, self.clock.as_ref(), ids, change, who))
    }

    /// Returns the point of a restore point, under its next revision, as it is once [`change_locks`](Catalog::change_locks) has
    /// changed it; `None`: that changes nothing. Fails as that does, and changes nothing.
    pub fn rehearse_lock(&self, id: BackupId, change: &LockChange) -> Result<Option<PointRecord>> {
        self.look_up(|c| points::rehearse(c, self.clock.as_ref(), id, change))
    }

    /// The time that locks are compared with; `None`: it was never advanced, and every lock is in force.
    pub fn lock_time(&self) -> Result<Option<i64>> {
        self.look_up(lock_clock::shows)
    }

    /// (L4) Advances the lock clock and returns what it shows. It never goes back and never passes the time of day. It
    /// advances by at most [`crate::LOCK_CLOCK_CATCH_UP`] times what has passed on the monotonic clock since this process
    /// last asked, or opened the catalog. Only the first call ever takes the time of day as it is. For the process that
    /// holds the repository's lock.
    pub fn advance_lock_clock(&self) -> Result<i64> {
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

    /// Returns true if any restore point is locked until a time that the lock clock has not passed.
    pub fn has_locks(&self) -> Result<bool> {
        self.look_up(locks::any)
    }

    /// Up to `limit` restore points after `after`, by id, that are locked or held now, with what keeps them.
    pub fn locked_backups(
        &self,
        after: Option<BackupId>,
        limit: u32,
    ) -> Result<Vec<(BackupId, RetentionLock)>> {
        self.report(|c| locks::list(c, after, limit))
    }

    /// Returns the time until which a restore point of this VM and job is locked by policies if it is made now; `None`:
    /// by none. Long enough for the days to pass whatever the lock clock lags behind, and at most twice as long.
    pub fn policy_lock(&self, namespace: NamespaceId, vm: &str, job: &str) -> Result<Option<i64>> {
        self.look_up(|c| policies::lock_until(c, self.clock.as_ref(), namespace, vm, job))
    }

    /// The revisions of a restore point's point; `None`: there is no such restore point.
    pub fn point_state(&self, id: BackupId) -> Result<Option<PointState>> {
        self.look_up(|c| point_states::of(c, id))
    }

    /// Up to `limit` restore points after `after`, by id, with the revisions of their points.
    pub fn point_states(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<PointState>> {
        self.report(|c| point_states::list(c, after, limit))
    }

    /// Up to `limit` restore points after `after`, by id, whose points do not say what their rows say.
    pub fn stale_points(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<BackupId>> {
        self.look_up(|c| point_states::stale(c, after, limit))
    }

    /// Makes the point of a restore point stale, so that it is sealed anew under a revision above `above`. One that
    /// does not exist is skipped.
    pub fn mark_point_stale(&self, id: BackupId, above: u32) -> Result<()> {
        self.write(|tx| point_states::mark_stale(tx, id, above))
    }

    /// Notes that this revision of a point was sealed, and is the only one left. It stays stale when the row changed
    /// since.
    pub fn note_point_sealed(&self, id: BackupId, revision: u32) -> Result<()> {
        self.write(|tx| point_states::note_sealed(tx, id, revision))
    }

    /// The VM of this name, unless it was removed.
    pub fn named_vm(&self, namespace: NamespaceId, vm: &str) -> Result<Option<NamedVm>> {
        self.look_up(|c| renames::vm(c, namespace, vm))
    }

    /// Up to `limit` restore points of a VM after `after`, by id.
    pub fn backups_of_vm(&self, vm: VmId, after: Option<BackupId>, limit: u32) -> Result<Vec<BackupId>> {
        self.look_up(|c| renames::backups_of(c, vm, after, limit))
    }

    /// Gives a VM another name: its restore points, history and policies follow, and the points become stale. Where a
    /// removed VM had that name, the history of both is one from now on. `NotFound`. `Exists`: another VM has the name.
    /// `Invalid`: not a name.
    pub fn rename_vm(&self, vm: VmId, name: &str, who: &str) -> Result<()> {
        validate::name("VM", name)?;
        self.write(|tx| renames::rename_vm(tx, self.clock.as_ref(), vm, name, who))
    }

    /// Removes a VM that has no restore points: it is in no list and no overview, and has no owner, until a backup of its
    /// name is made. Its history stays. `NotFound`. `Invalid`: it has restore points.
    pub fn remove_vm(&self, vm: VmId, who: &str) -> Result<()> {
        self.write(|tx| renames::remove_vm(tx, self.clock.as_ref(), vm, who))
    }

    /// Gives a job another name, as [`rename_vm`](Catalog::rename_vm).
    pub fn rename_job(&self, namespace: NamespaceId, job: &str, name: &str, who: &str) -> Result<()> {
        validate::name("job", name)?;
        self.write(|tx| renames::rename_job(tx, self.clock.as_ref(), namespace, job, name, who))
    }

    /// The policies of these namespaces (`None`: all), by namespace and name.
    pub fn policies(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<RetentionPolicy>> {
        validate::scope(namespaces)?;
        self.look_up(|c| policies::list(c, namespaces))
    }

    /// The policy `id`, if there is one.
    pub fn policy(&self, id: PolicyId) -> Result<Option<RetentionPolicy>> {
        self.look_up(|c| policies::by_id(c, id))
    }

    /// Creates or replaces the policy of this id, with an entry in the audit log that tells what it was before. Locks
    /// that it led to stay. `NotFound`: no such namespace. `Exists`: another of the namespace has the name. `Invalid`:
    /// not a name, more days than [`crate::LOCK_DAYS_MAX`], another namespace than before, too many.
    pub fn set_policy(&self, policy: &RetentionPolicy, who: &str) -> Result<()> {
        validate::policy(policy)?;
        self.write(|tx| policies::set(tx, self.clock.as_ref(), policy, who))
    }

    /// (P10) Makes all policies rest that are enabled, until someone sets them. Says how many did not rest before.
    pub fn rest_policies(&self) -> Result<u64> {
        let now_ms = self.clock.now_ms();
        self.write(|tx| policies::rest(tx, now_ms))
    }

    /// Removes a policy; locks that it led to stay. `NotFound`.
    pub fn remove_policy(&self, id: PolicyId, who: &str) -> Result<()> {
        self.write(|tx| policies::remove(tx, self.clock.as_ref(), id, who))
    }
}
