//! Writes what the audit log counts in memory.

use std::sync::Arc;

use holdfast_engine::{Budget, Job, JobError, Step};

use crate::audit_log::FLUSH_INTERVAL;
use crate::auth::Authenticator;

/// A step is at most one transaction of a few thousand rows; nearly always none.
#[derive(Debug)]
pub(crate) struct AuditCounts {
    pub(crate) auth: Arc<Authenticator>,
}

impl Job for AuditCounts {
    fn name(&self) -> &'static str {
        "audit-counts"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        self.auth.audit_log().flush()?;
        budget.charge(1, 0);
        Ok(Step::Idle(FLUSH_INTERVAL))
    }
}
