//! Tiers in which the data of restore points lies, as of the last time that was looked up.

use holdfast_types::ids::BackupId;

use crate::sqlite::{Catalog, places};
use crate::{BackupPlaces, Result, validate};

/// Written by rounds, read by lists.
///
/// Across processes: recording is one transaction, so all rows are of one look, but for what was deleted since.
impl Catalog {
    /// Replaces what was known. Restore points that have gone since are left out.
    pub fn record_places(&self, found: &[BackupPlaces]) -> Result<()> {
        self.write(|tx| places::record(tx, found))
    }

    /// Returns the places of these backups, in their order; those that came after the last look have none. `Invalid`:
    /// more than [`BACKUPS_PER_PAGE_MAX`](crate::BACKUPS_PER_PAGE_MAX).
    pub fn backup_places(&self, backups: &[BackupId]) -> Result<Vec<BackupPlaces>> {
        validate::at_once("backups", backups.len())?;
        self.look_up(|c| places::of(c, backups))
    }
}
