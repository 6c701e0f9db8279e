//! The audit log: who did what.

use crate::sqlite::{Catalog, audit};
use crate::{AuditEntry, AuditRecord, AuditRepeat, Page, PageRequest, Result, validate};

/// Entries are never changed, except that those of repeated events go on counting for a while. Across processes: each
/// function is one transaction, and a later entry has a higher id, whatever process wrote it.
impl Catalog {
    /// Adds to the audit log, as an entry of its own.
    pub fn audit(&self, entry: &AuditEntry) -> Result<()> {
        self.write(|tx| audit::add(tx, self.clock.as_ref(), entry))
    }

    /// Adds repeated events: each to the entry of the same actor, action and key that began within
    /// [`crate::AUDIT_WINDOW_MS`] before its last event, or as a new entry. Where an actor has
    /// [`crate::AUDIT_KEYS_PER_ACTOR_MAX`] such entries of an action, further keys share one. No event is lost: counts add
    /// up. `Invalid`: more than [`crate::AUDIT_REPEATS_MAX`], or a count of 0.
    pub fn audit_repeats(&self, repeats: &[AuditRepeat]) -> Result<()> {
        validate::repeats(repeats)?;
        if repeats.is_empty() {
            return Ok(());
        }
        self.write(|tx| repeats.iter().try_for_each(|repeat| audit::repeat(tx, self.clock.as_ref(), repeat)))
    }

    /// The audit log, newest first. `Invalid`: the page token is not of this list.
    pub fn list_audit(&self, page: PageRequest<'_>) -> Result<Page<AuditRecord>> {
        self.report(|c| audit::list(c, page))
    }
}
