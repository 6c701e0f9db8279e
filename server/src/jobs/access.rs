//! Ends streams, connections and watchers whose token or login has ended.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::{Budget, Job, JobError, Step};

use crate::activity::Activity;
use crate::auth::Authenticator;

/// Between two rounds: how long an answer under way outlives its token.
const INTERVAL: Duration = Duration::from_secs(2);

/// A step is a whole round: one or two look-ups in the catalog for each token with open streams or connections and each
/// credential of a watcher. With the default settings these are at most 16 + 16 + 16 streams, 2 × 224 connections and 128
/// watchers, so 752 look-ups, if every connection has a token of its own.
#[derive(Debug)]
pub(crate) struct EndedAccess {
    pub(crate) auth: Arc<Authenticator>,
    pub(crate) activity: Arc<Activity>,
}

impl Job for EndedAccess {
    fn name(&self) -> &'static str {
        "ended-access"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        for token in self.activity.tokens() {
            if budget.must_stop() {
                return Ok(Step::More);
            }
            if !self.auth.still_valid(token)? {
                tracing::info!(%token, "the token has ended; ending its streams and connections");
                self.activity.end_token(token);
            }
            budget.charge(1, 0);
        }
        for credential in self.activity.watchers.credentials() {
            if budget.must_stop() {
                return Ok(Step::More);
            }
            if !self.auth.still_holds(&credential)? {
                self.activity.watchers.end(&credential);
            }
            budget.charge(1, 0);
        }
        Ok(Step::Idle(INTERVAL))
    }
}
