//! Containers that only old restore points need: moving and freezing.
//!
//! **Moving** gives up the local copies of those that lie far away as well (T9). What young restore points refer to is
//! marked as a round marks everything; a container of which they need nothing may go, the oldest first, until the volume
//! has room enough. It is a choice, not a promise: a backup that finds an old chunk meanwhile refers to it where it then
//! lies, and what lies far away is read from there.
//!
//! **Freezing** moves those that lie far away alone to an archive, as they are (T10). This is a promise: what lies in an
//! archive cannot be read, so no backup may come to need it. What restore points refer to that are young, or in use, is
//! marked. Whatever else a backup counts on it holds, from before that was listed until the round ends (G1); and of a
//! container that goes, no one begins to count on anything. What only restore points need that policies will delete within
//! the time for which the archive is paid at least stays where it is, and is counted.
//!
//! A crash while freezing, or an answer that was lost, leaves containers that the volume says are cold, and may not be: they
//! count as cold, and the next round asks again.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_catalog::{BackupRecord, ContainerRecord};
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId};
use holdfast_volume::{Volume as _, VolumeError};

use super::control::{Control, Phase};
use super::live::{Candidate, Candidates, Scope, SlotSet, WINDOW_BYTES, is_live_data};
use super::mark::{Marked, mark};
use super::report::{Freezing, FreezingRule, Moving, ReclaimReport};
use super::roots::{Root, Roots};
use crate::container::{ContainerError, OpenContainer};
use crate::container_repair;
use crate::core::Core;
use crate::error::EngineError;
use crate::store::ChunkStore;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// After this many objects with which something is wrong a round ends: more likely all of them have it, such as no checksums,
/// and each costs a request.
const WRONG_MAX: u64 = 100;

/// Tells backups that it is under way.
struct UnderWay<'a>(&'a ChunkStore);

impl<'a> UnderWay<'a> {
    fn begin(store: &'a ChunkStore) -> Self {
        store.leftovers.begin_freezing();
        Self(store)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.leftovers.end_freezing();
    }
}

impl FreezingRule {
    fn covers(&self, point: &BackupRecord) -> bool {
        self.namespace == point.namespace
            && self.vm.as_ref().is_none_or(|vm| *vm == point.vm)
            && self.job.as_ref().is_none_or(|job| *job == point.job)
    }
}

impl Freezing {
    /// Minimum age of a restore point, in days.
    fn days_of(&self, point: &BackupRecord) -> u32 {
        let rule = self.rules.iter().find(|rule| rule.covers(point));
        rule.and_then(|rule| rule.min_age_days).unwrap_or(self.min_age_days)
    }

    /// Lowest minimum age, in days.
    fn days_min(&self) -> u32 {
        self.rules.iter().filter_map(|rule| rule.min_age_days).fold(self.min_age_days, u32::min)
    }
}

fn before(now_ms: i64, days: u32) -> i64 {
    now_ms.saturating_sub(i64::from(days).saturating_mul(DAY_MS))
}

/// The restore points that are old enough. What is committed from now on is not among them.
#[derive(Debug)]
enum Old {
    /// Restore points committed before this time.
    Before(i64),
    These(HashSet<BackupId>),
}

impl Old {
    fn of(core: &Core, freezing: &Freezing, now_ms: i64) -> Result<Self, EngineError> {
        if freezing.rules.is_empty() {
            return Ok(Self::Before(before(now_ms, freezing.min_age_days)));
        }
        let mut these = HashSet::new();
        for id in core.catalog.all_backup_ids() {
            let Some(point) = core.catalog.backup(id?)? else { continue };
            if point.finished_ms < before(now_ms, freezing.days_of(&point)) {
                these.insert(point.id);
            }
        }
        Ok(Self::These(these))
    }

    fn has(&self, root: &Root) -> bool {
        match self {
            Self::Before(ms) => root.committed_ms < *ms,
            Self::These(these) => these.contains(&root.backup),
        }
    }
}

