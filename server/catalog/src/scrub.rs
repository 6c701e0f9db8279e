//! What was proved sound and when, and what of restore points is lost.

use std::fmt;

use holdfast_types::ids::{BackupId, NamespaceId, VmId};

use crate::Result;
use crate::rows::{BackupInOrder, DamageTotals, DamagedDisk, LostRanges, ProofSummary, ScrubState, Scrubbed};

/// Ranges of one disk kept at most; of more than these only the sums are.
pub const LISTED_RANGES_MAX: usize = 64;

/// Asked by the scrub, by what names damage, and by what shows it.
///
/// Across processes: each function that changes something is one transaction.
pub trait Scrubs: Send + Sync + fmt::Debug {
    /// How far the scrub is.
    fn scrub_state(&self) -> Result<ScrubState>;
    /// Records what proved sound, and how far the scrub is, in one transaction. What was deleted meanwhile is skipped.
    fn note_scrubbed(&self, done: &Scrubbed) -> Result<()>;
    /// The restore point after `after`, by VM and commit number.
    fn backup_in_order(&self, after: Option<(VmId, u64)>) -> Result<Option<BackupInOrder>>;
    /// When each of these restore points last proved sound, in their order. `Invalid`: more than
    /// [`BACKUPS_PER_PAGE_MAX`](crate::BACKUPS_PER_PAGE_MAX).
    fn proofs(&self, backups: &[BackupId]) -> Result<Vec<Option<i64>>>;
    /// Sums over everything.
    fn proof_summary(&self) -> Result<ProofSummary>;

    /// Puts a restore point in doubt: something of it may be lost that no container's row tells of. One of which something
    /// is known to be lost, or that was deleted, is left.
    fn doubt(&self, backup: BackupId) -> Result<()>;
    /// Up to `limit` restore points in doubt, by id.
    fn in_doubt(&self, limit: u32) -> Result<Vec<BackupId>>;
    /// Returns true if part of a restore point is known to be lost, or is in doubt.
    fn may_lack(&self, backup: BackupId) -> Result<bool>;
    /// Replaces what is known to be lost of a restore point; nothing: it is whole. Either way it is in doubt no more. When a restore point that was whole
    /// is not any more, or is again, the audit log says so. Whether something changed; a restore point that was deleted
    /// is skipped.
    fn set_lost(&self, backup: BackupId, lost: &[LostRanges]) -> Result<bool>;
    /// Up to `limit` disks that lack something after the given one, by restore point, oldest first. An empty list of
    /// namespaces: none.
    fn damaged_disks(
        &self,
        namespaces: Option<&[NamespaceId]>,
        after: Option<(BackupId, u32)>,
        limit: u32,
    ) -> Result<Vec<DamagedDisk>>;
    /// Of these restore points, those that lack something, and how many bytes. `Invalid` as for
    /// [`proofs`](Scrubs::proofs).
    fn lost_bytes(&self, backups: &[BackupId]) -> Result<Vec<(BackupId, u64)>>;
    /// Sums over the restore points that lack something.
    fn damage_totals(&self, namespaces: Option<&[NamespaceId]>) -> Result<DamageTotals>;
}
