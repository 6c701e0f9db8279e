//! The scrub: reads everything again, in the background, so that what rots is found while it can still be healed.
//!
//! A pass reads every region of every container (checksum, decode, fingerprints), then compares the extents of every
//! restore point with their digests. What is found damaged is noted as damage is anywhere (R4), so the next backup
//! brings it again; what is sound gets the time at which it proved so. A pass is spread over a number of days; it slows
//! down to nothing while others need the disk, or the disk is full.
//!
//! What is proved is kept in memory for a minute at most and written with the place in one transaction, so a crash
//! costs reading the last minute's containers again and claims nothing that was not read. A container that is deleted
//! while it is read is a miss, never damage.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | the job, and when it rests |
//! | `work` | the place, and what is done in which order |
//! | `containers` | proving a container |
//! | `restore_points` | proving a restore point |

mod containers;
mod restore_points;
mod work;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_catalog::ScrubPhase;
use parking_lot::Mutex;

use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, JobProgress, Step};
use crate::progress::Progress;
use work::{Next, Work};

/// Days of a pass unless told otherwise. A disk that rots does so over months, and a chunk heals only while it is still
/// on a disk that is backed up: a month leaves several backups to bring it again, and takes 40 MB/s of 100 TB.
pub const SCRUB_DAYS: u32 = 30;

/// Rest after a step when the pass is ahead of its time: a small repository is read at 1 MiB/s, not in a month.
const REST_MAX: Duration = Duration::from_secs(60);

/// Between two looks while others need the disk.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Between two looks while the volume is full, or the repository takes no writes.
const FULL_WAIT: Duration = Duration::from_secs(60);

/// Between two looks at whether a pass is due.
const IDLE_WAIT: Duration = Duration::from_secs(600);

const DAY_MS: i64 = 86_400_000;

/// Whether others need the disk now. Asked between containers, so it must be cheap.
pub trait Load: Send + Sync + fmt::Debug {
    /// Whether the scrub has to wait.
    fn is_busy(&self) -> bool;
}

/// What was found since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubFindings {
    /// Containers read, and their bytes.
    pub containers: u64,
    pub container_bytes: u64,
    /// Of these, how many have damage.
    pub damaged_containers: u64,
    /// Restore points compared with their digests.
    pub restore_points: u64,
    /// Of these, how many lack something or have a digest that is false.
    pub unsound_restore_points: u64,
    pub false_digests: u64,
}

/// How the scrub is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Passes begun so far.
    pub pass: u64,
    pub phase: ScrubPhase,
    /// When the pass began; 0: none did.
    pub began_ms: i64,
    /// When the last whole pass ended.
    pub ended_ms: Option<i64>,
    /// Of this phase, as far as can be told: container numbers, or restore points.
    pub done: u64,
    pub total: u64,
    pub found: ScrubFindings,
}

/// The scrub of one repository. One step at a time, no matter which caller asks for it.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    work: Mutex<Option<Work>>,
    /// As of the last piece of work.
    status: Mutex<ScrubStatus>,
}

impl Scrub {
    /// As of the last piece of work of this process.
    pub(crate) fn status(&self, core: &Core) -> Result<ScrubStatus, EngineError> {
        let status = *self.status.lock();
        if status.pass > 0 {
            return Ok(status);
        }
        let state = core.catalog.scrub_state()?;
        let (pass, phase, began_ms, ended_ms) = (state.pass, state.phase, state.began_ms, state.ended_ms);
        Ok(ScrubStatus { pass, phase, began_ms, ended_ms, done: state.done, ..status })
    }

    /// Works until the budget is spent, the pass has ended, or `may_go_on` says no. A pass begins only where
    /// `begins` says so.
    fn work(
        &self,
        core: &Arc<Core>,
        budget: &Budget,
        begins: impl Fn(&Work) -> bool,
        may_go_on: impl Fn() -> bool,
    ) -> Result<Next, EngineError> {
        let mut guard = self.work.lock();
        let work = match &mut *guard {
            Some(work) => work,
            empty => empty.insert(Work::load(core)?),
        };
        let mut next = if work.is_idle() {
            if !begins(work) {
                return Ok(Next::Idle);
            }
            work.begin(core)?
        } else {
            Next::More
        };
        while next == Next::More && !budget.is_spent() && may_go_on() {
            next = work.piece(core, budget)?;
            *self.status.lock() = work.status();
        }
        work.write_if_due(core, next == Next::Idle)?;
        Ok(next)
    }

