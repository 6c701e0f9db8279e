//! Deleting restore points, and what keeps them from being deleted: locks until a date, legal holds, and the clock that
//! locks are compared with. Retention policies. VMs that are removed, and VMs and jobs that get another name.

use std::fmt;

use holdfast_types::ids::{BackupId, NamespaceId, PolicyId, VmId};

use crate::Result;
use crate::rows::{
    DeletionRecord, LockChange, NamedVm, PointRecord, PointState, RetentionLock, RetentionPolicy,
};

/// Restore points that one call deletes, locks, holds or releases at most: each is a few rows of one transaction, which
/// takes about a second then.
pub const RETENTION_IDS_MAX: usize = 10_000;

/// Days from now for which anything may be locked: a hundred years. No one can shorten a lock, so a year with a digit
/// too many must not pass.
pub const LOCK_DAYS_MAX: u32 = 36_525;

/// For so many days at most may a policy keep data from an archive: a hundred years, which is never.
pub const ARCHIVE_DAYS_MAX: u32 = 36_500;

/// Policies of one namespace at most: every commit looks through them.
pub const POLICIES_PER_NAMESPACE_MAX: u32 = 1000;

/// How much faster than the monotonic clock the lock clock runs while it is behind the time of day.
pub const LOCK_CLOCK_CATCH_UP: i64 = 2;

/// Asked by deletions, policies and commits.
///
/// A restore point that is being deleted is no restore point: from [`begin_deletion`](Retention::begin_deletion) on,
/// no other function of the catalog knows it. What its runs cost stays in the compression details.
///
/// (L2) What is locked or held is refused by the catalog itself, in the transaction that would delete it, no matter who asks.
///
/// Across processes: each function that changes something is one transaction.
pub trait Retention: Send + Sync + fmt::Debug {
    /// Begins to delete restore points, each with an entry in the audit log: all of them or none. Those that are being
    /// deleted already are left out. `Locked`: one of them is. `NotFound`: there is no such restore point. `Invalid`:
    /// more than [`RETENTION_IDS_MAX`].
    fn begin_deletion(&self, ids: &[BackupId], who: &str, reason: &str) -> Result<Vec<DeletionRecord>>;
    /// Up to `limit` restore points that are being deleted, after `after`, by id.
    fn deletions(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<DeletionRecord>>;
    /// Forgets restore points that are being deleted, once no revision of their points is left. One that is not being
    /// deleted is skipped.
    fn finish_deletion(&self, ids: &[BackupId]) -> Result<()>;

    /// Changes the locks of restore points, all of them or none; a lock never gets shorter. Each change has an entry in the
    /// audit log, and makes the point stale. Returns those that changed. `NotFound`; `Invalid`: no reason, the lock clock
    /// has passed that time, or it is more than [`LOCK_DAYS_MAX`] ahead.
    fn change_locks(&self, ids: &[BackupId], change: &LockChange, who: &str) -> Result<Vec<BackupId>>;
    /// What the point of a restore point says, under its next revision, once [`change_locks`](Retention::change_locks) has
    /// changed it; `None`: that changes nothing. Fails as that does, and changes nothing.
    fn rehearse_lock(&self, id: BackupId, change: &LockChange) -> Result<Option<PointRecord>>;

    /// The time that locks are compared with; `None`: it was never advanced, and every lock is in force.
    fn lock_time(&self) -> Result<Option<i64>>;
    /// (L4) Advances the lock clock and returns what it shows. It never goes back and never passes the time of day. It
    /// advances by at most [`LOCK_CLOCK_CATCH_UP`] times what has passed on the monotonic clock since this process
    /// last asked, or opened the catalog. Only the first call ever takes the time of day as it is. For the process that
    /// holds the repository's lock.
    fn advance_lock_clock(&self) -> Result<i64>;
    /// Whether any restore point is locked until a time that the lock clock has not passed.
    fn has_locks(&self) -> Result<bool>;
    /// Up to `limit` restore points after `after`, by id, that are locked or held now, with what keeps them.
    fn locked_backups(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<(BackupId, RetentionLock)>>;
    /// Until when a restore point of this VM and job is locked by policies if it is made now; `None`: by none. Long
    /// enough for the days to pass whatever the lock clock lags behind, and at most twice as long.
    fn policy_lock(&self, namespace: NamespaceId, vm: &str, job: &str) -> Result<Option<i64>>;

    /// The revisions of a restore point's point; `None`: there is no such restore point.
    fn point_state(&self, id: BackupId) -> Result<Option<PointState>>;
    /// Up to `limit` restore points after `after`, by id, with the revisions of their points.
    fn point_states(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<PointState>>;
    /// Up to `limit` restore points after `after`, by id, whose points do not say what their rows say.
    fn stale_points(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<BackupId>>;
    /// Makes the point of a restore point stale, so that it is sealed anew under a revision above `above`. One that
    /// does not exist is skipped.
    fn mark_point_stale(&self, id: BackupId, above: u32) -> Result<()>;
    /// Notes that this revision of a point was sealed, and is the only one left. It stays stale when the row changed
    /// since.
    fn note_point_sealed(&self, id: BackupId, revision: u32) -> Result<()>;

    /// The VM of this name, unless it was removed.
    fn named_vm(&self, namespace: NamespaceId, vm: &str) -> Result<Option<NamedVm>>;
    /// Up to `limit` restore points of a VM after `after`, by id.
    fn backups_of_vm(&self, vm: VmId, after: Option<BackupId>, limit: u32) -> Result<Vec<BackupId>>;
    /// Gives a VM another name: its restore points, history and policies follow, and the points become stale. Where a
    /// removed VM had that name, the history of both is one from now on. `NotFound`. `Exists`: another VM has the name.
    /// `Invalid`: not a name.
    fn rename_vm(&self, vm: VmId, name: &str, who: &str) -> Result<()>;
    /// Removes a VM that has no restore points: it is in no list and no overview, and has no owner, until a backup of its
    /// name is made. Its history stays. `NotFound`. `Invalid`: it has restore points.
    fn remove_vm(&self, vm: VmId, who: &str) -> Result<()>;
    /// Gives a job another name, as [`rename_vm`](Retention::rename_vm).
    fn rename_job(&self, namespace: NamespaceId, job: &str, name: &str, who: &str) -> Result<()>;

    /// The policies of these namespaces (`None`: all), by namespace and name.
    fn policies(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<RetentionPolicy>>;
    /// The policy `id`, if there is one.
    fn policy(&self, id: PolicyId) -> Result<Option<RetentionPolicy>>;
    /// Creates or replaces the policy of this id, with an entry in the audit log that tells what it was before. Locks
    /// that it led to stay. `NotFound`: no such namespace. `Exists`: another of the namespace has the name. `Invalid`:
    /// not a name, more days than [`LOCK_DAYS_MAX`], another namespace than before, too many.
    fn set_policy(&self, policy: &RetentionPolicy, who: &str) -> Result<()>;
    /// (P10) Makes all policies rest that are enabled, until someone sets them. Says how many did not rest before.
    fn rest_policies(&self) -> Result<u64>;
    /// Removes a policy; locks that it led to stay. `NotFound`.
    fn remove_policy(&self, id: PolicyId, who: &str) -> Result<()>;
}
