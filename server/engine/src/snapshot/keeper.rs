//! Schedule of snapshots, and their retention.
//!
//! One an hour in which something changed; and one soon after tokens, owners or quotas changed, which no restore point
//! tells of. Of the latter only the newest is kept: a later snapshot takes its place, so the others still go back for
//! hours.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use holdfast_proto::ErrorCode;
use holdfast_volume::{BlobName, Volume, VolumeError};
use parking_lot::Mutex;

use super::{KEPT, SnapshotHeader, list_snapshots, name, read_snapshot_header, seal_snapshot};
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, Step, StopFlag};
use crate::space::{Grant, Purpose};

/// Interval between two snapshots of anything that changed.
const INTERVAL_MS: i64 = 3_600_000;

/// Interval between two looks for changes of tokens, owners or quotas.
const LOOK: Duration = Duration::from_secs(20);

/// Such changes are waited for until none came between two looks, but no longer than this after the first was seen. So
/// what was changed is on the volume within a minute, and a script that makes a hundred tokens causes one snapshot.
const SETTLE_MS: i64 = 40_000;

/// A snapshot out of turn waits for so many times as long as the latest took: with a catalog of 1 GB, which takes some
/// 10 s, about two minutes.
const PAUSE_TIMES: i64 = 10;

/// A snapshot for which there is no room is tried again after this.
const NO_ROOM_WAIT_MS: i64 = 600_000;

/// State of the latest snapshot; one is made at a time.
#[derive(Debug)]
pub(crate) struct Snapshots(Mutex<Latest>);

#[derive(Debug)]
struct Latest {
    /// The catalog's change mark; `None`: it holds something that no snapshot has.
    mark: Option<i64>,
    /// The mark is that of a start after a clean stop, and the snapshot of that stop was not looked at yet: its number.
    assumed: Option<u64>,
    /// The audit log was looked at up to this entry.
    looked: u128,
    /// Time when a change of tokens, owners or quotas was first seen that it does not hold.
    waiting_since_ms: Option<i64>,
    /// Time when the next is due that holds anything that changed; `None`: at once.
    due_ms: Option<i64>,
    /// None out of turn before.
    not_before_ms: i64,
    /// The latest snapshot, if it was made out of turn.
    extra: Option<BlobName>,
}

