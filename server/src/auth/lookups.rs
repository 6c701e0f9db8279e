//! Threads of authentication's own (H6).
//!
//! Who calls is asked before anything else, revoked tokens included. Work of callers that were let in occupies the
//! threads it runs on for as long as it waits (for a disk, for a client that stalls, for another session's lock), so
//! that question is never asked on the same threads.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;

use holdfast_proto::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::ServiceError;

/// A look-up takes well under a millisecond; more threads than the catalog has connections for look-ups help only
/// those that record the use of a token.
pub(super) const THREADS: usize = 8;

/// Look-ups that may wait for a thread: a few hundred bytes each.
const WAITING_MAX: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// The threads. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Lookups {
    queue: SyncSender<Job>,
}

impl Lookups {
    /// Starts them.
    ///
    /// # Errors
    /// When the operating system gives no threads.
    pub(crate) fn start() -> io::Result<Self> {
        let (queue, jobs) = mpsc::sync_channel(WAITING_MAX);
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..THREADS {
            let jobs = Arc::clone(&jobs);
            thread::Builder::new().name("holdfast-auth".to_owned()).spawn(move || serve(&jobs))?;
        }
        Ok(Self { queue })
    }

    /// Runs `look_up` on one of the threads.
    ///
    /// # Errors
    /// Those of `look_up`; `Limit` when too many wait already; `Internal` when it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        look_up: impl FnOnce() -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let (answer, answered) = oneshot::channel();
        // The caller may have gone away.
        let job: Job = Box::new(move || drop(answer.send(look_up())));
        self.queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => ServiceError::at_capacity(format!(
                "{WAITING_MAX} calls wait to be authenticated; try again in a moment"
            )),
            TrySendError::Disconnected(_) => ServiceError::shutting_down(),
        })?;
        answered.await.unwrap_or_else(|_| {
            Err(ServiceError::new(
                ErrorCode::Internal,
                "the server failed with an internal error; its log says more",
            ))
        })
    }
}

fn serve(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().recv();
        let Ok(job) = job else { return };
        // The one who asked sees that no answer comes, and the log has the panic.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_answer_and_costs_no_thread() {
        let lookups = Lookups::start().unwrap();
        for _ in 0..=THREADS {
            let failed = lookups.run(|| -> Result<(), _> { panic!("on purpose") }).await;
            assert_eq!(failed.unwrap_err().code, ErrorCode::Internal);
        }
        assert_eq!(lookups.run(|| Ok(7)).await, Ok(7));
    }

    #[test]
    fn more_than_can_wait_are_refused_at_once() {
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};

        let lookups = Lookups::start().unwrap();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock();
        let (entered, inside) = mpsc::channel();
        // Asked once, it is in the queue or refused; nothing reads the answer.
        let ask = || {
            let (gate, entered) = (Arc::clone(&gate), entered.clone());
            let asked = pin!(lookups.run(move || {
                let _ = entered.send(());
                drop(gate.lock());
                Ok(())
            }));
            match asked.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(refused) => refused.map_err(|error| error.code),
                Poll::Pending => Ok(()),
            }
        };
        for _ in 0..THREADS {
            assert_eq!(ask(), Ok(()));
            inside.recv().unwrap();
        }
        for _ in 0..WAITING_MAX {
            assert_eq!(ask(), Ok(()));
        }
        assert_eq!(ask(), Err(ErrorCode::Limit));
        drop(closed);
    }
}
