//! [`Audit`] on SQLite.

use super::super::{SqliteCatalog, audit};
use crate::{Audit, AuditEntry, AuditRecord, Page, PageRequest, Result};

impl Audit for SqliteCatalog {
    fn audit(&self, entry: &AuditEntry) -> Result<()> {
        self.write(|tx| audit::add(tx, self.clock.as_ref(), entry))
    }

    fn list_audit(&self, page: PageRequest<'_>) -> Result<Page<AuditRecord>> {
        self.report(|c| audit::list(c, page))
    }
}
