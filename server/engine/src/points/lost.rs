//! (G9) Restore points that the volume has and the catalog lost: their names are listed, and nothing says why there is no
//! row. The points say what is live; a row that is missing says nothing. An administrator can give damaged points up, each
//! by its name.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;

use holdfast_catalog::AuditEntry;
use holdfast_types::ids::BackupId;
use holdfast_volume::{BlobName, Volume, list_all};

use super::change::{remove, reseal_looking};
use super::compare::{Between, Comparison, deleting, enter_these};
use super::job::look_again;
use super::{PointName, all_of, folder, read};
use crate::core::Core;
use crate::error::EngineError;
use crate::points;

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
    // (P6) Points that could not be read have no row yet, and hold up rounds by themselves.
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
    let deleting = deleting(&core.catalog)?;
    lost.retain(|id| !deleting.contains(id));
    // Once more: a deletion may have ended, which removes the point first.
    let there = points::all_of(&*core.volume, &lost)?;
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
        catalog: &core.catalog,
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

/// (G9) Error for restore points that the catalog lost: they may need anything.
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

/// (P8) Gives up what the points of these names said: their restore points are what the catalog says, if it knows them, and
/// lost if not.
///
/// # Errors
/// `Invalid`: one is no point that a start could not read, or it can be read now, or another of its restore point cannot
/// be. What reading it says, unless that it is damaged for sure: what cannot be read now is not given up. The catalog's and
/// the volume's; repeating it goes on.
pub(crate) fn give_up(core: &Core, names: &[String], who: &str) -> Result<(), EngineError> {
    core.check_writable()?;
    let mut given_up: BTreeMap<BackupId, Vec<(u32, BlobName)>> = BTreeMap::new();
    for name in names {
        let blob = BlobName::new(name).and_then(|blob| PointName::parse(&blob).map(|point| (point, blob)));
        let known = core.unrecorded.unread();
        let Some((PointName { backup, revision }, blob)) =
            blob.filter(|(point, _)| known.points.contains(&point.backup))
        else {
            return refused(name, "is no point that could not be read");
        };
        given_up.entry(backup).or_default().push((revision, blob));
    }
    for (backup, names) in given_up {
        give_up_of(core, backup, &names, who)?;
    }
    look_again(core)
}

fn refused(name: impl Display, why: &str) -> Result<(), EngineError> {
    Err(EngineError::Invalid(format!("{name} {why}; it was not given up")))
}

fn give_up_of(
    core: &Core,
    backup: BackupId,
    names: &[(u32, BlobName)],
    who: &str,
) -> Result<(), EngineError> {
    let _changing = core.changing_points.lock();
    let row = core.catalog.point_state(backup)?.map(|state| state.revision);
    let all = all_of(&*core.volume, &[backup].into())?.remove(&backup).unwrap_or_default();
    let mut others = Vec::new();
    for (revision, name) in all {
        let is_given_up = names.iter().any(|(_, given_up)| *given_up == name);
        match read(&*core.volume, core.repository, &name) {
            Ok(_) if is_given_up => return refused(name, "can be read"),
            Err(EngineError::Damaged(why)) if is_given_up => core.catalog.audit(&AuditEntry {
                who: who.to_owned(),
                action: "point.give-up".to_owned(),
                object: name.to_string(),
                detail: format!("of restore point {backup}: {why}"),
            })?,
            // (P7) Sealing the point anew would replace it, too.
            Err(_) if !is_given_up && row.is_none_or(|row| revision > row) => {
                return refused(name, "cannot be read either: name it as well, if it is damaged");
            }
            Err(error) if is_given_up => return Err(error),
            Ok(point) => others.push(point),
            Err(_) => {}
        }
    }
    // (L5) It may be read again by now.
    core.catalog.enter_points(&others)?;
    let is_known = core.catalog.point_state(backup)?;
    let Some(highest) = is_known.and_then(|_| names.iter().map(|(revision, _)| *revision).max()) else {
        return names.iter().try_for_each(|(_, name)| remove(&*core.volume, name));
    };
    core.catalog.mark_point_stale(backup, highest)?;
    // From here on the row says all that they said, so that sealing it anew replaces them (L5).
    core.catalog.note_point_sealed(backup, highest)?;
    reseal_looking(&*core.volume, &core.catalog, core.repository, backup, true).map(drop)
}
