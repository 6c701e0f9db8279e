//! Assembling the core: the steps of a start, in order.

use std::ops::Range;
use std::sync::Arc;

use holdfast_catalog::{Catalog, CatalogError};
use holdfast_types::clock::Clock;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::Volume;

use crate::audit::Audit;
use crate::clean_stop::CleanStop;
use crate::container::{CacheLimits, ContainerCache};
use crate::core::{Core, CoreParts, NUMBERS_PER_RESERVATION};
use crate::error::EngineError;
use crate::guard::GuardedVolume;
use crate::health::Health;
use crate::identity;
use crate::index::{Index, IndexOptions};
use crate::memory::{MemoryBounds, MemoryPool, READ_BYTES_MAX, ReadAhead};
use crate::points::{self, Comparison, MissingPoints};
use crate::progress::Progress;
use crate::recovery::{self, Known, OpenSummary};
use crate::space::Ledger;
use crate::store::{ChunkStore, Leftovers, StoreParts};

/// Restore points named in one line of the log at most.
const SHOWN: usize = 20;

/// What a start works on.
pub(crate) struct Start<'a> {
    pub(crate) data: Arc<dyn Volume>,
    pub(crate) index: &'a Arc<dyn Volume>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) lease_secs: u32,
    pub(crate) reread_days: u32,
    pub(crate) reserve_bytes: u64,
    pub(crate) directories: CacheLimits,
    pub(crate) index_options: IndexOptions,
    pub(crate) memory: MemoryBounds,
    /// See [`EngineOptions`](crate::EngineOptions).
    pub(crate) accept_loss: bool,
    pub(crate) location: &'a str,
    /// Discard the index first.
    pub(crate) rebuild: bool,
}

/// What a start leads to.
pub(crate) struct Started {
    pub(crate) core: Core,
    pub(crate) audit: Audit,
    /// Restore points whose points are still to be written.
    pub(crate) points: MissingPoints,
    pub(crate) summary: OpenSummary,
}

/// Starts: see [`crate::recovery`] for the steps.
pub(crate) fn start(start: Start<'_>, progress: &dyn Progress) -> Result<Started, EngineError> {
    let Start { data, index, catalog, clock, health, rebuild, .. } = start;
    let record = catalog.repository()?;
    // (S3) Nothing was changed so far.
    identity::ensure(&*data, &*catalog, record.id, start.location, start.accept_loss)?;
    let mut summary = OpenSummary {
        discarded_unfinished: data.discard_unfinished()? + index.discard_unfinished()?,
        index_rebuilt: rebuild,
        ..OpenSummary::default()
    };
    // (S4) Before anything changes that the mark speaks of.
    let mark = CleanStop::take(&**index, record.id)?;
    let numbers = first_numbers(&*catalog)?;
    let known = Known { mark, next: numbers.as_ref().map(|numbers| numbers.start) };
    // (S5)
    if rebuild {
        Index::discard(&**index)?;
    }
    let leftovers = Arc::new(Leftovers::default());
    let ledger = Ledger::new(Arc::clone(&data), start.reserve_bytes);
    let options = index_options(&start.index_options, &health, &ledger, &leftovers, start.memory);
    let opened = recovery::open_index(index, record.id, &options, &mut summary)?;
    let trusted = known.trusted(&opened);
    summary.clean = trusted.is_some();
    let containers = ContainerCache::new(Arc::clone(&data), record.id, start.directories);
    let store = Arc::new(ChunkStore::new(StoreParts {
        index: opened,
        containers: containers.sharing(start.memory.shared_bytes),
        catalog: Arc::clone(&catalog),
        clock: Arc::clone(&clock),
        health: Arc::clone(&health),
        accept_loss: start.accept_loss,
        leftovers,
        decoded_bytes: start.memory.decoded_bytes,
    })?);
    adopt_sealed(&*catalog, &known, trusted)?;
    // (S6) Restore points first: they bring the namespaces their containers belong to.
    let missing = compare_points(&*data, &*catalog, record.id, trusted.is_some(), &mut summary, progress)?;
    // (D2) Before containers are looked for: these must not be adopted again.
    finish_deletions(&store, &*data);
    let mut numbers = numbers.unwrap_or(0..0);
    let mut end = known.next;
    if trusted.is_none() {
        let files = recovery::uncovered_files(&*data, &store, &*catalog, &known, missing.catalog_is_older)?;
        recovery::take_in(&*catalog, &store, &files, &mut summary, progress)?;
        if missing.catalog_is_older || files.last_key_value().is_some_and(|(id, _)| id.get() >= numbers.start)
        {
            // (W8) Numbers that are in use already; adopting them moved the catalog's next number.
            numbers = 0..0;
        }
        end = end.or_else(|| Some(files.last_key_value()?.0.get() + 1));
    }
    if rebuild {
        store.index.checkpoint()?;
    }
    // (R4): after the index knows what it can, so that what is sound again is found.
    let all_looked_at = recovery::look_again(&store)?;
    let audit_from = trusted.filter(|_| all_looked_at).map_or(0, |mark| mark.audit_from);
    let last_commit = catalog.commits()?.last;
    store.leftovers.begin_at(end.unwrap_or(0));
    let core = Core::new(CoreParts {
        repository: record.id,
        volume: Arc::new(GuardedVolume::new(data, Arc::clone(&health))),
        catalog,
        store,
        clock,
        health,
        lease_secs: start.lease_secs,
        reread_days: start.reread_days,
        ledger,
        session_memory: MemoryPool::new(start.memory.sessions_bytes),
        read_ahead: ReadAhead::new(start.memory.read_ahead_bytes / READ_BYTES_MAX),
        last_commit,
        numbers,
    })?;
    let (audit, points) =
        (Audit::new(audit_from, end.unwrap_or(0)), MissingPoints::new(missing.without_point));
    Ok(Started { core, audit, points, summary })
}

