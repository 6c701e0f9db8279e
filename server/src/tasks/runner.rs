//! The loop that begins attempts, each on a thread that may block.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::catalog::{ScheduleMark, TaskKind};
use holdfast_proto::ErrorCode;
use holdfast_proto::schedule::{self, Schedule};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::error::ServiceError;
use crate::tasks::work::WorkError;
use crate::tasks::{Attempt, Tasks};

/// Interval at which the throttle is adapted, and watchers are told of progress.
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

/// A schedule, as the clock sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The name of its mark.
    pub(crate) name: String,
    pub(crate) kind: TaskKind,
    pub(crate) expression: String,
    pub(crate) time_zone: String,
    pub(crate) options: String,
}

/// Action for a plan now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It is its time, or was while the server did not run: however often, once. The mark to move with it.
    Now(ScheduleMark),
    /// Nothing is known of it before this moment: what is due is what comes from now on.
    Begin(ScheduleMark),
    Later,
}

/// Tells if `plan` is due, everything up to `mark` done. Pure, but for the calendar.
///
/// # Errors
/// `Invalid`: the expression or the time zone cannot be read.
pub(super) fn due(plan: &Plan, mark: Option<&ScheduleMark>, now_ms: i64) -> Result<Due, ServiceError> {
    let moved = ScheduleMark { name: plan.name.clone(), at_ms: now_ms };
    let schedule = parse(&plan.expression, &plan.time_zone)?;
    Ok(match schedule.due(mark.map(|mark| mark.at_ms), now_ms) {
        schedule::Due::Now => Due::Now(moved),
        schedule::Due::Begin => Due::Begin(moved),
        schedule::Due::Later => Due::Later,
    })
}

/// The first time after `after_ms`; `None` beyond the end of the calendar.
///
/// # Errors
/// `Invalid`: the expression or the time zone cannot be read.
pub(super) fn next_occurrence(
    expression: &str,
    time_zone: &str,
    after_ms: i64,
) -> Result<Option<i64>, ServiceError> {
    Ok(parse(expression, time_zone)?.next_after_ms(after_ms))
}

fn parse(expression: &str, time_zone: &str) -> Result<Schedule, ServiceError> {
    Schedule::parse(expression, time_zone).map_err(|error| ServiceError::invalid(error.to_string()))
}
