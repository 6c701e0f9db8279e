//! Position of the scrub, and its order: containers and parity by number, then restore points by VM and commit number.

use std::sync::Arc;

use holdfast_catalog::{ScrubPhase, ScrubState, Scrubbed};
use holdfast_types::ids::{BackupId, ContainerId};

use super::restore_points::RestorePoint;
use super::{Proof, ScrubFindings, ScrubStatus, prove_container, prove_parity};
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::Budget;

/// Proofs are written when there are so many of them, or after so long: a transaction a minute, and a crash costs
/// reading again what one minute read.
const KEPT_MAX: usize = 1024;
const KEPT_MS: i64 = 60_000;

/// Number of tries of a piece that fails for the moment, before the scrub goes on without it.
pub(super) const TRIES: u32 = 3;

/// Maximum number of findings kept, in sentences, until they are reported.
const NEWS_MAX: usize = 200;

/// Next step after a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    More,
    /// No pass is under way.
    Idle,
}

/// Position of the scrub, and its findings.
#[derive(Debug)]
pub(super) struct Work {
    state: ScrubState,
    /// Proved, and not written yet.
    kept: Scrubbed,
    /// Since when something is not written, on the clock that never jumps.
    kept_since_ms: Option<i64>,
    /// The restore point being read.
    reading: Option<RestorePoint>,
    /// Containers and restore points there were when this was asked.
    containers: u64,
    restore_points: u64,
    failures: u32,
    found: ScrubFindings,
    news: Vec<String>,
}

impl Work {
    /// Loads the position of an earlier process.
    pub(super) fn load(core: &Core) -> Result<Self, EngineError> {
        let all = core.catalog.proof_summary()?;
        Ok(Self {
            state: core.catalog.scrub_state()?,
            kept: Scrubbed::default(),
            kept_since_ms: None,
            reading: None,
            containers: all.containers,
            restore_points: all.backups,
            failures: 0,
            found: ScrubFindings::default(),
            news: Vec::new(),
        })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state.phase == ScrubPhase::Idle
    }

    /// Returns true if the next pass is due: `period_ms` after the last one began.
    pub(super) const fn is_due(&self, now_ms: i64, period_ms: i64) -> bool {
        let since_ms = now_ms.saturating_sub(self.state.began_ms);
        // Before it began: the clock was set back.
        self.state.pass == 0 || since_ms >= period_ms || since_ms < 0
    }

    pub(super) const fn status(&self) -> ScrubStatus {
        let ScrubState { pass, phase, began_ms, ended_ms, done, .. } = self.state;
        let (done, total) = match phase {
            ScrubPhase::Idle => (0, 0),
            ScrubPhase::Containers => (done, self.containers),
            ScrubPhase::RestorePoints => (done, self.restore_points),
        };
        ScrubStatus { pass, phase, began_ms, ended_ms, done, total, found: self.found }
    }

    /// Takes the findings since the last call, in sentences.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// Begins a pass over what there is now. One that is under way ends where it is: what it proved counts.
    pub(super) fn begin(&mut self, core: &Core) -> Result<(), EngineError> {
        self.containers = core.catalog.proof_summary()?.containers;
        (self.reading, self.failures) = (None, 0);
        self.state = ScrubState {
            pass: self.state.pass + 1,
            phase: ScrubPhase::Containers,
            began_ms: core.clock.now_ms(),
            ended_ms: self.state.ended_ms,
            container: 0,
            end: core.catalog.commits()?.next_container,
            after: None,
            within: None,
            done: 0,
        };
        self.kept_since_ms = Some(core.clock.monotonic_ms());
        self.write_if_due(core, true)
    }

