//! Restore points: how they come to exist, and how they are found.

use std::fmt;

use holdfast_types::ids::{BackupId, NamespaceId, RunId, SessionId};

use crate::rows::{
    AgentsProof, AgentsProofs, BackupCommit, BackupFilter, BackupRecord, DetailRow, FailedRun, RootRecord,
    RunRecord, Verification, VmRecord,
};
use crate::{Page, PageRequest, Result};

/// Restore points in one page at most, and when the caller leaves it open.
pub const BACKUPS_PER_PAGE_MAX: u32 = 1000;
pub(crate) const BACKUPS_PER_PAGE: u32 = 100;

/// Verifications kept of one restore point.
pub const VERIFICATIONS_PER_BACKUP_MAX: u32 = 16;

/// Asked by ingest and restore; lists are for people.
///
/// Across processes: [`commit_backup`](Backups::commit_backup) and
/// [`record_failed_run`](Backups::record_failed_run) are one transaction each. Of two processes that end the same
/// session, one wins and the other is told `Exists`; of two that commit backups of one VM, both succeed, and
/// which is the latest is decided by the order of their transactions, not by clocks.
pub trait Backups: Send + Sync + fmt::Debug {
    /// Makes a backup exist, in one transaction, with all that belongs to it. Repeating it with the same
    /// backup and session does nothing. `NotFound`: no such namespace. `Exists`: the backup is another
    /// session's, or the session has ended otherwise. `Invalid`: the commit contradicts itself, the rules of
    /// `validate.rs`, or the run it joins. `NotOwner`: the VM has another owner than the attempt says.
    fn commit_backup(&self, commit: &BackupCommit) -> Result<()>;
    /// Records an attempt no backup came of, in one transaction. Repeating it does nothing. `NotFound`,
    /// `Invalid` as above; `Exists`: the session has made a backup.
    fn record_failed_run(&self, failed: &FailedRun) -> Result<()>;
    /// The compression details a session ended with, in the order of its disks; empty when it has not ended.
    fn session_details(&self, session: SessionId) -> Result<Vec<DetailRow>>;
    /// The run `id`, if recorded.
    fn run(&self, id: RunId) -> Result<Option<RunRecord>>;

    /// The backup `id`, if there is one.
    fn backup(&self, id: BackupId) -> Result<Option<BackupRecord>>;
    /// The backup that `session` made, if it did.
    fn backup_by_session(&self, session: SessionId) -> Result<Option<BackupRecord>>;
    /// The backup of this VM committed last.
    fn latest_backup(&self, namespace: NamespaceId, vm: &str) -> Result<Option<BackupRecord>>;
    /// Up to `limit` backups of the same VM that were committed before this one, newest first; empty when it
    /// does not exist.
    fn backups_before(&self, id: BackupId, limit: u32) -> Result<Vec<BackupRecord>>;
    /// Backups whose ULID begins with `id_prefix` (upper or lower case), oldest first, at most `limit`.
    /// `Invalid`: not the beginning of a ULID.
    fn find_backups(&self, namespace: NamespaceId, id_prefix: &str, limit: u32) -> Result<Vec<BackupRecord>>;
    /// Backups, newest first. `Invalid`: the page token is not of this list.
    fn list_backups(&self, filter: &BackupFilter, page: PageRequest<'_>) -> Result<Page<BackupRecord>>;
    /// VMs by name, those of one name by the age of their namespaces, with their number of backups.
    /// `namespaces` and `Invalid` as in [`BackupFilter`] and [`Backups::list_backups`].
    fn list_vms(&self, namespaces: Option<&[NamespaceId]>, page: PageRequest<'_>) -> Result<Page<VmRecord>>;
    /// Up to `limit` recipe roots after the given disk, by backup and position; see
    /// [`CatalogWalk::all_roots`](crate::CatalogWalk::all_roots).
    fn roots(&self, after: Option<(BackupId, u32)>, limit: u32) -> Result<Vec<RootRecord>>;

    /// Notes what verifying a restore point found, in the audit log, too. The latest
    /// [`VERIFICATIONS_PER_BACKUP_MAX`] are kept. `NotFound`: no such backup.
    fn record_verification(&self, verification: &Verification) -> Result<()>;
    /// The verification recorded last of each of these backups that has one, in their order. `Invalid`: more
    /// than [`BACKUPS_PER_PAGE_MAX`].
    fn verifications(&self, backups: &[BackupId]) -> Result<Vec<Verification>>;
    /// When agents proved each of these backups, in their order, without those there are not. `Invalid` as for
    /// [`Backups::verifications`].
    fn agents_proofs(&self, backups: &[BackupId]) -> Result<Vec<AgentsProof>>;
    /// The same of each namespace whose content only agents can prove and that has restore points, by name.
    fn agents_proof_summaries(&self) -> Result<Vec<AgentsProofs>>;
}
