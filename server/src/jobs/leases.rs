//! Gives up backups whose lease has expired.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::{Budget, Engine, Job, JobError, Step};
use holdfast_proto::ErrorCode;

use crate::activity::{Activity, Change};
use crate::metrics::Metrics;

/// Between two rounds. A lease of 120 s is given up after 122 s at most.
const INTERVAL: Duration = Duration::from_secs(2);

/// A step is a whole round: at most `max_sessions` backups (512 unless configured otherwise), a transaction each for
/// those that are given up.
#[derive(Debug)]
pub(crate) struct ExpiredLeases {
    pub(crate) engine: Arc<Engine>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Job for ExpiredLeases {
    fn name(&self) -> &'static str {
        "expired-leases"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let expired = self.engine.expire_sessions();
        budget.charge(u64::try_from(expired)?, 0);
        if expired > 0 {
            tracing::info!(expired, "gave up backups whose agents stopped responding");
            self.activity.note(Change::Run);
        }
        self.metrics.forget_sessions(|session| {
            let asked = self.engine.session_namespace(session);
            asked.is_err_and(|error| error.code() == ErrorCode::SessionGone)
        });
        Ok(Step::Idle(INTERVAL))
    }
}
