//! Whose the live bytes are, as the last round found.

use std::fmt;

use holdfast_types::ids::{BackupId, NamespaceId};

use crate::Result;
use crate::rows::{AttributedBy, AttributedGroup, AttributionRecord, AttributionState, BackupShareRecord};

/// Groups in one answer at most.
pub const ATTRIBUTED_GROUPS_MAX: u32 = 1000;

/// Written by rounds, read by reports.
///
/// Across processes: recording is one transaction, so sums are always those of one round, but for what was deleted
/// since.
pub trait Attributions: Send + Sync + fmt::Debug {
    /// Replaces what was known. Backups, VMs and jobs that have gone since are left out. `Invalid`: what is attributed
    /// does not add up to the live bytes.
    fn record_attribution(&self, found: &AttributionRecord) -> Result<()>;
    /// When that was, and the sum; `None` before the first round.
    fn attribution(&self) -> Result<Option<AttributionState>>;
    /// The shares of these backups, in their order; those that came after the round have none. `Invalid`: more than
    /// [`BACKUPS_PER_PAGE_MAX`](crate::BACKUPS_PER_PAGE_MAX).
    fn backup_shares(&self, backups: &[BackupId]) -> Result<Vec<BackupShareRecord>>;
    /// Sums of what is still there, the largest first, at most `limit` and [`ATTRIBUTED_GROUPS_MAX`]. `namespaces`:
    /// `None` for all, an empty list for none.
    fn attributed(
        &self,
        by: AttributedBy,
        namespaces: Option<&[NamespaceId]>,
        limit: u32,
    ) -> Result<Vec<AttributedGroup>>;
}
