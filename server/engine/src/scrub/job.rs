//! The scrub as background work that never ends, and when it rests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_catalog::ScrubPhase;

use super::work::{Next, Work};
use super::{Scrub, ScrubStatus};
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, JobProgress, Step};

/// Rest after a step when the pass is ahead of its time: a small repository is read at 1 MiB/s, not in a month.
const REST_MAX: Duration = Duration::from_secs(60);

/// Interval between two looks while others need the disk, or work on the pass themselves.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Interval between two looks while the volume is full, or the repository takes no writes.
const FULL_WAIT: Duration = Duration::from_secs(60);

/// Interval between two looks whether a pass is due.
const IDLE_WAIT: Duration = Duration::from_secs(600);

/// (V4) A pass is late when it is behind its time by more than this part of it: three days of thirty. A server that is
/// busy every night and over some weekends catches up by itself.
const LATE_PART: i64 = 10;

/// (V4) How much longer than a piece of work the rest after it is when it was done beside others: one part in twenty of the
/// time, which a backup beside it hardly notices, and 7 MB/s of a disk that reads 150: 20 TB a month.
const BESIDE_REST: u32 = 19;

/// Minimum rest, however short a piece is on a clock in milliseconds.
const BESIDE_REST_MIN: Duration = Duration::from_millis(200);

const DAY_MS: i64 = 86_400_000;

/// Load of the disk by backups and restores. Asked between containers, so it must be cheap.
pub trait Load: Send + Sync + fmt::Debug {
    /// Returns true if the scrub has to wait.
    fn is_busy(&self) -> bool;
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

    fn period_ms(&self) -> i64 {
        i64::from(self.days).saturating_mul(DAY_MS)
    }

    /// Time by which the pass is ahead; negative: behind.
    fn ahead_ms(&self, status: ScrubStatus) -> i64 {
        let period_ms = self.period_ms();
        // Set back: as if it began now.
        let elapsed_ms = self.core.clock.now_ms().saturating_sub(status.began_ms).max(0);
        let half = |done: u64, total: u64| {
            let done = i128::from(done.min(total)) * i128::from(period_ms);
            i64::try_from(done / i128::from(total.max(1)) / 2).unwrap_or(i64::MAX)
        };
        let due_ms = match status.phase {
            ScrubPhase::Idle => return 0,
            ScrubPhase::Containers => half(status.done, status.total),
            ScrubPhase::RestorePoints => (period_ms / 2).saturating_add(half(status.done, status.total)),
        };
        due_ms.saturating_sub(elapsed_ms)
    }

    /// (V4)
    fn is_late(&self, status: ScrubStatus) -> bool {
        self.ahead_ms(status).saturating_neg() > self.period_ms() / LATE_PART
    }

    fn look(&self, budget: &Budget) -> Result<Step, EngineError> {
        // A task that asked for a pass works on it.
        let Some(mut work) = self.scrub.work.try_lock() else { return Ok(Step::Idle(BUSY_WAIT)) };
        let work = Scrub::loaded(&mut work, &self.core)?;
        if work.is_idle() {
            if !work.is_due(self.core.clock.now_ms(), self.period_ms()) {
                return Ok(Step::Idle(IDLE_WAIT));
            }
            // Also while others need the disk: it is a row, and from now on the pass can be late.
            work.begin(&self.core)?;
            *self.scrub.status.lock() = work.status();
        }
        if self.load.is_busy() {
            if !self.is_late(work.status()) {
                return Ok(Step::Idle(BUSY_WAIT));
            }
            return self.beside(work, budget);
        }
        let mut next = Next::More;
        while next == Next::More && !budget.is_spent() && !self.load.is_busy() {
            next = self.piece(work, budget)?;
        }
        work.write_if_due(&self.core, next == Next::Idle)?;
        if next == Next::Idle {
            return Ok(Step::Idle(IDLE_WAIT));
        }
        if self.load.is_busy() {
            return Ok(Step::Idle(BUSY_WAIT));
        }
        let ahead = Duration::from_millis(u64::try_from(self.ahead_ms(work.status())).unwrap_or(0));
        let rest = ahead.min(REST_MAX);
        Ok(if rest.is_zero() { Step::More } else { Step::Idle(rest) })
    }

    fn piece(&self, work: &mut Work, budget: &Budget) -> Result<Next, EngineError> {
        let next = work.piece(&self.core, budget, &mut |_| !budget.must_stop())?;
        *self.scrub.status.lock() = work.status();
        // The log has it.
        drop(work.take_news());
        Ok(next)
    }

    /// (V4) One piece, then a long rest.
    fn beside(&self, work: &mut Work, budget: &Budget) -> Result<Step, EngineError> {
        let began_ms = self.core.clock.monotonic_ms();
        let next = self.piece(work, budget)?;
        work.write_if_due(&self.core, next == Next::Idle)?;
        let took_ms = self.core.clock.monotonic_ms().saturating_sub(began_ms);
        Ok(Step::Idle(rest_after(Duration::from_millis(u64::try_from(took_ms).unwrap_or(0)))))
    }
}

fn rest_after(took: Duration) -> Duration {
    took.saturating_mul(BESIDE_REST).max(BESIDE_REST_MIN)
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
        Ok(self.look(budget)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_others_it_works_a_twentieth_of_the_time() {
        assert_eq!(rest_after(Duration::from_millis(300)), Duration::from_millis(5700));
        assert_eq!(rest_after(Duration::ZERO), BESIDE_REST_MIN);
    }
}
