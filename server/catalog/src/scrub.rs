//! Scrub results: times at which data was proved sound, and lost ranges of restore points.

use holdfast_types::ids::{BackupId, NamespaceId, VmId};

use crate::sqlite::{Catalog, lost, scrub};
use crate::{
    BackupInOrder, DamageTotals, DamagedDisk, LostRanges, ProofSummary, Result, ScrubState, Scrubbed,
    validate,
};

/// Used by the scrub, by what names damage, and by what shows it.
///
/// Across processes: each function that changes something is one transaction.
impl Catalog {
    /// Returns the progress of the scrub.
    pub fn scrub_state(&self) -> Result<ScrubState> {
        self.look_up(scrub::state)
    }

    /// Records what proved sound, and how far the scrub is, in one transaction. What was deleted meanwhile is skipped.
    pub fn note_scrubbed(&self, done: &Scrubbed) -> Result<()> {
        self.write(|tx| scrub::note(tx, done))
    }

    /// The restore point after `after`, by VM and commit number.
    pub fn backup_in_order(&self, after: Option<(VmId, u64)>) -> Result<Option<BackupInOrder>> {
        self.look_up(|c| scrub::in_order(c, after))
    }

    /// Returns the times at which these restore points last proved sound, in their order. `Invalid`: more
    /// than [`BACKUPS_PER_PAGE_MAX`](crate::BACKUPS_PER_PAGE_MAX).
    pub fn proofs(&self, backups: &[BackupId]) -> Result<Vec<Option<i64>>> {
        validate::at_once("backups", backups.len())?;
        self.report(|c| scrub::proofs(c, backups))
    }

    /// Sums over everything.
    pub fn proof_summary(&self) -> Result<ProofSummary> {
        self.report(scrub::summary)
    }

    /// Puts a restore point in doubt: something of it may be lost that no container's row tells of. One of which something
    /// is known to be lost, or that was deleted, is left.
    pub fn doubt(&self, backup: BackupId) -> Result<()> {
        self.write(|tx| if lost::may_lack(tx, backup)? { Ok(()) } else { lost::doubt(tx, backup) })
    }

    /// Up to `limit` restore points in doubt, by id.
    pub fn in_doubt(&self, limit: u32) -> Result<Vec<BackupId>> {
        self.report(|c| lost::in_doubt(c, limit))
    }

    /// Returns true if part of a restore point is known to be lost, or is in doubt.
    pub fn may_lack(&self, backup: BackupId) -> Result<bool> {
        self.look_up(|c| lost::may_lack(c, backup))
    }

    /// Replaces what is known to be lost of a restore point; nothing: it is whole. Either way it is in doubt no more. When a restore point that was whole
    /// is not any more, or is again, the audit log says so. Whether something changed; a restore point that was deleted
    /// is skipped.
    pub fn set_lost(&self, backup: BackupId, lost: &[LostRanges]) -> Result<bool> {
        self.write(|tx| lost::set(tx, self.clock.as_ref(), backup, lost))
    }

    /// Up to `limit` disks that lack something after the given one, by restore point, oldest first. An empty list of
    /// namespaces: none.
    pub fn damaged_disks(
        &self,
        namespaces: Option<&[NamespaceId]>,
        after: Option<(BackupId, u32)>,
        limit: u32,
    ) -> Result<Vec<DamagedDisk>> {
        validate::scope(namespaces)?;
        self.report(|c| lost::list(c, namespaces, after, limit))
    }

    /// Returns those of these restore points that lack something, and how many bytes. `Invalid` as for
    /// [`proofs`](Catalog::proofs).
    pub fn lost_bytes(&self, backups: &[BackupId]) -> Result<Vec<(BackupId, u64)>> {
        validate::at_once("backups", backups.len())?;
        self.report(|c| lost::bytes_of(c, backups))
    }

    /// Sums over the restore points that lack something.
    pub fn damage_totals(&self, namespaces: Option<&[NamespaceId]>) -> Result<DamageTotals> {
        validate::scope(namespaces)?;
        self.report(|c| lost::totals(c, namespaces))
    }
}
