//! Looks at the table of keys on the volume: a server has it in memory, and would notice only at its next start that it was
//! damaged or deleted there. A crash leaves what was there.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::{Budget, Engine, Job, JobError, Step};

use crate::repository::Encryption;

/// Between two looks: each reads two small blobs.
const AGAIN: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) struct KeyTableWatch {
    pub(crate) engine: Arc<Engine>,
    pub(crate) encryption: Arc<Encryption>,
}

impl Job for KeyTableWatch {
    fn name(&self) -> &'static str {
        "key-table"
    }

    fn step(&self, _: &Budget) -> Result<Step, JobError> {
        // (K8)
        if self.engine.read_only_reason().is_none() {
            self.encryption.mend()?;
        }
        Ok(Step::Idle(AGAIN))
    }
}
