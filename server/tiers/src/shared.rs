//! State that the volume, the copies, the lease and moving share.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};

use holdfast_types::clock::Clock;
use holdfast_types::ids::BackupId;
use holdfast_volume::{BlobName, LockMode, RemoteVolume, Volume, VolumeError};
use parking_lot::{Condvar, Mutex};

use crate::cold::Cold;
use crate::prices::Thaw;
use crate::record::Record;
use crate::thawed::ThawCache;
use crate::waiting::{Kind, Waiting};

/// Functions of the layers around this volume that interpret names of blobs.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// Returns true if the blob may leave this machine.
    pub may_travel: fn(&BlobName) -> bool,
    /// Returns every name that the same blob may have, this one included: encrypted, re-encrypted, and plain.
    pub forms: fn(&BlobName) -> Vec<BlobName>,
    /// Returns the restore point and revision that a point belongs to.
    pub revision: fn(&BlobName) -> Option<(BackupId, u32)>,
}

/// State that the volume and the copies share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) local: Arc<dyn Volume>,
    pub(crate) remote: Remote,
    pub(crate) record: Arc<Record>,
    pub(crate) waiting: Waiting,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) names: Names,
    pub(crate) cold: Cold,
    /// Archive storage class for cold containers; unset: nothing is archived.
    pub(crate) archive_class: OnceLock<String>,
    pub(crate) asked: Asked,
    pub(crate) asking: Asking,
    /// Retention mode for objects that locked restore points need; unset: retention is disabled.
    pub(crate) retention: OnceLock<LockMode>,
    /// Cache of thawed copies; unset: no copies are kept.
    pub(crate) thawed: OnceLock<ThawCache>,
}

impl Shared {
    /// Returns true if a thawed copy of the blob is kept here, for long enough for a restore that is about to begin.
    pub(crate) fn is_kept(&self, name: &BlobName) -> bool {
        // Most are not, so the record is not queried for them.
        self.thawed.get().filter(|thawed| thawed.may_have(name)).is_some_and(|thawed| {
            let len = self.record.visible(name).ok().flatten();
            len.is_some_and(|len| thawed.has_for_long(name, len))
        })
    }

    /// (T16) Removes the thawed copy that is kept here, if there is one.
    pub(crate) fn forget_kept(&self, name: &BlobName) -> Result<(), VolumeError> {
        self.thawed.get().map_or(Ok(()), |thawed| thawed.forget(name))
    }

    /// Kind of `name`, if it is to be copied. Other blobs may still be in the bucket, from when they were allowed.
    pub(crate) fn travels(&self, name: &BlobName) -> Option<Kind> {
        Kind::of(name).filter(|_| (self.names.may_travel)(name))
    }
}

/// Objects whose thaw is being requested at this moment: two restores of the same object send one request.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    names: Mutex<HashSet<BlobName>>,
    ended: Condvar,
}

impl Asking {
    /// Waits until no other thread is requesting `name`, and blocks others until the guard is dropped.
    pub(crate) fn begin(&self, name: &BlobName) -> Asks<'_> {
        let mut names = self.names.lock();
        while !names.insert(name.clone()) {
            self.ended.wait(&mut names);
        }
        Asks { asking: self, name: name.clone() }
    }
}

/// Guard of one object whose thaw is being requested.
#[derive(Debug)]
pub(crate) struct Asks<'a> {
    asking: &'a Asking,
    name: BlobName,
}

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        self.asking.names.lock().remove(&self.name);
        self.asking.ended.notify_all();
    }
}

/// Totals of thaw requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskedThaws {
    pub objects: u64,
    pub bytes: u64,
    /// Bytes times the days for which thawed copies can be read.
    pub byte_days: u128,
}

/// Requests to the archive since the process began, for cost estimates: their prices depend on storage class and
/// speed, and retrieval is billed by the byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveAsked {
    /// Thaws, by the storage class of the objects and the speed.
    pub thaws: BTreeMap<(String, Thaw), AskedThaws>,
    /// Changes of storage class, by the new class.
    pub changes: BTreeMap<String, u64>,
}

impl ArchiveAsked {
    /// Requests since `earlier`, which must be from the same process.
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

/// Counters of requests. Shared by threads.
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

/// The bucket, as each of its users sees it.
#[derive(Debug, Clone)]
pub struct Remote {
    /// Operations of the bucket beyond those of a volume.
    pub store: Arc<dyn RemoteVolume>,
    /// For readers: with retries and a cache.
    pub reads: Arc<dyn Volume>,
    /// For copies: throttled as copying is. Without retries: a copy is retried as a whole.
    pub writes: Arc<dyn Volume>,
}

impl Remote {
    /// The bucket without decorators.
    pub fn plain<V: RemoteVolume + 'static>(store: &Arc<V>) -> Self {
        let volume = || Arc::<V>::clone(store) as Arc<dyn Volume>;
        Self { store: Arc::<V>::clone(store) as Arc<dyn RemoteVolume>, reads: volume(), writes: volume() }
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