/// Moves containers to the archive; within a round. `roots`: everything that counts, recipes in use included.
///
/// # Errors
/// The catalog's, and [`EngineError::Stopped`]. An error of the bucket ends it, and is in the report.
pub(super) fn freeze(
    core: &Core,
    freezing: &Freezing,
    roots: impl Fn() -> Result<Roots, EngineError>,
    control: &Control,
    report: &mut ReclaimReport,
) -> Result<(), EngineError> {
    let now_ms = core.clock.now_ms();
    // A container made later holds nothing of a restore point that is old enough.
    let made_before_ms = before(now_ms, freezing.days_min());
    let is_old = |row: &ContainerRecord| is_live_data(row) && row.created_ms < made_before_ms;
    // (T10) Before anything is listed.
    let _under_way = UnderWay::begin(&core.store);
    let old = Old::of(core, freezing, now_ms)?;
    let mut after = None;
    loop {
        control.check()?;
        let Some((candidates, last)) = Candidates::window(&core.catalog, after, WINDOW_BYTES, is_old)? else {
            return Ok(());
        };
        after = Some(last);
        let far: Vec<&Candidate> = candidates.iter().filter(|candidate| is_far(core, candidate)).collect();
        if far.is_empty() {
            continue;
        }
        let in_use = core.in_use.with(|| ()).0;
        let is_used = |root: &Root| in_use.iter().any(|recipe| recipe.root == root.fingerprint);
        let (young, rest) = roots()?.split(|root| !old.has(root) || is_used(root));
        let marked = mark(core, &young, &candidates, &Scope::all(), control)?;
        let is_needed = |candidate: &Candidate| {
            marked.incomplete.contains_key(&candidate.namespace)
                || !marked.live.get(candidate.id).is_some_and(SlotSet::is_empty)
        };
        let free: Vec<&Candidate> = far.into_iter().filter(|candidate| !is_needed(candidate)).collect();
        // Freezing containers that may be cold already is finished.
        let is_begun = |candidate: &Candidate| core.store.leftovers.is_cold(candidate.id);
        let lasting = if free.iter().all(|candidate| is_begun(candidate)) {
            Lasting(None)
        } else {
            Lasting::find(core, freezing, rest, &candidates, control)?
        };
        control.begin(Phase::Moving, free.len() as u64);
        for candidate in free {
            control.check()?;
            control.add_done(1);
            if !is_begun(candidate) && lasting.keeps_back(candidate, report) {
                continue;
            }
            if !freeze_one(core, candidate, report)? {
                return Ok(());
            }
        }
    }
}

/// Chunks needed by restore points that will stay; `None`: all restore points do.
struct Lasting(Option<Marked>);

impl Lasting {
    fn find(
        core: &Core,
        freezing: &Freezing,
        old: Roots,
        candidates: &Candidates,
        control: &Control,
    ) -> Result<Self, EngineError> {
        if freezing.leaving.is_empty() {
            return Ok(Self(None));
        }
        let (_, staying) = old.split(|root| freezing.leaving.contains(&root.backup));
        mark(core, &staying, candidates, &Scope::all(), control).map(|marked| Self(Some(marked)))
    }

    /// Returns true if only restore points need it that will be deleted soon: its class would be paid for longer than
    /// it is there.
    fn keeps_back(&self, candidate: &Candidate, report: &mut ReclaimReport) -> bool {
        let Some(Marked { incomplete, live, .. }) = &self.0 else { return false };
        let lasts = live.get(candidate.id).is_some_and(|chunks| !chunks.is_empty());
        // If not all recipes could be followed, it cannot be determined.
        if !lasts && !incomplete.contains_key(&candidate.namespace) {
            report.kept_back_containers += 1;
            report.kept_back_bytes += candidate.stored_bytes;
        }
        !lasts
    }
}

/// Returns true if it is only in the bucket, and not known to be in the archive.
fn is_far(core: &Core, candidate: &Candidate) -> bool {
    let store = &core.store;
    let is_far_and_warm = |container: Arc<OpenContainer>| {
        let is_cold =
            store.leftovers.is_cold(candidate.id) && container.cold().is_none_or(|place| place.is_certain);
        !is_cold && !container.is_at_hand()
    };
    store.known_damage(candidate.id).is_empty()
        && store.containers.get(candidate.id, ContainerClass::Data).is_ok_and(is_far_and_warm)
}