    /// Writes what is kept in memory, for a stop.
    pub(crate) fn write(&self, core: &Core) -> Result<(), EngineError> {
        match &mut *self.work.lock() {
            Some(work) => work.write_if_due(core, true),
            None => Ok(()),
        }
    }

    /// Goes on with the pass under way, or begins one, and returns when it has ended, at full speed.
    pub(crate) fn run(
        &self,
        core: &Arc<Core>,
        budget: &Budget,
        progress: &dyn Progress,
    ) -> Result<ScrubFindings, EngineError> {
        let before = self.status.lock().found;
        let mut may_begin = true;
        loop {
            let next = self.work(core, budget, |_| may_begin, || true)?;
            may_begin = false;
            let status = *self.status.lock();
            progress.step("scrubbed", status.done, status.total);
            if next == Next::Idle || budget.is_spent() {
                self.write(core)?;
                return Ok(status.found.since(before));
            }
        }
    }
}

impl ScrubFindings {
    /// What was found after `before`.
    const fn since(self, before: Self) -> Self {
        Self {
            containers: self.containers.saturating_sub(before.containers),
            container_bytes: self.container_bytes.saturating_sub(before.container_bytes),
            damaged_containers: self.damaged_containers.saturating_sub(before.damaged_containers),
            restore_points: self.restore_points.saturating_sub(before.restore_points),
            unsound_restore_points: self.unsound_restore_points.saturating_sub(before.unsound_restore_points),
            false_digests: self.false_digests.saturating_sub(before.false_digests),
        }
    }
}

/// The scrub as background work that never ends.
#[derive(Debug)]
pub(crate) struct ScrubJob {
    pub(crate) core: Arc<Core>,
    pub(crate) scrub: Arc<Scrub>,
    /// Days of a pass; 0: never.
    pub(crate) days: u32,
    pub(crate) load: Arc<dyn Load>,
}

impl ScrubJob {
    fn is_full(&self) -> Result<bool, EngineError> {
        let room = self.core.ledger.room()?;
        Ok(self.core.health.read_only_reason().is_some() || room.is_some_and(|room| room.for_data_bytes == 0))
    }

    /// How far the pass is ahead of its time.
    fn ahead(&self, work: ScrubStatus) -> Duration {
        let period_ms = i64::from(self.days).saturating_mul(DAY_MS);
        // Set back: as if it began now.
        let elapsed_ms = self.core.clock.now_ms().saturating_sub(work.began_ms).max(0);
        let half = |done: u64, total: u64| {
            let done = i128::from(done.min(total)) * i128::from(period_ms);
            i64::try_from(done / i128::from(total.max(1)) / 2).unwrap_or(i64::MAX)
        };
        let due_ms = match work.phase {
            ScrubPhase::Idle => return IDLE_WAIT,
            ScrubPhase::Containers => half(work.done, work.total),
            ScrubPhase::RestorePoints => (period_ms / 2).saturating_add(half(work.done, work.total)),
        };
        Duration::from_millis(u64::try_from(due_ms.saturating_sub(elapsed_ms)).unwrap_or(0))
    }
}

impl Job for ScrubJob {
    fn name(&self) -> &'static str {
        "scrub"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        if self.days == 0 {
            return Ok(Step::Finished);
        }
        if self.is_full()? {
            return Ok(Step::Idle(FULL_WAIT));
        }
        if self.load.is_busy() {
            return Ok(Step::Idle(BUSY_WAIT));
        }
        let period_ms = i64::from(self.days).saturating_mul(DAY_MS);
        let now_ms = self.core.clock.now_ms();
        let next = self.scrub.work(
            &self.core,
            budget,
            |work| work.is_due(now_ms, period_ms),
            || !self.load.is_busy(),
        )?;
        if next == Next::Idle {
            return Ok(Step::Idle(IDLE_WAIT));
        }
        if self.load.is_busy() {
            return Ok(Step::Idle(BUSY_WAIT));
        }
        let status = *self.scrub.status.lock();
        let rest = self.ahead(status).min(REST_MAX);
        Ok(if rest.is_zero() { Step::More } else { Step::Idle(rest) })
    }

    fn progress(&self) -> Option<JobProgress> {
        let status = *self.scrub.status.lock();
        let unit = match status.phase {
            ScrubPhase::Idle => return None,
            ScrubPhase::Containers => "containers",
            ScrubPhase::RestorePoints => "restore points",
        };
        Some(JobProgress { done: status.done.min(status.total), total: status.total, unit })
    }
}
