//! For `check`: every point is read and compared with its row. What is wrong with a point is repaired from the row.

use std::collections::BTreeMap;

use holdfast_catalog::{Attempt, PointRecord};
use holdfast_types::ids::BackupId;
use holdfast_volume::{BlobName, list_all};

use super::job::write_anew;
use super::read;
use super::{PointName, folder};
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::Progress;

/// Records of deletions read at a time.
const DELETIONS_PER_PAGE: u32 = 1000;

/// Tells `report` of each restore point whose point is missing, cannot be read or says something else than the catalog,
/// and of points without a restore point. Returns how many points there are.
///
/// # Errors
/// When the volume or the catalog cannot be asked.
pub(crate) fn verify(
    core: &Core,
    progress: &dyn Progress,
    mut report: impl FnMut(String, EngineError),
) -> Result<u64, EngineError> {
    let mut points: BTreeMap<BackupId, Found> = BTreeMap::new();
    for entry in list_all(&*core.volume, &folder()) {
        let entry = entry?;
        let Some(name) = PointName::parse(&entry.name) else { continue };
        let found = points.entry(name.backup).or_insert_with(|| Found {
            highest: 0,
            name: entry.name.clone(),
            revisions: 0,
        });
        found.revisions += 1;
        if name.revision > found.highest {
            (found.highest, found.name) = (name.revision, entry.name);
        }
    }
    let total = points.len() as u64;
    unfinished(core, &mut points, &mut report)?;
    for (done, id) in (0..).zip(core.catalog.all_backup_ids()) {
        progress.step("points", done, total);
        let id = id?;
        let found = points.remove(&id);
        let Some(row) = core.catalog.point(id)? else { continue };
        let highest = found.as_ref().map_or(0, |found| found.highest);
        let Err(error) = judge(core, &row, found)? else { continue };
        let object = format!("point of backup {id}, VM {:?}", row.attempt.vm);
        // (P7) Only over what is damaged for sure, and said no more than the row.
        let repaired = match &error {
            EngineError::Damaged(what) if highest <= row.revision => {
                match write_anew_locked(core, id, highest) {
                    Ok(()) => EngineError::Damaged(format!("{what}; written again from the catalog")),
                    Err(failed) => {
                        EngineError::Damaged(format!("{what}; it cannot be written again: {failed}"))
                    }
                }
            }
            _ => error,
        };
        report(object, repaired);
    }
    for (id, Found { name, .. }) in points {
        let what =
            format!("the catalog has no restore point {id}; start the server again, so that it is entered");
        let error = read(&*core.volume, core.repository, &name).err().unwrap_or(EngineError::Damaged(what));
        report(name.to_string(), error);
    }
    Ok(total)
}

/// A restore point's point on the volume.
struct Found {
    highest: u32,
    /// Name of the highest revision.
    name: BlobName,
    revisions: u32,
}

/// Deletions that were begun and not finished: what is left of them belongs to no restore point.
fn unfinished(
    core: &Core,
    points: &mut BTreeMap<BackupId, Found>,
    report: &mut impl FnMut(String, EngineError),
) -> Result<(), EngineError> {
    let mut after = None;
    loop {
        let page = core.catalog.deletions(after, DELETIONS_PER_PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.backup);
        for one in page {
            points.remove(&one.backup);
            let object = format!("restore point {} of VM {:?}", one.backup, one.vm);
            let what = "its deletion was begun and is not finished; the next start tries again";
            report(object, EngineError::Damaged(what.into()));
        }
    }
}

fn write_anew_locked(core: &Core, id: BackupId, above: u32) -> Result<(), EngineError> {
    let _changing = core.changing_points.lock();
    write_anew(core, id, above)
}

/// Compares a point with the catalog. (L5) Where the point is locked for longer, the catalog follows.
fn judge(
    core: &Core,
    row: &PointRecord,
    found: Option<Found>,
) -> Result<Result<(), EngineError>, EngineError> {
    let damaged = |what: String| Ok(Err(EngineError::Damaged(what)));
    let Some(Found { name, revisions, .. }) = found else { return damaged("it is missing".into()) };
    let point = match read(&*core.volume, core.repository, &name) {
        Ok(point) => point,
        Err(EngineError::Damaged(what)) => return damaged(format!("{name}: {what}")),
        Err(error) => return Ok(Err(error)),
    };
    if row.lock.stricter(&point.lock) != row.lock {
        core.catalog.enter_points(std::slice::from_ref(&point))?;
        return damaged(format!("{name} is locked for longer than the catalog says; the catalog follows"));
    }
    if point.lock != row.lock {
        return damaged(format!("{name} does not say until when it is locked, as the catalog does"));
    }
    if essence(&point) != essence(row) {
        return damaged(format!("{name} says something else than the catalog"));
    }
    if revisions > 1 {
        return damaged(format!("{revisions} revisions of it are there, of which {name} counts"));
    }
    Ok(Ok(()))
}

/// Fields in which both must agree. The namespace may have been renamed since, a number may have been taken, and the
/// catalog does not keep the parent, the token, or the container numbers of that time.
fn essence(point: &PointRecord) -> impl PartialEq + '_ {
    let Attempt { session, run, namespace, vm, job, started_ms, finished_ms, accepted_change, .. } =
        &point.attempt;
    (
        point.backup,
        (session, run, namespace, vm, job, started_ms, finished_ms),
        &point.disks,
        (&point.missing_disks, accepted_change),
    )
}
