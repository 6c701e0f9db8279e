//! Names that VMs and jobs have by now, of which an older catalog does not know: newer revisions of points say them.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use holdfast_catalog::{Catalog, Named, PointState, Rename};
use holdfast_types::ids::{BackupId, NamespaceId, RepositoryId};
use holdfast_volume::{BlobName, Volume};
use parking_lot::Mutex;

use super::change::reseal_looking;
use super::{PointName, folder, is_hashed, read};
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, Step};

/// Order of two points that give different names; the greater is the newer: the lock clock when it was sealed, how much
/// it is ahead of its row, and its commit number.
type Age = (Option<i64>, u32, u64);

/// (P10) The current names of the catalog's VMs and jobs, each once, however many restore points give it. `rows`:
/// restore points whose points differ from their rows; `names`: the revisions of points, the highest first. Points that
/// cannot be read are skipped.
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

/// Names of a listing at a time.
const PAGE: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Points in folders that show names: earlier versions called the folders of namespaces and VMs by what people call these.
/// Where everything else on a volume is encrypted, such a point is sealed anew where it belongs (L5), and the folders go.
///
/// There is no place to keep: what was done shows in the names. A crash leaves a stale row, which the next start seals, or a
/// folder without anything in it, which the next pass removes.
#[derive(Debug)]
pub(crate) struct OldFoldersJob {
    pub(crate) core: Arc<Core>,
    /// The last name that was looked at.
    pub(crate) after: Mutex<Option<BlobName>>,
}

impl Job for OldFoldersJob {
    fn name(&self) -> &'static str {
        "point-folders"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let mut after = self.after.lock();
        loop {
            let page = self.core.volume.list(&folder(), after.as_ref(), PAGE)?;
            for entry in page.entries {
                if let Some(point) = PointName::parse(&entry.name).filter(|_| !is_hashed(&entry.name)) {
                    move_point(&self.core, point)?;
                }
                *after = Some(entry.name);
                budget.charge(1, 0);
                if budget.is_spent() {
                    return Ok(Step::More);
                }
            }
            if !page.more {
                break;
            }
        }
        // Nothing is written to such a folder by this version.
        self.core.volume.remove_empty_folders(&folder(), &|folder| !is_hashed(folder))?;
        Ok(Step::Finished)
    }
}

/// One that the catalog does not know is left: it is damaged, or was there before (P3).
fn move_point(core: &Core, point: PointName) -> Result<(), EngineError> {
    let _changing = core.changing_points.lock();
    core.check_writable()?;
    // (P7) It is left, too, and its folder with it.
    if core.unrecorded.unread().points.contains(&point.backup) {
        return Ok(());
    }
    core.catalog.mark_point_stale(point.backup, point.revision)?;
    reseal_looking(&*core.volume, &core.catalog, core.repository, point.backup, true)
        .map(drop)
        .map_err(|error| core.write_failure(error))
}
