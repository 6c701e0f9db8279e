//! All points against all rows: for a start that cannot be sure that the catalog is what the volume says, and for
//! recovery.

use std::collections::{BTreeMap, HashSet};

use holdfast_catalog::{Catalog, CatalogError, CatalogWalk as _, PointRecord};
use holdfast_types::ids::{BackupId, RepositoryId};
use holdfast_volume::{BlobName, Volume, list_all};

use super::name::{PointName, folder};
use super::store::read;
use crate::error::EngineError;
use crate::progress::Progress;

/// Restore points entered in one transaction: at 256 disks each, 28 MiB of points.
const ENTERED_PER_TRANSACTION: usize = 64;

/// Restore points and problems listed at most; more are only counted, and named in the log.
const LISTED_MAX: usize = 1000;

/// A restore point that the volume knew and the catalog did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnteredPoint {
    pub backup: BackupId,
    /// Its commit number.
    pub number: u64,
    pub namespace: String,
    pub vm: String,
    pub job: String,
    pub started_ms: i64,
}

/// A point that could not be entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointProblem {
    /// The blob, or the backup.
    pub object: String,
    pub what: String,
}

/// What comparing found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The first 1,000 of them.
    pub entered: Vec<EnteredPoint>,
    pub entered_count: u64,
    /// The first 1,000 of them.
    pub problems: Vec<PointProblem>,
    pub problem_count: u64,
    /// Restore points of the catalog that have no point.
    pub without_point: Vec<BackupId>,
    /// Restore points that the catalog did not take, because it takes no changes now. Nothing is wrong with them.
    pub waiting_count: u64,
    /// The volume holds restore points of containers that the catalog never gave numbers for: it is an older copy, or
    /// lost its log.
    pub catalog_is_older: bool,
}

impl Comparison {
    fn problem(&mut self, object: String, what: String) {
        tracing::error!(object, what, "a restore point on the volume cannot be entered into the catalog");
        self.problem_count += 1;
        if self.problems.len() < LISTED_MAX {
            self.problems.push(PointProblem { object, what });
        }
    }

    fn entered(&mut self, point: &PointRecord) {
        let PointRecord { number, namespace, attempt, backup, .. } = point;
        tracing::warn!(
            %backup, number, namespace = namespace.name, vm = attempt.vm, job = attempt.job,
            "entered a restore point that the volume knows and the catalog did not"
        );
        self.entered_count += 1;
        if self.entered.len() < LISTED_MAX {
            self.entered.push(EnteredPoint {
                backup: *backup,
                number: *number,
                namespace: namespace.name.clone(),
                vm: attempt.vm.clone(),
                job: attempt.job.clone(),
                started_ms: attempt.started_ms,
            });
        }
    }
}

/// (P3) Enters every restore point that has a point and no row. Repeating it does nothing. Memory: 16 bytes a restore
/// point twice over, and the names of those that are missing.
///
/// # Errors
/// When the volume or the catalog cannot be asked. A point that cannot be read is in the comparison. `refused` decides
/// about a catalog that [takes no changes](CatalogError::refuses_changes): with `Ok` the others are read, and counted.
pub(crate) fn compare(
    volume: &dyn Volume,
    catalog: &dyn Catalog,
    repository: RepositoryId,
    refused: &mut dyn FnMut(CatalogError) -> Result<(), EngineError>,
    progress: &dyn Progress,
) -> Result<Comparison, EngineError> {
    let mut comparison = Comparison::default();
    let next_container = catalog.commits()?.next_container;
    let rows: HashSet<BackupId> = catalog.all_backup_ids().collect::<Result<_, _>>()?;
    let (missing, without_point) = missing_rows(volume, &rows)?;
    let total = missing.len() as u64;
    let mut batch = Vec::new();
    for (done, (backup, names)) in (0..).zip(missing) {
        progress.step("restore points entered", done, total);
        let Some(point) = highest_readable(volume, repository, backup, names, &mut comparison)? else {
            continue;
        };
        comparison.catalog_is_older |= point.next_container > next_container;
        batch.push(point);
        if batch.len() >= ENTERED_PER_TRANSACTION {
            enter(catalog, &mut batch, &mut comparison, refused)?;
        }
    }
    enter(catalog, &mut batch, &mut comparison, refused)?;
    comparison.without_point = without_point;
    Ok(comparison)
}

/// Points by backup, the highest revision first.
type Missing = BTreeMap<BackupId, Vec<(u32, BlobName)>>;

/// The points of backups that are not among `rows`, and the rows that have no point.
fn missing_rows(
    volume: &dyn Volume,
    rows: &HashSet<BackupId>,
) -> Result<(Missing, Vec<BackupId>), EngineError> {
    let mut without_point = rows.clone();
    let mut missing = Missing::new();
    for entry in list_all(volume, &folder()) {
        let entry = entry?;
        match PointName::parse(&entry.name) {
            Some(name) if rows.contains(&name.backup) => drop(without_point.remove(&name.backup)),
            Some(name) => missing.entry(name.backup).or_default().push((name.revision, entry.name)),
            None => tracing::warn!(name = %entry.name, "ignored an unexpected file among the points"),
        }
    }
    for names in missing.values_mut() {
        names.sort_unstable_by(|a, b| b.cmp(a));
    }
    let mut without_point: Vec<BackupId> = without_point.into_iter().collect();
    without_point.sort_unstable();
    Ok((missing, without_point))
}

/// The first of `names` that can be read; the others are named.
fn highest_readable(
    volume: &dyn Volume,
    repository: RepositoryId,
    backup: BackupId,
    names: Vec<(u32, BlobName)>,
    comparison: &mut Comparison,
) -> Result<Option<PointRecord>, EngineError> {
    let mut last = None;
    for (_, name) in names {
        match read(volume, repository, &name) {
            Ok(point) => return Ok(Some(point)),
            Err(error @ (EngineError::Damaged(_) | EngineError::Unsupported(_))) => {
                tracing::warn!(%name, %error, "a point cannot be read");
                last = Some((name, error));
            }
            Err(error) => return Err(error),
        }
    }
    if let Some((name, error)) = last {
        comparison.problem(name.to_string(), format!("restore point {backup} is not known: {error}"));
    }
    Ok(None)
}

fn enter(
    catalog: &dyn Catalog,
    batch: &mut Vec<PointRecord>,
    comparison: &mut Comparison,
    refused: &mut dyn FnMut(CatalogError) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    if batch.is_empty() {
        return Ok(());
    }
    match catalog.enter_points(batch) {
        Ok(_) => batch.iter().for_each(|point| comparison.entered(point)),
        // One that contradicts itself keeps no other out, and one may fit where all do not.
        Err(error) if is_contradiction(&error) || error.refuses_changes() => {
            for point in batch.iter() {
                match catalog.enter_points(std::slice::from_ref(point)) {
                    Ok(_) => comparison.entered(point),
                    Err(error) if is_contradiction(&error) => {
                        comparison.problem(point.backup.to_string(), error.to_string());
                    }
                    Err(error) => {
                        refused(error)?;
                        comparison.waiting_count += 1;
                    }
                }
            }
        }
        Err(error) => return Err(error.into()),
    }
    batch.clear();
    Ok(())
}

const fn is_contradiction(error: &CatalogError) -> bool {
    matches!(
        error,
        CatalogError::Invalid { .. } | CatalogError::Exists { .. } | CatalogError::NotFound { .. }
    )
}
