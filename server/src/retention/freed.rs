//! What deleting restore points would free, to the byte.

use std::time::{Duration, Instant};

use holdfast_engine::ids::BackupId;
use holdfast_engine::{Engine, EngineError, ReclaimControl};
use parking_lot::{Condvar, Mutex};

use crate::error::ServiceError;

/// How often is looked whether the answer is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Counting walks all recipes of a namespace, with two threads and up to hundreds of MiB: one at a time.
static COUNTING: Mutex<()> = Mutex::new(());

/// For how long an answer over HTTP counts: it is due after 30 seconds, and what comes too late only keeps others waiting.
const COUNT_AT_MOST: Duration = Duration::from_secs(20);

/// As [`by_deleting`] for an answer that is due soon: `None` also when counting takes too long. Blocks.
///
/// # Errors
/// Those of [`by_deleting`].
pub(crate) fn soon(
    engine: &Engine,
    ids: &[BackupId],
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Option<u64>, ServiceError> {
    within(COUNT_AT_MOST, engine, ids, stop)
}

/// As [`soon`], for so long. Blocks.
///
/// # Errors
/// Those of [`by_deleting`].
pub(crate) fn within(
    at_most: Duration,
    engine: &Engine,
    ids: &[BackupId],
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Option<u64>, ServiceError> {
    let began = Instant::now();
    by_deleting(engine, ids, &|| began.elapsed() >= at_most || stop())
}

/// What reclaim could free once these restore points are deleted; `None`: it cannot be told exactly, because something
/// cannot be read, or `stop` said that no one wants to know. Blocks.
///
/// # Errors
/// `Limit` while another is counted; those of the engine.
pub(crate) fn by_deleting(
    engine: &Engine,
    ids: &[BackupId],
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Option<u64>, ServiceError> {
    if ids.is_empty() {
        return Ok(Some(0));
    }
    let Some(_turn) = COUNTING.try_lock() else {
        return Err(ServiceError::at_capacity(
            "what another deletion would free is being counted; try again in a moment",
        ));
    };
    if stop() {
        return Ok(None);
    }
    let control = ReclaimControl::default();
    let (ended, changed) = (Mutex::new(false), Condvar::new());
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut ended = ended.lock();
            while !*ended {
                if stop() {
                    control.stop();
                }
                changed.wait_for(&mut ended, LOOK_EVERY);
            }
        });
        let found = engine.freed_by_deleting(ids, &control);
        *ended.lock() = true;
        changed.notify_all();
        found
    });
    match found {
        Ok(freed) => Ok(freed.is_exact.then(|| freed.total_bytes())),
        Err(EngineError::Stopped) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
