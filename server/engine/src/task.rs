//! Work handed to a thread pool, and the wait for its answer.
//!
//! A panic fails that piece of work alone: in a pool without a handler it would end the process, and every
//! other backup and restore with it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::EngineError;
use crate::fair::{FairPool, Tenant};
use crossbeam_channel::{Receiver, TryRecvError, bounded};

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
        // Resources that the work borrowed for writing are dropped with it; an unfinished blob discards itself.
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
