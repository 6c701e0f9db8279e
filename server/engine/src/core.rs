//! State shared by all operations: the volume, the store, the catalog, the pools and the rules for writing.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_catalog::{Catalog, ContainerRecord};
use holdfast_types::clock::Clock;
use holdfast_types::ids::{BackupId, ContainerId, RepositoryId};
use parking_lot::{Mutex, MutexGuard};
use rayon::ThreadPoolBuilder;

use crate::claims::ClaimTables;
use crate::error::EngineError;
use crate::fair::FairPool;
use crate::guard::GuardedVolume;
use crate::health::Health;
use crate::in_use::RecipesInUse;
use crate::memory::{MemoryPool, ReadAhead};
use crate::quota::Quotas;
use crate::space::{Grant, Ledger, Purpose, SpaceError};
use crate::store::ChunkStore;
use crate::unrecorded::{SealedRecords, Unrecorded};

/// Container numbers reserved from the catalog at a time: one small transaction per 2 GiB stored.
pub(crate) const NUMBERS_PER_RESERVATION: u32 = 64;

/// Threads that wait for fsync. They burn no CPU; four keep a disk's queue busy.
pub(crate) const SEAL_THREADS: usize = 4;

/// Threads that plan and read restore windows ahead, from a local disk.
pub(crate) const READ_THREADS: usize = 4;

/// Correction of the time of day that is not taken for a wrong clock.
const CLOCK_SLACK_MS: i64 = 3_600_000;

/// Promised to a backup when it starts: what its rows in the catalog take, and the recipe of a disk in which
/// little changed.
const SESSION_BYTES: u64 = 64 << 10;

/// State that all operations of an engine share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) repository: RepositoryId,
    pub(crate) volume: Arc<GuardedVolume>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) store: Arc<ChunkStore>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The time of day, and what the clock that never jumps showed, when this process began.
    began_ms: (i64, i64),
    pub(crate) health: Arc<Health>,
    /// One thread a core: decoding and hashing.
    pub(crate) verify_pool: Arc<FairPool>,
    pub(crate) seal_pool: FairPool,
    pub(crate) read_pool: FairPool,
    /// Quotas of namespaces.
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) lease_secs: u32,
    /// Location of the volume, for messages.
    pub(crate) location: String,
    /// Sealed containers the catalog does not know yet.
    pub(crate) sealed: SealedRecords,
    /// Blobs found at start-up that are not yet in the catalog.
    pub(crate) unrecorded: Unrecorded,
    /// Days in which every extent is read again; 0: never.
    pub(crate) reread_days: u32,
    pub(crate) digests: DigestCounters,
    /// Room on the volume.
    pub(crate) ledger: Arc<Ledger>,
    /// Memory that backups in progress keep.
    pub(crate) session_memory: Arc<MemoryPool>,
    /// Memory that restores read ahead into.
    pub(crate) read_ahead: Arc<ReadAhead>,
    /// Chunks that backups in progress were told to send.
    pub(crate) claims: ClaimTables,
    /// Recipes of parents, and of disks being restored.
    pub(crate) in_use: Arc<RecipesInUse>,
    /// The highest commit number used.
    last_commit: AtomicU64,
    /// Time when the catalog was last checked and found sound, on the clock that never jumps; `None`: not by this
    /// process, or something was found since.
    catalog_sound_ms: Mutex<Option<i64>>,
    /// True if a session ended whose point is, or may be, on the volume without a row.
    left_point: AtomicBool,
    numbers: Mutex<Range<u64>>,
    /// Held while leftovers are deleted.
    deleting: Mutex<()>,
    /// (L1, L5) Held while a point of a restore point that has a row is written, and while the points of deleted ones are
    /// removed: what is read of the row is true until the point is sealed.
    pub(crate) changing_points: Mutex<()>,
}

