//! Assembling the core: the steps of a start, in order.

use std::ops::Range;
use std::sync::Arc;

use holdfast_catalog::Catalog;
use holdfast_types::clock::Clock;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::Volume;

use crate::audit::Audit;
use crate::catalog_check::{self, Looked};
use crate::clean_stop::CleanStop;
use crate::container::{CacheLimits, ContainerCache};
use crate::core::{Core, CoreParts, NUMBERS_PER_RESERVATION};
use crate::error::EngineError;
use crate::guard::GuardedVolume;
use crate::health::Health;
use crate::identity;
use crate::index::{Index, IndexOptions};
use crate::jobs::Progress;
use crate::memory::{MemoryBounds, MemoryPool, READ_BYTES_MAX, ReadAhead};
use crate::points::{self, Between, Comparison, MissingPoints};
use crate::recovery::{self, Known, OpenSummary};
use crate::space::Ledger;
use crate::store::{ChunkStore, Leftovers, OnLoss, StoreParts};
use crate::unrecorded::{Rest, Unread, Unrecorded};

/// Restore points named in one line of the log at most.
const SHOWN: usize = 20;

/// Inputs of a start.
pub(crate) struct Start<'a> {
    pub(crate) data: Arc<dyn Volume>,
    pub(crate) index: &'a Arc<dyn Volume>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) lease_secs: u32,
    pub(crate) reread_days: u32,
    pub(crate) reserve_bytes: u64,
    pub(crate) directories: CacheLimits,
    pub(crate) index_options: IndexOptions,
    pub(crate) memory: MemoryBounds,
    pub(crate) read_threads: usize,
    /// See [`EngineOptions`](crate::EngineOptions).
    pub(crate) on_loss: OnLoss,
    pub(crate) location: &'a str,
    /// Discard the index first.
    pub(crate) rebuild: bool,
    /// (S10) The catalog is an older copy.
    pub(crate) older: bool,
}

/// Results of a start.
pub(crate) struct Started {
    pub(crate) core: Core,
    pub(crate) audit: Audit,
    /// Restore points whose points are still to be written.
    pub(crate) points: MissingPoints,
    /// The snapshot that holds the catalog as it is, by the mark of a clean stop.
    pub(crate) snapshot: Option<u64>,
    pub(crate) summary: OpenSummary,
}

/// Removes an index that is to be rebuilt.
fn discard_if(rebuild: bool, index: &dyn Volume) -> Result<(), EngineError> {
    if rebuild { Ok(Index::discard(index)?) } else { Ok(()) }
}

/// Makes a rebuilt index durable.
fn checkpoint_if(rebuilt: bool, store: &ChunkStore) -> Result<(), EngineError> {
    if rebuilt { Ok(store.index.checkpoint()?) } else { Ok(()) }
}

/// Starts: see [`crate::recovery`] for the steps.
pub(crate) fn start(start: Start<'_>, progress: &dyn Progress) -> Result<Started, EngineError> {
    let (data, catalog) = (Arc::clone(&start.data), Arc::clone(&start.catalog));
    let Start { index, rebuild, older, .. } = start;
    let record = catalog.repository()?;
    // (S3) Nothing was changed so far.
    identity::ensure(&*data, &catalog, record.id, start.location, start.on_loss == OnLoss::Accept)?;
    // (W17)
    catalog.leave_free(start.reserve_bytes / 2);
    let looked = catalog_check::at_start(&catalog, &start.health, start.location);
    let mut summary = OpenSummary {
        discarded_unfinished: data.discard_unfinished()? + index.discard_unfinished()?,
        index_rebuilt: rebuild,
        ..OpenSummary::default()
    };
    // (S4) Before anything changes that the mark speaks of.
    let mark = CleanStop::take(&**index, record.id)?;
    // (W8) As the catalog says it, before anything is reserved: points may know higher ones.
    let known = Known { mark, next: Some(catalog.commits()?.next_container) };
    // (S5)
    discard_if(rebuild, &**index)?;
    let leftovers = Arc::new(Leftovers::default());
    let ledger = Ledger::new(Arc::clone(&data), start.reserve_bytes);
    let options = index_options(&start.index_options, &start.health, &ledger, &leftovers, start.memory);
    let opened = recovery::open_index(index, record.id, &options, &mut summary)?;
    // (S9) After a healing, the restore points that were lost are among those that are compared.
    let trusted = known.trusted(&opened).filter(|_| looked != Looked::Healed && !older);
    summary.clean = trusted.is_some();
    let store = store(&start, record.id, opened, leftovers)?;
    let mut rest = Rest::default();
    adopt_sealed(&catalog, &known, trusted, &mut rest)?;
    // (L1) Before points are compared: what is left of a deleted restore point must not be entered.
    settle("deletions of restore points", points::finish_deletions(&*data, &catalog));
    // (S6) Restore points first: they bring the namespaces their containers belong to.
    let look = Look { volume: &*data, catalog: &catalog, repository: record.id, older, progress };
    let missing = look.points(trusted.is_some(), &mut summary, &mut rest)?;
    summary.dropped_points = missing.deleted_count;
    let mut unread = Unread::default();
    points::note_found(&missing, &mut unread);
    let numbers = first_numbers(&catalog)?;
    let known = Known { next: numbers.as_ref().map(|numbers| numbers.start), ..known };
    // (L5) Seals changes that were not sealed.
    settle("changes of restore points", points::reseal_stale(&*data, &catalog, record.id, &unread.points));
    // (D2) Before containers are looked for: these must not be adopted again.
    finish_deletions(&store, &*data);
    let (mut numbers, mut end) = (numbers.unwrap_or(0..0), known.next);
    if trusted.is_none() {
        let older = older || missing.catalog_is_older;
        let above = look.containers(&store, &known, older, (&mut summary, &mut rest, &mut unread))?;
        if older || above.is_some_and(|above| above > numbers.start) {
            // (W8) Numbers that are in use already; adopting them moved the catalog's next number.
            numbers = 0..0;
        }
        // Numbers above the catalog's are of earlier processes, too.
        end = end.max(above);
    }
    checkpoint_if(rebuild, &store)?;
    // (R4): after the index knows what it can, so that what is sound again is found.
    let all_looked_at = recovery::look_again(&store)?;
    let audit_from = trusted.filter(|_| all_looked_at).map_or(0, |mark| mark.audit_from);
    store.leftovers.begin_at(end.unwrap_or(0));
    let core = core(start, record.id, store, ledger, (numbers, Unrecorded::new(rest, unread)))?;
    if matches!(looked, Looked::Sound | Looked::Healed) {
        core.trust_catalog();
    }
    let (audit, points) =
        (Audit::new(audit_from, end.unwrap_or(0)), MissingPoints::new(missing.without_point));
    let snapshot = trusted.map(|mark| mark.snapshot);
    Ok(Started { core, audit, points, snapshot, summary })
}

