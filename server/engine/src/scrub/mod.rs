//! The scrub: reads everything again, in the background, so that what rots is found while it can still be healed.
//!
//! A pass reads every region of every container (checksum, decode, fingerprints), then compares the extents of every
//! restore point with their digests. Damage is noted as anywhere (R4), so the next backup sends the chunks again; a
//! sound place gets the time at which it proved so. A pass is spread over a number of days; it slows down to nothing
//! while others need the disk, unless it is late (V4), or while the disk is full.
//!
//! A person may ask for a pass: one is begun anew and made without the rests. It is the same pass to all others: there is
//! one at a time, and what works on it, this job or a task, holds it.
//!
//! Proofs are kept in memory for a minute at most and written with the position in one transaction, so a crash costs
//! reading the last minute's containers again and claims nothing that was not read. A container that is deleted while
//! it is read is a miss, never damage.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | passes that are asked for; proving a container, and the parity of a group |
//! | `job` | the job, and when it rests |
//! | `work` | the place, and what is done in which order |
//! | `restore_points` | proving a restore point |

mod job;
mod restore_points;
mod work;

use std::sync::Arc;

use holdfast_catalog::{ContainerRecord, ContainerState, ScrubPhase};
use holdfast_types::ids::ContainerId;
use parking_lot::Mutex;

use self::work::{Next, TRIES, Work};
use crate::container::{ContainerError, OpenContainer, scan_container_while};
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Progress};
use crate::parity;
use crate::store::lost;

pub use job::Load;
pub(crate) use job::ScrubJob;

/// Days of a pass unless told otherwise. A disk that rots does so over months, and a chunk heals only while it is still
/// on a disk that is backed up: a month leaves several backups to bring it again, and takes 40 MB/s of 100 TB.
pub const SCRUB_DAYS: u32 = 30;

/// A piece of a pass that someone waits for: one extent, or so many that need not be read.
const PIECE_ITEMS: u64 = 1024;
const PIECE_BYTES: u64 = 1 << 20;

/// Findings since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubFindings {
    /// Containers read, and their bytes.
    pub containers: u64,
    pub container_bytes: u64,
    /// Containers among them that have damage.
    pub damaged_containers: u64,
    /// Restore points compared with their digests.
    pub restore_points: u64,
    /// Restore points among them that lack something or have a false digest.
    pub unsound_restore_points: u64,
    pub false_digests: u64,
    /// Groups whose parity is damaged or missing.
    pub damaged_parity: u64,
    /// Containers, and restore points of which something, lies far away alone: not read, and so neither proved nor
    /// damaged.
    pub far_containers: u64,
    pub far_restore_points: u64,
    /// Items that could not be read for the moment, and so are neither proved nor damaged.
    pub unclear: u64,
}

/// The caller that began a pass, and watches it.
pub trait ScrubWatch {
    /// Reports `bytes` read since the last call. May wait as long as it likes; returns false to end the pass.
    fn charge(&mut self, bytes: u64) -> bool;
    /// After each piece of work: how far the pass is, what it found since this watch began, and news of that in
    /// sentences.
    fn told(&mut self, status: &ScrubStatus, found: ScrubFindings, news: Vec<String>);
}

/// Status of the scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Passes begun so far.
    pub pass: u64,
    pub phase: ScrubPhase,
    /// Start of the pass; 0: none has begun.
    pub began_ms: i64,
    /// End of the last whole pass.
    pub ended_ms: Option<i64>,
    /// Containers, or restore points, that this phase is done with, as far as can be told.
    pub done: u64,
    pub total: u64,
    pub found: ScrubFindings,
}

/// The scrub of one repository. One step at a time, no matter which caller asks for it.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    /// Held by the job or the task that works on the pass, for as long as it does.
    work: Mutex<Option<Work>>,
    /// Status as of the last piece of work.
    status: Mutex<ScrubStatus>,
}

