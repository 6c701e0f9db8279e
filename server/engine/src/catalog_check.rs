//! (S9) The catalog is looked through: at the start, for as long as that may take; in the background once a day, or right
//! away when the start did not get to its end; and before the first round of reclaim.
//!
//! A database with a flipped bit answers as if rows had never been there. What other rows tell is made anew; restore
//! points are entered again from their points (P3). What cannot be healed stops every change of the catalog: what it says
//! is not to be built on. Reading goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_catalog::{Catalog, CatalogError, ContainerRecord, ContainerState, GoOn};
use holdfast_types::ids::{BackupId, ContainerId, NamespaceId};

use crate::core::Core;
use crate::error::EngineError;
use crate::health::{Health, Part};
use crate::ingest::Sessions;
use crate::jobs::{Budget, Job, JobError, Progress, Step};
use crate::{check, points, recovery};

/// The longest that a start takes for it: enough for some 200 MB.
const AT_START: Duration = Duration::from_secs(2);

/// Interval between two checks, and between two looks whether one is due.
const INTERVAL_MS: i64 = 24 * 3_600_000;
const LOOK: Duration = Duration::from_secs(60);

/// The outcome of looking through the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    /// The check was stopped before its end.
    Stopped,
    Sound,
    /// The catalog is sound now, and may lack restore points.
    Healed,
    /// The catalog takes no changes from now on.
    Damaged,
}

/// (S9) The look of a start, before anything is changed. What keeps it from looking does not end the start.
pub(crate) fn at_start(catalog: &Catalog, health: &Health, location: &str) -> Looked {
    let begun = Instant::now();
    let looked = look(catalog, health, location, Box::new(move || begun.elapsed() < AT_START));
    looked.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot look through the catalog; it is tried again in the background");
        Looked::Stopped
    })
}

/// (W18) Makes sums anew that are wrong. They are statistics: what keeps it from that ends nothing.
fn correct_sums(catalog: &Catalog, go_on: GoOn) {
    match catalog.correct_sums(go_on) {
        Ok(Some(wrong)) if !wrong.is_empty() => {
            tracing::warn!(?wrong, "sums in the catalog were wrong, and were made anew");
        }
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, "cannot check the sums in the catalog; it is tried again tomorrow");
        }
    }
}

fn look(catalog: &Catalog, health: &Health, location: &str, go_on: GoOn) -> Result<Looked, EngineError> {
    let Some(found) = catalog.damage_check(go_on)? else { return Ok(Looked::Stopped) };
    let Some(first) = found.first() else { return Ok(Looked::Sound) };
    tracing::error!(problems = ?found, "the catalog is damaged");
    let left = match catalog.heal() {
        Ok(left) => left.first().map_or_else(String::new, Clone::clone),
        // Nothing was changed, and a later try may succeed.
        Err(error @ (CatalogError::Full | CatalogError::Busy)) => return Err(error.into()),
        Err(error) => error.to_string(),
    };
    if left.is_empty() {
        tracing::warn!(
            first,
            "the catalog is sound again: what was damaged followed from other rows, or is in points"
        );
        return Ok(Looked::Healed);
    }
    health.stop(Part::Catalog, &damaged(&left, location));
    Ok(Looked::Damaged)
}

/// The message for operators: the problem, and what to do.
fn damaged(what: &str, location: &str) -> String {
    format!(
        "the catalog is damaged ({what}). Stop the server, move catalog.db away, and run 'holdfast-server recover --from \
         {location}': it makes a new one of what the volume knows"
    )
}

/// Adds the remedy to the error of a start that failed by a damaged catalog.
pub(crate) fn explain(error: EngineError, location: &str) -> EngineError {
    match error {
        EngineError::Catalog(CatalogError::Corrupt { detail }) => {
            EngineError::Damaged(damaged(&detail, location))
        }
        other => other,
    }
}

/// Looks through the catalog, heals it, and enters the restore points again that it lost (G9). `false`: `go_on` said no.
///
/// # Errors
/// [`EngineError::ReadOnly`] when it is damaged for good; `Damaged` when restore points cannot be entered again; the
/// catalog's and the volume's.
pub(crate) fn run(core: &Core, sessions: &Sessions, go_on: GoOn) -> Result<bool, EngineError> {
    let location = core.location.as_str();
    match look(&core.catalog, &core.health, location, go_on)? {
        Looked::Stopped => return Ok(false),
        Looked::Damaged => core.check_writable()?,
        Looked::Sound | Looked::Healed => {}
    }
    let lost = || {
        let listed = points::listed(&*core.volume)?;
        let known: Vec<BackupId> = core.catalog.all_backup_ids().collect::<Result<_, _>>()?;
        points::lost(core, &listed, &known, &|id| sessions.makes(id))
    };
    let found = lost()?;
    // (P2) The point that a session left behind is entered by the next start.
    if !found.is_empty() && !core.has_left_point() {
        points::enter_again(core, &found)?;
        let left = lost()?;
        if !left.is_empty() {
            return Err(points::lacks_rows(&left));
        }
    }
    core.trust_catalog();
    Ok(true)
}