/// (K6) The core of a repository whose volume is not looked at. `start.index` is empty.
pub(crate) fn locked(start: Start<'_>) -> Result<Started, EngineError> {
    let id = start.catalog.repository()?.id;
    let mut summary = OpenSummary::default();
    let leftovers = Arc::new(Leftovers::default());
    let ledger = Ledger::new(Arc::clone(&start.data), start.reserve_bytes);
    let options = index_options(&start.index_options, &start.health, &ledger, &leftovers, start.memory);
    let opened = recovery::open_index(start.index, id, &options, &mut summary)?;
    let store = store(&start, id, opened, leftovers)?;
    // No number is reserved: nothing gets one.
    let core = core(start, id, store, ledger, (0..0, Unrecorded::default()))?;
    Ok(Started {
        core,
        audit: Audit::new(0, 0),
        points: MissingPoints::new(Vec::new()),
        snapshot: None,
        summary,
    })
}

/// Opens the chunk store.
fn store(
    start: &Start<'_>,
    repository: RepositoryId,
    index: Index,
    leftovers: Arc<Leftovers>,
) -> Result<Arc<ChunkStore>, EngineError> {
    let containers = ContainerCache::new(Arc::clone(&start.data), repository, start.directories);
    Ok(Arc::new(ChunkStore::new(StoreParts {
        index,
        containers: containers.sharing(start.memory.shared_bytes),
        catalog: Arc::clone(&start.catalog),
        clock: Arc::clone(&start.clock),
        health: Arc::clone(&start.health),
        on_loss: start.on_loss,
        leftovers,
        decoded_bytes: start.memory.decoded_bytes,
    })?))
}

/// Assembles the core; `numbers` are reserved.
fn core(
    start: Start<'_>,
    repository: RepositoryId,
    store: Arc<ChunkStore>,
    ledger: Arc<Ledger>,
    (numbers, unrecorded): (Range<u64>, Unrecorded),
) -> Result<Core, EngineError> {
    let Start { data, catalog, clock, health, lease_secs, reread_days, .. } = start;
    let Start { memory, read_threads, location, .. } = start;
    Core::new(CoreParts {
        repository,
        volume: Arc::new(GuardedVolume::new(data, Arc::clone(&health))),
        last_commit: catalog.commits()?.last,
        catalog,
        store,
        clock,
        health,
        lease_secs,
        location: location.to_owned(),
        reread_days,
        ledger,
        session_memory: MemoryPool::new(memory.sessions_bytes),
        read_ahead: ReadAhead::new(memory.read_ahead_bytes / READ_BYTES_MAX),
        read_threads,
        numbers,
        unrecorded,
    })
}

/// Inputs of the start's search for containers and restore points, and its progress report.
struct Look<'a> {
    volume: &'a dyn Volume,
    catalog: &'a Catalog,
    repository: RepositoryId,
    older: bool,
    progress: &'a dyn Progress,
}

