//! [`Places`] on SQLite.

use holdfast_types::ids::BackupId;

use super::super::{SqliteCatalog, places};
use crate::{BackupPlaces, Places, Result, validate};

impl Places for SqliteCatalog {
    fn record_places(&self, found: &[BackupPlaces]) -> Result<()> {
        self.write(|tx| places::record(tx, found))
    }

    fn backup_places(&self, backups: &[BackupId]) -> Result<Vec<BackupPlaces>> {
        validate::at_once("backups", backups.len())?;
        self.look_up(|c| places::of(c, backups))
    }
}
