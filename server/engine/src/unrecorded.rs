//! Blobs that a start found on the volume and could not enter into the catalog: because the catalog took no changes, mostly on a
//! full disk after a kill; or because it could not be read.
//!
//! (S8) Reading needs none of it, so the server starts. Until all of it is entered no backup begins, no mark of a clean
//! stop is written and no container counts as settled: the catalog may not know numbers that are in use, nor the
//! newest restore point of a VM. The background work on restore points enters it ([`crate::points`]). A crash loses
//! only this note: the next start finds the same on the volume.
//!
//! (P6) Points that could not be read keep no backup from beginning. Until they were read, or an administrator gave
//! them up, nothing is freed, no namespace is destroyed and no mark of a clean stop is written: a point may need
//! anything, and without the mark the next start finds it again. The same background work looks at them now and then.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_catalog::{Catalog, CatalogError, ContainerRecord};
use holdfast_types::clock::Clock;
use holdfast_types::ids::BackupId;
use parking_lot::Mutex;

use crate::error::EngineError;
use crate::recovery::Files;

/// Blobs left to enter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rest {
    /// Containers that were noted while their backups were in progress (W12) have not become those of no run.
    pub(crate) sealed: bool,
    /// Restore points that have a point and no row.
    pub(crate) points: u64,
    /// Container files without a row.
    pub(crate) files: Arc<Files>,
    /// First error of the catalog.
    pub(crate) reason: Option<String>,
}

impl Rest {
    /// Takes note that the catalog takes no changes.
    ///
    /// # Errors
    /// The error itself, when it says anything else.
    pub(crate) fn refused(&mut self, error: CatalogError) -> Result<(), EngineError> {
        if !error.refuses_changes() {
            return Err(error.into());
        }
        self.reason.get_or_insert_with(|| error.to_string());
        Ok(())
    }
}

/// Points and containers on the volume that could not be read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unread {
    /// Restore points of which a point could not be read or entered: not all that is to be known of them is.
    pub(crate) points: BTreeSet<BackupId>,
    /// The points, by the names of their blobs: the first 1,000.
    pub(crate) names: Vec<String>,
    /// Containers that the index lacks.
    pub(crate) containers: Files,
}

/// Blobs found at start-up that are not yet in the catalog.
#[derive(Debug, Default)]
pub(crate) struct Unrecorded {
    rest: Mutex<Option<Rest>>,
    unread: Mutex<Arc<Unread>>,
}

impl Unrecorded {
    /// After a start; nothing is left to enter when `rest` has no reason.
    pub(crate) fn new(rest: Rest, unread: Unread) -> Self {
        if let Some(reason) = &rest.reason {
            tracing::error!(
                reason,
                restore_points = rest.points,
                containers = rest.files.len(),
                "the catalog does not take what this start found on the volume; reading goes on, and no backup \
                 begins until it does: free some space on the catalog's file system"
            );
        }
        let rest = Some(rest).filter(|rest| rest.reason.is_some());
        Self { rest: Mutex::new(rest), unread: Mutex::new(Arc::new(unread)) }
    }

    /// Blobs that are left to enter.
    pub(crate) fn rest(&self) -> Option<Rest> {
        self.rest.lock().clone()
    }

    /// Notes that everything is in the catalog.
    pub(crate) fn clear(&self) {
        *self.rest.lock() = None;
    }

    /// Points and containers that could not be read.
    pub(crate) fn unread(&self) -> Arc<Unread> {
        Arc::clone(&self.unread.lock())
    }

    /// After another look.
    pub(crate) fn note_unread(&self, change: impl FnOnce(&mut Unread)) {
        change(Arc::make_mut(&mut *self.unread.lock()));
    }

    /// Returns true if everything was read.
    pub(crate) fn is_all_read(&self) -> bool {
        let unread = self.unread();
        unread.points.is_empty() && unread.containers.is_empty()
    }

