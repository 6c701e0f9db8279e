//! Attribution of live bytes to backups, as of the last round.

use holdfast_types::ids::{BackupId, NamespaceId};

use crate::sqlite::{Catalog, attribution};
use crate::{
    AttributedBy, AttributedDay, AttributedGroup, AttributionRecord, AttributionState, CountedShare, Result,
    validate,
};

/// Written by rounds, read by reports.
///
/// Across processes: recording is one transaction, so sums are always those of one round; shares of restore points that were
/// deleted since are gone.
impl Catalog {
    /// Replaces what was known. Backups, VMs and jobs that have gone since are left out. `Invalid`: what is attributed
    /// does not add up to the live bytes.
    pub fn record_attribution(&self, found: &AttributionRecord) -> Result<()> {
        validate::attribution(found)?;
        self.write(|tx| attribution::record(tx, found))
    }

    /// Returns the time of the last round, and the sum; `None` before the first round.
    pub fn attribution(&self) -> Result<Option<AttributionState>> {
        self.look_up(attribution::state)
    }

    /// The shares of these backups, in their order; those that came after the round have none. `Invalid`: more than
    /// [`BACKUPS_PER_PAGE_MAX`](crate::BACKUPS_PER_PAGE_MAX).
    pub fn backup_shares(&self, backups: &[BackupId]) -> Result<Vec<CountedShare>> {
        validate::at_once("backups", backups.len())?;
        self.look_up(|c| attribution::shares(c, backups))
    }

    /// Sums as the last round found them, the largest first, at most `limit` and [`crate::ATTRIBUTED_GROUPS_MAX`].
    /// `namespaces`: `None` for all, an empty list for none.
    pub fn attributed(
        &self,
        by: AttributedBy,
        namespaces: Option<&[NamespaceId]>,
        limit: u32,
    ) -> Result<Vec<AttributedGroup>> {
        self.report_sorted(|c, room| attribution::groups(c, by, namespaces, limit, room))
    }

    /// Sums of a namespace (`name` is not looked at), or of the VM or job of that name in it, in order of days up to
    /// `last`: of the last 60 days with a round, before them of one a week, for a year.
    pub fn attributed_days(
        &self,
        by: AttributedBy,
        namespace: NamespaceId,
        name: &str,
        last: i32,
    ) -> Result<Vec<AttributedDay>> {
        self.report(|c| attribution::days(c, by, namespace, name, last))
    }
}
