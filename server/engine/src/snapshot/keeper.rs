//! When a snapshot is made, and how many are kept.
//!
//! One an hour in which something changed; and one soon after tokens, owners or quotas changed, which no restore point
//! tells of. Of the latter only the newest is kept: a later snapshot takes its place, so the others still go back for
//! hours.

use std::sync::Arc;
use std::time::Duration;

use holdfast_volume::{BlobName, Volume as _, VolumeError};
use parking_lot::Mutex;

use super::{KEPT, SnapshotHeader, list_snapshots, name, read_snapshot_header, seal_snapshot};
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, Step};

/// Between two snapshots of anything that changed.
const INTERVAL_MS: i64 = 3_600_000;

/// Between two looks at whether tokens, owners or quotas changed.
const LOOK: Duration = Duration::from_secs(20);

/// Such changes are waited for until none came between two looks, but no longer than this after the first was seen. So
/// what was changed is on the volume within a minute, and a script that makes a hundred tokens causes one snapshot.
const SETTLE_MS: i64 = 40_000;

/// A snapshot out of turn waits for so many times as long as the latest took: with a catalog of 1 GB, which takes some
/// 10 s, about two minutes.
const PAUSE_TIMES: i64 = 10;

/// When the latest snapshot was made; one is made at a time.
#[derive(Debug)]
pub(crate) struct Snapshots(Mutex<Latest>);

#[derive(Debug)]
struct Latest {
    /// The catalog's change mark; `None`: it holds something that no snapshot has.
    mark: Option<i64>,
    /// Whether the mark is that of a start after a clean stop, and the snapshot of that stop was not looked at yet.
    assumed: bool,
    /// The audit log was looked at up to this entry.
    looked: u128,
    /// When a change of tokens, owners or quotas was seen first that it does not hold.
    waiting_since_ms: Option<i64>,
    /// When the next is due that holds anything that changed; `None`: at once.
    due_ms: Option<i64>,
    /// None out of turn before.
    not_before_ms: i64,
    /// The latest snapshot, if it was made out of turn.
    extra: Option<BlobName>,
}

impl Snapshots {
    /// After a clean stop the catalog as it is counts as the latest snapshot: a stop seals one whenever something has
    /// changed.
    pub(crate) fn new(core: &Core, clean: bool) -> Result<Self, EngineError> {
        let mark = if clean { Some(core.catalog.change_mark()?) } else { None };
        Ok(Self(Mutex::new(Latest {
            mark,
            assumed: clean,
            looked: 0,
            waiting_since_ms: None,
            due_ms: None,
            not_before_ms: 0,
            extra: None,
        })))
    }

    /// Seals a snapshot unless nothing has changed since the latest of this process, and removes the oldest of those that
    /// are not kept. Returns the bytes written.
    ///
    /// # Errors
    /// The volume's and the catalog's; the earlier snapshots are there then.
    pub(crate) fn take(&self, core: &Core) -> Result<Option<u64>, EngineError> {
        take(&mut self.0.lock(), core, false)
    }

    /// Seals a snapshot, whether anything has changed or not, and removes all others: they hold what is not to be known
    /// any more.
    ///
    /// # Errors
    /// As [`Snapshots::take`].
    pub(crate) fn renew(&self, core: &Core) -> Result<(), EngineError> {
        let mut latest = self.0.lock();
        (latest.mark, latest.assumed, latest.extra) = (None, false, None);
        take(&mut latest, core, false)?;
        // Newest first.
        for (_, older) in list_snapshots(&*core.volume)?.into_iter().skip(1) {
            match core.volume.remove(&older) {
                Ok(()) | Err(VolumeError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// As [`Snapshots::take`], if it is time to.
    fn take_if_due(&self, core: &Core) -> Result<Option<u64>, EngineError> {
        let mut latest = self.0.lock();
        let now_ms = core.clock.monotonic_ms();
        if latest.due_ms.is_none_or(|due_ms| now_ms >= due_ms) {
            // Before the copy: what is changed meanwhile is looked at again. The whole log is not read for it.
            let last = core.catalog.access_changed_since(u128::MAX)?.0;
            let taken = take(&mut latest, core, false)?;
            (latest.looked, latest.waiting_since_ms) = (last, None);
            latest.due_ms = Some(now_ms.saturating_add(INTERVAL_MS));
            return Ok(taken);
        }
        let (last, changed) = core.catalog.access_changed_since(latest.looked)?;
        latest.looked = last;
        if changed {
            latest.waiting_since_ms.get_or_insert(now_ms);
        }
        let settled = latest
            .waiting_since_ms
            .is_some_and(|since_ms| !changed || now_ms.saturating_sub(since_ms) >= SETTLE_MS);
        if settled && now_ms >= latest.not_before_ms {
            let taken = take(&mut latest, core, true)?;
            latest.waiting_since_ms = None;
            return Ok(taken);
        }
        Ok(None)
    }
}

/// See [`Snapshots::take`]. `extra`: it is made out of turn.
fn take(latest: &mut Latest, core: &Core, extra: bool) -> Result<Option<u64>, EngineError> {
    let began_ms = core.clock.monotonic_ms();
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
    let new = name(header.number);
    let bytes = seal_snapshot(&*core.volume, &new, &header, &mut *copy)?;
    let superseded = std::mem::replace(&mut latest.extra, extra.then_some(new));
    (latest.mark, latest.assumed) = (Some(mark), false);
    let now_ms = core.clock.monotonic_ms();
    let pause_ms = now_ms.saturating_sub(began_ms).saturating_mul(PAUSE_TIMES);
    latest.not_before_ms = now_ms.saturating_add(pause_ms);
    tracing::info!(number = header.number, bytes, "sealed a snapshot of the catalog");
    remove_older(core, &older, superseded.as_ref())?;
    Ok(Some(bytes))
}

/// Leaves the new one and those that are kept beside it.
fn remove_older(
    core: &Core,
    older: &[(u64, BlobName)],
    superseded: Option<&BlobName>,
) -> Result<(), EngineError> {
    let kept = older.iter().filter(|(_, old)| Some(old) != superseded);
    let beyond = kept.skip(KEPT - 1).map(|(_, old)| old);
    for old in superseded.into_iter().chain(beyond) {
        match core.volume.remove(old) {
            Ok(()) | Err(VolumeError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether the newest snapshot has every commit: the stop that was clean sealed it.
fn holds(core: &Core, snapshots: &[(u64, BlobName)], last_commit: u64) -> bool {
    let header = snapshots.first().and_then(|(_, name)| read_snapshot_header(&*core.volume, name).ok());
    header.is_some_and(|header| header.last_commit == last_commit)
}

/// A snapshot every hour in which something changed, and soon after tokens, owners or quotas did. A step is one snapshot
/// at most: it copies the catalog once, and reads it once more.
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
            && let Some(bytes) = self.snapshots.take_if_due(&self.core)?
        {
            budget.charge(1, bytes);
        }
        Ok(Step::Idle(LOOK))
    }
}
