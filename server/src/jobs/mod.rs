//! Background work of a running server: one runner for all jobs, those of the engine and those of the server.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | the runner: start, list, pause, resume and stop jobs; how fast a job may be |
//! | `status` | what is told of a job |
//! | `worker` | one job's loop |
//! | `upkeep`, `conversion`, `bucket_copies`, `bucket_retention`, `space_history` | jobs of the server |
//!
//! Invariants:
//! * A job has one task and one step at a time, on a thread that may block.
//! * A step that fails or panics is shown and tried again, less and less often; it affects no other job.
//! * After [`Jobs::pause`] no step of the job begins; after [`Runner::stop`] none is under way.
//!
//! Each job keeps its own state across a crash ([`Job::resume_point`]); nothing here is durable.

mod bucket_copies;
mod bucket_retention;
mod conversion;
mod space_history;
mod status;
#[cfg(test)]
mod tests;
mod upkeep;
mod worker;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::clock::Clock;
use holdfast_engine::{Job, Load, StepLimits};
use holdfast_volume::Timer;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::activity::Activity;
pub(crate) use crate::jobs::bucket_copies::{BUCKET_COPIES, BucketCopies, StartAudit};
pub(crate) use crate::jobs::bucket_retention::BucketRetention;
pub(crate) use crate::jobs::conversion::EncryptRest;
pub(crate) use crate::jobs::space_history::SpaceHistory;
use crate::jobs::status::Entry;
pub use crate::jobs::status::{JobState, JobStatus, LastError};
pub(crate) use crate::jobs::upkeep::{
    AuditCounts, CertificateFile, EndedAccess, EndedLogins, ExpiredLeases, KeyTableWatch,
};
use crate::jobs::worker::Worker;

/// The jobs of a server: what they are doing, and a way to pause them. Holds no job itself, so that what a job refers
/// to is released with the job's task.
#[derive(Debug, Default)]
pub struct Jobs(Mutex<Vec<Arc<Entry>>>);

impl Jobs {
    /// All jobs, in the order they were started in.
    pub fn list(&self) -> Vec<JobStatus> {
        self.0.lock().iter().map(|entry| entry.status()).collect()
    }

    /// Lets no step of the job begin until [`Jobs::resume`], and tells the one under way to end early. `false`: there
    /// is no such job. A restart of the server forgets it.
    pub fn pause(&self, name: &str) -> bool {
        self.entry(name).map(|entry| entry.pause()).is_some()
    }

    /// Ends a pause; a wait that is not over goes on. `false`: there is no such job.
    pub fn resume(&self, name: &str) -> bool {
        self.entry(name).map(|entry| entry.resume()).is_some()
    }

    /// Ends the wait of a job that has nothing to do, or the next such wait if it is at work. Does nothing to one that is
    /// throttled, paused or waits after a failure, or that does not exist.
    pub(crate) fn wake(&self, name: &str) {
        if let Some(entry) = self.entry(name) {
            entry.wake();
        }
    }

    fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        self.0.lock().iter().find(|entry| entry.name() == name).map(Arc::clone)
    }

    fn stop(&self) {
        for entry in &*self.0.lock() {
            entry.stop();
        }
    }
}

/// Runs jobs until it is stopped; dropped without that, it cuts their tasks off between two steps.
#[derive(Debug)]
pub struct Runner {
    jobs: Arc<Jobs>,
    /// Measures steps.
    timer: Arc<dyn Timer>,
    /// Clock for the times in a status.
    clock: Arc<dyn Clock>,
    tasks: JoinSet<()>,
}

impl Runner {
    /// Creates a runner without jobs; those it starts are shown in `jobs`.
    pub fn new(jobs: Arc<Jobs>, timer: Arc<dyn Timer>, clock: Arc<dyn Clock>) -> Self {
        Self { jobs, timer, clock, tasks: JoinSet::new() }
    }

    /// Runs a job; its first step begins at once. Two jobs of one name are a defect, and panic.
    pub fn start(&mut self, job: Arc<dyn Job>, pace: Pace) {
        let entry = Arc::new(Entry::new(&*job));
        {
            let mut entries = self.jobs.0.lock();
            assert!(
                entries.iter().all(|other| other.name() != entry.name()),
                "two jobs are called {}",
                entry.name()
            );
            entries.push(Arc::clone(&entry));
        }
        let (timer, clock) = (Arc::clone(&self.timer), Arc::clone(&self.clock));
        self.tasks.spawn(Worker { job, pace, entry, timer, clock }.run());
    }

    /// Ends all jobs and waits for the steps under way, which are told to end early: no longer than
    /// [`StepLimits::time`](holdfast_engine::StepLimits) and one item of the slowest. Waits between steps end at once.
    pub async fn stop(mut self) {
        self.jobs.stop();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a background job's task ended with an internal error");
            }
        }
    }
}

/// Busy while any stream of a backup or restore is open, so that other work on the disk waits.
#[derive(Debug)]
pub(crate) struct DataPath {
    pub(crate) activity: Arc<Activity>,
}

impl Load for DataPath {
    fn is_busy(&self) -> bool {
        self.activity.streams.count() > 0
    }
}

/// Cost of a job, and how it is tried again.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub limits: StepLimits,
    pub throttle: Throttle,
    pub retry: Retry,
}

/// A job's share of time and of bytes, kept by waiting after each step. Within each step it runs at full speed, so what
/// holds for a step and the wait after it holds for any number of them.
#[derive(Debug, Clone, Copy)]
pub struct Throttle {
    /// Seconds of steps in 100 s of a busy job; the others are waits. 1 to 100.
    share_percent: u32,
    /// Bytes charged to budgets; `None`: any.
    bytes_per_sec: Option<NonZeroU64>,
}

impl Throttle {
    /// Steps without waits between them. For jobs that do a little and are idle then.
    pub const NONE: Self = Self { share_percent: 100, bytes_per_sec: None };

    /// A share of time, from 1 to 100 percent; values outside are moved to the nearest of these.
    pub const fn share(percent: u32) -> Self {
        let share_percent = match percent {
            0 => 1,
            1..=100 => percent,
            _ => 100,
        };
        Self { share_percent, bytes_per_sec: None }
    }

    /// Limits it to these bytes per second as well.
    pub const fn with_bytes_per_sec(self, bytes_per_sec: NonZeroU64) -> Self {
        Self { bytes_per_sec: Some(bytes_per_sec), ..self }
    }

    /// The share of time, from 1 to 100 percent.
    pub const fn share_percent(self) -> u32 {
        self.share_percent
    }

    /// Bytes a second at most; `None`: any.
    pub const fn bytes_per_sec(self) -> Option<NonZeroU64> {
        self.bytes_per_sec
    }

    /// Wait after a step that took `took` and moved `bytes` bytes.
    ///
    /// The share holds when `took ÷ (took + wait) = share`, so `wait = took × (100 − share) ÷ share`; the rate when
    /// `bytes ÷ (took + wait) = rate`, so `wait = bytes ÷ rate − took`. The longer wait keeps both.
    pub fn wait(self, took: Duration, bytes: u64) -> Duration {
        let by_share = took.saturating_mul(100 - self.share_percent) / self.share_percent;
        let by_rate = self.bytes_per_sec.map_or(Duration::ZERO, |rate| {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).saturating_sub(took)
        });
        by_share.max(by_rate)
    }
}

/// Waits after steps that failed: `first`, then twice as long each time, at most `longest`.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    pub first: Duration,
    pub longest: Duration,
}

impl Retry {
    /// The wait after so many failures in a row, one or more.
    pub fn wait(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}