/// Arguments of [`Core::new`].
#[derive(Debug)]
pub(crate) struct CoreParts {
    pub(crate) repository: RepositoryId,
    pub(crate) volume: Arc<GuardedVolume>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) store: Arc<ChunkStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) lease_secs: u32,
    pub(crate) location: String,
    pub(crate) reread_days: u32,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) session_memory: Arc<MemoryPool>,
    pub(crate) read_ahead: Arc<ReadAhead>,
    pub(crate) read_threads: usize,
    /// The highest commit number used.
    pub(crate) last_commit: u64,
    /// Reserved for this process already.
    pub(crate) numbers: Range<u64>,
    pub(crate) unrecorded: Unrecorded,
}

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Result<Self, EngineError> {
        let CoreParts { repository, volume, catalog, store, clock, health, .. } = parts;
        let CoreParts { lease_secs, reread_days, ledger, session_memory, read_ahead, read_threads, .. } =
            parts;
        let CoreParts { last_commit, numbers, unrecorded, location, .. } = parts;
        Ok(Self {
            repository,
            volume,
            quotas: Quotas::new(Arc::clone(&catalog)),
            catalog,
            store,
            began_ms: (clock.now_ms(), clock.monotonic_ms()),
            clock,
            health,
            verify_pool: Arc::new(pool("verify", 0)?),
            seal_pool: pool("seal", SEAL_THREADS)?,
            read_pool: pool("read", read_threads)?,
            lease_secs,
            location,
            sealed: SealedRecords::default(),
            unrecorded,
            reread_days,
            digests: DigestCounters::default(),
            ledger,
            session_memory,
            read_ahead,
            claims: ClaimTables::default(),
            in_use: Arc::default(),
            last_commit: AtomicU64::new(last_commit),
            catalog_sound_ms: Mutex::default(),
            left_point: AtomicBool::new(false),
            numbers: Mutex::new(numbers),
            deleting: Mutex::default(),
            changing_points: Mutex::default(),
        })
    }

    /// (V3) Takes note that a read of this restore point met something that is nowhere.
    pub(crate) fn note_lacking(&self, backup: BackupId) {
        if let Err(error) = self.catalog.doubt(backup) {
            tracing::warn!(%backup, %error, "cannot note that a restore point lacks something; the next read of it tries again");
        }
    }

    /// (K6) Fails when nothing on the volume may be read.
    pub(crate) fn check_unlocked(&self) -> Result<(), EngineError> {
        match self.health.locked_reason() {
            Some(reason) => Err(EngineError::NoKeys(reason.to_owned())),
            None => Ok(()),
        }
    }

    /// Fails when writing has stopped (W9).
    pub(crate) fn check_writable(&self) -> Result<(), EngineError> {
        self.check_unlocked()?;
        match self.health.read_only_reason() {
            Some(reason) => Err(EngineError::ReadOnly(reason.to_owned())),
            None => Ok(()),
        }
    }

    /// (L6) The time of day, unless it is further ahead of the clock that never jumps than it was when this process began.
    pub(crate) fn deciding_time_ms(&self) -> i64 {
        let (began_ms, began_monotonic_ms) = self.began_ms;
        let passed_ms = self.clock.monotonic_ms().saturating_sub(began_monotonic_ms);
        let latest_ms = began_ms.saturating_add(passed_ms).saturating_add(CLOCK_SLACK_MS);
        self.clock.now_ms().min(latest_ms)
    }

    /// (L6) How far that is behind the time of day.
    pub(crate) fn clock_jumped_ms(&self) -> i64 {
        self.clock.now_ms().saturating_sub(self.deciding_time_ms()).max(0)
    }

    /// Room that a backup is promised when it starts. (W10) Data may be refused later; a backup in which nothing changed
    /// needs no more than this and some recipe nodes, which may use a part of the reserve.
    pub(crate) fn session_grant(&self) -> Result<Grant, EngineError> {
        self.check_writable()?;
        // (S8) The owner of a VM, and its newest restore point, may not be known yet.
        self.unrecorded.check()?;
        let mut grant = Grant::new(&self.ledger, Purpose::Recipe);
        grant.cover(SESSION_BYTES)?;
        Ok(grant)
    }

    /// (W10) Makes sure that a container may become `total_bytes` long; where there is no room, deletes what failed
    /// sessions left.
    pub(crate) fn cover(&self, room: &mut Grant, total_bytes: u64) -> Result<(), EngineError> {
        match room.cover(total_bytes) {
            Err(SpaceError::NoRoom { .. }) => self.delete_leftovers()?,
            other => return Ok(other?),
        }
        Ok(room.cover(total_bytes)?)
    }

    /// Deletes the containers that failed sessions left and no one counts on.
    fn delete_leftovers(&self) -> Result<(), EngineError> {
        // A caller that waits while another deletes benefits from the space that is freed.
        let _deleting = self.deleting.lock();
        // While something is damaged, any copy may be the only sound one of what an older restore point needs; and
        // while the index has lost entries, other copies may not be found.
        if self.store.has_damage() || !self.store.reported().is_empty() || !self.store.index.is_whole() {
            return Ok(());
        }
        self.check_writable()?;
        let unused = self.store.leftovers.condemn();
        if unused.is_empty() {
            return Ok(());
        }
        let bytes: u64 = unused.iter().map(|one| one.stored_bytes).sum();
        tracing::info!(containers = unused.len(), bytes, "space is short: deleting what failed backups left");
        self.store.delete(&*self.volume, &unused).map_err(|error| self.write_failure(error))
    }

    /// A container number never used before.
    pub(crate) fn next_container(&self) -> Result<ContainerId, EngineError> {
        let number = self.reserved_numbers()?.next().and_then(ContainerId::new);
        number.ok_or_else(|| EngineError::Internal("container numbers are used up".into()))
    }

    /// The lowest container number not handed out yet: what is sealed from now on has it or a higher one.
    ///
    /// # Errors
    /// The catalog's.
    pub(crate) fn next_number(&self) -> Result<u64, EngineError> {
        Ok(self.reserved_numbers()?.start)
    }

    /// Numbers that are reserved for this process and not handed out, one or more.
    fn reserved_numbers(&self) -> Result<MutexGuard<'_, Range<u64>>, EngineError> {
        // (S8, W8) The catalog may not know all numbers that are in use.
        self.unrecorded.check()?;
        let mut numbers = self.numbers.lock();
        if numbers.is_empty() {
            // (W8) Durable before the first of them is used.
            *numbers = self.catalog.reserve_container_numbers(NUMBERS_PER_RESERVATION)?;
        }
        Ok(numbers)
    }

    /// Above every container number handed out by this process; once one was.
    pub(crate) fn numbers_below(&self) -> u64 {
        self.numbers.lock().start
    }

    /// One deletion of containers at a time.
    pub(crate) fn deleting(&self) -> MutexGuard<'_, ()> {
        self.deleting.lock()
    }

    /// Deletes condemned containers that could not be deleted before.
    ///
    /// # Errors
    /// As [`ChunkStore::finish_deletions`].
    pub(crate) fn finish_deletions(&self) -> Result<(), EngineError> {
        let _deleting = self.deleting();
        self.store.finish_deletions(&*self.volume).map(drop).map_err(|error| self.write_failure(error))
    }

    /// (W12) Makes a container that is durable and indexed known to the catalog, with the next batch.
    pub(crate) fn note_sealed(&self, record: ContainerRecord) {
        self.sealed.add(&self.catalog, &*self.clock, record);
    }

    /// A commit number above every one used before. One process commits, so it need not be reserved; one that is not
    /// used is a gap.
    pub(crate) fn next_commit(&self) -> u64 {
        self.last_commit.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Restore points were entered that a start had left out.
    pub(crate) fn raise_last_commit(&self, last: u64) {
        self.last_commit.fetch_max(last, Ordering::Relaxed);
    }

    /// (S9) The catalog was looked through, and is sound.
    pub(crate) fn trust_catalog(&self) {
        *self.catalog_sound_ms.lock() = Some(self.clock.monotonic_ms());
    }

    /// (G9) Makes a check of the catalog due: it lacks something that is on the volume.
    pub(crate) fn doubt_catalog(&self) {
        *self.catalog_sound_ms.lock() = None;
    }

    /// (S9) How long ago it was [found sound](Core::trust_catalog), in milliseconds.
    pub(crate) fn catalog_trusted_for(&self) -> Option<i64> {
        let sound_ms = *self.catalog_sound_ms.lock();
        sound_ms.map(|sound_ms| self.clock.monotonic_ms().saturating_sub(sound_ms))
    }

    /// (P3) Takes note that a session ended and left a point that the catalog does not know: the next start has to
    /// compare points with rows.
    pub(crate) fn leave_point(&self) {
        self.left_point.store(true, Ordering::Release);
    }

    /// Returns true if one [was left](Core::leave_point).
    pub(crate) fn has_left_point(&self) -> bool {
        self.left_point.load(Ordering::Acquire)
    }

    /// Turns a failure on a write path into what the caller sees: once writing has stopped (W9), why it has.
    pub(crate) fn write_failure(&self, error: EngineError) -> EngineError {
        match (&error, self.health.read_only_reason()) {
            (EngineError::Volume(_) | EngineError::Catalog(_), Some(reason)) => {
                EngineError::ReadOnly(reason.to_owned())
            }
            _ => error,
        }
    }
}

