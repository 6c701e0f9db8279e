//! What was asked of the archive since the process began, for those who add up what a bucket costs: requests of the same
//! kind cost differently by storage class and speed, and what is retrieved is paid for by the byte.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::prices::Thaw;

/// What was asked to be thawed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskedThaws {
    pub objects: u64,
    pub bytes: u64,
    /// Bytes times the days for which copies of them are kept that can be read.
    pub byte_days: u128,
}

/// What was asked of the archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveAsked {
    /// By the storage class that objects lie in, and speed.
    pub thaws: BTreeMap<(String, Thaw), AskedThaws>,
    /// Objects that were given a storage class, by that.
    pub changes: BTreeMap<String, u64>,
}

impl ArchiveAsked {
    /// What was asked since `earlier`, which is of the same process.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut more = self.clone();
        for (of, asked) in &mut more.thaws {
            let before = earlier.thaws.get(of).copied().unwrap_or_default();
            asked.objects = asked.objects.saturating_sub(before.objects);
            asked.bytes = asked.bytes.saturating_sub(before.bytes);
            asked.byte_days = asked.byte_days.saturating_sub(before.byte_days);
        }
        for (class, objects) in &mut more.changes {
            *objects = objects.saturating_sub(earlier.changes.get(class).copied().unwrap_or_default());
        }
        more.thaws.retain(|_, asked| asked.objects > 0);
        more.changes.retain(|_, objects| *objects > 0);
        more
    }
}

/// Counts it. Shared by threads.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<ArchiveAsked>);

impl Asked {
    pub(crate) fn thaw(&self, class: &str, speed: Thaw, bytes: u64, days: u32) {
        let mut all = self.0.lock();
        let asked = all.thaws.entry((class.to_owned(), speed)).or_default();
        asked.objects += 1;
        asked.bytes = asked.bytes.saturating_add(bytes);
        asked.byte_days = asked.byte_days.saturating_add(u128::from(bytes) * u128::from(days));
    }

    pub(crate) fn change(&self, class: &str) {
        *self.0.lock().changes.entry(class.to_owned()).or_default() += 1;
    }

    pub(crate) fn all(&self) -> ArchiveAsked {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_since_is_the_difference() {
        let asked = Asked::default();
        asked.thaw("GLACIER", Thaw::Bulk, 100, 3);
        asked.change("GLACIER");
        let before = asked.all();
        assert_eq!(before.since(&before), ArchiveAsked::default());
        asked.thaw("GLACIER", Thaw::Bulk, 50, 2);
        asked.thaw("GLACIER", Thaw::Standard, 7, 1);
        asked.change("DEEP_ARCHIVE");
        let more = asked.all().since(&before);
        let of = |speed| more.thaws[&("GLACIER".to_owned(), speed)];
        assert_eq!(of(Thaw::Bulk), AskedThaws { objects: 1, bytes: 50, byte_days: 100 });
        assert_eq!(of(Thaw::Standard), AskedThaws { objects: 1, bytes: 7, byte_days: 7 });
        assert_eq!(more.changes, BTreeMap::from([("DEEP_ARCHIVE".to_owned(), 1)]));
    }
}