/// (P3) Compares all restore points of the volume with all of the catalog, unless a clean stop says that they agree.
fn compare_points(
    volume: &dyn Volume,
    catalog: &dyn Catalog,
    repository: RepositoryId,
    clean: bool,
    summary: &mut OpenSummary,
    progress: &dyn Progress,
) -> Result<Comparison, EngineError> {
    let written = catalog.commits()?.points_written;
    if clean && written {
        return Ok(Comparison::default());
    }
    let found = points::compare(volume, catalog, repository, progress)?;
    summary.entered_points = found.entered_count;
    summary.unreadable_points = found.problem_count;
    summary.missing_points = found.without_point.len() as u64;
    if found.entered_count > 0 {
        tracing::warn!(entered = found.entered_count, "entered restore points that only the volume knew");
    }
    if found.without_point.is_empty() == written {
        return Ok(found);
    }
    if written {
        tracing::error!(
            count = found.without_point.len(),
            first = ?found.without_point.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>(),
            "restore points of the catalog have no point on the volume; writing those whose recipes can be read"
        );
    }
    // So that the next start compares again, if this process does not get as far as writing them.
    match catalog.set_points_written(!written) {
        Ok(()) => Ok(found),
        Err(error @ (CatalogError::Full | CatalogError::Busy | CatalogError::ReadOnly { .. })) => {
            tracing::warn!(%error, "cannot note whether every restore point has its point");
            Ok(found)
        }
        Err(error) => Err(error.into()),
    }
}

/// Goes on where an earlier process ended.
fn finish_deletions(store: &ChunkStore, data: &dyn Volume) {
    if let Err(error) = store.finish_deletions(data) {
        tracing::warn!(%error, "cannot finish deleting containers; the next start tries again");
    }
}

/// Tells the catalog how far it knows the containers, when all that was sealed before a clean stop has its row; a later
/// start looks at more when that fails.
fn adopt_sealed(catalog: &dyn Catalog, known: &Known, trusted: Option<CleanStop>) -> Result<(), EngineError> {
    // (W12) Of backups that ended with their process.
    if catalog.sealed_containers()? > 0 {
        catalog.adopt_sealed_containers()?;
    }
    if let (Some(next), Some(u64::MAX)) = (known.next, trusted.map(|mark| mark.audit_from))
        && let Err(error) = catalog.settle_containers(next)
    {
        tracing::warn!(%error, "cannot note how far the containers are known");
    }
    Ok(())
}

/// The index's options, with what it shares with the rest.
fn index_options(
    asked: &IndexOptions,
    health: &Arc<Health>,
    ledger: &Arc<Ledger>,
    leftovers: &Arc<Leftovers>,
    memory: MemoryBounds,
) -> IndexOptions {
    let (gone, live) = (Arc::clone(leftovers), Arc::clone(&asked.live));
    IndexOptions {
        live: Arc::new(move |id| !gone.is_gone(id) && live(id)),
        health: Arc::clone(health),
        ledger: Some(Arc::clone(ledger)),
        resident_bytes_max: memory.index_resident_bytes,
        ..asked.clone()
    }
}

/// The numbers this process uses first, and so the lowest number that was never used. `None` when the catalog
/// has no room to reserve them: what is stored can be read all the same.
fn first_numbers(catalog: &dyn Catalog) -> Result<Option<Range<u64>>, EngineError> {
    use holdfast_catalog::CatalogError::{Busy, Full, Invalid, Io, ReadOnly, WriteFailed};
    match catalog.reserve_container_numbers(NUMBERS_PER_RESERVATION) {
        Ok(numbers) => Ok(Some(numbers)),
        Err(error @ (Full | Busy | Invalid { .. } | Io { .. } | WriteFailed { .. } | ReadOnly { .. })) => {
            tracing::warn!(%error, "cannot reserve container numbers; looking at all containers");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
