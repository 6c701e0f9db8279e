//! For `check`: every point is read and compared with its row. What is wrong with a point is repaired from the row.

use std::collections::BTreeMap;

use holdfast_catalog::{Attempt, CatalogWalk as _, PointRecord};
use holdfast_types::ids::BackupId;
use holdfast_volume::{BlobName, list_all};

use super::job::write_revision;
use super::name::{PointName, folder};
use super::store::read;
use crate::core::Core;
use crate::error::EngineError;
use crate::progress::Progress;

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
    let mut points: BTreeMap<BackupId, (u32, BlobName)> = BTreeMap::new();
    for entry in list_all(&*core.volume, &folder()) {
        let entry = entry?;
        let Some(name) = PointName::parse(&entry.name) else { continue };
        let newest = points.entry(name.backup).or_insert((0, entry.name.clone()));
        if name.revision > newest.0 {
            *newest = (name.revision, entry.name);
        }
    }
    let total = points.len() as u64;
    for (done, id) in (0..).zip(core.catalog.all_backup_ids()) {
        progress.step("points", done, total);
        let id = id?;
        let found = points.remove(&id);
        let Some(row) = core.catalog.point(id)? else { continue };
        let revision = found.as_ref().map_or(0, |(revision, _)| *revision);
        let Err(error) = judge(core, &row, found)? else { continue };
        let object = format!("point of backup {id}, VM {:?}", row.attempt.vm);
        // Not over a point that a newer version wrote: it may say more than this one knows.
        let repaired = match &error {
            EngineError::Damaged(what) => match write_revision(core, &row, revision.saturating_add(1)) {
                Ok(()) => EngineError::Damaged(format!("{what}; written again from the catalog")),
                Err(failed) => EngineError::Damaged(format!("{what}; it cannot be written again: {failed}")),
            },
            _ => error,
        };
        report(object, repaired);
    }
    for (id, (_, name)) in points {
        let what =
            format!("the catalog has no restore point {id}; start the server again, so that it is entered");
        report(name.to_string(), EngineError::Damaged(what));
    }
    Ok(total)
}

/// Whether a point says what the catalog does.
fn judge(
    core: &Core,
    row: &PointRecord,
    found: Option<(u32, BlobName)>,
) -> Result<Result<(), EngineError>, EngineError> {
    let Some((_, name)) = found else { return Ok(Err(EngineError::Damaged("it is missing".into()))) };
    match read(&*core.volume, core.repository, &name) {
        Ok(point) if essence(&point) == essence(row) => Ok(Ok(())),
        Ok(_) => Ok(Err(EngineError::Damaged(format!("{name} says something else than the catalog")))),
        Err(error @ EngineError::Damaged(_)) => Ok(Err(EngineError::Damaged(format!("{name}: {error}")))),
        Err(error @ EngineError::Unsupported(_)) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

/// What both must agree on. A namespace may be called something else since, a number may have been taken, and the
/// catalog does not keep the parent, the token, or the container numbers of that time.
fn essence(point: &PointRecord) -> impl PartialEq + '_ {
    let Attempt { session, run, namespace, vm, job, started_ms, finished_ms, .. } = &point.attempt;
    (
        point.backup,
        (session, run, namespace, vm, job, started_ms, finished_ms),
        &point.disks,
        &point.missing_disks,
    )
}
