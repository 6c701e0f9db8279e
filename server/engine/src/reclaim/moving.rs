//! Gives up the local copies of containers that only old restore points need and that lie far away as well (T9).
//!
//! What young restore points refer to is marked as a round marks everything; a container of which they need nothing may
//! go, the oldest first, until the volume has room enough. It is a choice, not a promise: a backup that finds an old chunk
//! meanwhile refers to it where it then lies, and what lies far away is read from there.

use holdfast_catalog::ContainerRecord;
use holdfast_types::ids::{ContainerClass, ContainerId};
use holdfast_volume::{Volume as _, VolumeError};

use super::control::{Control, Phase};
use super::live::{Candidate, Candidates, Scope, WINDOW_BYTES, is_live_data};
use super::mark::mark;
use super::report::{Moving, ReclaimReport};
use super::roots::Roots;
use crate::container::ContainerError;
use crate::container_repair;
use crate::core::Core;
use crate::error::EngineError;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Moves what may be moved.
///
/// # Errors
/// The catalog's, and [`EngineError::Stopped`]. What the place far away fails with ends the moving, and is in the report.
pub(super) fn run(
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
        let Some((candidates, last)) = Candidates::window(&*core.catalog, after, WINDOW_BYTES, is_old)?
        else {
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

/// Those that are here, oldest first, as they were numbered.
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

/// Whether to go on with others.
fn move_one(
    core: &Core,
    candidate: &Candidate,
    control: &Control,
    report: &mut ReclaimReport,
) -> Result<bool, EngineError> {
    let container = match core.store.containers.open(candidate.id, ContainerClass::Data) {
        Ok(container) => container,
        // What is wrong with it, others find out.
        Err(ContainerError::Structure { .. } | ContainerError::Volume { .. }) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let evicted = core.volume.evict(container.name(), container.ends());
    match evicted {
        Ok(true) => {
            // As long as its file is open, its room is not free.
            core.store.containers.remove(candidate.id);
            report.moved_containers += 1;
            report.moved_bytes += candidate.stored_bytes;
            control.add_freed(candidate.stored_bytes);
            Ok(true)
        }
        Ok(false) => Ok(true),
        // What lies here and there is not the same, or this cannot be read here. The others may go.
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