impl Look<'_> {
    /// (P3) Compares all restore points of the volume with all of the catalog, unless a clean stop says that they agree.
    fn points(
        &self,
        clean: bool,
        summary: &mut OpenSummary,
        rest: &mut Rest,
    ) -> Result<Comparison, EngineError> {
        let Self { volume, catalog, repository, older, progress } = *self;
        let written = catalog.commits()?.points_written;
        if clean && written {
            return Ok(Comparison::default());
        }
        // (S8)
        let between = Between { volume, catalog, repository, recovered: older, only: None };
        let found = points::compare(between, &mut |error| rest.refused(error), progress)?;
        rest.points = found.waiting_count;
        note_compared(catalog, written, &found, summary)?;
        Ok(found)
    }

    /// (S6) Makes catalog and index know the containers that the index does not cover. Returns the number above all of
    /// their files.
    fn containers(
        &self,
        store: &ChunkStore,
        known: &Known,
        catalog_is_older: bool,
        (summary, rest, unread): (&mut OpenSummary, &mut Rest, &mut Unread),
    ) -> Result<Option<u64>, EngineError> {
        let Self { volume, catalog, progress, .. } = *self;
        let files = recovery::uncovered_files(volume, store, catalog, known, catalog_is_older)?;
        let left = recovery::take_in_many(catalog, store, &files, summary, progress)?;
        unread.containers = left.unread;
        // (S8)
        if let Some((left, error)) = left.refused {
            (summary.waiting_containers, rest.files) = (left.len() as u64, Arc::new(left));
            rest.refused(error)?;
        }
        let above = files.last_key_value().map(|(id, _)| id.get() + 1);
        Ok(above.max(pass_by_covered(catalog, store, known.next)?))
    }
}

/// Tells of what comparing found, and keeps whether every restore point has its point.
fn note_compared(
    catalog: &Catalog,
    written: bool,
    found: &Comparison,
    summary: &mut OpenSummary,
) -> Result<(), EngineError> {
    summary.entered_points = found.entered_count;
    summary.waiting_points = found.waiting_count;
    summary.unreadable_points = found.problem_count();
    summary.missing_points = found.without_point.len() as u64;
    if found.entered_count > 0 {
        tracing::warn!(entered = found.entered_count, "entered restore points that only the volume knew");
    }
    if found.without_point.is_empty() == written {
        return Ok(());
    }
    if written {
        tracing::error!(
            count = found.without_point.len(),
            first = ?found.without_point.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>(),
            "restore points of the catalog have no point on the volume; writing those whose recipes can be read"
        );
    }
    // The next start compares again if this process does not get as far as writing them.
    match catalog.set_points_written(!written) {
        Ok(()) => Ok(()),
        Err(error) if error.refuses_changes() => {
            tracing::warn!(%error, "cannot note whether every restore point has its point");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Logs the result of finishing work that an earlier process left. The background work does the rest.
fn settle(what: &str, done: Result<u64, EngineError>) {
    match done {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "finished {what} that an earlier process left"),
        Err(error) => tracing::warn!(%error, "cannot finish {what}; it is tried again in the background"),
    }
}

/// Finishes the deletions that an earlier process began.
fn finish_deletions(store: &ChunkStore, data: &dyn Volume) {
    if let Err(error) = store.finish_deletions(data) {
        tracing::warn!(%error, "cannot finish deleting containers; the next start tries again");
    }
}

/// Tells the catalog how far it knows the containers, when all that was sealed before a clean stop has its row; a later
/// start looks at more when that fails.
fn adopt_sealed(
    catalog: &Catalog,
    known: &Known,
    trusted: Option<CleanStop>,
    rest: &mut Rest,
) -> Result<(), EngineError> {
    // (W12) Containers of backups that ended with their process.
    if catalog.sealed_containers()? > 0
        && let Err(error) = catalog.adopt_sealed_containers()
    {
        rest.refused(error)?;
        rest.sealed = true;
        // (S8) Not all that was sealed has its row.
        return Ok(());
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

/// (W8) Passes by the numbers that the index covers: of a catalog that was put back from an older copy the next one may be
/// among them, although nothing on the volume has it any more. A container of that number would be taken for covered by the
/// start after a crash (I2), and what is in it not found. Says where the others begin.
fn pass_by_covered(
    catalog: &Catalog,
    store: &ChunkStore,
    next: Option<u64>,
) -> Result<Option<u64>, EngineError> {
    let last = store.index.covered_numbers().max();
    let Some((next, last)) = next.zip(last).filter(|(next, last)| last >= next) else { return Ok(None) };
    // Some are reserved already; one more is not used.
    let mut reserved = next;
    while reserved <= last {
        let missing = u32::try_from(last + 1 - reserved).unwrap_or(u32::MAX);
        reserved = catalog.reserve_container_numbers(missing)?.end;
    }
    tracing::warn!(
        next,
        last,
        "the index knows container numbers that the catalog never handed out: passed by"
    );
    Ok(Some(last + 1))
}

/// The numbers this process uses first, and so the lowest number that was never used. `None` when the catalog
/// has no room to reserve them: what is stored can be read all the same.
fn first_numbers(catalog: &Catalog) -> Result<Option<Range<u64>>, EngineError> {
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
