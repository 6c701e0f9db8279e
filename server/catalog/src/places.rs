//! Where the data of restore points lies, as of the last time that was looked up.

use std::fmt;

use holdfast_types::ids::BackupId;

use crate::Result;
use crate::rows::BackupPlaces;

/// Written by rounds, read by lists.
///
/// Across processes: recording is one transaction, so all rows are of one look, but for what was deleted since.
pub trait Places: Send + Sync + fmt::Debug {
    /// Replaces what was known. Restore points that have gone since are left out.
    fn record_places(&self, found: &[BackupPlaces]) -> Result<()>;
    /// Those of these backups, in their order; those that came after the last look have none. `Invalid`: more than
    /// [`BACKUPS_PER_PAGE_MAX`](crate::BACKUPS_PER_PAGE_MAX).
    fn backup_places(&self, backups: &[BackupId]) -> Result<Vec<BackupPlaces>>;
}
