//! Points that change, and points that go.
//!
//! A row that says more than its point (a lock, a hold, another name) is *stale*: the catalog marks it in the
//! transaction that changes the row. Then the next revision of the point is sealed, the older ones are removed, and the
//! mark goes (L5). A crash anywhere leaves a stale row, and the start begins anew.
//!
//! A restore point that is deleted loses its row first, then every revision of its point, then the record of the
//! deletion (L1). A crash anywhere leaves that record, and the start finishes.

use std::collections::BTreeSet;

use holdfast_catalog::{Catalog, DeletionRecord, PointRecord};
use holdfast_types::ids::{BackupId, RepositoryId};
use holdfast_volume::{BlobName, Volume, VolumeError};

use super::{Expected, revisions};
use super::{PointName, vm_folder};
use super::{encode, seal};
use crate::error::EngineError;
use crate::generation;

/// Records of deletions read at a time: some 200 KiB.
const BATCH: u32 = 1000;

/// A revision that is there already, with other bytes, is left and the next one is tried.
const TRIES: u32 = 8;

/// (L1) Removes the points of restore points that are being deleted, and forgets these. Nothing is sealed, so that it
/// works on a full disk. Returns how many.
///
/// # Errors
/// The volume's and the catalog's; what is left is finished by the next call.
pub(crate) fn finish_deletions(volume: &dyn Volume, catalog: &Catalog) -> Result<u64, EngineError> {
    let mut finished = 0;
    loop {
        let batch = catalog.deletions(None, BATCH)?;
        if batch.is_empty() {
            return Ok(finished);
        }
        // (G10) Before: a catalog from before the deletion began would bring these back.
        generation::raise(volume, catalog)?;
        remove_points(volume, &batch)?;
        let ids: Vec<BackupId> = batch.iter().map(|one| one.backup).collect();
        // Only now: a point that is left would be entered by the next start (L1, P3).
        catalog.finish_deletion(&ids)?;
        finished += ids.len() as u64;
    }
}

fn remove_points(volume: &dyn Volume, deletions: &[DeletionRecord]) -> Result<(), EngineError> {
    let expected: Vec<Expected> = deletions
        .iter()
        .map(|one| Expected {
            backup: one.backup,
            folder: vm_folder(&one.namespace, &one.vm),
            revision: one.revision,
            scattered: one.stale,
        })
        .collect();
    for names in revisions(volume, &expected)?.into_values() {
        names.iter().try_for_each(|(_, name)| remove(volume, name))?;
    }
    Ok(())
}

