//! Budgets by key: how many of something each token, or each address, may have at once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// What is taken, by key; only keys that hold something are remembered.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    max: usize,
    taken: Mutex<HashMap<K, usize>>,
}

impl<K: Hash + Eq + Copy> Shares<K> {
    /// Each key may have `max`.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// One more for `key`; `None` when it has as many as it may. Dropping it gives it back.
    pub(crate) fn take(self: &Arc<Self>, key: K) -> Option<Share<K>> {
        let mut taken = self.taken.lock();
        let count = taken.entry(key).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Share { shares: Arc::clone(self), key })
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_does_not_take_from_another() {
        let shares = Shares::new(2);
        let held = [shares.take(1).unwrap(), shares.take(1).unwrap()];
        assert!(shares.take(1).is_none());
        let other = shares.take(2).unwrap();
        drop(held);
        assert!(shares.take(1).is_some());
        drop(other);
        assert!(shares.taken.lock().is_empty(), "nothing is remembered of those that hold nothing");
    }
}
