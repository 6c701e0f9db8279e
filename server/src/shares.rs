//! Budgets by key: how many of something there may be in all, and how many each token, or each address, may have at once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What is taken, by key; only keys that hold something are remembered.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    in_all: usize,
    each: usize,
    taken: Mutex<HashMap<K, usize>>,
    given_back: Notify,
}

impl<K: Hash + Eq + Copy> Shares<K> {
    /// There may be `in_all`, of which each key may have `each`.
    pub(crate) fn new(in_all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { in_all, each, taken: Mutex::default(), given_back: Notify::new() })
    }

    /// There may be `in_all`, of which each key may have half.
    pub(crate) fn halves(in_all: usize) -> Arc<Self> {
        Self::new(in_all, in_all.div_ceil(2))
    }

    /// One more for `key`; `None` when it has as many as it may, or all are taken. Dropping it gives it back.
    pub(crate) fn take(self: &Arc<Self>, key: K) -> Option<Share<K>> {
        let mut taken = self.taken.lock();
        if taken.values().sum::<usize>() >= self.in_all {
            return None;
        }
        let count = taken.entry(key).or_default();
        if *count >= self.each {
            return None;
        }
        *count += 1;
        Some(Share { shares: Arc::clone(self), key })
    }

    /// Waits for one more for `key`.
    pub(crate) async fn wait(self: &Arc<Self>, key: K) -> Share<K> {
        loop {
            let mut given_back = std::pin::pin!(self.given_back.notified());
            given_back.as_mut().enable();
            if let Some(share) = self.take(key) {
                return share;
            }
            given_back.await;
        }
    }
}

/// One of a key's share.
#[derive(Debug)]
pub(crate) struct Share<K: Hash + Eq> {
    shares: Arc<Shares<K>>,
    key: K,
}

impl<K: Hash + Eq> Drop for Share<K> {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        if let Some(count) = taken.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
        drop(taken);
        self.shares.given_back.notify_waiters();
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
        assert!(shares.taken.lock().is_empty(), "nothing is remembered of those that hold nothing");
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
        assert!(shares.taken.lock().is_empty());
    }
}
