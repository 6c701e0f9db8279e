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

/// Knowledge of the names of blobs that the layers around this volume have.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// Returns true if the blob may leave this machine.
    pub may_travel: fn(&BlobName) -> bool,
    /// Returns every name that the same blob may lie under, this one among them: encrypted, encrypted anew, and not.
    pub forms: fn(&BlobName) -> Vec<BlobName>,
    /// Returns the restore point and the revision of it that a point is.
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
    /// The storage class of what is to be cold; none: nothing is.
    pub(crate) archive_class: OnceLock<String>,
    pub(crate) asked: Asked,
    pub(crate) asking: Asking,
    /// How what locked restore points need is made to stay; none: it is not.
    pub(crate) retention: OnceLock<LockMode>,
    /// Cache of thawed copies; none: no copies are kept.
    pub(crate) thawed: OnceLock<ThawCache>,
}

impl Shared {
    /// Returns true if a thawed copy of the blob is kept here, long enough for a restore that is yet to begin.
    pub(crate) fn is_kept(&self, name: &BlobName) -> bool {
        // Most are not, and the record need not be asked of them.
        self.thawed.get().filter(|thawed| thawed.may_have(name)).is_some_and(|thawed| {
            let len = self.record.visible(name).ok().flatten();
            len.is_some_and(|len| thawed.has_for_long(name, len))
        })
    }

    /// (T16) A thawed copy that is kept here goes, if there is one.
    pub(crate) fn forget_kept(&self, name: &BlobName) -> Result<(), VolumeError> {
        self.thawed.get().map_or(Ok(()), |thawed| thawed.forget(name))
    }

    /// Kind of `name`, if it is to be copied. A blob that is not may still lie there, from a time when it was.
    pub(crate) fn travels(&self, name: &BlobName) -> Option<Kind> {
        Kind::of(name).filter(|_| (self.names.may_travel)(name))
    }
}

/// Objects that the bucket is being asked to thaw at this moment: two restores that need the same object ask for it once.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    names: Mutex<HashSet<BlobName>>,
    ended: Condvar,
}

impl Asking {
    /// Waits until no one else asks for `name`; others wait until what is returned is dropped.
    pub(crate) fn begin(&self, name: &BlobName) -> Asks<'_> {
        let mut names = self.names.lock();
        while !names.insert(name.clone()) {
            self.ended.wait(&mut names);
        }
        Asks { asking: self, name: name.clone() }
    }
}

/// One that is asked for.
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

/// Totals of requests to thaw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskedThaws {
    pub objects: u64,
    pub bytes: u64,
    /// Bytes times the days for which copies of them are kept that can be read.
    pub byte_days: u128,
}

/// Requests to the archive since the process began, for those who add up what a bucket costs: requests of the same kind
/// cost differently by storage class and speed, and what is retrieved is paid for by the byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveAsked {
    /// By the storage class that objects lie in, and speed.
    pub thaws: BTreeMap<(String, Thaw), AskedThaws>,
    /// Objects that were given a storage class, by that.
    pub changes: BTreeMap<String, u64>,
}

impl ArchiveAsked {
    /// Requests since `earlier`, which is of the same process.
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

/// The bucket, as each use of it sees it.
#[derive(Debug, Clone)]
pub struct Remote {
    /// Operations of the bucket beyond those of a volume.
    pub store: Arc<dyn RemoteVolume>,
    /// For readers: with retries and a cache around it.
    pub reads: Arc<dyn Volume>,
    /// For copies: as slow as copying may be. Without retries: a copy is tried again as a whole.
    pub writes: Arc<dyn Volume>,
}

impl Remote {
    /// Without decorators.
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
