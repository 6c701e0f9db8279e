//! Remembers for a while what was seen, so that the thousand calls of one restore make one audit entry.

use std::collections::HashMap;

use parking_lot::Mutex;

/// How long something counts as seen.
const REMEMBERED_MS: i64 = 10 * 60_000;

/// Most entries (each under 500 bytes). With more at once, some are noted twice.
const ENTRIES_MAX: usize = 1024;

/// A bounded memory of keys.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<HashMap<String, i64>>);

impl Recent {
    /// Whether `key` was not seen lately. From now on it was.
    pub(crate) fn is_new(&self, key: String, now_ms: i64) -> bool {
        let mut seen = self.0.lock();
        if seen.len() >= ENTRIES_MAX {
            seen.retain(|_, at_ms| now_ms.saturating_sub(*at_ms) < REMEMBERED_MS);
        }
        if seen.len() >= ENTRIES_MAX {
            seen.clear();
        }
        let before = seen.insert(key, now_ms);
        before.is_none_or(|at_ms| now_ms.saturating_sub(at_ms) >= REMEMBERED_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seen_things_are_new_again_after_a_pause() {
        let recent = Recent::default();
        assert!(recent.is_new("a".into(), 0));
        assert!(!recent.is_new("a".into(), 1));
        assert!(recent.is_new("b".into(), 1));
        assert!(!recent.is_new("a".into(), REMEMBERED_MS), "seen at 1");
        assert!(recent.is_new("a".into(), 3 * REMEMBERED_MS));
    }

    #[test]
    fn memory_is_bounded() {
        let recent = Recent::default();
        for number in 0..3 * ENTRIES_MAX {
            assert!(recent.is_new(number.to_string(), 0));
        }
        assert!(recent.0.lock().len() <= ENTRIES_MAX);
    }
}
