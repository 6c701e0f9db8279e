//! Giving damaged points up: an administrator's decision, about each by its name.

use std::collections::BTreeMap;
use std::fmt::Display;

use holdfast_catalog::AuditEntry;
use holdfast_types::ids::BackupId;
use holdfast_volume::BlobName;

use super::change::{remove, reseal_looking};
use super::job::look_again;
use super::name::PointName;
use super::places::all_of;
use super::store::read;
use crate::core::Core;
use crate::error::EngineError;

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
    reseal_looking(&*core.volume, &*core.catalog, core.repository, backup, true).map(drop)
}
