//! Work handed to a thread pool, and the wait for its answer.
//!
//! A panic fails that piece of work alone: in a pool without a handler it would end the process, and every
//! other backup and restore with it.
//!
//! A clean stop: everything durable and agreed on, then the mark that says so ([`crate::clean_stop`]).
//!
//! A crash before the mark leaves what any crash leaves.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::{Receiver, TryRecvError, bounded};
use holdfast_volume::Volume;

use crate::audit::Audit;
use crate::clean_stop::CleanStop;
use crate::core::Core;
use crate::error::EngineError;
use crate::fair::{FairPool, Tenant};
use crate::health::Work;

/// Work under way. Dropping it forgets the answer; the work itself goes on.
#[derive(Debug)]
pub(crate) struct Task<T> {
    what: &'static str,
    answer: Receiver<T>,
}

/// Runs `work` in the pool when it is the tenant's turn; `what` names it in errors, as in "sealing a container".
pub(crate) fn spawn<T: Send + 'static>(
    pool: &FairPool,
    tenant: Tenant,
    what: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Task<T> {
    let (sender, answer) = bounded(1);
    pool.spawn(tenant, move || {
        // What the work had borrowed for writing is dropped with it; an unfinished blob discards itself.
        match catch_unwind(AssertUnwindSafe(work)) {
            // No one receives when the session or restore ended meanwhile.
            Ok(outcome) => drop(sender.send(outcome)),
            Err(_) => tracing::error!(what, "a worker thread panicked; only this piece of work fails"),
        }
    });
    Task { what, answer }
}

impl<T> Task<T> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// [`EngineError::Internal`] when the work panicked.
    pub(crate) fn wait(&self) -> Result<T, EngineError> {
        self.answer.recv().map_err(|_| self.panicked())
    }

    /// The answer when it is ready; an error as from [`Task::wait`].
    pub(crate) fn try_take(&self) -> Option<Result<T, EngineError>> {
        match self.answer.try_recv() {
            Ok(outcome) => Some(Ok(outcome)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(self.panicked())),
        }
    }

    fn panicked(&self) -> EngineError {
        EngineError::Internal(format!("{} failed unexpectedly; the server's log says where", self.what))
    }
}

/// Makes the index and the catalog durable and writes the mark. The sessions have ended. `snapshot`: the number of the one
/// that holds the catalog as it is, or will.
pub(crate) fn stop(core: &Core, audit: &Audit, index: &dyn Volume, snapshot: u64) -> Result<(), EngineError> {
    // From here on no container appears: what was sealed is known.
    core.volume.close();
    audit.close();
    let sound = core.health.stopped().is_empty();
    if sound {
        core.store.index.checkpoint()?;
    }
    core.store.index.stop_maintenance();
    if core.health.reason(Work::Catalog).is_none() {
        core.catalog.checkpoint()?;
    }
    if sound && let Some(mark) = mark(core, audit, snapshot)? {
        mark.write(index)?;
    }
    Ok(())
}

/// The mark of the state as it is; `None` when there is something the next start has to look for.
fn mark(core: &Core, audit: &Audit, snapshot: u64) -> Result<Option<CleanStop>, EngineError> {
    if let Some(reason) = core.unrecorded.reason() {
        // (S8) Only a start without the mark looks for it.
        tracing::warn!(reason, "the next start looks for what the catalog has not taken");
        return Ok(None);
    }
    if !core.unrecorded.is_all_read() {
        // (P6, S12) Only a start without the mark looks for it.
        tracing::warn!("not everything on the volume could be read; the next start tries again");
        return Ok(None);
    }
    if core.has_left_point() {
        // (P3) Only a start without the mark compares points with rows.
        tracing::warn!(
            "there may be restore points that the catalog does not know; the next start enters them"
        );
        return Ok(None);
    }
    if audit.met_unread() {
        tracing::warn!("a container could not be read and has no row; the next start looks for it");
        return Ok(None);
    }
    if core.store.met_passed_by() {
        // (K7) With the mark it would not be met again: the index may lack what is in it.
        tracing::warn!("a container was skipped, because it could not be read; the next start looks for it");
        return Ok(None);
    }
    let mut audit_from = audit.from();
    // (D2) What was deleted since is neither in the index nor has a row.
    for id in core.volume.sealed().into_iter().filter(|id| !core.store.leftovers.is_gone(*id)) {
        if !core.store.index.is_covered(id) {
            tracing::warn!(container = %id, "sealed, but not in the index; the next start looks for it");
            return Ok(None);
        }
        if core.catalog.container(id)?.is_none() {
            audit_from = audit_from.min(id.get());
        }
    }
    let manifest = core.store.index.manifest_sequence();
    // Takes a number, so that no other state of the catalog has the same next one.
    let next_container = core.catalog.reserve_container_numbers(1)?.end;
    Ok(Some(CleanStop { repository: core.repository, next_container, manifest, audit_from, snapshot }))
}

#[cfg(test)]
mod tests {
    use holdfast_types::ids::{NamespaceId, TokenId};

    use super::*;

    #[test]
    fn a_panic_fails_that_work_and_nothing_else() {
        let pool = FairPool::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
        let tenant =
            Tenant { namespace: NamespaceId::from_bytes([1; 16]), token: TokenId::from_bytes([1; 16]) };
        let error = spawn::<()>(&pool, tenant, "counting", || panic!("on purpose")).wait().unwrap_err();
        assert!(error.to_string().contains("counting failed unexpectedly"), "{error}");
        let after = spawn(&pool, tenant, "counting", || 7);
        assert_eq!(after.wait().unwrap(), 7, "the pool's only thread works on");
    }
}
