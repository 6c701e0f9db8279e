//! All points against all rows: for a start that cannot be sure that the catalog is what the volume says, and for
//! recovery.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use holdfast_catalog::{Catalog, CatalogError, PointRecord, PointState};
use holdfast_types::ids::{BackupId, RepositoryId};
use holdfast_volume::{BlobName, Volume};

use super::read;
use super::renames;
use crate::error::EngineError;
use crate::jobs::Progress;
use crate::points;

/// Restore points entered in one transaction: at 256 disks each, 28 MiB of points.
const ENTERED_PER_TRANSACTION: usize = 64;

/// Restore points and problems listed at most; more are only counted, and named in the log.
const LISTED_MAX: usize = 1000;

/// Rows read at a time.
const ROWS_PER_PAGE: u32 = 1000;

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

/// A point that could not be read or entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointProblem {
    /// The blob, or the backup.
    pub object: String,
    pub what: String,
}

/// Result of comparing points with the catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The first 1,000 of them.
    pub entered: Vec<EnteredPoint>,
    pub entered_count: u64,
    /// The first 1,000 of them.
    pub problems: Vec<PointProblem>,
    /// (P6) Restore points of which a point could not be read or entered.
    pub unread: BTreeSet<BackupId>,
    /// Restore points of the catalog that have no point.
    pub without_point: Vec<BackupId>,
    /// Restore points of an older catalog that were deleted since, dropped: the first 1,000 of them.
    pub deleted: Vec<BackupId>,
    pub deleted_count: u64,
    /// Restore points that the catalog did not take, because it takes no changes now. Nothing is wrong with them.
    pub waiting_count: u64,
    /// The volume holds restore points of containers that the catalog never gave numbers for: it is an older copy, or
    /// lost its log.
    pub catalog_is_older: bool,
    /// Retention policies that rest from now on, because the catalog is older.
    pub resting_policies: u64,
}

impl Comparison {
    /// Number of problems: one for each restore point.
    pub fn problem_count(&self) -> u64 {
        self.unread.len() as u64
    }

