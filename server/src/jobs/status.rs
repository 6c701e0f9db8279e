//! Status of a background job, and the commands given to it.

use holdfast_engine::{Job, JobProgress, StopFlag};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// Activity of a background job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// A step is under way.
    Running,
    /// More to do, but waiting for its share of time.
    Throttled,
    /// Nothing to do until the next look.
    Idle,
    /// The last step failed or panicked; waiting to try again.
    Failed,
    /// Paused until it is resumed.
    Paused,
    /// Nothing left, for good.
    Finished,
    /// The server is stopping.
    Stopped,
}

/// The last failure of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastError {
    pub message: String,
    /// Time at which the step ended with it.
    pub at_ms: i64,
}

/// Status of a background job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStatus {
    pub name: &'static str,
    pub state: JobState,
    /// Progress as of the last step; `None`: a job without an end.
    pub progress: Option<JobProgress>,
    /// Point at which a later process would go on, as of the last step.
    pub resume_point: Option<u64>,
    /// Steps that succeeded since the start of the server.
    pub steps: u64,
    /// Steps that failed since then.
    pub failures: u64,
    /// Steps that failed since the last that succeeded.
    pub failures_in_row: u32,
    /// The last error; kept after later steps succeed.
    pub last_error: Option<LastError>,
    /// Time of the last step that succeeded.
    pub last_success_ms: Option<i64>,
}

/// Command given to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Run,
    Pause,
    /// Final.
    Stop,
}

#[derive(Debug)]
struct Shared {
    status: JobStatus,
    /// Ends the step under way.
    step: Option<StopFlag>,
}

/// One job's status and wishes. They change under one lock, so that after a pause no step begins.
#[derive(Debug)]
pub(super) struct Entry {
    name: &'static str,
    shared: Mutex<Shared>,
    wish: watch::Sender<Wish>,
    /// Notified when there is something to do.
    woken: Notify,
}

impl Entry {
    pub(super) fn new(job: &dyn Job) -> Self {
        let status = JobStatus {
            name: job.name(),
            state: JobState::Idle,
            progress: job.progress(),
            resume_point: job.resume_point(),
            steps: 0,
            failures: 0,
            failures_in_row: 0,
            last_error: None,
            last_success_ms: None,
        };
        let shared = Mutex::new(Shared { status, step: None });
        Self { name: job.name(), shared, wish: watch::Sender::new(Wish::Run), woken: Notify::new() }
    }

    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn status(&self) -> JobStatus {
        self.shared.lock().status.clone()
    }

    pub(super) fn pause(&self) {
        self.tell(Wish::Pause);
    }

    pub(super) fn resume(&self) {
        self.tell(Wish::Run);
    }

    pub(super) fn stop(&self) {
        self.tell(Wish::Stop);
    }

    pub(super) fn wake(&self) {
        self.woken.notify_one();
    }

    /// Resolves once for any number of calls of [`Entry::wake`] since it last did.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }

    fn tell(&self, wish: Wish) {
        let shared = self.shared.lock();
        self.wish.send_if_modified(|now| {
            // A stop is final.
            let changes = *now != Wish::Stop && *now != wish;
            if changes {
                *now = wish;
            }
            changes
        });
        if wish != Wish::Run
            && let Some(step) = &shared.step
        {
            step.set();
        }
    }

    pub(super) fn wishes(&self) -> watch::Receiver<Wish> {
        self.wish.subscribe()
    }

    pub(super) fn show(&self, state: JobState) {
        self.shared.lock().status.state = state;
    }

    /// Begins a step unless it was told otherwise.
    pub(super) fn begin_step(&self) -> Option<StopFlag> {
        let mut shared = self.shared.lock();
        if *self.wish.borrow() != Wish::Run {
            return None;
        }
        shared.status.state = JobState::Running;
        let flag = StopFlag::default();
        shared.step = Some(flag.clone());
        Some(flag)
    }

    /// Notes how a step ended; says how many have failed in a row.
    pub(super) fn end_step(&self, job: &dyn Job, now_ms: i64, failure: Option<String>) -> u32 {
        // Asked before the lock is taken: the job's own code.
        let (progress, resume_point) = (job.progress(), job.resume_point());
        let mut shared = self.shared.lock();
        shared.step = None;
        let status = &mut shared.status;
        (status.progress, status.resume_point) = (progress, resume_point);
        match failure {
            None => {
                status.steps = status.steps.saturating_add(1);
                status.failures_in_row = 0;
                status.last_success_ms = Some(now_ms);
            }
            Some(message) => {
                status.failures = status.failures.saturating_add(1);
                status.failures_in_row = status.failures_in_row.saturating_add(1);
                status.last_error = Some(LastError { message, at_ms: now_ms });
            }
        }
        status.failures_in_row
    }
}
