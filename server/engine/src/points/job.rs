//! Writes the points of restore points that have none: those made by a version without points, and those whose points
//! were lost; enters those that the catalog did not take at the start (S8); and looks again at what could not be read
//! (P6). Repeating it, or ending it anywhere, is fine: the next start finds what is still missing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use holdfast_catalog::{CatalogError, PointRecord};
use holdfast_types::ids::BackupId;
use holdfast_volume::{BlobName, VolumeError};
use parking_lot::Mutex;

use super::PointName;
use super::change::{reseal, reseal_looking};
use super::compare::{Between, Comparison, compare};
use super::read;
use super::{encode, seal};
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::NoProgress;
use crate::jobs::{Budget, Job, JobError, JobProgress, Step};
use crate::recipe::TreeReader;
use crate::recovery::{self, OpenSummary};
use crate::store::NodeReader;
use crate::unrecorded::Unread;

/// Interval between two looks at points that could not be read.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// Extents of a recipe page: one look reads each page.
const PAGE_STEP: usize = 512;

/// The restore points whose points are still to be written.
#[derive(Debug, Default)]
pub(crate) struct MissingPoints {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    left: VecDeque<BackupId>,
    total: u64,
    written: u64,
    /// Restore points that got none, because their recipes cannot be read.
    unsound: u64,
}

impl MissingPoints {
    pub(crate) fn new(left: Vec<BackupId>) -> Self {
        let total = left.len() as u64;
        Self { state: Mutex::new(State { left: left.into(), total, ..State::default() }) }
    }

    /// Writes points until the budget is spent. Returns true if there is more.
    pub(crate) fn write(&self, core: &Core, budget: &Budget) -> Result<bool, EngineError> {
        loop {
            let Some(id) = self.state.lock().left.front().copied() else { break };
            let written = write_one(core, id)?;
            let mut state = self.state.lock();
            state.left.pop_front();
            state.written += u64::from(written);
            state.unsound += u64::from(!written);
            budget.charge(1, 0);
            if budget.is_spent() && !state.left.is_empty() {
                return Ok(true);
            }
        }
        let state = self.state.lock();
        if state.total > 0 {
            tracing::info!(
                written = state.written,
                unsound = state.unsound,
                "every restore point was looked at for its point"
            );
        }
        if state.unsound == 0 {
            drop(state);
            core.catalog.set_points_written(true)?;
        }
        Ok(false)
    }
}

/// (S8) Enters the restore points that the start could not.
///
/// # Errors
/// When the catalog still takes no changes: the next call tries again. The volume's.
pub(crate) fn record_rest(core: &Core) -> Result<(), EngineError> {
    let Some(rest) = core.unrecorded.rest() else { return Ok(()) };
    if rest.sealed {
        core.catalog.adopt_sealed_containers()?;
    }
    if rest.points > 0 {
        let refused = &mut |error: CatalogError| Err(error.into());
        let between = Between {
            volume: &*core.volume,
            catalog: &core.catalog,
            repository: core.repository,
            recovered: false,
            only: None,
        };
        // (L1) A restore point that is deleted meanwhile would be entered again by what was read of its point before.
        let _changing = core.changing_points.lock();
        let found = compare(between, refused, &NoProgress)?;
        core.unrecorded.note_unread(|unread| note_found(&found, unread));
    }
    let mut summary = OpenSummary::default();
    let left = recovery::take_in(&core.catalog, &core.store, &rest.files, &mut summary, &NoProgress)?;
    if let Some((_, error)) = left.refused {
        return Err(error.into());
    }
    core.unrecorded.note_unread(|unread| unread.containers.extend(left.unread));
    core.raise_last_commit(core.catalog.commits()?.last);
    core.unrecorded.clear();
    tracing::info!(
        restore_points = rest.points,
        containers = rest.files.len(),
        "the catalog has taken what the start found on the volume; backups may begin"
    );
    Ok(())
}

/// (P6) Takes note of what comparing could not read.
pub(crate) fn note_found(found: &Comparison, unread: &mut Unread) {
    unread.points.clone_from(&found.unread);
    unread.names = found.problems.iter().map(|problem| problem.object.clone()).collect();
}

