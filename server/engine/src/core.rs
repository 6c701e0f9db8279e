//! What all operations share: the volume, the store, the catalog, the pools and the rules for writing.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_catalog::{Catalog, ContainerRecord};
use holdfast_types::clock::Clock;
use holdfast_types::ids::{ContainerId, RepositoryId};
use holdfast_volume::Volume;
use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::EngineError;
use crate::guard::GuardedVolume;
use crate::health::Health;
use crate::sealed::SealedRecords;
use crate::store::ChunkStore;

/// Container numbers reserved from the catalog at a time: one small transaction per 2 GiB stored.
pub(crate) const NUMBERS_PER_RESERVATION: u32 = 64;

/// Threads that wait for fsync. They burn no CPU; four keep a disk's queue busy.
pub(crate) const SEAL_THREADS: usize = 4;

/// Threads that plan and read restore windows ahead.
const READ_THREADS: usize = 4;

/// Bytes written between two looks at the free space.
const SPACE_CHECK_INTERVAL_BYTES: u64 = 256 << 20;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) repository: RepositoryId,
    pub(crate) volume: Arc<GuardedVolume>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) store: Arc<ChunkStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    /// One thread a core: decoding and hashing.
    pub(crate) verify_pool: Arc<ThreadPool>,
    pub(crate) seal_pool: ThreadPool,
    pub(crate) read_pool: ThreadPool,
    pub(crate) lease_secs: u32,
    pub(crate) reserve_bytes: u64,
    /// Sealed containers the catalog does not know yet.
    sealed: SealedRecords,
    written_since_check: AtomicU64,
    numbers: Mutex<Range<u64>>,
}

/// What [`Core::new`] needs.
#[derive(Debug)]
pub(crate) struct CoreParts {
    pub(crate) repository: RepositoryId,
    pub(crate) volume: Arc<GuardedVolume>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) store: Arc<ChunkStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) lease_secs: u32,
    pub(crate) reserve_bytes: u64,
    /// Reserved for this process already.
    pub(crate) numbers: Range<u64>,
}

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Result<Self, EngineError> {
        let CoreParts { repository, volume, catalog, store, clock, health, .. } = parts;
        let CoreParts { lease_secs, reserve_bytes, numbers, .. } = parts;
        Ok(Self {
            repository,
            volume,
            catalog,
            store,
            clock,
            health,
            verify_pool: Arc::new(pool("verify", 0)?),
            seal_pool: pool("seal", SEAL_THREADS)?,
            read_pool: pool("read", READ_THREADS)?,
            lease_secs,
            reserve_bytes,
            sealed: SealedRecords::default(),
            written_since_check: AtomicU64::new(u64::MAX / 2),
            numbers: Mutex::new(numbers),
        })
    }

    /// Fails when writing has stopped (W9) or there is less room than the reserve (W10). Deleting and the
    /// catalog live from the reserve: on a disk that is full to the last byte nothing can be deleted.
    pub(crate) fn check_writable(&self) -> Result<(), EngineError> {
        if let Some(reason) = self.health.read_only_reason() {
            return Err(EngineError::ReadOnly(reason.to_owned()));
        }
        let Some(space) = self.volume.space()? else { return Ok(()) };
        if space.free_bytes < self.reserve_bytes {
            let (free, reserve) = (mib(space.free_bytes), mib(self.reserve_bytes));
            return Err(EngineError::Full(format!(
                "the repository has {free} MiB free; {reserve} MiB are kept for housekeeping, so no new data is accepted: make room or add storage, then start the backup again"
            )));
        }
        Ok(())
    }

    /// As [`Core::check_writable`], but looks at the free space only now and then.
    pub(crate) fn check_writable_for(&self, bytes: u64) -> Result<(), EngineError> {
        let written = self.written_since_check.fetch_add(bytes, Ordering::Relaxed);
        if written < SPACE_CHECK_INTERVAL_BYTES && self.health.read_only_reason().is_none() {
            return Ok(());
        }
        self.written_since_check.store(0, Ordering::Relaxed);
        self.check_writable()
    }

    /// A container number never used before.
    pub(crate) fn next_container(&self) -> Result<ContainerId, EngineError> {
        let mut numbers = self.numbers.lock();
        if numbers.is_empty() {
            // (W8) Durable before the first of them is used.
            *numbers = self.catalog.reserve_container_numbers(NUMBERS_PER_RESERVATION)?;
        }
        let number = numbers.next().and_then(ContainerId::new);
        number.ok_or_else(|| EngineError::Internal("container numbers are used up".into()))
    }

    /// (W11) Makes a container that is durable and indexed known to the catalog, with the next batch.
    pub(crate) fn sealed(&self, record: ContainerRecord) {
        self.sealed.add(&*self.catalog, &*self.clock, record);
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

const fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// A pool of named threads; 0: one a core.
fn pool(name: &'static str, threads: usize) -> Result<ThreadPool, EngineError> {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |number| format!("{name}-{number}"))
        .build()
        .map_err(|error| EngineError::Internal(format!("cannot start the {name} threads: {error}")))
}