/// Freezes one container. Returns true to go on with others.
fn freeze_one(core: &Core, candidate: &Candidate, report: &mut ReclaimReport) -> Result<bool, EngineError> {
    let (store, id) = (&core.store, candidate.id);
    let container = match store.containers.open(id, ContainerClass::Data) {
        Ok(container) => container,
        // Defects of the container are found by others.
        Err(ContainerError::Structure { .. } | ContainerError::Volume { .. }) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    // (T10) From now on no one begins to count on it, unless no one may already.
    if !store.leftovers.is_cold(id) && !store.leftovers.freeze(id) {
        return Ok(true);
    }
    let frozen = core.volume.freeze(container.name());
    if container.cold().is_none() {
        store.leftovers.keep_warm(id);
    }
    match frozen {
        Ok(true) => {
            report.frozen_containers += 1;
            report.frozen_bytes += candidate.stored_bytes;
            Ok(true)
        }
        Ok(false) => Ok(true),
        // This object is damaged, which the audit finds out. The others may go.
        Err(error @ (VolumeError::BadAnswer { .. } | VolumeError::NotFound { .. })) => {
            tracing::error!(container = %id, %error, "a container cannot be moved to the archive");
            report.freezing_failed.get_or_insert_with(|| error.to_string());
            report.unfrozen_containers += 1;
            Ok(report.unfrozen_containers < WRONG_MAX)
        }
        Err(error) => {
            tracing::warn!(container = %id, %error, "moving containers to the archive ends early");
            report.freezing_failed = Some(error.to_string());
            Ok(false)
        }
    }
}

/// Removes containers from the local volume, so that only the bucket has them.
///
/// # Errors
/// The catalog's, and [`EngineError::Stopped`]. An error of the bucket ends the moving, and is in the report.
pub(super) fn move_away(
    core: &Core,
    moving: &Moving,
    control: &Control,
    report: &mut ReclaimReport,
) -> Result<(), EngineError> {
    let young_ms = core.clock.now_ms().saturating_sub(i64::from(moving.min_age_days).saturating_mul(DAY_MS));
    let is_old = |row: &ContainerRecord| is_live_data(row) && row.created_ms < young_ms;
    let mut after = None;
    while !has_room(core, moving)? {
        control.check()?;
        let Some((candidates, last)) = Candidates::window(&core.catalog, after, WINDOW_BYTES, is_old)? else {
            break;
        };
        after = Some(last);
        let movable = movable(core, &candidates)?;
        if movable.is_empty() {
            continue;
        }
        let (young, _) = Roots::load(core)?.split(|root| root.committed_ms >= young_ms);
        let live = mark(core, &young, &candidates, &Scope::all(), control)?.live;
        control.begin(Phase::Moving, movable.len() as u64);
        for candidate in movable {
            control.check()?;
            if has_room(core, moving)? {
                break;
            }
            if live.get(candidate.id).is_some_and(super::live::SlotSet::is_empty)
                && !move_one(core, candidate, control, report)?
            {
                return Ok(());
            }
            control.add_done(1);
        }
    }
    Ok(())
}

/// Candidates that are here, oldest first, as they were numbered.
fn movable<'a>(core: &Core, candidates: &'a Candidates) -> Result<Vec<&'a Candidate>, EngineError> {
    let mut movable = Vec::new();
    for candidate in candidates.iter() {
        let store = &core.store;
        // Damage is repaired from what is here; and parity needs what it repairs with.
        if store.known_damage(candidate.id).is_empty()
            && !store.protects_others(candidate.id)?
            && store
                .containers
                .get(candidate.id, ContainerClass::Data)
                .is_ok_and(|container| container.is_at_hand())
        {
            movable.push(candidate);
        }
    }
    Ok(movable)
}

/// Moves one container away. Returns true to go on with others.
fn move_one(
    core: &Core,
    candidate: &Candidate,
    control: &Control,
    report: &mut ReclaimReport,
) -> Result<bool, EngineError> {
    let container = match core.store.containers.open(candidate.id, ContainerClass::Data) {
        Ok(container) => container,
        // Defects of the container are found by others.
        Err(ContainerError::Structure { .. } | ContainerError::Volume { .. }) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let evicted = core.volume.evict(container.name(), container.ends());
    match evicted {
        Ok(true) => {
            // While its file is open, its room is not free.
            core.store.containers.remove(candidate.id);
            report.moved_containers += 1;
            report.moved_bytes += candidate.stored_bytes;
            control.add_freed(candidate.stored_bytes);
            Ok(true)
        }
        Ok(false) => Ok(true),
        // The local and the bucket's copy differ, or the local one cannot be read. The others may go.
        Err(error @ (VolumeError::BadAnswer { .. } | VolumeError::Io { .. })) => {
            tracing::error!(container = %candidate.id, %error, "a container cannot be moved to the bucket");
            note_damage(core, candidate.id);
            report.moving_failed.get_or_insert_with(|| error.to_string());
            Ok(true)
        }
        Err(error) => {
            tracing::warn!(container = %candidate.id, %error, "moving containers to the bucket ends early");
            report.moving_failed = Some(error.to_string());
            Ok(false)
        }
    }
}

/// Reads a container that may be damaged here, and notes what is.
fn note_damage(core: &Core, id: ContainerId) {
    container_repair::scan(core, id, ContainerClass::Data);
}

fn has_room(core: &Core, moving: &Moving) -> Result<bool, EngineError> {
    let Some(space) = core.volume.space().map_err(EngineError::from)? else { return Ok(false) };
    let wanted = space.total_bytes / 100 * u64::from(moving.until_free_pct.min(100));
    Ok(space.free_bytes >= wanted)
}
