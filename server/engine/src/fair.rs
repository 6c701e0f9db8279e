//! Fair order of work, when several tenants wait for the same threads: round robin by namespace, within a namespace by
//! token, within a token in order of arrival. So a tenant with one piece of work waits for at most one of every other
//! namespace (and of every other token of its own), however many they have queued.
//!
//! Work is never held back while a thread is free: a tenant that is alone has all of them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use holdfast_types::ids::{NamespaceId, TokenId};
use parking_lot::Mutex;
use rayon::ThreadPool;

type Work = Box<dyn FnOnce() + Send>;

/// For each piece of work handed in, a thread of the pool takes the piece whose turn it is then: the threads' own
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

/// On whose behalf work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant {
    pub namespace: NamespaceId,
    pub token: TokenId,
}

/// A queue with turns for tenants. Every operation takes constant time.
#[derive(Debug)]
struct FairQueue<T> {
    /// Namespaces with work, the next one first; each once.
    turns: VecDeque<NamespaceId>,
    namespaces: HashMap<NamespaceId, OfNamespace<T>>,
    len: usize,
}

#[derive(Debug)]
struct OfNamespace<T> {
    /// Tokens with work, the next one first; each once.
    turns: VecDeque<TokenId>,
    tokens: HashMap<TokenId, VecDeque<T>>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), namespaces: HashMap::new(), len: 0 }
    }
}

impl<T> Default for OfNamespace<T> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), tokens: HashMap::new() }
    }
}

impl<T> FairQueue<T> {
    /// Adds work; a tenant that had none waits for its turn behind those that have.
    fn push(&mut self, tenant: Tenant, work: T) {
        let Tenant { namespace, token } = tenant;
        let of_namespace = self.namespaces.entry(namespace).or_insert_with(|| {
            self.turns.push_back(namespace);
            OfNamespace::default()
        });
        let OfNamespace { turns, tokens } = of_namespace;
        let waiting = tokens.entry(token).or_insert_with(|| {
            turns.push_back(token);
            VecDeque::new()
        });
        waiting.push_back(work);
        self.len += 1;
    }

    /// Takes the work whose turn it is.
    fn pop(&mut self) -> Option<T> {
        let namespace = self.turns.pop_front()?;
        let of_namespace = self.namespaces.get_mut(&namespace)?;
        let work = of_namespace.pop();
        if of_namespace.turns.is_empty() {
            self.namespaces.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        self.len = self.len.saturating_sub(usize::from(work.is_some()));
        work
    }

    /// Number of tasks that wait.
    const fn len(&self) -> usize {
        self.len
    }
}

impl<T> OfNamespace<T> {
    fn pop(&mut self) -> Option<T> {
        let token = self.turns.pop_front()?;
        let waiting = self.tokens.get_mut(&token)?;
        let work = waiting.pop_front();
        if waiting.is_empty() {
            self.tokens.remove(&token);
        } else {
            self.turns.push_back(token);
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crossbeam_channel::{bounded, unbounded};
    use holdfast_types::ids::{NamespaceId, TokenId};
    use proptest::prelude::*;

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

    fn tenant_of(namespace: u8, token: u8) -> Tenant {
        Tenant {
            namespace: NamespaceId::from_bytes([namespace; 16]),
            token: TokenId::from_bytes([token; 16]),
        }
    }

    fn all(queue: &mut FairQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn namespaces_take_turns_then_tokens_then_arrival() {
        let mut queue = FairQueue::default();
        for work in ["a1", "a2", "a3", "a4"] {
            queue.push(tenant_of(1, 1), work);
        }
        queue.push(tenant_of(1, 2), "b1");
        queue.push(tenant_of(1, 2), "b2");
        queue.push(tenant_of(2, 3), "c1");
        assert_eq!(queue.len(), 7);
        assert_eq!(all(&mut queue), ["a1", "c1", "b1", "a2", "b2", "a3", "a4"]);
        assert!(queue.len() == 0 && queue.turns.is_empty() && queue.namespaces.is_empty(), "{queue:?}");
    }

    #[test]
    fn one_request_waits_for_one_of_each_other_namespace() {
        let mut queue = FairQueue::default();
        for _ in 0..1000 {
            queue.push(tenant_of(1, 1), "flood");
            queue.push(tenant_of(2, 2), "flood");
        }
        queue.push(tenant_of(3, 3), "single");
        let order = all(&mut queue);
        assert_eq!(order.iter().position(|work| *work == "single"), Some(2));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(u8, u8),
        Pop,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![3 => (0u8..4, 0u8..3).prop_map(|(n, t)| Step::Push(n, t)), 2 => Just(Step::Pop)]
    }

    /// Checks every answer against a list of all that waits.
    fn check_pop(waiting: &mut Vec<(Tenant, usize)>, served: &mut HashMap<usize, Vec<Tenant>>, got: usize) {
        let place = waiting.iter().position(|(_, work)| *work == got).expect("only what was pushed");
        let (tenant, _) = waiting.remove(place);
        assert!(waiting.iter().all(|(of, work)| *of != tenant || *work > got), "out of order");
        let before = served.remove(&got).unwrap_or_default();
        let first_of_its_own = waiting.iter().filter(|(of, work)| *of == tenant && *work < got).count() == 0;
        assert!(first_of_its_own);
        for (_, work) in waiting.iter() {
            served.entry(*work).or_default().push(tenant);
        }
        // While it was the only work of its namespace, no namespace was served twice.
        let others: Vec<NamespaceId> =
            before.iter().map(|of| of.namespace).filter(|of| *of != tenant.namespace).collect();
        let own = before.len() - others.len();
        let rounds = own + 1;
        let distinct: HashSet<NamespaceId> = others.iter().copied().collect();
        assert!(others.len() <= distinct.len() * rounds, "{others:?} before work of {tenant:?}");
    }

    proptest! {
        /// Work is served once, in the order of its token, and waits for at most one of each other namespace for each
        /// turn of its own.
        #[test]
        fn turns_are_as_in_the_model(steps in prop::collection::vec(step(), 1..200)) {
            let mut queue = FairQueue::default();
            let mut waiting: Vec<(Tenant, usize)> = Vec::new();
            let mut served: HashMap<usize, Vec<Tenant>> = HashMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(namespace, token) => {
                        queue.push(tenant_of(namespace, token), number);
                        waiting.push((tenant_of(namespace, token), number));
                    }
                    Step::Pop => match queue.pop() {
                        Some(got) => check_pop(&mut waiting, &mut served, got),
                        None => prop_assert!(waiting.is_empty()),
                    },
                }
                prop_assert_eq!(queue.len(), waiting.len());
            }
            while let Some(got) = queue.pop() {
                check_pop(&mut waiting, &mut served, got);
            }
            prop_assert!(waiting.is_empty());
        }
    }
}