    /// One container, or extents of one restore point as far as the budget goes. `go_on` is told of bytes as they are
    /// read; what is not read to its end is read again.
    pub(super) fn piece(
        &mut self,
        core: &Arc<Core>,
        budget: &Budget,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Next, EngineError> {
        let next = match self.state.phase {
            ScrubPhase::Idle => return Ok(Next::Idle),
            ScrubPhase::Containers => self.container(core, budget, go_on)?,
            ScrubPhase::RestorePoints => {
                let before = budget.bytes();
                let next = self.restore_point(core, budget)?;
                go_on(budget.bytes().saturating_sub(before));
                next
            }
        };
        self.kept_since_ms.get_or_insert_with(|| core.clock.monotonic_ms());
        self.write_if_due(core, false)?;
        Ok(next)
    }

    fn container(
        &mut self,
        core: &Core,
        budget: &Budget,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Next, EngineError> {
        let after = self.state.container.checked_sub(1).and_then(ContainerId::new);
        let is_next = |number: ContainerId| number.get() < self.state.end;
        let record = core.catalog.containers(after, 1)?.pop().filter(|record| is_next(record.id));
        // (V6) Their numbers are of one row.
        let group = core.catalog.parity_groups(after, 1)?.pop().filter(|(number, _)| is_next(*number));
        if let Some(group) = group
            && record.as_ref().is_none_or(|record| group.0 < record.id)
        {
            return self.parity(core, group, budget, go_on);
        }
        let Some(record) = record else {
            let done = ScrubState {
                phase: ScrubPhase::RestorePoints,
                container: self.state.end,
                done: 0,
                ..self.state
            };
            self.state = done;
            self.restore_points = core.catalog.proof_summary()?.backups;
            return Ok(Next::More);
        };
        let read_ms = core.clock.now_ms();
        let proof = prove_container(core, &record, go_on);
        budget.charge(1, record.stored_bytes);
        let proof = match proof {
            Ok(Proof::Stopped) => return Ok(Next::More),
            Ok(proof) => Some(proof),
            // Not for ever at one place: what cannot be judged is not proved.
            Err(error) => {
                self.failures += 1;
                if self.failures < TRIES {
                    return Err(error);
                }
                tracing::warn!(container = %record.id, %error, "the scrub cannot judge a container");
                self.unclear(format!("container {} cannot be judged now: {error}", record.id));
                None
            }
        };
        self.failures = 0;
        // (V1)
        if proof == Some(Proof::Sound) {
            self.kept.containers.push((record.id, read_ms));
        }
        if proof == Some(Proof::Far) {
            self.found.far_containers += 1;
        } else if proof != Some(Proof::Gone) {
            self.found.containers += 1;
            self.found.container_bytes = self.found.container_bytes.saturating_add(record.stored_bytes);
        }
        if proof == Some(Proof::Damaged) {
            self.found.damaged_containers += 1;
            for (region, reason) in core.store.known_damage(record.id) {
                let region = region.map_or_else(String::new, |region| format!(", region {region}"));
                self.tell(format!("container {}{region} is damaged: {reason}", record.id));
            }
        }
        // (V1) Only now, so that a failure above repeats it.
        self.state.container = record.id.get() + 1;
        self.state.done += 1;
        Ok(Next::More)
    }

    fn parity(
        &mut self,
        core: &Core,
        group: (ContainerId, bool),
        budget: &Budget,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Next, EngineError> {
        let (number, mut bytes) = (group.0, 0);
        let proof = prove_parity(core, group, &mut |read| {
            bytes += read;
            go_on(read)
        });
        budget.charge(1, bytes);
        match proof {
            Ok((Proof::Stopped, _)) => return Ok(Next::More),
            Ok((Proof::Damaged, reason)) => {
                self.found.damaged_parity += 1;
                self.tell(format!("the parity of group {number} is damaged: {reason}"));
            }
            Ok(_) => {}
            Err(error) => {
                self.failures += 1;
                if self.failures < TRIES {
                    return Err(error);
                }
                tracing::warn!(%number, %error, "the scrub cannot judge the parity of a group");
                self.unclear(format!("the parity of group {number} cannot be judged now: {error}"));
            }
        }
        self.failures = 0;
        self.state.container = number.get() + 1;
        Ok(Next::More)
    }

    fn tell(&mut self, news: String) {
        if self.news.len() < NEWS_MAX {
            self.news.push(news);
        }
    }

    fn unclear(&mut self, news: String) {
        self.found.unclear += 1;
        self.tell(news);
    }

    fn restore_point(&mut self, core: &Arc<Core>, budget: &Budget) -> Result<Next, EngineError> {
        if self.reading.is_none() {
            let Some(next) = core.catalog.backup_in_order(self.state.after)? else {
                self.state = ScrubState {
                    phase: ScrubPhase::Idle,
                    ended_ms: Some(core.clock.now_ms()),
                    after: None,
                    within: None,
                    done: 0,
                    ..self.state
                };
                tracing::info!(pass = self.state.pass, found = ?self.found, "the scrub has read everything once");
                return Ok(Next::Idle);
            };
            // In this pass, whether that is written yet or not.
            let began_ms = self.state.began_ms;
            let is_proved = |(backup, at_ms): &(BackupId, Option<i64>)| {
                at_ms.is_some_and(|at_ms| at_ms >= began_ms)
                    || self.kept.backups.iter().any(|(kept, _)| kept == backup)
            };
            let before = next.before.filter(is_proved).map(|(before, _)| before);
            match RestorePoint::open(core, &next, before, self.state.within)? {
                Some(opened) => self.reading = Some(opened),
                None => self.state.after = Some((next.vm, next.number)),
            }
        }
        let Some(reading) = &mut self.reading else { return Ok(Next::More) };
        let mut unclear = false;
        let done = match reading.go_on(core, budget) {
            Ok(done) => done,
            // Not for ever at one place: what cannot be read is not proved.
            Err(error) => {
                self.failures += 1;
                if self.failures < TRIES {
                    return Err(error);
                }
                let backup = reading.within().backup;
                tracing::warn!(%backup, %error, "the scrub cannot judge a restore point");
                reading.news.push(format!("restore point {backup} cannot be judged now: {error}"));
                // Damage found before is not taken back.
                unclear = reading.within().sound;
                Some(false)
            }
        };
        self.state.within = Some(reading.within());
        let Some(sound) = done else { return Ok(Next::More) };
        let (vm, number, lies) = (reading.vm, reading.number, reading.false_digests);
        let far = reading.far;
        let backup = reading.within().backup;
        let news = std::mem::take(&mut reading.news);
        news.into_iter().for_each(|news| self.tell(news));
        self.reading = None;
        self.failures = 0;
        if far {
            self.found.far_restore_points += u64::from(sound);
        } else if sound {
            self.kept.backups.push((backup, core.clock.now_ms()));
        }
        // A restore point deleted meanwhile does not count.
        let counts = sound || core.catalog.backup(backup)?.is_some();
        self.found.restore_points += u64::from(counts);
        self.found.unclear += u64::from(counts && unclear);
        self.found.unsound_restore_points += u64::from(counts && !sound && !unclear);
        if counts && !sound && !unclear {
            core.note_lacking(backup);
        }
        self.found.false_digests += lies;
        self.state.after = Some((vm, number));
        self.state.within = None;
        self.state.done += 1;
        Ok(Next::More)
    }

    /// Writes the proofs and the position, when it is time to or `now`; nothing when nothing was done since.
    pub(super) fn write_if_due(&mut self, core: &Core, now: bool) -> Result<(), EngineError> {
        let kept = self.kept.containers.len() + self.kept.backups.len();
        let late = self
            .kept_since_ms
            .is_some_and(|since_ms| core.clock.monotonic_ms().saturating_sub(since_ms) >= KEPT_MS);
        if self.kept_since_ms.is_none() || !(now || late || kept >= KEPT_MAX) {
            return Ok(());
        }
        self.kept.state = self.state;
        core.catalog.note_scrubbed(&self.kept)?;
        self.kept = Scrubbed::default();
        self.kept_since_ms = None;
        Ok(())
    }
}
