//! [`Attributions`] on SQLite.

use holdfast_types::ids::{BackupId, NamespaceId};

use super::super::{SqliteCatalog, attribution};
use crate::{
    AttributedBy, AttributedGroup, AttributionRecord, AttributionState, Attributions, BackupShareRecord,
    Result, validate,
};

impl Attributions for SqliteCatalog {
    fn record_attribution(&self, found: &AttributionRecord) -> Result<()> {
        validate::attribution(found)?;
        self.write(|tx| attribution::record(tx, found))
    }

    fn attribution(&self) -> Result<Option<AttributionState>> {
        self.look_up(attribution::state)
    }

    fn backup_shares(&self, backups: &[BackupId]) -> Result<Vec<BackupShareRecord>> {
        validate::at_once("backups", backups.len())?;
        self.look_up(|c| attribution::shares(c, backups))
    }

    fn attributed(
        &self,
        by: AttributedBy,
        namespaces: Option<&[NamespaceId]>,
        limit: u32,
    ) -> Result<Vec<AttributedGroup>> {
        self.report(|c| attribution::groups(c, by, namespaces, limit))
    }
}
