//! Records each day what the repository takes: forecasts are made of it, since containers that are there do not tell of those
//! that were freed.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::clock::Clock;
use holdfast_engine::{Budget, Engine, Job, JobError, Step};

use crate::repository::{Tiers, space_now};

/// Interval between looks. What counts of a day is the last one.
const INTERVAL: Duration = Duration::from_secs(3600);

/// Records the day's space used, once an hour.
///
/// A step is one transaction of one row, after a walk over the rows of all containers and, where there is a bucket, over the
/// record of what lies in it. A crash loses at most an hour of the day.
#[derive(Debug)]
pub(crate) struct SpaceHistory {
    pub(crate) engine: Arc<Engine>,
    pub(crate) tiers: Option<Arc<Tiers>>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Job for SpaceHistory {
    fn name(&self) -> &'static str {
        "space-history"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        // Nothing can be recorded now, so nothing is looked up.
        if self.engine.read_only_reason().is_some() || budget.must_stop() {
            return Ok(Step::Idle(INTERVAL));
        }
        let catalog = self.engine.catalog();
        let containers = catalog.container_totals(None)?;
        let found = space_now(catalog, &containers, self.tiers.as_deref(), self.clock.now_ms())?;
        catalog.record_space(&found)?;
        budget.charge(1, 0);
        Ok(Step::Idle(INTERVAL))
    }
}
