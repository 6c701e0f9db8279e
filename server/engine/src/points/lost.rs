//! (G9) Restore points that the volume has and the catalog lost: their names are listed, and nothing says why there is no
//! row. The points say what is live; a row that is missing says nothing.

use std::collections::HashSet;

use holdfast_types::ids::BackupId;
use holdfast_volume::{Volume, list_all};

use super::compare::{Between, Comparison, deleting, enter_these};
use super::name::{PointName, folder};
use super::places;
use crate::core::Core;
use crate::error::EngineError;

/// Restore points named in a message at most.
const SHOWN: usize = 5;

/// The restore points of which the volume lists a point, by id: 16 bytes each.
///
/// # Errors
/// When the volume cannot be listed.
pub(crate) fn listed(volume: &dyn Volume) -> Result<Vec<BackupId>, EngineError> {
    let mut ids = Vec::new();
    for entry in list_all(volume, &folder()) {
        ids.extend(PointName::parse(&entry?.name).map(|name| name.backup));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Restore points of `listed` that are lost: not `known` (both by id), unread, being committed, or deleted. `is_live` says of a restore point
/// whether a session that has not ended makes it.
///
/// # Errors
/// The catalog's and the volume's.
pub(crate) fn lost(
    core: &Core,
    listed: &[BackupId],
    known: &[BackupId],
    is_live: &dyn Fn(BackupId) -> bool,
) -> Result<HashSet<BackupId>, EngineError> {
    let mut lost = HashSet::new();
    // (P6) What could not be read has no row yet, and holds rounds up by itself.
    let unread = core.unrecorded.unread().points.clone();
    let is_unknown = |id: &&BackupId| known.binary_search(id).is_err() && !unread.contains(*id);
    for id in listed.iter().filter(is_unknown) {
        // In this order: a session ends after its row is there, and a row goes by becoming a deletion.
        if !is_live(*id) && core.catalog.backup(*id)?.is_none_or(|row| row.disks.is_empty()) {
            lost.insert(*id);
        }
    }
    if lost.is_empty() {
        return Ok(lost);
    }
    let deleting = deleting(&*core.catalog)?;
    lost.retain(|id| !deleting.contains(id));
    // Once more: a deletion may have ended, which removes the point first.
    let there = places::all_of(&*core.volume, &lost)?;
    lost.retain(|id| there.contains_key(id));
    Ok(lost)
}

/// (P3) Enters them again, as a start does.
///
/// # Errors
/// The catalog's and the volume's; a point that cannot be entered is in the comparison.
pub(crate) fn enter_again(core: &Core, lost: &HashSet<BackupId>) -> Result<Comparison, EngineError> {
    let between = Between {
        volume: &*core.volume,
        catalog: &*core.catalog,
        repository: core.repository,
        recovered: false,
        only: None,
    };
    // (L1) As for the rest of a start: nothing is deleted between the look at a point and its row.
    let _changing = core.changing_points.lock();
    let found = enter_these(between, lost, &mut |error| Err(error.into()))?;
    core.raise_last_commit(core.catalog.commits()?.last);
    // (P6)
    core.unrecorded.note_unread(|unread| {
        unread.points.extend(&found.unread);
        unread.names.extend(found.problems.iter().map(|problem| problem.object.clone()));
    });
    Ok(found)
}

/// (G9) What the catalog lacks may need anything.
pub(crate) fn lacks_rows(lost: &HashSet<BackupId>) -> EngineError {
    let (count, mut some) = (lost.len(), lost.iter().map(ToString::to_string).collect::<Vec<_>>());
    some.sort_unstable();
    some.truncate(SHOWN);
    EngineError::Damaged(format!(
        "the catalog has lost {count} restore points that are on the volume ({}{}); nothing is reclaimed without them. \
         The server enters them again within minutes; if this stays, run 'holdfast-server check'",
        some.join(", "),
        if count > SHOWN { ", ..." } else { "" }
    ))
}