    fn problem(&mut self, backup: BackupId, object: String, what: String) {
        tracing::error!(%backup, object, what, "a point on the volume cannot be read or entered into the catalog");
        if self.unread.insert(backup) && self.problems.len() < LISTED_MAX {
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

/// Inputs of a comparison.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Between<'a> {
    pub(crate) volume: &'a dyn Volume,
    pub(crate) catalog: &'a Catalog,
    pub(crate) repository: RepositoryId,
    /// The catalog is known to be older than the volume, because it was made of a snapshot.
    pub(crate) recovered: bool,
    /// Only these restore points: the points of others may be those of backups in progress.
    pub(crate) only: Option<&'a BTreeSet<BackupId>>,
}

/// (P3) Enters every restore point that has a point and no row, and takes over what newer revisions of points say of
/// restore points that have one (L5). Repeating it does nothing. Memory: 24 bytes a restore point twice over, and the
/// names of those that are missing.
///
/// # Errors
/// When the volume cannot be listed or the catalog cannot be asked. A point that cannot be read, for whatever reason, is in
/// the comparison (P6). `refused` decides about a catalog that [takes no changes](CatalogError::refuses_changes): with `Ok`
/// the others are read, and counted.
pub(crate) fn compare(
    between: Between<'_>,
    refused: &mut dyn FnMut(CatalogError) -> Result<(), EngineError>,
    progress: &dyn Progress,
) -> Result<Comparison, EngineError> {
    let Between { volume, catalog, recovered, only, .. } = between;
    let mut comparison = Comparison::default();
    let commits = catalog.commits()?;
    let (mut rows, mut counts) = (Rows::read(catalog)?, points::count(volume)?);
    if let Some(only) = only {
        rows.states.retain(|backup, _| only.contains(backup));
        counts.retain(|backup, _| only.contains(backup));
    }
    let Differences { differing, without_point } = rows.against(counts);
    let asked: HashSet<BackupId> = differing.iter().map(|one| one.backup).collect();
    let mut names = if asked.is_empty() { BTreeMap::new() } else { points::all_of(volume, &asked)? };
    let total = differing.len() as u64;
    if recovered && !rest_policies(catalog, &mut comparison, refused)? {
        comparison.waiting_count = total;
        return Ok(comparison);
    }
    // (P10) Before any of them is entered.
    let rows = differing.iter().filter_map(|one| one.row);
    let renames = renames::newest((volume, catalog, between.repository), rows, &names)?;
    if !renames.is_empty()
        && let Err(error) = catalog.follow_names(&renames)
    {
        refused(error)?;
        comparison.waiting_count = total;
        return Ok(comparison);
    }
    let (mut batch, mut to_be_sealed) = (Vec::new(), Vec::new());
    for (done, one) in (0..).zip(&differing) {
        progress.step("restore points entered", done, total);
        let names = names.remove(&one.backup).unwrap_or_default();
        let point = highest_readable(between, one, names, &mut comparison);
        // (P7) Unread points stay, and a revision sealed above them would hide them.
        if !comparison.unread.contains(&one.backup) && (point.is_none() || one.count > 1) {
            to_be_sealed.push((one.backup, one.highest));
        }
        let Some(point) = point else { continue };
        if point.next_container > commits.next_container && !comparison.catalog_is_older {
            comparison.catalog_is_older = true;
            rest_policies(catalog, &mut comparison, refused)?;
        }
        batch.push(point);
        if batch.len() >= ENTERED_PER_TRANSACTION {
            enter(catalog, &mut batch, &mut comparison, refused)?;
        }
    }
    enter(catalog, &mut batch, &mut comparison, refused)?;
    for (backup, highest) in to_be_sealed {
        if let Err(error) = catalog.mark_point_stale(backup, highest) {
            refused(error)?;
            comparison.waiting_count += 1;
        }
    }
    comparison.without_point = without_point;
    if commits.points_written && (recovered || comparison.catalog_is_older) {
        drop_deleted(catalog, &mut comparison, refused)?;
    }
    Ok(comparison)
}

/// (P3) As [`compare`], of these restore points alone: what their points say is entered.
pub(super) fn enter_these(
    between: Between<'_>,
    asked: &HashSet<BackupId>,
    refused: &mut dyn FnMut(CatalogError) -> Result<(), EngineError>,
) -> Result<Comparison, EngineError> {
    let Between { volume, catalog, .. } = between;
    let (mut comparison, mut batch) = (Comparison::default(), Vec::new());
    for (backup, names) in points::all_of(volume, asked)? {
        let highest = names.first().map_or(0, |(revision, _)| *revision);
        let one = Differing { backup, row: None, count: 1, highest };
        batch.extend(highest_readable(between, &one, names, &mut comparison));
        if batch.len() >= ENTERED_PER_TRANSACTION {
            enter(catalog, &mut batch, &mut comparison, refused)?;
        }
    }
    enter(catalog, &mut batch, &mut comparison, refused)?;
    Ok(comparison)
}

/// (P10) Makes the policies of an older catalog rest: names, scopes and rules may have changed since. Returns false if
/// the catalog refused.
fn rest_policies(
    catalog: &Catalog,
    comparison: &mut Comparison,
    refused: &mut dyn FnMut(CatalogError) -> Result<(), EngineError>,
) -> Result<bool, EngineError> {
    match catalog.rest_policies() {
        Ok(count) => {
            if count > 0 {
                tracing::warn!(
                    count,
                    "retention policies rest, because the catalog is an older copy, until someone enables them"
                );
            }
            comparison.resting_policies += count;
            Ok(true)
        }
        Err(error) => refused(error).map(|()| false),
    }
}

/// (L1) A catalog that is older than the volume has rows of restore points that were deleted since: of all its restore
/// points it knew the points to be there. Those that are locked cannot have been deleted, so they lost their points.
fn drop_deleted(
    catalog: &Catalog,
    comparison: &mut Comparison,
    refused: &mut dyn FnMut(CatalogError) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    const WHY: &str =
        "its point is gone from the volume: it was deleted after this copy of the catalog was made";
    let mut left = Vec::new();
    for id in std::mem::take(&mut comparison.without_point) {
        match catalog.drop_deleted(id, "engine", WHY) {
            Ok(()) => {
                tracing::warn!(backup = %id, "dropped a restore point of an older catalog: {WHY}");
                comparison.deleted_count += 1;
                if comparison.deleted.len() < LISTED_MAX {
                    comparison.deleted.push(id);
                }
            }
            Err(CatalogError::Locked { .. }) => left.push(id),
            Err(error) => {
                refused(error)?;
                left.push(id);
            }
        }
    }
    comparison.without_point = left;
    Ok(())
}

/// The catalog's rows about points.
struct Rows {
    states: HashMap<BackupId, PointState>,
    /// Restore points that are being deleted: their points do not count.
    deleting: HashSet<BackupId>,
}

/// Restore points that are being deleted.
pub(super) fn deleting(catalog: &Catalog) -> Result<HashSet<BackupId>, EngineError> {
    let (mut deleting, mut after) = (HashSet::new(), None);
    loop {
        let page = catalog.deletions(after, ROWS_PER_PAGE)?;
        let Some(last) = page.last() else { return Ok(deleting) };
        after = Some(last.backup);
        deleting.extend(page.into_iter().map(|one| one.backup));
    }
}

/// Differences between the points on the volume and the catalog's rows.
#[derive(Default)]
struct Differences {
    /// Points without a row, and rows of whose points there is another revision than they say, or more than one. Those that
    /// are known first: they bring the names that VMs and jobs have now.
    differing: Vec<Differing>,
    /// Rows without a point.
    without_point: Vec<BackupId>,
}

/// A restore point whose points are not as its row says.
struct Differing {
    backup: BackupId,
    /// `None`: there is no row.
    row: Option<PointState>,
    /// Revisions on the volume: where there are several, the lower ones go by sealing it anew, also of one that is stale,
    /// whose highest revision may be all that it wants.
    count: u32,
    highest: u32,
}

impl Differing {
    /// Returns true if the row has everything that this revision of the point has.
    fn is_known(&self, revision: u32) -> bool {
        self.row.as_ref().is_some_and(|row| revision <= row.revision)
    }
}

impl Rows {
    fn read(catalog: &Catalog) -> Result<Self, EngineError> {
        let (mut states, mut after) = (HashMap::new(), None);
        loop {
            let page = catalog.point_states(after, ROWS_PER_PAGE)?;
            let Some(last) = page.last() else { break };
            after = Some(last.backup);
            states.extend(page.into_iter().map(|state| (state.backup, state)));
        }
        Ok(Self { states, deleting: deleting(catalog)? })
    }

    /// `counts`: of each restore point, how many revisions there are on the volume, and the highest.
    fn against(mut self, counts: HashMap<BackupId, (u32, u32)>) -> Differences {
        let mut found = Differences::default();
        for (backup, (count, highest)) in counts {
            // (L1)
            if self.deleting.contains(&backup) {
                continue;
            }
            let row = self.states.remove(&backup);
            if row.as_ref().is_none_or(|row| highest != row.revision || count > 1) {
                found.differing.push(Differing { backup, row, count, highest });
            }
        }
        found.without_point = self.states.into_keys().collect();
        found.differing.sort_unstable_by_key(|one| (one.row.is_none(), one.backup));
        found.without_point.sort_unstable();
        found
    }
}

/// The first of `names` that can be read. (P7) A higher one that cannot be is a problem, unless it is damaged for sure and
/// the row says all that it said.
fn highest_readable(
    between: Between<'_>,
    one: &Differing,
    names: Vec<(u32, BlobName)>,
    comparison: &mut Comparison,
) -> Option<PointRecord> {
    let mut highest: Option<PointRecord> = None;
    for (revision, name) in names {
        if highest.is_some() && one.is_known(revision) {
            break;
        }
        match (read(between.volume, between.repository, &name), &mut highest) {
            (Ok(point), None) => highest = Some(point),
            // (L5) A change of its lock may not have got as far as its row: the stricter counts.
            (Ok(point), Some(highest)) => highest.lock = highest.lock.stricter(&point.lock),
            (Err(_), Some(_)) => {}
            (Err(error @ EngineError::Damaged(_)), None) if one.is_known(revision) => {
                tracing::warn!(%name, %error, "a point is damaged; the catalog knows what it said");
            }
            // (K7) All errors are reported alike.
            (Err(error), None) => {
                let what = format!("restore point {} is not known, or not all of it: {error}", one.backup);
                comparison.problem(one.backup, name.to_string(), what);
            }
        }
    }
    highest
}

fn enter(
    catalog: &Catalog,
    batch: &mut Vec<PointRecord>,
    comparison: &mut Comparison,
    refused: &mut dyn FnMut(CatalogError) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    if batch.is_empty() {
        return Ok(());
    }
    match catalog.enter_points(batch) {
        Ok(new) => entered(batch, &new, comparison),
        // One that contradicts itself keeps no other out, and one may fit where all do not.
        Err(error) if is_contradiction(&error) || error.refuses_changes() => {
            for point in batch.iter() {
                match catalog.enter_points(std::slice::from_ref(point)) {
                    Ok(new) => entered(std::slice::from_ref(point), &new, comparison),
                    Err(error) if is_contradiction(&error) => {
                        comparison.problem(point.backup, point.backup.to_string(), error.to_string());
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

/// Tells of those that were missing.
fn entered(points: &[PointRecord], new: &[bool], comparison: &mut Comparison) {
    for (point, _) in points.iter().zip(new).filter(|(_, new)| **new) {
        comparison.entered(point);
    }
}

const fn is_contradiction(error: &CatalogError) -> bool {
    matches!(
        error,
        CatalogError::Invalid { .. } | CatalogError::Exists { .. } | CatalogError::NotFound { .. }
    )
}
