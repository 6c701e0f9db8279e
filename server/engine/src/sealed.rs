//! Sealed containers become known to the catalog soon, in batches, while their backup is still in progress.
//!
//! (W12) A row is written after its container is durable and indexed, and nothing depends on it: until the backup is
//! committed it is the row of a container that counts for nothing. So a start after a kill
//! in a long first backup finds all but the last few containers known. A batch that cannot be written is tried again
//! with the next; what is lost with the process is adopted by the next start.

use holdfast_catalog::{Catalog, ContainerRecord};
use holdfast_types::clock::Clock;
use parking_lot::Mutex;

/// Rows in one transaction: 2 GiB of containers, some milliseconds for the catalog.
const BATCH: usize = 64;

/// A batch is written no later than with the first container sealed this long after its first.
const BATCH_WAIT_MS: i64 = 10_000;

/// Rows that wait while the catalog takes none; what is beyond is adopted by the next start, should it come to that.
const WAITING_MAX: usize = 16 * BATCH;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct SealedRecords(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    records: Vec<ContainerRecord>,
    /// When the first of them was added.
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
