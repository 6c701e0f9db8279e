//! When a snapshot is made, and how many are kept.

use std::sync::Arc;
use std::time::Duration;

use holdfast_volume::{BlobName, Volume as _, VolumeError};
use parking_lot::Mutex;

use super::{KEPT, SnapshotHeader, list_snapshots, name, read_snapshot_header, seal_snapshot};
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, Step};

/// Between two snapshots.
const INTERVAL: Duration = Duration::from_secs(3600);

/// When the latest snapshot was made; one is made at a time.
#[derive(Debug)]
pub(crate) struct Snapshots(Mutex<Latest>);

#[derive(Debug)]
struct Latest {
    /// The catalog's change mark; `None`: it holds something that no snapshot has.
    mark: Option<i64>,
    /// Whether the mark is that of a start after a clean stop, and the snapshot of that stop was not looked at yet.
    assumed: bool,
}

impl Snapshots {
    /// After a clean stop the catalog as it is counts as the latest snapshot: a stop seals one whenever something has
    /// changed.
    pub(crate) fn new(core: &Core, clean: bool) -> Result<Self, EngineError> {
        let mark = if clean { Some(core.catalog.change_mark()?) } else { None };
        Ok(Self(Mutex::new(Latest { mark, assumed: clean })))
    }

    /// Seals a snapshot unless nothing has changed since the latest of this process, and removes the oldest of those that
    /// are not kept. Returns the bytes written.
    ///
    /// # Errors
    /// The volume's and the catalog's; the earlier snapshots are there then.
    pub(crate) fn take(&self, core: &Core) -> Result<Option<u64>, EngineError> {
        let mut latest = self.0.lock();
        let mark = core.catalog.change_mark()?;
        if latest.mark == Some(mark) && !latest.assumed {
            return Ok(None);
        }
        let older = list_snapshots(&*core.volume)?;
        let last_commit = core.catalog.commits()?.last;
        if latest.mark == Some(mark) && holds(core, &older, last_commit) {
            latest.assumed = false;
            return Ok(None);
        }
        let header = SnapshotHeader {
            number: older.first().map_or(1, |(number, _)| number.saturating_add(1)),
            repository: core.repository,
            created_ms: core.clock.now_ms(),
            last_commit,
        };
        let mut copy = core.catalog.snapshot()?;
        let bytes = seal_snapshot(&*core.volume, &name(header.number), &header, &mut *copy)?;
        *latest = Latest { mark: Some(mark), assumed: false };
        tracing::info!(number = header.number, bytes, "sealed a snapshot of the catalog");
        for (_, old) in older.iter().skip(KEPT - 1) {
            match core.volume.remove(old) {
                Ok(()) | Err(VolumeError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(bytes))
    }
}

/// Whether the newest snapshot has every commit: the stop that was clean sealed it.
fn holds(core: &Core, snapshots: &[(u64, BlobName)], last_commit: u64) -> bool {
    let header = snapshots.first().and_then(|(_, name)| read_snapshot_header(&*core.volume, name).ok());
    header.is_some_and(|header| header.last_commit == last_commit)
}

/// A snapshot every hour in which something changed. A step is one snapshot: it copies the catalog once, and reads it
/// once more.
#[derive(Debug)]
pub(crate) struct SnapshotJob {
    pub(crate) core: Arc<Core>,
    pub(crate) snapshots: Arc<Snapshots>,
}

impl Job for SnapshotJob {
    fn name(&self) -> &'static str {
        "catalog-snapshots"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        if self.core.health.read_only_reason().is_none()
            && let Some(bytes) = self.snapshots.take(&self.core)?
        {
            budget.charge(1, bytes);
        }
        Ok(Step::Idle(INTERVAL))
    }
}