    /// Reason for which nothing may be written that relies on a complete catalog; for operators.
    pub(crate) fn reason(&self) -> Option<String> {
        let Rest { points, files, reason, .. } = self.rest()?;
        Some(format!(
            "the catalog has not taken what the last start found on the volume ({points} restore points, {} \
             containers): {}. It is tried again every few minutes; backups begin once it has succeeded",
            files.len(),
            reason.unwrap_or_default()
        ))
    }

    /// Reason for which nothing may be freed; for operators.
    pub(crate) fn unread_points(&self) -> Option<String> {
        let unread = self.unread();
        let (count, first) = (unread.points.len(), unread.points.first()?);
        let name = unread.names.first().map_or_else(|| first.to_string(), Clone::clone);
        Some(format!(
            "{count} points on the volume cannot be read, and may need anything; the first is {name}. It is tried again \
             every few minutes. 'holdfast-server check' says why; what is damaged for good is given up with \
             'holdfast-server check --accept-loss NAME'"
        ))
    }

    /// Fails while something is left.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        self.reason().map_or(Ok(()), |reason| Err(EngineError::Full(reason)))
    }

    /// (P6) Fails while something is left, or a point was not read.
    pub(crate) fn check_all_known(&self) -> Result<(), EngineError> {
        self.check()?;
        self.unread_points().map_or(Ok(()), |why| Err(EngineError::UnreadPoint(why)))
    }

    /// (P7) Fails when a point of one of these restore points was not read: it may say more than the catalog, such as a
    /// lock.
    pub(crate) fn check_known(&self, ids: &[BackupId]) -> Result<(), EngineError> {
        let unread = self.unread();
        match ids.iter().find(|id| unread.points.contains(id)) {
            Some(id) => Err(EngineError::UnreadPoint(format!(
                "restore point {id} cannot be changed or deleted now: a point of it on the volume cannot be read, and may \
                 say more than the catalog. 'holdfast-server check' says which, and why"
            ))),
            None => Ok(()),
        }
    }
}

/// Rows in one transaction: 2 GiB of containers, some milliseconds for the catalog.
const BATCH: usize = 64;

/// A batch is written no later than with the first container sealed this long after its first.
const BATCH_WAIT_MS: i64 = 10_000;

/// Rows that wait while the catalog takes none; what is beyond is adopted by the next start, should it come to that.
const WAITING_MAX: usize = 16 * BATCH;

/// Sealed containers become known to the catalog soon, in batches, while their backup is still in progress.
///
/// (W12) A row is written after its container is durable and indexed, and nothing depends on it: until the backup is
/// committed it is the row of a container that counts for nothing. So a start after a kill
/// in a long first backup finds all but the last few containers known. A batch that cannot be written is tried again
/// with the next; what is lost with the process is adopted by the next start.
#[derive(Debug, Default)]
pub(crate) struct SealedRecords(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    records: Vec<ContainerRecord>,
    /// Time when the first of them was added.
    since_ms: i64,
}

impl SealedRecords {
    /// Takes the row of a container that is durable and indexed.
    pub(crate) fn add(&self, catalog: &Catalog, clock: &dyn Clock, record: ContainerRecord) {
        let now_ms = clock.monotonic_ms();
        let mut waiting = self.0.lock();
        if waiting.records.is_empty() {
            waiting.since_ms = now_ms;
        }
        waiting.records.push(record);
        if waiting.records.len() < BATCH && now_ms - waiting.since_ms < BATCH_WAIT_MS {
            return;
        }
        // (W12) Under the lock: once a container was forgotten here, no row of it is written any more.
        match catalog.note_sealed_containers(&waiting.records) {
            Ok(()) => waiting.records.clear(),
            Err(error) => {
                let containers = waiting.records.len();
                tracing::warn!(%error, containers, "cannot make sealed containers known yet");
                waiting.since_ms = now_ms;
                waiting.records.truncate(WAITING_MAX);
            }
        }
    }

    /// (D1) Containers of a session that ended: the caller tells the catalog of them, and may delete them.
    pub(crate) fn forget(&self, ended: &[ContainerRecord]) {
        self.0.lock().records.retain(|waiting| ended.iter().all(|ended| ended.id != waiting.id));
    }
}
