//! Background work of a running server: one runner for all jobs, those of the engine and those of the server.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | the runner: start, list, pause, resume and stop jobs |
//! | `pace` | how fast a job may be: limits of a step, throttle, retries |
//! | `status` | what is told of a job |
//! | `worker` | one job's loop |
//! | `data_path` | whether backups or restores need the disk |
//! | `leases`, `access`, `logins`, `audit_counts`, `conversion`, `key_table`, `bucket_copies`, `bucket_retention` | jobs of the server |
//!
//! Invariants:
//! * A job has one task and one step at a time, on a thread that may block.
//! * A step that fails or panics is shown and tried again, less and less often; it affects no other job.
//! * After [`Jobs::pause`] no step of the job begins; after [`Runner::stop`] none is under way.
//!
//! What a job has to keep across a crash is its own affair ([`Job::resume_point`]); nothing here is durable.

mod access;
mod audit_counts;
mod bucket_copies;
mod bucket_retention;
mod certificate_file;
mod conversion;
mod data_path;
mod key_table;
mod leases;
mod logins;
mod pace;
mod status;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;

use holdfast_engine::Job;
use holdfast_engine::clock::Clock;
use holdfast_volume::Timer;
use parking_lot::Mutex;
use tokio::task::JoinSet;

pub(crate) use access::EndedAccess;
pub(crate) use audit_counts::AuditCounts;
pub(crate) use bucket_copies::{BUCKET_COPIES, BucketCopies, StartAudit};
pub(crate) use bucket_retention::BucketRetention;
pub(crate) use certificate_file::CertificateFile;
pub(crate) use conversion::EncryptRest;
pub(crate) use data_path::DataPath;
pub(crate) use key_table::KeyTableWatch;
pub(crate) use leases::ExpiredLeases;
pub(crate) use logins::EndedLogins;
pub use pace::{Pace, Retry, Throttle};
use status::Entry;
pub use status::{JobState, JobStatus, LastError};
use worker::Worker;

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
    /// For the times in a status.
    clock: Arc<dyn Clock>,
    tasks: JoinSet<()>,
}

impl Runner {
    /// Without jobs yet; those it starts are shown in `jobs`.
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
