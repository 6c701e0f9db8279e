//! The loop that begins attempts, each on a thread that may block.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::ErrorCode;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::work::WorkError;
use super::{Attempt, Tasks};
use crate::error::ServiceError;

/// How often the throttle is adapted, and watchers are told of progress.
const TICK: Duration = Duration::from_secs(1);

/// Runs tasks until it is stopped; dropped without that, it begins no more.
#[derive(Debug)]
pub(crate) struct TaskRunner {
    tasks: Arc<Tasks>,
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
}

impl TaskRunner {
    /// Begins with what an earlier process left.
    pub(crate) fn start(tasks: &Arc<Tasks>) -> Self {
        let (stop, told) = watch::channel(false);
        let mut running = JoinSet::new();
        running.spawn(run(Arc::clone(tasks), told));
        Self { tasks: Arc::clone(tasks), stop, running }
    }

    /// Interrupts what runs, and waits for it: the time of one piece of work of each kind. All of it begins again with
    /// the next start.
    pub(crate) async fn stop(mut self) {
        self.tasks.board.lock().stop();
        self.stop.send_replace(true);
        while let Some(ended) = self.running.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "the runner of tasks ended with an internal error");
            }
        }
    }
}

async fn run(tasks: Arc<Tasks>, mut stop: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut attempts = JoinSet::new();
    blocking(&tasks, |tasks| {
        tasks.load();
        Vec::new()
    })
    .await;
    while !*stop.borrow() {
        for attempt in blocking(&tasks, Tasks::tick).await {
            let tasks = Arc::clone(&tasks);
            attempts.spawn_blocking(move || attempt.make(&tasks));
        }
        tokio::select! {
            _ = ticks.tick() => {}
            () = tasks.wake.notified() => {}
            _ = stop.changed() => {}
        }
        // Threads that have ended; what they did is told by themselves.
        while attempts.try_join_next().is_some() {}
    }
    while attempts.join_next().await.is_some() {}
}

async fn blocking(
    tasks: &Arc<Tasks>,
    work: impl FnOnce(&Tasks) -> Vec<Attempt> + Send + 'static,
) -> Vec<Attempt> {
    let tasks = Arc::clone(tasks);
    tokio::task::spawn_blocking(move || work(&tasks)).await.unwrap_or_else(|error| {
        tracing::error!(%error, "the runner of tasks met an internal error");
        Vec::new()
    })
}

impl Attempt {
    /// Does the work, and tells how it ended. A panic fails the task and nothing else.
    pub(super) fn make(self, tasks: &Tasks) {
        let Self { id, work, order, control } = self;
        let outcome = catch_unwind(AssertUnwindSafe(|| work.run(&order, &control))).unwrap_or_else(|_| {
            let message = "internal error, please report it; the server's log says where";
            Err(WorkError::Failed(ServiceError::new(ErrorCode::Internal, message)))
        });
        tasks.ended(id, work.kind(), outcome);
    }
}
