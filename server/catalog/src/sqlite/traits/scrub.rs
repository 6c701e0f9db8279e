//! [`Scrubs`] on SQLite.

use holdfast_types::ids::{BackupId, NamespaceId, VmId};

use super::super::{SqliteCatalog, lost, scrub};
use crate::{
    BackupInOrder, DamageTotals, DamagedDisk, LostRanges, ProofSummary, Result, ScrubState, Scrubbed, Scrubs,
    validate,
};

impl Scrubs for SqliteCatalog {
    fn scrub_state(&self) -> Result<ScrubState> {
        self.look_up(scrub::state)
    }

    fn note_scrubbed(&self, done: &Scrubbed) -> Result<()> {
        self.write(|tx| scrub::note(tx, done))
    }

    fn backup_in_order(&self, after: Option<(VmId, u64)>) -> Result<Option<BackupInOrder>> {
        self.look_up(|c| scrub::in_order(c, after))
    }

    fn proofs(&self, backups: &[BackupId]) -> Result<Vec<Option<i64>>> {
        validate::at_once("backups", backups.len())?;
        self.report(|c| scrub::proofs(c, backups))
    }

    fn proof_summary(&self) -> Result<ProofSummary> {
        self.report(scrub::summary)
    }

    fn doubt(&self, backup: BackupId) -> Result<()> {
        self.write(|tx| if lost::may_lack(tx, backup)? { Ok(()) } else { lost::doubt(tx, backup) })
    }

    fn in_doubt(&self, limit: u32) -> Result<Vec<BackupId>> {
        self.report(|c| lost::in_doubt(c, limit))
    }

    fn may_lack(&self, backup: BackupId) -> Result<bool> {
        self.look_up(|c| lost::may_lack(c, backup))
    }

    fn set_lost(&self, backup: BackupId, lost: &[LostRanges]) -> Result<bool> {
        self.write(|tx| lost::set(tx, self.clock.as_ref(), backup, lost))
    }

    fn damaged_disks(
        &self,
        namespaces: Option<&[NamespaceId]>,
        after: Option<(BackupId, u32)>,
        limit: u32,
    ) -> Result<Vec<DamagedDisk>> {
        validate::scope(namespaces)?;
        self.report(|c| lost::list(c, namespaces, after, limit))
    }

    fn lost_bytes(&self, backups: &[BackupId]) -> Result<Vec<(BackupId, u64)>> {
        validate::at_once("backups", backups.len())?;
        self.report(|c| lost::bytes_of(c, backups))
    }

    fn damage_totals(&self, namespaces: Option<&[NamespaceId]>) -> Result<DamageTotals> {
        validate::scope(namespaces)?;
        self.report(|c| lost::totals(c, namespaces))
    }
}
