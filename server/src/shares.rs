//! Budgets by key: how many of something there may be in all, and how many each token, or each address, may have at once.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Shares taken, by key, and the requests that wait. One that waits never could have what it waits for: it is given
/// that the moment something is given back, so a newcomer takes nothing from it.
#[derive(Debug)]
pub(crate) struct Shares<K: Hash + Eq + Copy> {
    in_all: usize,
    each: usize,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K: Hash + Eq + Copy> {
    /// Only keys that hold something.
    taken: HashMap<K, usize>,
    /// First come, first served among those that may have one more.
    waiting: VecDeque<Waiter<K>>,
}

#[derive(Debug)]
struct Waiter<K: Hash + Eq + Copy> {
    key: K,
    given: oneshot::Sender<Share<K>>,
}

impl<K: Hash + Eq + Copy> Shares<K> {
    /// Creates `in_all` shares, of which each key may have `each`.
    pub(crate) fn new(in_all: usize, each: usize) -> Arc<Self> {
        let state = State { taken: HashMap::new(), waiting: VecDeque::new() };
        Arc::new(Self { in_all, each, state: Mutex::new(state) })
    }

    /// Creates `in_all` shares, of which each key may have half.
    pub(crate) fn halves(in_all: usize) -> Arc<Self> {
        Self::new(in_all, in_all.div_ceil(2))
    }

    /// One more for `key`; `None` when it has as many as it may, or all are taken. Dropping it gives it back.
    pub(crate) fn take(self: &Arc<Self>, key: K) -> Option<Share<K>> {
        let counted = self.count(&mut self.state.lock(), key);
        counted.then(|| Share { shares: Arc::clone(self), key })
    }

    /// Waits for one more for `key`.
    pub(crate) async fn wait(self: &Arc<Self>, key: K) -> Share<K> {
        loop {
            let given = {
                let mut state = self.state.lock();
                if self.count(&mut state, key) {
                    return Share { shares: Arc::clone(self), key };
                }
                let (given, is_given) = oneshot::channel();
                state.waiting.retain(|waiter| !waiter.given.is_closed());
                state.waiting.push_back(Waiter { key, given });
                is_given
            };
            // Cannot fail: only one that waits no more leaves the queue with nothing.
            if let Ok(share) = given.await {
                return share;
            }
        }
    }

    /// Counts one more for `key`, if there may be.
    fn count(&self, state: &mut State<K>, key: K) -> bool {
        let may = self.may(state, key);
        if may {
            *state.taken.entry(key).or_default() += 1;
        }
        may
    }

    fn may(&self, state: &State<K>, key: K) -> bool {
        let of_key = state.taken.get(&key).copied().unwrap_or_default();
        of_key < self.each && state.taken.values().sum::<usize>() < self.in_all
    }

    /// Gives back one of `key`. Returns the first waiter of those that may have one more now, and counts it.
    fn next(&self, key: K) -> Option<Waiter<K>> {
        let mut state = self.state.lock();
        if let Some(count) = state.taken.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                state.taken.remove(&key);
            }
        }
        state.waiting.retain(|waiter| !waiter.given.is_closed());
        let place = state.waiting.iter().position(|waiter| self.may(&state, waiter.key))?;
        let waiter = state.waiting.remove(place)?;
        self.count(&mut state, waiter.key);
        Some(waiter)
    }
}

/// One of a key's share.
#[derive(Debug)]
pub(crate) struct Share<K: Hash + Eq + Copy> {
    shares: Arc<Shares<K>>,
    key: K,
}

impl<K: Hash + Eq + Copy> Drop for Share<K> {
    fn drop(&mut self) {
        if let Some(Waiter { key, given }) = self.shares.next(self.key) {
            // Back again, and so to the next, from one that waits no more.
            drop(given.send(Self { shares: Arc::clone(&self.shares), key }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_does_not_take_from_another() {
        let shares = Shares::new(3, 2);
        let held = [shares.take(1).unwrap(), shares.take(1).unwrap()];
        assert!(shares.take(1).is_none());
        let other = shares.take(2).unwrap();
        assert!(shares.take(3).is_none(), "all are taken");
        drop(held);
        assert!(shares.take(1).is_some());
        drop(other);
        assert!(shares.state.lock().taken.is_empty(), "nothing is remembered of those that hold nothing");
    }

    #[tokio::test]
    async fn one_that_waits_gets_what_is_given_back() {
        let shares = Shares::halves(3);
        let held = [shares.wait(1).await, shares.wait(1).await];
        let mut waits = std::pin::pin!(shares.wait(1));
        let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(waits.as_mut().poll(cx).is_pending()));
        assert!(poll.await);
        let other = shares.wait(2).await;
        drop(held);
        let third = waits.await;
        drop((other, third));
        assert!(shares.state.lock().taken.is_empty());
    }
    async fn waits(wait: &mut std::pin::Pin<Box<impl Future<Output = Share<u8>>>>) -> bool {
        std::future::poll_fn(|cx| std::task::Poll::Ready(wait.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn those_that_wait_are_served_in_the_order_they_came() {
        let shares = Shares::new(2, 2);
        let mut held = vec![shares.take(1).unwrap(), shares.take(1).unwrap()];
        let mut first = Box::pin(shares.wait(2));
        let mut given_up = Box::pin(shares.wait(3));
        let mut second = Box::pin(shares.wait(4));
        assert!(waits(&mut first).await && waits(&mut given_up).await && waits(&mut second).await);
        drop(given_up);
        drop(held.pop());
        assert!(shares.take(5).is_none(), "it is another's already");
        let mut newcomer = Box::pin(shares.wait(5));
        assert!(waits(&mut newcomer).await && waits(&mut second).await);
        let first = first.await;
        drop(held.pop());
        assert!(shares.take(5).is_none(), "it is another's already");
        assert!(waits(&mut newcomer).await);
        drop(first);
        drop(newcomer);
        let back = shares.take(6).expect("what one got that waits no more is given back");
        drop((second.await, back));
        let state = shares.state.lock();
        assert!(state.taken.is_empty() && state.waiting.is_empty(), "{state:?}");
    }

    #[tokio::test]
    async fn a_key_that_has_its_share_does_not_hold_up_those_behind() {
        let shares = Shares::new(3, 2);
        let (one, other) = (shares.take(1).unwrap(), shares.take(1).unwrap());
        let third = shares.take(2).unwrap();
        let mut greedy = Box::pin(shares.wait(1));
        let mut modest = Box::pin(shares.wait(3));
        assert!(waits(&mut greedy).await && waits(&mut modest).await);
        drop(third);
        let modest = modest.await;
        assert!(waits(&mut greedy).await);
        drop(one);
        let greedy = greedy.await;
        drop((other, modest, greedy));
        assert!(shares.state.lock().taken.is_empty());
    }
}