impl Scrub {
    /// Status as of the last piece of work of this process.
    pub(crate) fn status(&self, core: &Core) -> Result<ScrubStatus, EngineError> {
        let status = *self.status.lock();
        if status.pass > 0 {
            return Ok(status);
        }
        let state = core.catalog.scrub_state()?;
        let (pass, phase, began_ms, ended_ms) = (state.pass, state.phase, state.began_ms, state.ended_ms);
        Ok(ScrubStatus { pass, phase, began_ms, ended_ms, done: state.done, ..status })
    }

    fn loaded<'a>(work: &'a mut Option<Work>, core: &Core) -> Result<&'a mut Work, EngineError> {
        match work {
            Some(work) => Ok(work),
            empty => Ok(empty.insert(Work::load(core)?)),
        }
    }

    /// Writes the proofs kept in memory, for a stop.
    pub(crate) fn write(&self, core: &Core) -> Result<(), EngineError> {
        match &mut *self.work.lock() {
            Some(work) => work.write_if_due(core, true),
            None => Ok(()),
        }
    }

    /// Continues the pass in progress, or begins one, and returns when it has ended, at full speed.
    pub(crate) fn run(
        &self,
        core: &Arc<Core>,
        budget: &Budget,
        progress: &dyn Progress,
    ) -> Result<ScrubFindings, EngineError> {
        let mut guard = self.work.lock();
        let work = Self::loaded(&mut guard, core)?;
        let before = work.status().found;
        if work.is_idle() {
            work.begin(core)?;
        }
        while !budget.is_spent() {
            let next = work.piece(core, budget, &mut |_| !budget.must_stop())?;
            let status = work.status();
            *self.status.lock() = status;
            progress.step("scrubbed", status.done, status.total);
            if next == Next::Idle {
                break;
            }
        }
        work.write_if_due(core, true)?;
        Ok(work.status().found.since(before))
    }

    /// Begins a pass over everything there is, in place of the one under way, or goes on with the pass `pass` where it is.
    /// Returns whether it has ended, which another may have seen to; `false`: the watch said to stop.
    pub(crate) fn pass(
        &self,
        core: &Arc<Core>,
        pass: Option<u64>,
        watch: &mut dyn ScrubWatch,
    ) -> Result<bool, EngineError> {
        // (V5) The background's step under way ends first: a second or so.
        let mut guard = self.work.lock();
        let work = Self::loaded(&mut guard, core)?;
        match pass {
            None => work.begin(core)?,
            Some(pass) if work.status().pass != pass => return Ok(true),
            Some(_) => {}
        }
        drop(work.take_news());
        let before = work.status().found;
        let (mut goes_on, mut failures) = (true, 0);
        while goes_on && !work.is_idle() {
            let budget = Budget::of(PIECE_ITEMS, PIECE_BYTES);
            let mut charge = |bytes| {
                goes_on = goes_on && watch.charge(bytes);
                goes_on
            };
            let done = work.piece(core, &budget, &mut charge);
            // Pauses and stops are heeded even if nothing was read.
            charge(0);
            let status = work.status();
            *self.status.lock() = status;
            watch.told(&status, status.found.since(before), work.take_news());
            match done {
                Ok(_) => failures = 0,
                // One that fails again and again is passed by; what cannot be written is not.
                Err(error) if failures >= TRIES => return Err(error),
                Err(_) => failures += 1,
            }
        }
        work.write_if_due(core, true)?;
        Ok(work.is_idle())
    }
}

impl ScrubFindings {
    /// Findings after `before`.
    const fn since(self, before: Self) -> Self {
        Self {
            containers: self.containers.saturating_sub(before.containers),
            container_bytes: self.container_bytes.saturating_sub(before.container_bytes),
            damaged_containers: self.damaged_containers.saturating_sub(before.damaged_containers),
            restore_points: self.restore_points.saturating_sub(before.restore_points),
            unsound_restore_points: self.unsound_restore_points.saturating_sub(before.unsound_restore_points),
            false_digests: self.false_digests.saturating_sub(before.false_digests),
            damaged_parity: self.damaged_parity.saturating_sub(before.damaged_parity),
            far_containers: self.far_containers.saturating_sub(before.far_containers),
            far_restore_points: self.far_restore_points.saturating_sub(before.far_restore_points),
            unclear: self.unclear.saturating_sub(before.unclear),
        }
    }
}