/// (P6) Looks again at points that could not be read. While backups are made, nothing else is compared.
///
/// # Errors
/// When the catalog takes no changes: the next call tries again. The volume's.
pub(crate) fn look_again(core: &Core) -> Result<(), EngineError> {
    let before = core.unrecorded.unread();
    let mut summary = OpenSummary::default();
    let (catalog, files) = (&*core.catalog, &before.containers);
    let left = recovery::take_in(catalog, &core.store, files, &mut summary, &NoProgress)?;
    if let Some((_, error)) = left.refused {
        return Err(error.into());
    }
    core.unrecorded.note_unread(|unread| {
        unread.containers.retain(|id, _| !files.contains_key(id) || left.unread.contains_key(id));
    });
    // One read for each is little; a comparison lists all.
    let is_other = |name: &String| {
        let name = BlobName::new(name).filter(|name| PointName::parse(name).is_some());
        name.is_some_and(|name| match read(&*core.volume, core.repository, &name) {
            Err(EngineError::Volume(VolumeError::NotFound { .. })) => true,
            read => read.is_ok(),
        })
    };
    if before.names.iter().any(is_other) {
        let (volume, repository) = (&*core.volume, core.repository);
        let between = Between { volume, catalog, repository, recovered: false, only: Some(&before.points) };
        let _changing = core.changing_points.lock();
        let found = compare(between, &mut |error| Err(error.into()), &NoProgress)?;
        core.raise_last_commit(catalog.commits()?.last);
        core.unrecorded.note_unread(|unread| {
            // Points found unread meanwhile were not part of this pass.
            unread.points.retain(|id| !before.points.contains(id));
            unread.names.retain(|name| !before.names.contains(name));
            unread.points.extend(&found.unread);
            unread.names.extend(found.problems.iter().map(|problem| problem.object.clone()));
        });
        let left = found.unread.len();
        tracing::info!(before = before.points.len(), left, "looked again at points that could not be read");
    }
    Ok(())
}

/// (P4) Writes a point. Returns false when it was not written, because the recipe cannot be read.
fn write_one(core: &Core, id: BackupId) -> Result<bool, EngineError> {
    let _changing = core.changing_points.lock();
    let Some(point) = core.catalog.point(id)? else { return Ok(true) };
    // (P7) It has one.
    if core.unrecorded.unread().points.contains(&id) {
        return Ok(false);
    }
    if let Err(error) = read_recipes(core, &point) {
        let (vm, namespace) = (&point.attempt.vm, &point.namespace.name);
        tracing::error!(backup = %id, vm, namespace, %error, "a restore point has no point on the volume, and its recipe cannot be read");
        return Ok(false);
    }
    write_first(core, &point)?;
    Ok(true)
}

/// Seals the point of a restore point that has none: no revision is looked for.
fn write_first(core: &Core, point: &PointRecord) -> Result<(), EngineError> {
    let (id, revision) = (point.backup, point.revision);
    if core.catalog.point_state(id)?.is_some_and(|state| state.wanted > state.revision) {
        return reseal(&*core.volume, &core.catalog, core.repository, id).map(drop);
    }
    let name = PointName { backup: id, revision }.blob(point);
    match seal(&*core.volume, point.namespace.id, &name, &encode(core.repository, revision, point)?) {
        Err(EngineError::Volume(VolumeError::Exists { .. }) | EngineError::Damaged(_)) => {
            write_anew(core, id, revision)
        }
        sealed => sealed,
    }
}

/// Seals the catalog's contents of a restore point, above every existing revision and above `above`.
pub(super) fn write_anew(core: &Core, id: BackupId, above: u32) -> Result<(), EngineError> {
    core.unrecorded.check_known(&[id])?;
    core.catalog.mark_point_stale(id, above)?;
    reseal_looking(&*core.volume, &core.catalog, core.repository, id, true).map(drop)
}

/// Reads every page of every disk's recipe.
fn read_recipes(core: &Core, point: &PointRecord) -> Result<(), EngineError> {
    for disk in &point.disks {
        let nodes = NodeReader::new(Arc::clone(&core.store), core.store.domain(point.namespace.id));
        let tree = TreeReader::open(nodes, disk.root, disk.size_bytes)?;
        for extent in (0..tree.extent_count()).step_by(PAGE_STEP) {
            tree.entry(extent)?;
        }
    }
    Ok(())
}

/// Background job that writes missing points and enters unread ones.
#[derive(Debug)]
pub(crate) struct PointsJob {
    pub(crate) core: Arc<Core>,
    pub(crate) missing: Arc<MissingPoints>,
}

impl Job for PointsJob {
    fn name(&self) -> &'static str {
        "restore-points"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        if self.core.health.read_only_reason().is_some() {
            return Ok(Step::Idle(Duration::from_secs(60)));
        }
        record_rest(&self.core)?;
        if self.missing.write(&self.core, budget)? {
            return Ok(Step::More);
        }
        look_again(&self.core)?;
        Ok(if self.core.unrecorded.is_all_read() { Step::Finished } else { Step::Idle(LOOK_AGAIN) })
    }

    fn progress(&self) -> Option<JobProgress> {
        let state = self.missing.state.lock();
        let done = state.total.saturating_sub(state.left.len() as u64);
        Some(JobProgress { done, total: state.total, unit: "restore points" })
    }
}
