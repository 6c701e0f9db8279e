//! Writes what can still be read of damaged containers into new ones, so that restores and new backups rely on sound
//! copies again.
//!
//! Order: the new container is durable (W2) → its chunks are in the index (W3) → the catalog knows it → only then, and
//! only when each chunk of the damaged one is found in others, which are held, the damaged one is condemned, dropped from
//! the index and removed. A crash in between leaves both, and the next repair finds every chunk in a sound container. Before it
//! goes, what can be made again with it of the others of its group of parity was written anew (E7).
//!
//! Pages of the index that cannot be read are rebuilt from the containers, by a job of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_proto::Fingerprint;
use holdfast_proto::region::Decoder;
use holdfast_types::ids::{ContainerClass, ContainerId};

use crate::container::{ContainerError, OpenContainer, RecentDirectories, VerifiedRegion, scan_container};
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, JobProgress, Progress, Step};
use crate::parity;
use crate::rewrite::{self, Rewriter};
use crate::space::Purpose;
use crate::store::{Holds, Leftover, lost};

/// Outcome of repairing one damaged container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    pub container: ContainerId,
    /// Chunks that could be read.
    pub chunks: u64,
    /// Chunks written into new containers; the others have sound copies already.
    pub rewritten: u64,
    /// The new containers.
    pub into: Vec<ContainerId>,
    /// Set if every chunk could be read and now has a sound copy; the damaged file was removed then, and kept
    /// otherwise.
    pub complete: bool,
}

/// Looks at every container that is damaged as a whole.
pub(crate) fn run(core: &Core, progress: &dyn Progress) -> Result<Vec<Repaired>, EngineError> {
    let damaged: Vec<ContainerId> = core.store.damaged_containers();
    let total = damaged.len() as u64;
    let mut repaired = Vec::new();
    for (done, id) in (0..).zip(damaged) {
        progress.step("damaged containers", done, total);
        let as_a_whole = core.store.known_damage(id).iter().any(|(region, _)| region.is_none());
        if !as_a_whole {
            repaired.extend(repair_with_parity(core, id)?);
            continue;
        }
        if let Some((open, complete)) = core.store.salvaged(id)? {
            repaired.push(repair(core, &open, complete, true)?);
        }
    }
    progress.step("damaged containers", total, total);
    Ok(repaired)
}

/// (E2) Writes the damaged parts of one container anew, as parity reconstructs them: into new containers, like any
/// repair, so that a part counts once it was read, named by its own fingerprints (W1), durable (W2) and indexed (W3). A
/// container that was damaged as a whole is removed then. `None`: parity cannot reconstruct all of it.
///
/// # Errors
/// When a new container or the catalog cannot be written; what was written before stays.
pub(crate) fn repair_with_parity(core: &Core, id: ContainerId) -> Result<Option<Repaired>, EngineError> {
    let Some(record) = core.catalog.container(id)? else { return Ok(None) };
    let as_a_whole = core.store.known_damage(id).iter().any(|(region, _)| region.is_none());
    make_again(core, &record, as_a_whole)
}

fn make_again(core: &Core, record: &ContainerRecord, removes: bool) -> Result<Option<Repaired>, EngineError> {
    let Some((open, complete)) = core.store.made_again(record)? else { return Ok(None) };
    let open = Arc::new(open);
    let repaired = repair(core, &open, complete, removes)?;
    if repaired.complete {
        core.store.close_by(&open)?;
        core.store.parity.repaired();
    }
    Ok(repaired.complete.then_some(repaired))
}

/// (E7) Writes the other containers of a group anew, as far as it can reconstruct them: before one is removed, or the
/// group given up. They are read for it.
///
/// # Errors
/// When they cannot be read now, or a new container or the catalog cannot be written.
pub(crate) fn repair_others(
    core: &Core,
    number: ContainerId,
    but: Option<ContainerId>,
) -> Result<(), EngineError> {
    let mut members = core.catalog.parity_members(number)?;
    // (E3)
    let is_gone = |row: &ContainerRecord| {
        row.state == ContainerState::Condemned || core.store.leftovers.is_gone(row.id)
    };
    members.retain(|row| Some(row.id) != but && !is_gone(row));
    let wanted: BTreeSet<ContainerId> = members.iter().map(|row| row.id).collect();
    let found = match parity::repairable(&*core.volume, core.repository, number, &wanted) {
        Err(EngineError::Damaged(error)) => {
            tracing::warn!(%number, %error, "nothing can be made again with the parity of a group");
            return Ok(());
        }
        found => found?,
    };
    for record in members.iter().filter(|row| found.contains(&row.id)) {
        scan(core, record.id, record.class);
        if core.store.open_damage().contains(&record.id) {
            let repaired = make_again(core, record, false)?;
            tracing::info!(container = %record.id, %number, complete = repaired.is_some(), "parity repaired a container while it could");
        }
    }
    Ok(())
}

