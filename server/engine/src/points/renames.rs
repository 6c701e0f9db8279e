//! Names that VMs and jobs have by now, of which an older catalog does not know: newer revisions of points say them.

use std::collections::BTreeMap;

use holdfast_catalog::{Catalog, Named, PointState, Rename};
use holdfast_types::ids::{BackupId, NamespaceId, RepositoryId};
use holdfast_volume::{BlobName, Volume};

use super::store::read;
use crate::error::EngineError;

/// Which of two points says the newer name: the lock clock when it was sealed, how much it is ahead of its row, and its
/// commit number.
type Age = (Option<i64>, u32, u64);

/// (P10) What VMs and jobs of the catalog are called by now, each once, however many of its restore points say so.
/// `rows`: those whose points are not as they say; `names`: the revisions of points, the highest first. What cannot be read says nothing.
///
/// # Errors
/// The catalog's.
pub(super) fn newest(
    (volume, catalog, repository): (&dyn Volume, &Catalog, RepositoryId),
    rows: impl Iterator<Item = PointState>,
    names: &BTreeMap<BackupId, Vec<(u32, BlobName)>>,
) -> Result<Vec<Rename>, EngineError> {
    let mut found: BTreeMap<(NamespaceId, Named, String), (Age, String)> = BTreeMap::new();
    for PointState { backup, revision, wanted } in rows {
        let Some(known) = catalog.backup(backup)? else { continue };
        // A row that was changed says more than a point that is not above what it wants.
        let above = wanted.max(revision);
        let newer = names.get(&backup).into_iter().flatten().filter(|(revision, _)| *revision > above);
        let Some(point) = newer.filter_map(|(_, name)| read(volume, repository, name).ok()).next() else {
            continue;
        };
        let age = (point.lock_time_ms, point.revision.saturating_sub(above), point.number);
        let (vm, job) = ((Named::Vm, known.vm, point.attempt.vm), (Named::Job, known.job, point.attempt.job));
        for (kind, from, to) in [vm, job] {
            let newest = found.entry((known.namespace, kind, from)).or_insert_with(|| (age, to.clone()));
            if age > newest.0 {
                *newest = (age, to);
            }
        }
    }
    let renames =
        found.into_iter().map(|((namespace, kind, from), (_, to))| Rename { namespace, kind, from, to });
    Ok(renames.filter(|one| one.from != one.to).collect())
}
