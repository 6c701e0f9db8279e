//! Restore points: how they come to exist, and how they are found.

use holdfast_types::ids::{BackupId, NamespaceId, RunId, SessionId};

use crate::sqlite::{Catalog, backups, commit, details, verifications};
use crate::{
    AgentsProof, AgentsProofs, BackupCommit, BackupFilter, BackupRecord, DetailRow, FailedRun, Page,
    PageRequest, Result, RootRecord, RunRecord, Verification, VmRecord, validate,
};

/// Used by ingest and restore; lists are for people.
///
/// Across processes: [`commit_backup`](Catalog::commit_backup) and
/// [`record_failed_run`](Catalog::record_failed_run) are one transaction each. Of two processes that end the same
/// session, one wins and the other is told `Exists`; of two that commit backups of one VM, both succeed, and
/// which is the latest is decided by the order of their transactions, not by clocks.
impl Catalog {
    /// Makes a backup exist, in one transaction, with all that belongs to it. Repeating it with the same
    /// backup and session does nothing. `NotFound`: no such namespace. `Exists`: the backup is another
    /// session's, or the session has ended otherwise. `Invalid`: the commit contradicts itself, the rules of
    /// `validate.rs`, or the run it joins. `NotOwner`: the VM has another owner than the attempt says.
    pub fn commit_backup(&self, commit: &BackupCommit) -> Result<()> {
        validate::commit(commit)?;
        self.write(|tx| commit::backup(tx, self.clock.as_ref(), commit))
    }

    /// Records an attempt no backup came of, in one transaction. Repeating it does nothing. `NotFound`,
    /// `Invalid` as above; `Exists`: the session has made a backup.
    pub fn record_failed_run(&self, failed: &FailedRun) -> Result<()> {
        validate::failed(failed)?;
        self.write(|tx| commit::failed(tx, self.clock.as_ref(), failed))
    }

    /// The compression details a session ended with, in the order of its disks; empty when it has not ended.
    pub fn session_details(&self, session: SessionId) -> Result<Vec<DetailRow>> {
        self.look_up(|c| details::of_session(c, session))
    }

    /// The run `id`, if recorded.
    pub fn run(&self, id: RunId) -> Result<Option<RunRecord>> {
        self.look_up(|c| backups::run(c, id))
    }

    /// The backup `id`, if there is one.
    pub fn backup(&self, id: BackupId) -> Result<Option<BackupRecord>> {
        self.look_up(|c| backups::by_id(c, id))
    }

    /// The backup that `session` made, if it did.
    pub fn backup_by_session(&self, session: SessionId) -> Result<Option<BackupRecord>> {
        self.look_up(|c| backups::by_session(c, session))
    }

    /// The backup of this VM committed last.
    pub fn latest_backup(&self, namespace: NamespaceId, vm: &str) -> Result<Option<BackupRecord>> {
        self.look_up(|c| backups::latest(c, namespace, vm))
    }

    /// Up to `limit` backups of the same VM that were committed before this one, newest first; empty when it
    /// does not exist.
    pub fn backups_before(&self, id: BackupId, limit: u32) -> Result<Vec<BackupRecord>> {
        self.look_up(|c| backups::before(c, id, limit))
    }

    /// Backups whose ULID begins with `id_prefix` (upper or lower case), oldest first, at most `limit`.
    /// `Invalid`: not the beginning of a ULID.
    pub fn find_backups(
        &self,
        namespace: NamespaceId,
        id_prefix: &str,
        limit: u32,
    ) -> Result<Vec<BackupRecord>> {
        self.look_up(|c| backups::find(c, namespace, id_prefix, limit))
    }

    /// Backups, newest first. `Invalid`: the page token is not of this list.
    pub fn list_backups(&self, filter: &BackupFilter, page: PageRequest<'_>) -> Result<Page<BackupRecord>> {
        validate::scope(filter.namespaces.as_deref())?;
        self.report(|c| backups::list(c, filter, page))
    }

    /// VMs by name, those of one name by the age of their namespaces, with their number of backups.
    /// `namespaces` and `Invalid` as in [`BackupFilter`] and [`Catalog::list_backups`].
    pub fn list_vms(
        &self,
        namespaces: Option<&[NamespaceId]>,
        page: PageRequest<'_>,
    ) -> Result<Page<VmRecord>> {
        validate::scope(namespaces)?;
        self.report(|c| backups::vms(c, namespaces, page))
    }

    /// Up to `limit` recipe roots after the given disk, by backup and position; see
    /// [`Catalog::all_roots`].
    pub fn roots(&self, after: Option<(BackupId, u32)>, limit: u32) -> Result<Vec<RootRecord>> {
        self.report(|c| backups::roots(c, after, limit))
    }

    /// Notes what verifying a restore point found, in the audit log, too. The latest
    /// [`crate::VERIFICATIONS_PER_BACKUP_MAX`] are kept. `NotFound`: no such backup.
    pub fn record_verification(&self, verification: &Verification) -> Result<()> {
        self.write(|tx| verifications::record(tx, self.clock.as_ref(), verification))
    }

    /// The verification recorded last of each of these backups that has one, in their order. `Invalid`: more
    /// than [`crate::BACKUPS_PER_PAGE_MAX`].
    pub fn verifications(&self, backups: &[BackupId]) -> Result<Vec<Verification>> {
        validate::at_once("backups", backups.len())?;
        self.report(|c| verifications::newest(c, backups))
    }

    /// Returns the times at which agents proved each of these backups, in their order, without those there are not.
    /// `Invalid` as for [`Catalog::verifications`].
    pub fn agents_proofs(&self, backups: &[BackupId]) -> Result<Vec<AgentsProof>> {
        validate::at_once("backups", backups.len())?;
        self.report(|c| verifications::agents_proofs(c, backups))
    }

    /// Summarises the proofs of each namespace whose content only agents can prove and that has restore
    /// points, by name.
    pub fn agents_proof_summaries(&self) -> Result<Vec<AgentsProofs>> {
        self.report(verifications::agents_proof_summaries)
    }
}