/// (E10) Writes a container anew that parity reconstructed and the catalog does not know, as far as its chunks have no
/// copies. Returns true if that was all of it.
///
/// # Errors
/// When a new container or the catalog cannot be written.
pub(crate) fn write_anew(core: &Core, open: OpenContainer, complete: bool) -> Result<bool, EngineError> {
    Ok(repair(core, &Arc::new(open), complete, false)?.complete)
}

/// Reads all of a container and takes note of what of it is lost (R4). Returns what that is, what only cannot be read now
/// among it, and how long its file is.
pub(crate) fn scan(core: &Core, id: ContainerId, class: ContainerClass) -> (Vec<ContainerError>, u64) {
    let report = scan_container(&*core.volume, core.repository, id, class);
    let mut found = report.findings;
    if !found.is_empty()
        && let Ok(open) = OpenContainer::open(&*core.volume, core.repository, id, class)
    {
        found = lost(&open, found);
    }
    if !core.store.leftovers.is_gone(id) {
        let damage = found.iter().filter(|error| error.is_damage());
        damage.for_each(|error| core.store.note_failure(id, None, error));
    }
    (found, report.stored_bytes)
}

/// (E6) Writes the rest of a container whose damage has healed anew, as far as it has no other copies, and removes the
/// container. Returns true if it was removed.
///
/// # Errors
/// When a new container or the catalog cannot be written; what was written before stays.
pub(crate) fn move_out(core: &Core, id: ContainerId) -> Result<bool, EngineError> {
    let Some(record) = core.catalog.container(id)? else { return Ok(false) };
    // (R4) A container that proves sound can stay.
    core.store.look_again(id)?;
    if core.store.leftovers.is_refused(id) || !core.store.is_healed(id) {
        return Ok(false);
    }
    let (open, complete) = match core.store.made_again(&record)? {
        Some((open, complete)) => (Arc::new(open), complete),
        // The damaged regions have other copies, and the rest can be read.
        None => match core.store.containers.get(id, record.class) {
            Ok(open) => (open, true),
            Err(error) if error.is_damage() => return Ok(false),
            Err(error) => return Err(error.into()),
        },
    };
    Ok(repair(core, &open, complete, true)?.complete)
}

/// `removes`: the damaged one, when everything in it has a sound copy. One of which only regions are damaged stays: what
/// else is in it is in use.
fn repair(
    core: &Core,
    open: &Arc<OpenContainer>,
    complete: bool,
    removes: bool,
) -> Result<Repaired, EngineError> {
    let mut rewrite = Rewrite::new(core, open, removes);
    let mut decoder = Decoder::new().map_err(|error| EngineError::Internal(error.to_string()))?;
    let mut all_read = complete;
    // (N6) Written anew, what an agent reported would count again: it stays where it is.
    let reported = core.store.reported_in(open);
    for number in 0u16.. {
        let Some(record) = open.directory().region(number) else { break };
        let sound = (!reported.contains(&number)).then(|| read(open, number, &mut decoder));
        match sound.flatten() {
            Some(region) => {
                rewrite.chunks += u64::from(record.chunk_count);
                rewrite.take(&region)?;
            }
            None => all_read &= !reported.contains(&number) && rewrite.has_copies_of(open, number)?,
        }
    }
    let (chunks, rewritten, into) = rewrite.finish()?;
    let complete = all_read && (!removes || remove(core, open)?);
    tracing::info!(container = %open.id(), chunks, rewritten, complete, "repaired a damaged container");
    Ok(Repaired { container: open.id(), chunks, rewritten, into, complete })
}

/// A region, once its bytes hash to the names they are given.
fn read(open: &OpenContainer, number: u16, decoder: &mut Decoder) -> Option<VerifiedRegion> {
    let stored = open.read_region(number).ok()?;
    rewrite::verified(open, stored, decoder).ok().map(|(region, _)| region)
}

/// Regions on their way into new containers.
struct Rewrite<'a> {
    core: &'a Core,
    /// The container they are of, when it is removed: nothing in it is a copy.
    removed: Option<ContainerId>,
    class: ContainerClass,
    output: Rewriter<'a>,
    recent: RecentDirectories,
    /// (D1) Copies that take the place of what is removed: one may be in what a session leaves.
    holds: Holds,
    chunks: u64,
    rewritten: u64,
    into: Vec<ContainerId>,
}

impl<'a> Rewrite<'a> {
    fn new(core: &'a Core, from: &OpenContainer, removes: bool) -> Self {
        let class = from.class();
        let purpose = match class {
            ContainerClass::Data => Purpose::Data,
            ContainerClass::Recipe => Purpose::Recipe,
        };
        let output = Rewriter::new(core, from.namespace(), class, purpose);
        let recent = RecentDirectories::default();
        let holds = core.store.leftovers.holds();
        let removed = removes.then_some(from.id());
        Self { core, removed, class, output, recent, holds, chunks: 0, rewritten: 0, into: Vec::new() }
    }

