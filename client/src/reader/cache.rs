//! Values kept in memory up to a bound; those not used lately go first.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

/// A cache with a bound in bytes. Values go by the rule *second chance*: the oldest goes, unless it was used since it was looked
/// at before. A use takes a read lock and sets a flag.
#[derive(Debug)]
pub(super) struct Cache<K, V: ?Sized> {
    bytes_max: usize,
    kept: RwLock<Kept<K, V>>,
}

#[derive(Debug)]
struct Kept<K, V: ?Sized> {
    values: HashMap<K, Slot<V>>,
    /// Every key once, the oldest first.
    order: VecDeque<K>,
    bytes: usize,
}

#[derive(Debug)]
struct Slot<V: ?Sized> {
    value: Arc<V>,
    bytes: usize,
    used: AtomicBool,
}

impl<K: Clone + Eq + Hash, V: ?Sized> Cache<K, V> {
    /// An empty cache for `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        let kept = Kept { values: HashMap::new(), order: VecDeque::new(), bytes: 0 };
        Self { bytes_max, kept: RwLock::new(kept) }
    }

    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
    {
        let kept = self.kept.read();
        let slot = kept.values.get(key)?;
        slot.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(&slot.value))
    }

    /// Keeps `value`, which takes `bytes` of memory. A key that is there already stays as it is.
    pub(super) fn insert(&self, key: K, value: Arc<V>, bytes: usize) {
        let mut kept = self.kept.write();
        if bytes > self.bytes_max || kept.values.contains_key(&key) {
            return;
        }
        kept.bytes += bytes;
        kept.order.push_back(key.clone());
        kept.values.insert(key, Slot { value, bytes, used: AtomicBool::new(false) });
        while kept.bytes > self.bytes_max
            && let Some(oldest) = kept.order.pop_front()
        {
            if kept.values.get(&oldest).is_some_and(|slot| slot.used.swap(false, Ordering::Relaxed)) {
                kept.order.push_back(oldest);
            } else if let Some(slot) = kept.values.remove(&oldest) {
                kept.bytes -= slot.bytes;
            }
        }
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        let kept = self.kept.read();
        assert_eq!(kept.values.len(), kept.order.len());
        assert_eq!(kept.values.values().map(|slot| slot.bytes).sum::<usize>(), kept.bytes);
        kept.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_bound_is_kept() {
        let cache: Cache<u32, str> = Cache::new(100);
        cache.insert(0, "used".into(), 10);
        for key in 1..1000 {
            cache.insert(key, "once".into(), 10 + key as usize % 3);
            assert!(cache.bytes() <= 100);
            assert_eq!(cache.get(&0).as_deref(), Some("used"));
        }
        assert!(cache.get(&1).is_none() && cache.get(&999).is_some());
        cache.insert(0, "another".into(), 10);
        assert_eq!(cache.get(&0).as_deref(), Some("used"), "names of content do not change their meaning");
        cache.insert(5000, "too large".into(), 101);
        assert!(cache.get(&5000).is_none() && cache.get(&0).is_some());
    }
}