impl From<SpaceError> for EngineError {
    fn from(error: SpaceError) -> Self {
        match error {
            SpaceError::Volume(error) => error.into(),
            SpaceError::NoRoom { .. } => Self::Full(format!(
                "{error}: delete restore points and run 'holdfast reclaim', or add storage; then start the backup again"
            )),
        }
    }
}

/// A pool of named threads; 0: one a core.
fn pool(name: &'static str, threads: usize) -> Result<FairPool, EngineError> {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |number| format!("{name}-{number}"))
        .build()
        .map(FairPool::new)
        .map_err(|error| EngineError::Internal(format!("cannot start the {name} threads: {error}")))
}

/// Counted while the engine runs.
#[derive(Debug, Default)]
pub(crate) struct DigestCounters {
    proved: AtomicU64,
    unproved: AtomicU64,
    refused: AtomicU64,
    found_false: AtomicU64,
}

/// Extent digests since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DigestStats {
    /// Claimed by agents and recomputed from what they sent.
    pub proved: u64,
    /// Claimed by agents and not recomputed: not all the extent's chunks were at hand.
    pub unproved: u64,
    /// Claimed by agents and found false at once; their backups ended.
    pub refused: u64,
    /// Recorded before and found false by reading.
    pub found_false: u64,
}

impl DigestCounters {
    pub(crate) fn proved(&self) {
        self.proved.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unproved(&self) {
        self.unproved.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn found_false(&self, count: u64) {
        self.found_false.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> DigestStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DigestStats {
            proved: read(&self.proved),
            unproved: read(&self.unproved),
            refused: read(&self.refused),
            found_false: read(&self.found_false),
        }
    }
}
