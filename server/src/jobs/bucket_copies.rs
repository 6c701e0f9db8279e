//! Copies what was sealed to the bucket, and removes there what was removed here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::clock::Clock;
use holdfast_engine::{Budget, Job, JobError, Step};

use crate::error::ServiceError;
use crate::repository::Tiers;

/// The name of the job.
pub(crate) const BUCKET_COPIES: &str = "bucket-copies";

/// Longest wait of a blob for the next look: copies lag behind by this and the time of their requests, unless the job
/// is woken.
const INTERVAL: Duration = Duration::from_secs(1);

/// Starts audits of the bucket.
pub(crate) trait StartAudit: Send + Sync + fmt::Debug {
    /// Starts one on behalf of `who`. Blocks.
    ///
    /// # Errors
    /// When it cannot be written down.
    fn start_audit(&self, who: &str) -> Result<(), ServiceError>;
}

/// A charge is a few blobs a thread, or a request of removals; a stop ends it (`Tiers::stop`).
#[derive(Debug)]
pub(crate) struct BucketCopies {
    pub(crate) tiers: Arc<Tiers>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) audits: Arc<dyn StartAudit>,
}

impl Job for BucketCopies {
    fn name(&self) -> &'static str {
        BUCKET_COPIES
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        if self.tiers.bucket.is_none() {
            return Ok(Step::Finished);
        }
        self.start_wanted_audit();
        self.trim_kept();
        let step = self.copy(budget);
        if let Err(error) = self.tiers.publish(self.clock.now_ms()) {
            tracing::warn!(%error, "cannot write down how the copies in the bucket are");
        }
        step
    }
}

impl BucketCopies {
    /// A command asks for an audit by the record: it has no other way to the server.
    fn start_wanted_audit(&self) {
        let started = match self.tiers.take_wanted_audit() {
            Ok(None) => return,
            Ok(Some(who)) => self.audits.start_audit(&who),
            Err(error) => Err(crate::repository::record_error(error)),
        };
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start the audit of the bucket that was asked for");
        }
    }

    /// (T16) Backups come before what is kept for restores.
    fn trim_kept(&self) {
        // Each second, and most servers keep nothing.
        if self.tiers.archive.kept().is_none_or(|kept| kept.containers == 0) {
            return;
        }
        if let Err(error) = self.tiers.archive.trim_kept() {
            tracing::warn!(%error, "cannot give up what was thawed and is kept here");
        }
    }

    fn copy(&self, budget: &Budget) -> Result<Step, JobError> {
        loop {
            let worked = self.tiers.copies.work(&|| budget.must_stop())?;
            budget.charge(worked.blobs.max(1), worked.bytes);
            if !worked.more {
                return Ok(Step::Idle(INTERVAL));
            }
            if budget.is_spent() {
                return Ok(Step::More);
            }
        }
    }
}
