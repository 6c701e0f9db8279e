//! Removes logins that have ended. They give access to nothing any more; this only frees their rows.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::{Budget, Job, JobError, Step};

use crate::auth::Authenticator;

/// Between two rounds.
const INTERVAL: Duration = Duration::from_secs(60);

/// A step is one transaction: it deletes at most 64 rows a token, and in practice the logins that ended in a minute.
#[derive(Debug)]
pub(crate) struct EndedLogins {
    pub(crate) auth: Arc<Authenticator>,
}

impl Job for EndedLogins {
    fn name(&self) -> &'static str {
        "ended-logins"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        self.auth.forget_ended_logins()?;
        budget.charge(1, 0);
        Ok(Step::Idle(INTERVAL))
    }
}