/// (S9) Looks through the catalog in the background.
#[derive(Debug)]
pub(crate) struct CatalogCheckJob {
    pub(crate) core: Arc<Core>,
    pub(crate) sessions: Arc<Sessions>,
    /// Set until the sums are checked for the first time in this process.
    pub(crate) sums_are_due: AtomicBool,
}

impl Job for CatalogCheckJob {
    fn name(&self) -> &'static str {
        "catalog-check"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        if self.core.health.read_only_reason().is_some() {
            return Ok(Step::Idle(LOOK));
        }
        let go_on = || -> GoOn {
            let stop = budget.stop().clone();
            Box::new(move || !stop.is_set())
        };
        let is_due = self.core.catalog_trusted_for().is_none_or(|for_ms| for_ms >= INTERVAL_MS);
        let looked = is_due && run(&self.core, &self.sessions, go_on())?;
        // (W18) Each process does so once, also one that a start has looked for, and that ends within a day.
        if self.sums_are_due.swap(false, Ordering::Relaxed) || looked {
            correct_sums(&self.core.catalog, go_on());
        }
        Ok(Step::Idle(LOOK))
    }
}

/// Rows dropped in one transaction.
const DROPPED_PER_TRANSACTION: usize = 256;

/// Rows without a file that were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DroppedRows {
    /// Rows dropped because nothing needs them.
    pub dropped: u64,
    /// Rows kept because something may need them: they are damage.
    pub kept: u64,
}

/// Rows of containers that are gone for good: a catalog that was put back from an older copy brings back the rows of
/// containers deleted since, and a lost container keeps its row when every backup that needed it has healed.
///
/// A row is dropped when its file is missing and nothing needs it: every chunk of every restore point of its namespace
/// is found in other containers. When something is not found, it cannot be told which of the missing containers held
/// it, so all of them stay, as damage. A crash in between leaves condemned rows, which the next start finishes, and
/// rows without a file, which it takes for damage.
pub(crate) fn drop_unneeded(core: &Arc<Core>, progress: &dyn Progress) -> Result<DroppedRows, EngineError> {
    let mut done = DroppedRows::default();
    if core.store.absence().is_some() {
        return Ok(done);
    }
    for (namespace, rows) in missing(core)? {
        let count = rows.len() as u64;
        // (S8, P6) A restore point that was not entered may need anything.
        let all_known = core.unrecorded.check_all_known().is_ok();
        let is_whole = || match check::is_whole(core, namespace, progress) {
            // (S12) A restore point that cannot be read now may need them.
            Err(error) if error.is_no_verdict() => Ok(false),
            found => found,
        };
        if all_known && is_whole()? {
            drop_rows(core, &rows)?;
            done.dropped += count;
        } else {
            done.kept += count;
        }
    }
    // The next start need not read all directories again.
    core.store.index.checkpoint()?;
    Ok(done)
}

/// The rows whose files are not there, by namespace. A listing alone says nothing: what it lacks is opened.
fn missing(core: &Core) -> Result<BTreeMap<NamespaceId, Vec<ContainerId>>, EngineError> {
    let files = recovery::list_files(&*core.volume)?;
    let mut missing: BTreeMap<NamespaceId, Vec<ContainerId>> = BTreeMap::new();
    for record in core.catalog.all_containers() {
        let record: ContainerRecord = record?;
        if record.state != ContainerState::Condemned
            && !files.contains_key(&record.id)
            && core.store.open_afresh(&record).is_err_and(|error| error.is_missing())
        {
            missing.entry(record.namespace).or_default().push(record.id);
        }
    }
    Ok(missing)
}

fn drop_rows(core: &Core, rows: &[ContainerId]) -> Result<(), EngineError> {
    for rows in rows.chunks(DROPPED_PER_TRANSACTION) {
        core.catalog.condemn_containers(rows)?;
        for &id in rows {
            core.store.leftovers.note_gone(id);
            core.store.index.forget_container(id);
            core.store.forget_damaged(id);
        }
        core.catalog.remove_condemned(rows)?;
    }
    Ok(())
}
