//! [`Backups`] on SQLite.

use holdfast_types::ids::{BackupId, NamespaceId, RunId, SessionId};

use super::super::{SqliteCatalog, backups, commit, details, verifications};
use crate::{
    AgentsProof, AgentsProofs, BackupCommit, BackupFilter, BackupRecord, Backups, DetailRow, FailedRun, Page,
    PageRequest, Result, RootRecord, RunRecord, Verification, VmRecord, validate,
};

impl Backups for SqliteCatalog {
    fn commit_backup(&self, commit: &BackupCommit) -> Result<()> {
        validate::commit(commit)?;
        self.write(|tx| commit::backup(tx, self.clock.as_ref(), commit))
    }

    fn record_failed_run(&self, failed: &FailedRun) -> Result<()> {
        validate::failed(failed)?;
        self.write(|tx| commit::failed(tx, self.clock.as_ref(), failed))
    }

    fn session_details(&self, session: SessionId) -> Result<Vec<DetailRow>> {
        self.look_up(|c| details::of_session(c, session))
    }

    fn run(&self, id: RunId) -> Result<Option<RunRecord>> {
        self.look_up(|c| backups::run(c, id))
    }

    fn backup(&self, id: BackupId) -> Result<Option<BackupRecord>> {
        self.look_up(|c| backups::by_id(c, id))
    }

    fn backup_by_session(&self, session: SessionId) -> Result<Option<BackupRecord>> {
        self.look_up(|c| backups::by_session(c, session))
    }

    fn latest_backup(&self, namespace: NamespaceId, vm: &str) -> Result<Option<BackupRecord>> {
        self.look_up(|c| backups::latest(c, namespace, vm))
    }

    fn backups_before(&self, id: BackupId, limit: u32) -> Result<Vec<BackupRecord>> {
        self.look_up(|c| backups::before(c, id, limit))
    }

    fn find_backups(&self, namespace: NamespaceId, id_prefix: &str, limit: u32) -> Result<Vec<BackupRecord>> {
        self.look_up(|c| backups::find(c, namespace, id_prefix, limit))
    }

    fn list_backups(&self, filter: &BackupFilter, page: PageRequest<'_>) -> Result<Page<BackupRecord>> {
        validate::scope(filter.namespaces.as_deref())?;
        self.report(|c| backups::list(c, filter, page))
    }

    fn list_vms(&self, namespaces: Option<&[NamespaceId]>, page: PageRequest<'_>) -> Result<Page<VmRecord>> {
        validate::scope(namespaces)?;
        self.report(|c| backups::vms(c, namespaces, page))
    }

    fn roots(&self, after: Option<(BackupId, u32)>, limit: u32) -> Result<Vec<RootRecord>> {
        self.report(|c| backups::roots(c, after, limit))
    }

    fn record_verification(&self, verification: &Verification) -> Result<()> {
        self.write(|tx| verifications::record(tx, self.clock.as_ref(), verification))
    }

    fn verifications(&self, backups: &[BackupId]) -> Result<Vec<Verification>> {
        validate::at_once("backups", backups.len())?;
        self.report(|c| verifications::newest(c, backups))
    }

    fn agents_proofs(&self, backups: &[BackupId]) -> Result<Vec<AgentsProof>> {
        validate::at_once("backups", backups.len())?;
        self.report(|c| verifications::agents_proofs(c, backups))
    }

    fn agents_proof_summaries(&self) -> Result<Vec<AgentsProofs>> {
        self.report(verifications::agents_proof_summaries)
    }
}