impl Snapshots {
    /// `assumed`: the snapshot that, by the mark of a clean stop, holds the catalog as it is: if it is there, which is seen
    /// when the next is due.
    pub(crate) fn new(core: &Core, assumed: Option<u64>) -> Result<Self, EngineError> {
        let mark = assumed.map(|_| core.catalog.change_mark()).transpose()?;
        Ok(Self(Mutex::new(Latest {
            mark,
            assumed,
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
        let mut latest = self.0.lock();
        let Some(older) = lacking(&mut latest, core)? else { return Ok(None) };
        take(&mut latest, core, &older, &Making::now(core)).map(Some)
    }

    /// The number of the snapshot that holds the catalog as it is, and whether [`Snapshots::take_last`] has to make it.
    ///
    /// # Errors
    /// The volume's and the catalog's.
    pub(crate) fn number_at_stop(&self, core: &Core) -> Result<(u64, bool), EngineError> {
        let lacking = lacking(&mut self.0.lock(), core)?;
        let newest = || Ok(list_snapshots(&*core.volume)?.first().map_or(0, |(number, _)| *number));
        lacking
            .map_or_else(|| newest().map(|number| (number, false)), |older| Ok((next_number(&older), true)))
    }

    /// Seals the snapshot of a stop, after writing was closed.
    ///
    /// # Errors
    /// As [`Snapshots::take`].
    pub(crate) fn take_last(&self, core: &Core) -> Result<u64, EngineError> {
        let older = list_snapshots(&*core.volume)?;
        let making = Making { volume: &**core.ledger.volume(), ..Making::now(core) };
        take(&mut self.0.lock(), core, &older, &making)
    }

    /// Seals a snapshot, whether anything has changed or not, and removes all others: they hold what is not to be known
    /// any more.
    ///
    /// # Errors
    /// As [`Snapshots::take`].
    pub(crate) fn renew(&self, core: &Core) -> Result<(), EngineError> {
        let mut latest = self.0.lock();
        (latest.mark, latest.assumed, latest.extra) = (None, None, None);
        let older = list_snapshots(&*core.volume)?;
        // A snapshot that a person asks for, and that makes room, may use half of the reserve.
        take(&mut latest, core, &older, &Making { purpose: Purpose::Recipe, ..Making::now(core) })?;
        // Newest first.
        for (_, older) in list_snapshots(&*core.volume)?.into_iter().skip(1) {
            match core.volume.remove(&older) {
                Ok(()) | Err(VolumeError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// As [`Snapshots::take`], if it is time to, and if there is room for it (W15).
    fn take_if_due(&self, core: &Core, stop: &StopFlag) -> Result<Option<u64>, EngineError> {
        let mut latest = self.0.lock();
        match take_if_due(&mut latest, core, stop) {
            Err(error) if error.code() == ErrorCode::Full => {
                let again_ms = core.clock.monotonic_ms().saturating_add(NO_ROOM_WAIT_MS);
                tracing::warn!(%error, "no snapshot of the catalog is made for want of room; it is tried again");
                latest.not_before_ms = again_ms;
                latest.due_ms = latest.due_ms.map(|due_ms| due_ms.max(again_ms)).or(Some(again_ms));
                Ok(None)
            }
            done => done,
        }
    }
}

fn take_if_due(latest: &mut Latest, core: &Core, stop: &StopFlag) -> Result<Option<u64>, EngineError> {
    let now_ms = core.clock.monotonic_ms();
    let making = Making { stop, ..Making::now(core) };
    if latest.due_ms.is_none_or(|due_ms| now_ms >= due_ms) {
        // Before the copy: what is changed meanwhile is looked at again. The whole log is not read for it.
        let last = core.catalog.access_changed_since(u128::MAX)?.0;
        let taken = match lacking(latest, core)? {
            Some(older) => Some(take(latest, core, &older, &making)?),
            None => None,
        };
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
        let taken = match lacking(latest, core)? {
            Some(older) => Some(take(latest, core, &older, &Making { extra: true, ..making })?),
            None => None,
        };
        latest.waiting_since_ms = None;
        return Ok(taken);
    }
    Ok(None)
}

/// Inputs of making a snapshot.
struct Making<'a> {
    volume: &'a dyn Volume,
    /// Out of turn.
    extra: bool,
    purpose: Purpose,
    stop: &'a StopFlag,
}

/// Never set.
static NEVER: LazyLock<StopFlag> = LazyLock::new(StopFlag::default);

impl<'a> Making<'a> {
    /// Inputs of a snapshot on schedule, made to its end.
    fn now(core: &'a Core) -> Self {
        Self { volume: &*core.volume, extra: false, purpose: Purpose::Snapshot, stop: &NEVER }
    }
}

/// The snapshots there are, the newest first, unless one of them holds the catalog as it is.
fn lacking(latest: &mut Latest, core: &Core) -> Result<Option<Vec<(u64, BlobName)>>, EngineError> {
    let unchanged = latest.mark == Some(core.catalog.change_mark()?);
    if unchanged && latest.assumed.is_none() {
        return Ok(None);
    }
    let older = list_snapshots(&*core.volume)?;
    let newest = older.first().map_or(0, |(number, _)| *number);
    let is_there = unchanged
        && latest.assumed.is_some_and(|number| newest >= number)
        && holds(core, &older, core.catalog.commits()?.last);
    if is_there {
        latest.assumed = None;
    }
    Ok((!is_there).then_some(older))
}

fn next_number(older: &[(u64, BlobName)]) -> u64 {
    older.first().map_or(1, |(number, _)| number.saturating_add(1))
}

/// Seals a snapshot beside the `older` ones, and removes the oldest of those that are not kept. Returns its length.
fn take(
    latest: &mut Latest,
    core: &Core,
    older: &[(u64, BlobName)],
    making: &Making<'_>,
) -> Result<u64, EngineError> {
    let Making { volume, extra, purpose, stop } = *making;
    let began_ms = core.clock.monotonic_ms();
    let mark = core.catalog.change_mark()?;
    let header = SnapshotHeader {
        number: next_number(older),
        repository: core.repository,
        created_ms: core.clock.now_ms(),
        last_commit: core.catalog.commits()?.last,
    };
    // (W15) Room for the copy, which lies beside the volume as a rule, before it is made; and then for the snapshot.
    let copy_bytes = core.catalog.size_bytes()?;
    let mut room = Grant::new(&core.ledger, purpose);
    room.cover(copy_bytes)?;
    let mut copy = core.catalog.snapshot(stop.shared())?;
    room.wrote(copy_bytes);
    let mut blob_room = Grant::new(&core.ledger, purpose);
    let mut allow = |bytes| {
        if stop.is_set() {
            return Err(EngineError::Unavailable);
        }
        Ok(blob_room.cover(bytes)?)
    };
    let new = name(header.number);
    let bytes = seal_snapshot(volume, &new, &header, &mut *copy, &mut allow)?;
    blob_room.sealed(bytes);
    let superseded = std::mem::replace(&mut latest.extra, extra.then_some(new));
    (latest.mark, latest.assumed) = (Some(mark), None);
    let now_ms = core.clock.monotonic_ms();
    let pause_ms = now_ms.saturating_sub(began_ms).saturating_mul(PAUSE_TIMES);
    latest.not_before_ms = now_ms.saturating_add(pause_ms);
    tracing::info!(number = header.number, bytes, "sealed a snapshot of the catalog");
    remove_older(volume, older, superseded.as_ref())?;
    Ok(bytes)
}

/// Leaves the new one and those that are kept beside it.
fn remove_older(
    volume: &dyn Volume,
    older: &[(u64, BlobName)],
    superseded: Option<&BlobName>,
) -> Result<(), EngineError> {
    let kept = older.iter().filter(|(_, old)| Some(old) != superseded);
    let beyond = kept.skip(KEPT - 1).map(|(_, old)| old);
    for old in superseded.into_iter().chain(beyond) {
        match volume.remove(old) {
            Ok(()) | Err(VolumeError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns true if the newest snapshot has every commit: the clean stop sealed it.
fn holds(core: &Core, snapshots: &[(u64, BlobName)], last_commit: u64) -> bool {
    let header = snapshots.first().and_then(|(_, name)| read_snapshot_header(&*core.volume, name).ok());
    header.is_some_and(|header| header.last_commit == last_commit)
}

/// A snapshot every hour in which something changed, and soon after tokens, owners or quotas did. A step is one snapshot
/// at most: it copies the catalog once, and reads it once more, and gives way to a stop.
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
        if self.core.health.read_only_reason().is_none() {
            match self.snapshots.take_if_due(&self.core, budget.stop()) {
                Ok(taken) => budget.charge(u64::from(taken.is_some()), taken.unwrap_or_default()),
                Err(error) if budget.must_stop() => {
                    tracing::info!(%error, "a snapshot of the catalog that was under way was given up");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Step::Idle(LOOK))
    }
}