    /// Appends a region, unless every chunk in it has a sound copy.
    fn take(&mut self, region: &VerifiedRegion) -> Result<(), EngineError> {
        let mut missing = 0;
        if region.is_sealed() {
            // (N7)
            let chunks = region.fingerprints();
            let Some(first) = chunks.first().map(|first| (first, &**region.payload())) else { return Ok(()) };
            let (store, domain) = (&self.core.store, self.output.domain());
            let is_there = store.hold_same(domain, first, self.removed, &mut self.holds)?;
            missing = if is_there { 0 } else { chunks.len() as u64 };
        } else {
            for fingerprint in region.fingerprints() {
                missing += u64::from(!self.has_sound_copy(fingerprint)?);
            }
        }
        if missing == 0 {
            return Ok(());
        }
        self.rewritten += missing;
        if !self.output.has_room_for(region) {
            self.seal()?;
        }
        self.output.append(region)
    }

    /// Returns true if every chunk of an unreadable region has a sound copy.
    fn has_copies_of(&mut self, open: &OpenContainer, region: u16) -> Result<bool, EngineError> {
        let Some((fingerprints, _)) = open.directory().region_chunks(region) else { return Ok(false) };
        for fingerprint in fingerprints {
            if !self.has_sound_copy(fingerprint)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if another container has a copy of the chunk that can be read now, so that the present copy may be
    /// removed.
    fn has_sound_copy(&mut self, fingerprint: &Fingerprint) -> Result<bool, EngineError> {
        let (store, class, domain) = (&self.core.store, self.class, self.output.domain());
        let (recent, holds) = (&mut self.recent, &mut self.holds);
        let mut find = || match self.removed {
            Some(from) => store.find_elsewhere_and_hold(domain, class, fingerprint, from, holds),
            None => store.find_and_hold(domain, class, fingerprint, recent, holds),
        };
        while let Some(found) = find()? {
            let region = found.location.region;
            match store.read_region(&found.container, region) {
                Ok(_) => return Ok(true),
                // (R4) From now on it is no copy.
                Err(error) if error.is_damage() => {
                    store.note_failure(found.location.container, Some(region), &error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    fn seal(&mut self) -> Result<(), EngineError> {
        let Some(sealed) = self.output.seal()? else { return Ok(()) };
        self.core.catalog.add_containers(&[rewrite::record_of(&sealed)])?;
        self.into.push(sealed.id);
        Ok(())
    }

    fn finish(mut self) -> Result<(u64, u64, Vec<ContainerId>), EngineError> {
        self.seal()?;
        Ok((self.chunks, self.rewritten, self.into))
    }
}

/// Removes a damaged container of which every chunk has a sound copy. Returns true if it was removed.
fn remove(core: &Core, open: &OpenContainer) -> Result<bool, EngineError> {
    let (id, class) = (open.id(), open.class());
    if let Some(number) = core.catalog.parity_group_of(id)? {
        repair_others(core, number, Some(id))?;
    }
    if !core.store.leftovers.condemn_unasked(id) {
        return Ok(false);
    }
    let damaged = Leftover { id, class, stored_bytes: open.stored_bytes() };
    // (D1) Now that it is refused, once more: a round of reclaim may have taken it for the copy that stays. And a backup in
    // progress found something in it, maybe.
    let mut holds = core.store.leftovers.holds();
    let replaced = core.store.hold_copies(open, class, &|_| true, &mut holds);
    let moved = replaced.and_then(|replaced| Ok(replaced && core.store.move_holds(open, &[])?));
    if !matches!(moved, Ok(true)) {
        core.store.leftovers.take_back(&[damaged]);
        return moved;
    }
    core.store.delete(&*core.volume, &[damaged])?;
    core.store.forget_damaged(id);
    Ok(true)
}

/// Interval between two looks for something to repair. A look costs nothing.
const INTERVAL: Duration = Duration::from_secs(5);

/// Rebuilds pages of the index that turned out to be damaged, in the background. A crash in the middle leaves the index as it
/// was: the page is met again.
#[derive(Debug)]
pub(crate) struct IndexRepairJob {
    pub(crate) core: Arc<Core>,
}

impl Job for IndexRepairJob {
    fn name(&self) -> &'static str {
        "index-repair"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let whole = self.core.store.repair_index(budget)?;
        Ok(if whole { Step::Idle(INTERVAL) } else { Step::More })
    }

    fn progress(&self) -> Option<JobProgress> {
        let (done, total) = self.core.store.repair_progress()?;
        Some(JobProgress { done, total, unit: "containers" })
    }
}