/// (V6) Reads all of a group's parity and takes note in the catalog of whether it is what it should be; why, when it is not.
/// `go_on` is told of bytes as they are read.
///
/// # Errors
/// It cannot be judged: it cannot be read at the moment, or a newer version wrote it.
fn prove_parity(
    core: &Core,
    (number, was_damaged): (ContainerId, bool),
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(Proof, String), EngineError> {
    let proved = parity::prove(&*core.volume, core.repository, number, go_on);
    let (proof, reason) = match proved {
        Ok(true) => (Proof::Sound, String::new()),
        Ok(false) => return Ok((Proof::Stopped, String::new())),
        Err(EngineError::Damaged(reason)) => (Proof::Damaged, reason),
        Err(error) => return Err(error),
    };
    // (V2) It may have been given up while it was read.
    if !core.catalog.has_parity_group(number)? {
        return Ok((Proof::Gone, reason));
    }
    let is_damaged = proof == Proof::Damaged;
    // While so much is missing that it is taken for absent, none of it is recorded.
    if is_damaged != was_damaged && core.store.absence().is_none() {
        core.catalog.mark_parity_group(number, is_damaged)?;
    }
    if is_damaged {
        tracing::warn!(%number, reason, "the parity of a group is damaged or missing; it is made anew while parity is on");
    }
    Ok((proof, reason))
}

/// Results of reading a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// Every chunk of it is what its fingerprint says.
    Sound,
    /// Noted (R4).
    Damaged,
    /// Deleted meanwhile.
    Gone,
    /// Only in the bucket: the cost of reading it is not spent for this.
    Far,
    /// Not read to its end: told to stop.
    Stopped,
}

/// Reads all of a container and takes note of what is wrong with it. `go_on` is told of bytes as they are read.
///
/// # Errors
/// It cannot be judged: it cannot be read at the moment, or a newer version wrote it.
fn prove_container(
    core: &Core,
    record: &ContainerRecord,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Proof, EngineError> {
    if is_gone(core, record)? {
        return Ok(Proof::Gone);
    }
    core.store.look_again(record.id)?;
    let opened = OpenContainer::open(&*core.volume, core.repository, record.id, record.class)
        .and_then(|open| open.check_length(record.stored_bytes).map(|()| open));
    let open = match opened {
        Ok(open) if !open.is_at_hand() => return Ok(Proof::Far),
        Ok(open) => open,
        Err(error) => return judge(core, record, vec![error]),
    };
    let scanned = scan_container_while(&*core.volume, core.repository, record.id, record.class, go_on);
    let Some(report) = scanned else { return Ok(Proof::Stopped) };
    judge(core, record, lost(&open, report.findings))
}

fn judge(core: &Core, record: &ContainerRecord, findings: Vec<ContainerError>) -> Result<Proof, EngineError> {
    if findings.is_empty() {
        return Ok(Proof::Sound);
    }
    // (V2) It may have been deleted while it was read; what is about to be is gone before its file is.
    if is_gone(core, record)? {
        return Ok(Proof::Gone);
    }
    let mut unclear = None;
    for error in findings {
        if error.is_damage() {
            core.store.note_failure(record.id, None, &error);
        } else {
            unclear = Some(error);
        }
    }
    unclear.map_or(Ok(Proof::Damaged), |error| Err(error.into()))
}

fn is_gone(core: &Core, record: &ContainerRecord) -> Result<bool, EngineError> {
    if core.store.leftovers.is_gone(record.id) {
        return Ok(true);
    }
    let now = core.catalog.container(record.id)?;
    Ok(now.is_none_or(|now| now.state == ContainerState::Condemned))
}
