//! [`Audit`] on SQLite.

use super::super::{SqliteCatalog, audit};
use crate::{Audit, AuditEntry, AuditRecord, AuditRepeat, Page, PageRequest, Result, validate};

impl Audit for SqliteCatalog {
    fn audit(&self, entry: &AuditEntry) -> Result<()> {
        self.write(|tx| audit::add(tx, self.clock.as_ref(), entry))
    }

    fn audit_repeats(&self, repeats: &[AuditRepeat]) -> Result<()> {
        validate::repeats(repeats)?;
        if repeats.is_empty() {
            return Ok(());
        }
        self.write(|tx| repeats.iter().try_for_each(|repeat| audit::repeat(tx, self.clock.as_ref(), repeat)))
    }

    fn list_audit(&self, page: PageRequest<'_>) -> Result<Page<AuditRecord>> {
        self.report(|c| audit::list(c, page))
    }
}
