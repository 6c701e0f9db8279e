//! Makes what locked restore points need stay in the bucket as long as they are locked.
//!
//! It looks at locked restore points of which that is not known yet (their recipes say what they need), then extends what is
//! behind in batches, again and again. Where it is, is in the record but for the place in a look, which begins anew after a
//! stop. It runs when all is copied, or an hour after the last look where copies do not catch up. A restore point whose recipes
//! cannot be read now is passed by, and told of when all others stay.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::clock::Clock;
use holdfast_engine::ids::BackupId;
use holdfast_engine::{Budget, Engine, EngineError, Job, JobError, LockedNeeds, NeededBlobs, Step};
use holdfast_sealing::names_below;
use holdfast_tiers::{Extending, Keep};
use parking_lot::Mutex;

use crate::repository::Tiers;

/// Shortest interval between looks. A lock of a new restore point is some seconds old by then, and a day is what
/// counts.
const INTERVAL: Duration = Duration::from_secs(5);

/// Pause after a look, in multiples of the time it took with the waits of the job in it: of very many locked restore
/// points a look is work, and finds little. Until then nothing new is made to stay.
const REST: u32 = 20;

/// Longest such pause.
const REST_MAX: Duration = Duration::from_hours(1);

/// A look is not put off for longer, however much waits to be copied.
const LOOK_AT_LEAST_MS: i64 = 3_600_000;

/// Locked restore points read from the catalog at a time.
const PAGE: u32 = 256;

/// Background job that makes what locked restore points need stay in the bucket. A charge is a restore point, or a
/// batch of objects.
#[derive(Debug)]
pub(crate) struct BucketRetention {
    tiers: Arc<Tiers>,
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Set once the bucket has said that it supports retention.
    is_checked: bool,
    looked_ms: Option<i64>,
    /// Time that the last look took.
    look_took: Duration,
    phase: Phase,
}

#[derive(Default)]
enum Phase {
    #[default]
    Waiting,
    Looking(Look),
    /// Extends retention; holds why a restore point could not be looked at.
    Extending(Extending, Option<EngineError>),
}

/// A look at all locked restore points.
struct Look {
    needs: LockedNeeds,
    after: Option<BackupId>,
    /// Why the first of those that were passed by could not be read.
    failed: Option<EngineError>,
}

impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "Waiting",
            Self::Looking(_) => "Looking",
            Self::Extending(..) => "Extending",
        })
    }
}

impl BucketRetention {
    pub(crate) fn new(tiers: Arc<Tiers>, engine: Arc<Engine>, clock: Arc<dyn Clock>) -> Self {
        Self { tiers, engine, clock, state: Mutex::default() }
    }

    /// Begins a look if there is a reason to; returns true if it did.
    fn begin(&self, state: &mut State) -> Result<bool, JobError> {
        let copies = &self.tiers.copies;
        let status = copies.status();
        let now_ms = self.clock.now_ms();
        let is_overdue =
            state.looked_ms.is_none_or(|looked_ms| now_ms.saturating_sub(looked_ms) >= LOOK_AT_LEAST_MS);
        // Its own reasons are told by the copies.
        if status.is_comparing || (status.waiting_blobs > 0 && !is_overdue) {
            return Ok(false);
        }
        if !state.is_checked {
            copies.check_retention()?;
            state.is_checked = true;
        }
        copies.begin_locked_points()?;
        state.looked_ms = Some(now_ms);
        state.phase = Phase::Looking(Look { needs: self.engine.locked_needs()?, after: None, failed: None });
        Ok(true)
    }

    /// Looks at the next locked restore points. Returns true if these were all.
    fn look(&self, look: &mut Look, budget: &Budget) -> Result<bool, JobError> {
        let copies = &self.tiers.copies;
        let page = self.engine.locked_backups(look.after, PAGE)?;
        for (backup, lock) in &page {
            if budget.must_stop() || budget.is_spent() {
                return Ok(false);
            }
            let keep = Keep::of(lock.until_ms, lock.hold.is_some(), self.clock.now_ms());
            let id = backup.to_string();
            if let Some(keep) = keep
                && copies.is_point_due(&id, keep, self.engine.catalog().may_lack(*backup)?)?
            {
                let needed = look.needs.of(*backup, &mut |_| !budget.must_stop());
                let needed = match needed {
                    Err(EngineError::Stopped) => return Ok(false),
                    // (T18) What it needed when it was read last stays; the others must not wait for it.
                    Err(error) if error.is_no_verdict() => {
                        look.failed.get_or_insert(error);
                        None
                    }
                    needed => needed?,
                };
                if let Some(needed) = needed {
                    let NeededBlobs { blobs, is_whole } = needed;
                    // (T18) What is lost has no name.
                    let lost = (!is_whole).then(Vec::new).into_iter();
                    let needed: Vec<_> =
                        lost.chain(blobs.iter().map(|name| names_below(name).collect())).collect();
                    copies.promise(&id, keep, &needed)?;
                }
                budget.charge(1, 0);
            }
            look.after = Some(*backup);
        }
        Ok(page.is_empty())
    }

    fn work(&self, state: &mut State, budget: &Budget) -> Result<Step, JobError> {
        loop {
            match &mut state.phase {
                Phase::Waiting => {
                    if !self.begin(state)? {
                        return Ok(Step::Idle(INTERVAL));
                    }
                }
                Phase::Looking(look) => {
                    if self.look(look, budget)? {
                        let took_ms = self.clock.now_ms().saturating_sub(state.looked_ms.unwrap_or_default());
                        state.look_took = Duration::from_millis(u64::try_from(took_ms).unwrap_or_default());
                        state.phase = Phase::Extending(Extending::default(), look.failed.take());
                    }
                }
                Phase::Extending(extending, failed) => {
                    let extended = self.tiers.copies.extend_some(extending, &|| budget.must_stop())?;
                    if !extended.more {
                        if let Some(error) = failed.take() {
                            return Err(error.into());
                        }
                        // All of them were looked at, whatever steps between were good.
                        self.tiers.note_retention_failure(None);
                        state.phase = Phase::Waiting;
                        let rest = state.look_took.saturating_mul(REST);
                        return Ok(Step::Idle(rest.clamp(INTERVAL, REST_MAX)));
                    }
                    budget.charge(extended.objects.max(1), 0);
                }
            }
            if budget.must_stop() || budget.is_spent() {
                return Ok(Step::More);
            }
        }
    }
}

impl Job for BucketRetention {
    fn name(&self) -> &'static str {
        "bucket-retention"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        if self.tiers.bucket.is_none() || self.tiers.copies.retention().is_none() {
            return Ok(Step::Finished);
        }
        let mut state = self.state.lock();
        let step = self.work(&mut state, budget);
        if let Err(error) = &step {
            // From the beginning: what was done is in the record.
            state.phase = Phase::Waiting;
            self.tiers.note_retention_failure(Some(error.to_string()));
        }
        step
    }
}
