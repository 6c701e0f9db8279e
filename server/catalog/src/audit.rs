//! Who did what.

use std::fmt;

use crate::rows::{AuditEntry, AuditRecord};
use crate::{Page, PageRequest, Result};

/// Entries are never changed. Across processes: each is one transaction, and a later one has a higher id,
/// whatever process wrote it.
pub trait Audit: Send + Sync + fmt::Debug {
    /// Adds to the audit log.
    fn audit(&self, entry: &AuditEntry) -> Result<()>;
    /// The audit log, newest first. `Invalid`: the page token is not of this list.
    fn list_audit(&self, page: PageRequest<'_>) -> Result<Page<AuditRecord>>;
}
