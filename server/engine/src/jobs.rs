//! Background work: what it is, independent of what runs it.
//!
//! A [`Job`] does its work in steps that are bounded by a [`Budget`]. It decides what to do next and keeps its own
//! place; it never waits, starts no thread of its own and knows no throttle: a runner calls it, one step at a time,
//! and decides when.
//!
//! Invariants:
//! * A step that fails, panics or ends early leaves the job so that its next step goes on from the last place that
//!   was done: a job moves its place only after the work before it was done.
//! * A crash in the middle of a step is one of these cases; what a job has to survive a crash with, it keeps
//!   itself, at its [resume point](Job::resume_point).

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_volume::Timer;

/// Error of a step. Boxed, because a runner does the same with every failure: it reports it and tries again.
pub type JobError = Box<dyn Error + Send + Sync>;

/// Results of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to do now.
    More,
    /// There is nothing to do for this long.
    Idle(Duration),
    /// There is nothing left, for good: no step is called again.
    Finished,
}

/// Progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobProgress {
    /// Units done, and all there are; never more done than there are.
    pub done: u64,
    pub total: u64,
    /// Unit of `done` and `total`, in the plural: `containers`.
    pub unit: &'static str,
}

/// Background work, one bounded step per call.
pub trait Job: Send + Sync + fmt::Debug {
    /// Name in logs and the API; unique in a process. Lower case, words joined by `-`.
    fn name(&self) -> &'static str;

    /// Does the next piece of work, at least one item, and returns when the budget is used up. Blocks. No two steps of
    /// a job run at the same time.
    ///
    /// # Errors
    /// The cause; the next step tries the same piece again.
    fn step(&self, budget: &Budget) -> Result<Step, JobError>;

    /// Progress; also while a step works. `None`: it comes round again and again and never ends.
    fn progress(&self) -> Option<JobProgress> {
        None
    }

    /// Position from which a later process has to go on: everything before it was done, durably. The job's owner keeps
    /// it. `None`: the job has nothing to go on from, or has finished.
    fn resume_point(&self) -> Option<u64> {
        None
    }
}

/// The most one step may use. Work is charged after it was done and the budget asked after each charge, so a step
/// goes over by one charge at most, and a stop waits for one charge at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Items that the job counts: containers, rows.
    pub items: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Maximum time of a step, and so the time a stop waits for it.
    pub time: Duration,
}

impl StepLimits {
    /// One listing of 4,096 containers, or two containers of 32 MiB read whole; at 100 MB/s these take 0.7 s, so
    /// that on a slower disk the time ends a step and on a faster one the count does.
    pub const DEFAULT: Self = Self { items: 4096, bytes: 64 << 20, time: Duration::from_secs(1) };
}

/// Tells a step to end as soon as it can. Clones are one flag.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Sets it, for good.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// The flag itself, for what cannot ask this type.
    pub const fn shared(&self) -> &Arc<AtomicBool> {
        &self.0
    }

    /// Returns true if it was set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Limits of one step, less what it used. May be charged from several threads.
pub struct Budget {
    limits: StepLimits,
    items: AtomicU64,
    bytes: AtomicU64,
    /// The clock, and when the time is over; `None`: never.
    end: Option<(Arc<dyn Timer>, Duration)>,
    stop: StopFlag,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("limits", &self.limits)
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

impl Budget {
    /// Budget of a step that begins now.
    pub fn new(limits: StepLimits, timer: Arc<dyn Timer>, stop: StopFlag) -> Self {
        let end = timer.now().saturating_add(limits.time);
        Self { limits, items: AtomicU64::new(0), bytes: AtomicU64::new(0), end: Some((timer, end)), stop }
    }

    /// Budget without bounds, for a caller that waits for all work.
    pub fn unlimited() -> Self {
        let limits = StepLimits { items: u64::MAX, bytes: u64::MAX, time: Duration::MAX };
        let stop = StopFlag::default();
        Self { limits, items: AtomicU64::new(0), bytes: AtomicU64::new(0), end: None, stop }
    }

    /// A budget of so many items or bytes, whichever is first, however long they take.
    pub fn of(items: u64, bytes: u64) -> Self {
        let limits = StepLimits { items, bytes, time: Duration::MAX };
        Self { limits, ..Self::unlimited() }
    }

    /// Charges the work done since the last charge.
    pub fn charge(&self, items: u64, bytes: u64) {
        add(&self.items, items);
        add(&self.bytes, bytes);
    }

    /// Returns true if the step has to end: items, bytes or time are used up, or it must stop.
    pub fn is_spent(&self) -> bool {
        self.must_stop()
            || self.items() >= self.limits.items
            || self.bytes() >= self.limits.bytes
            || self.end.as_ref().is_some_and(|(timer, end)| timer.now() >= *end)
    }

    /// Returns true if the job is stopped or paused. For work that is worth little in pieces; other work asks
    /// [`Budget::is_spent`].
    pub fn must_stop(&self) -> bool {
        self.stop.is_set()
    }

    /// The flag that tells the step to end.
    pub const fn stop(&self) -> &StopFlag {
        &self.stop
    }

    /// Items charged.
    pub fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }

    /// Bytes charged.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Adds without wrapping: a budget that was overspent stays spent.
fn add(sum: &AtomicU64, more: u64) {
    let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| Some(sum.saturating_add(more)));
}

/// Receives progress. Called often; implementations throttle.
pub trait Progress: Sync {
    /// `done` of `total` units of `phase` are done.
    fn step(&self, phase: &'static str, done: u64, total: u64);
}

/// Ignores all progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn step(&self, _phase: &'static str, _done: u64, _total: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_volume::testing::ManualTimer;

    const LIMITS: StepLimits = StepLimits { items: 10, bytes: 100, time: Duration::from_secs(1) };

    fn budget() -> (Budget, Arc<ManualTimer>, StopFlag) {
        let (timer, stop) = (Arc::new(ManualTimer::default()), StopFlag::default());
        timer.advance(Duration::from_secs(7));
        (Budget::new(LIMITS, Arc::<ManualTimer>::clone(&timer), stop.clone()), timer, stop)
    }

    #[test]
    fn items_bytes_time_and_a_stop_each_end_a_step() {
        let (items, ..) = budget();
        items.charge(9, 99);
        assert!(!items.is_spent());
        items.charge(1, 0);
        assert!(items.is_spent() && !items.must_stop());
        let (bytes, ..) = budget();
        bytes.charge(0, 100);
        assert!(bytes.is_spent());
        let (time, timer, _) = budget();
        timer.advance(Duration::from_millis(999));
        assert!(!time.is_spent());
        timer.advance(Duration::from_millis(1));
        assert!(time.is_spent());
        let (stopped, _, stop) = budget();
        assert!(!stopped.is_spent());
        stop.set();
        assert!(stopped.is_spent() && stopped.must_stop());
    }

    #[test]
    fn an_overspent_budget_stays_spent() {
        let (budget, ..) = budget();
        budget.charge(u64::MAX, u64::MAX);
        budget.charge(1, 1);
        assert!(budget.is_spent());
        assert_eq!((budget.items(), budget.bytes()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn without_bounds_only_the_work_ends() {
        let budget = Budget::unlimited();
        budget.charge(1 << 40, 1 << 60);
        assert!(!budget.is_spent());
        let (items, bytes) = (Budget::of(2, 100), Budget::of(2, 100));
        items.charge(1, 99);
        assert!(!items.is_spent());
        items.charge(1, 0);
        bytes.charge(0, 100);
        assert!(items.is_spent() && bytes.is_spent());
    }
}
