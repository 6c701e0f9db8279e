//! One job's loop: wait, take a step, note how it went.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::clock::Clock;
use holdfast_engine::{Budget, Job, Step, StopFlag};
use holdfast_volume::Timer;
use tokio::sync::watch;
use tokio::time::Instant;

use super::status::{Entry, JobState, Wish};
use crate::jobs::Pace;

/// Runs one job: waits, takes a step, notes how it went.
pub(super) struct Worker {
    pub(super) job: Arc<dyn Job>,
    pub(super) pace: Pace,
    pub(super) entry: Arc<Entry>,
    pub(super) timer: Arc<dyn Timer>,
    pub(super) clock: Arc<dyn Clock>,
}

/// State and wait after a step.
struct Next {
    /// State of the job during the wait.
    state: JobState,
    wait: Duration,
}

impl Worker {
    /// Runs until the job has finished or is told to stop.
    pub(super) async fn run(self) {
        let mut wishes = self.entry.wishes();
        let (mut state, mut due) = (JobState::Idle, Instant::now());
        while self.wait(&mut wishes, state, due).await {
            // `None`: told otherwise in the meantime.
            let Some(stop) = self.entry.begin_step() else {
                // Its time had come, or it was woken: that holds for as long as the pause does.
                due = Instant::now();
                continue;
            };
            let Some(next) = self.step(stop).await else {
                self.entry.show(JobState::Finished);
                return;
            };
            state = next.state;
            due = later(next.wait);
        }
        self.entry.show(JobState::Stopped);
    }

    /// Waits until `due` has come and the job may run; `false`: it must stop.
    async fn wait(&self, wishes: &mut watch::Receiver<Wish>, state: JobState, due: Instant) -> bool {
        loop {
            let wish = *wishes.borrow_and_update();
            // The entry, which `self` holds, has the sender: waiting for a change does not fail.
            match wish {
                Wish::Stop => return false,
                Wish::Pause => {
                    self.entry.show(JobState::Paused);
                    let _ = wishes.changed().await;
                }
                Wish::Run => {
                    self.entry.show(state);
                    tokio::select! {
                        _ = wishes.changed() => {}
                        () = tokio::time::sleep_until(due) => return true,
                        // A throttle and the wait after a failure hold all the same.
                        () = self.entry.woken(), if state == JobState::Idle => return true,
                    }
                }
            }
        }
    }

    /// Takes one step where it may block; `None`: the job has finished.
    async fn step(&self, stop: StopFlag) -> Option<Next> {
        let budget = Arc::new(Budget::new(self.pace.limits, Arc::clone(&self.timer), stop));
        let began = self.timer.now();
        let (job, its_budget) = (Arc::clone(&self.job), Arc::clone(&budget));
        let outcome = tokio::task::spawn_blocking(move || job.step(&its_budget)).await;
        let took = self.timer.now().saturating_sub(began);
        let throttle = self.pace.throttle.wait(took, budget.bytes());
        let result = match outcome {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(ended) => Err(panic_text(ended)),
        };
        let (step, failure) = match result {
            Ok(step) => (Some(step), None),
            Err(message) => (None, Some(message)),
        };
        let failures = self.entry.end_step(&*self.job, self.clock.now_ms(), failure.clone());
        match step {
            Some(Step::More) => Some(Next { state: JobState::Throttled, wait: throttle }),
            Some(Step::Idle(wait)) => Some(Next { state: JobState::Idle, wait: wait.max(throttle) }),
            Some(Step::Finished) => None,
            None => {
                let wait = self.pace.retry.wait(failures).max(throttle);
                tracing::warn!(
                    job = self.job.name(),
                    error = failure.unwrap_or_default(),
                    failures,
                    retry_secs = wait.as_secs(),
                    "a step of a background job failed"
                );
                Some(Next { state: JobState::Failed, wait })
            }
        }
    }
}

/// The instant after `wait`, or the latest there is: a throttle's wait has no bound of its own.
fn later(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait).unwrap_or_else(|| now + Duration::from_hours(24 * 365))
}

/// Error text for a step whose thread did not end by itself.
fn panic_text(ended: tokio::task::JoinError) -> String {
    if !ended.is_panic() {
        return "the server is shutting down".to_owned();
    }
    let payload = ended.into_panic();
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("internal error, please report it: {}", text.as_deref().unwrap_or("a panic without a message"))
}
