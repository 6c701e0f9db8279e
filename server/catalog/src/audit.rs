//! Who did what.

use std::fmt;

use crate::rows::{AuditEntry, AuditRecord, AuditRepeat};
use crate::{Page, PageRequest, Result};

/// How long repeated events go on being counted in one entry, from its first: ten minutes.
pub const AUDIT_WINDOW_MS: i64 = 10 * 60_000;

/// Entries one actor can cause with repeated events of one action within [`AUDIT_WINDOW_MS`]: further keys are counted
/// together. A cluster's token backs up hundreds of VMs an hour, each an entry of its own.
pub const AUDIT_KEYS_PER_ACTOR_MAX: usize = 256;

/// Repeats written in one transaction at most.
pub const AUDIT_REPEATS_MAX: usize = 4096;

/// Entries are never changed, except that those of repeated events go on counting for a while. Across processes: each
/// function is one transaction, and a later entry has a higher id, whatever process wrote it.
pub trait Audit: Send + Sync + fmt::Debug {
    /// Adds to the audit log, as an entry of its own.
    fn audit(&self, entry: &AuditEntry) -> Result<()>;
    /// Adds repeated events: each to the entry of the same actor, action and key that began within
    /// [`AUDIT_WINDOW_MS`] before its last event, or as a new entry. Where an actor has
    /// [`AUDIT_KEYS_PER_ACTOR_MAX`] such entries of an action, further keys share one. No event is lost: counts add
    /// up. `Invalid`: more than [`AUDIT_REPEATS_MAX`], or a count of 0.
    fn audit_repeats(&self, repeats: &[AuditRepeat]) -> Result<()>;
    /// The audit log, newest first. `Invalid`: the page token is not of this list.
    fn list_audit(&self, page: PageRequest<'_>) -> Result<Page<AuditRecord>>;
}
