//! Rebuilds pages of the index that turned out to be damaged, in the background.

use std::sync::Arc;
use std::time::Duration;

use crate::core::Core;
use crate::jobs::{Budget, Job, JobError, JobProgress, Step};

/// Between two looks at whether there is something to repair. A look costs nothing.
const INTERVAL: Duration = Duration::from_secs(5);

/// See the module's text. A crash in the middle leaves the index as it was: the page is met again.
#[derive(Debug)]
pub(crate) struct IndexRepairJob {
    pub(crate) core: Arc<Core>,
}

impl Job for IndexRepairJob {
    fn name(&self) -> &'static str {
        "index-repair"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let whole = self.core.store.repair_index(budget)?;
        Ok(if whole { Step::Idle(INTERVAL) } else { Step::More })
    }

    fn progress(&self) -> Option<JobProgress> {
        let (done, total) = self.core.store.repair_progress()?;
        Some(JobProgress { done, total, unit: "containers" })
    }
}
