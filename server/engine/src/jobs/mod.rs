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

mod budget;

use std::error::Error;
use std::fmt;
use std::time::Duration;

pub use budget::{Budget, StepLimits, StopFlag};

/// Why a step failed. Boxed, because a runner does the same with every failure: it tells of it and tries again.
pub type JobError = Box<dyn Error + Send + Sync>;

/// What a step leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to do now.
    More,
    /// There is nothing to do for this long.
    Idle(Duration),
    /// There is nothing left, for good: no step is called again.
    Finished,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobProgress {
    /// Units done, and all there are; never more done than there are.
    pub done: u64,
    pub total: u64,
    /// What is counted, in the plural: `containers`.
    pub unit: &'static str,
}

/// Background work, one bounded step per call.
pub trait Job: Send + Sync + fmt::Debug {
    /// What logs and the API call it; unique in a process. Lower case, words joined by `-`.
    fn name(&self) -> &'static str;

    /// Does the next piece of work, at least one item, and returns when the budget is used up. Blocks. No two steps of
    /// a job run at the same time.
    ///
    /// # Errors
    /// What went wrong; the next step tries the same piece again.
    fn step(&self, budget: &Budget) -> Result<Step, JobError>;

    /// How far it is; also while a step works. `None`: it comes round again and again and never ends.
    fn progress(&self) -> Option<JobProgress> {
        None
    }

    /// Where a later process has to go on: all before it was done, durably. The job's owner keeps it. `None`: the job
    /// has nothing to go on from, or has finished.
    fn resume_point(&self) -> Option<u64> {
        None
    }
}