pub(super) fn remove(volume: &dyn Volume, name: &BlobName) -> Result<(), EngineError> {
    match volume.remove(name) {
        Ok(()) | Err(VolumeError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// (L5) Seals the points anew whose rows say more, but for those that could not be read. Returns how many.
///
/// # Errors
/// The volume's and the catalog's; what is left is sealed by the next call.
pub(crate) fn reseal_stale(
    volume: &dyn Volume,
    catalog: &Catalog,
    repository: RepositoryId,
    unread: &BTreeSet<BackupId>,
) -> Result<u64, EngineError> {
    let (mut after, mut sealed) = (None, 0);
    loop {
        let batch = catalog.stale_points(after, BATCH)?;
        let Some(last) = batch.last() else { return Ok(sealed) };
        after = Some(*last);
        // (P7) Unread revisions may lock for longer.
        for id in batch.into_iter().filter(|id| !unread.contains(id)) {
            // Points left by a rename that crashed may be in any folder.
            sealed += u64::from(reseal_looking(volume, catalog, repository, id, true)?);
        }
    }
}

/// A revision that was sealed ahead of its row.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Place of the revision before it.
    before: Expected,
    revision: u32,
    name: BlobName,
}

/// (L8) Seals the next revision of a point, and leaves the older ones. `None`: that revision is there already and says
/// something else; the row is told, and wants the one after.
///
/// # Errors
/// The volume's: it is not left then, unless that fails as well.
pub(crate) fn seal_ahead(
    volume: &dyn Volume,
    catalog: &Catalog,
    repository: RepositoryId,
    point: &PointRecord,
) -> Result<Option<Ahead>, EngineError> {
    let PointRecord { backup, revision, namespace, .. } = point;
    let name = PointName { backup: *backup, revision: *revision }.blob(point);
    let folder = vm_folder(namespace, &point.attempt.vm);
    let row = catalog.point_state(*backup)?;
    // (L1) If the row is stale, a rename that its point does not include yet may have left others in another folder.
    let (sealed, scattered) = row.map_or((0, true), |row| (row.revision, row.wanted > row.revision));
    let before = Expected { backup: *backup, folder, revision: sealed, scattered };
    let ahead = Ahead { before, revision: *revision, name };
    match seal(volume, namespace.id, &ahead.name, &encode(repository, *revision, point)?) {
        Ok(()) => Ok(Some(ahead)),
        Err(EngineError::Volume(VolumeError::Exists { .. }) | EngineError::Damaged(_)) => {
            catalog.mark_point_stale(*backup, *revision)?;
            Ok(None)
        }
        Err(error) => {
            unseal(volume, catalog, &[ahead]);
            Err(error)
        }
    }
}

/// (L8) Removes what [`seal_ahead`] sealed of a change that is refused. What cannot be removed the row is sealed above.
pub(crate) fn unseal(volume: &dyn Volume, catalog: &Catalog, ahead: &[Ahead]) {
    for Ahead { before, revision, name } in ahead {
        if let Err(error) = remove(volume, name) {
            let is_noted = catalog.mark_point_stale(before.backup, *revision).is_ok();
            tracing::error!(%name, %error, is_noted, "cannot remove the point of a change that was refused");
        }
    }
}

/// (L5) After the rows: removes what is older than what [`seal_ahead`] sealed, and takes the marks away.
///
/// # Errors
/// The volume's and the catalog's; what is left is removed when the points are sealed anew.
pub(crate) fn settle(volume: &dyn Volume, catalog: &Catalog, ahead: &[Ahead]) -> Result<(), EngineError> {
    let expected: Vec<Expected> = ahead.iter().map(|one| one.before.clone()).collect();
    let mut found = revisions(volume, &expected)?;
    for Ahead { before: Expected { backup, .. }, revision, .. } in ahead {
        let names = found.remove(backup).unwrap_or_default();
        for (_, older) in names.iter().filter(|(other, _)| other < revision) {
            remove(volume, older)?;
        }
        catalog.note_point_sealed(*backup, *revision)?;
    }
    Ok(())
}

/// (L5) Seals one stale point anew, as [`reseal_stale`]. Returns true if it was stale.
pub(crate) fn reseal(
    volume: &dyn Volume,
    catalog: &Catalog,
    repository: RepositoryId,
    id: BackupId,
) -> Result<bool, EngineError> {
    reseal_looking(volume, catalog, repository, id, false)
}

/// As [`reseal`]; `everywhere`: older revisions are looked for in all folders, whatever is found where one is expected.
pub(crate) fn reseal_looking(
    volume: &dyn Volume,
    catalog: &Catalog,
    repository: RepositoryId,
    id: BackupId,
    everywhere: bool,
) -> Result<bool, EngineError> {
    for _ in 0..TRIES {
        let Some(state) = catalog.point_state(id)?.filter(|state| state.wanted > state.revision) else {
            return Ok(false);
        };
        let Some(point) = catalog.point(id)? else { return Ok(false) };
        let expected = Expected {
            backup: id,
            folder: vm_folder(&point.namespace, &point.attempt.vm),
            revision: state.revision,
            scattered: everywhere,
        };
        let found = revisions(volume, &[expected])?.remove(&id).unwrap_or_default();
        let name = PointName { backup: id, revision: point.revision }.blob(&point);
        let highest = found.iter().filter(|(_, other)| *other != name).map(|(revision, _)| *revision).max();
        if let Some(highest) = highest.filter(|highest| *highest >= point.revision) {
            catalog.mark_point_stale(id, highest)?;
            continue;
        }
        match seal(volume, point.namespace.id, &name, &encode(repository, point.revision, &point)?) {
            Ok(()) => {}
            // A point left by an earlier try, which said something else or is damaged.
            Err(EngineError::Volume(VolumeError::Exists { .. }) | EngineError::Damaged(_)) => {
                catalog.mark_point_stale(id, point.revision)?;
                continue;
            }
            Err(error) => return Err(error),
        }
        // (L5) Only once the newer one is durable.
        for (_, older) in found.iter().filter(|(_, other)| *other != name) {
            remove(volume, older)?;
        }
        catalog.note_point_sealed(id, point.revision)?;
        return Ok(true);
    }
    Err(EngineError::Internal(format!(
        "the point of restore point {id} cannot be sealed: its revisions are taken"
    )))
}
