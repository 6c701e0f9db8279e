//! Whose work comes next, when several tenants wait for the same threads: round robin by namespace, within a namespace
//! by token, within a token in order of arrival. So a tenant with one piece of work waits for at most one of every
//! other namespace (and of every other token of its own), however many they have queued.
//!
//! Work is never held back while a thread is free: a tenant that is alone has all of them.

mod queue;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rayon::ThreadPool;

pub use queue::{FairQueue, Tenant};



type Work = Box<dyn FnOnce() + Send>;

/// As many times as work is handed in, a thread of the pool takes the work whose turn it is then: the threads' own
/// queue only counts, so its order does not matter.
pub(crate) struct FairPool {
    threads: ThreadPool,
    queue: Arc<Mutex<FairQueue<Work>>>,
}

impl fmt::Debug for FairPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "FairPool({} threads, {} waiting)",
            self.threads.current_num_threads(),
            self.queue.lock().len()
        )
    }
}

impl FairPool {
    /// Over these threads, which must do nothing else.
    pub(crate) fn new(threads: ThreadPool) -> Self {
        Self { threads, queue: Arc::default() }
    }

    /// Runs `work`, which must not panic, when it is the tenant's turn.
    pub(crate) fn spawn(&self, tenant: Tenant, work: impl FnOnce() + Send + 'static) {
        self.queue.lock().push(tenant, Box::new(work));
        let queue = Arc::clone(&self.queue);
        self.threads.spawn(move || {
            let work = queue.lock().pop();
            if let Some(work) = work {
                work();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{bounded, unbounded};
    use holdfast_types::ids::{NamespaceId, TokenId};

    use super::*;

    fn tenant(number: u8) -> Tenant {
        Tenant { namespace: NamespaceId::from_bytes([number; 16]), token: TokenId::from_bytes([number; 16]) }
    }

    #[test]
    fn a_flood_of_one_tenant_does_not_delay_another() {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let pool = FairPool::new(threads);
        let (hold, held) = bounded::<()>(0);
        let (done, order) = unbounded();
        // The only thread is busy while the others queue up.
        pool.spawn(tenant(1), move || held.recv().unwrap());
        for number in 0..100 {
            let done = done.clone();
            pool.spawn(tenant(1), move || done.send((1, number)).unwrap());
        }
        pool.spawn(tenant(2), move || done.send((2, 0)).unwrap());
        hold.send(()).unwrap();
        let order: Vec<(u8, i32)> = order.iter().collect();
        assert_eq!(order.len(), 101);
        let place = order.iter().position(|(of, _)| *of == 2).unwrap();
        assert!(place <= 1, "served after {place} pieces of work of the other");
    }
}
