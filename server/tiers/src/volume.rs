//! The volume: local blobs, and blobs that only the bucket has.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use holdfast_types::clock::Clock;
use holdfast_volume::{
    Blob, BlobEntry, BlobName, BlobWriter, Ends, ListPage, Owner, RemotePage, RemoteStat, RemoteVolume,
    Space, Tagged, Volume, VolumeError,
};

use crate::cold::Cold;
use crate::evict::{FarBlob, evict, forget_ends};
use crate::freeze::freeze;
use crate::lease::Lease;
use crate::record::{Record, RecordError};
use crate::shared::{Asked, Asking, Names, Remote, Shared};
use crate::waiting::{Kind, Waiting};

/// A local volume with copies in a bucket (see the crate documentation).
#[derive(Debug)]
pub struct TieredVolume {
    pub(crate) shared: Arc<Shared>,
    /// Unset until the copier is created.
    pub(crate) lease: Arc<OnceLock<Lease>>,
}

impl TieredVolume {
    /// Creates a volume with copies of `local` in `remote`; `record` must be of the same bucket.
    pub fn new(
        local: Arc<dyn Volume>,
        remote: Remote,
        record: Arc<Record>,
        names: Names,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let waiting = Waiting::default();
        let (cold, archive_class, asked) = (Cold::new(&record, &clock), OnceLock::new(), Asked::default());
        // Archived objects are never requested by accident.
        let remote = Remote { reads: cold.gate(remote.reads), ..remote };
        let (asking, retention, thawed) = (Asking::default(), OnceLock::new(), OnceLock::new());
        let shared = Shared {
            local,
            remote,
            record,
            waiting,
            clock,
            names,
            cold,
            archive_class,
            asked,
            asking,
            retention,
            thawed,
        };
        Self { shared: Arc::new(shared), lease: Arc::default() }
    }
}

impl Volume for TieredVolume {
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        let inner = self.shared.local.create_for(name, owner)?;
        if Kind::of(name).is_none() {
            return Ok(inner);
        }
        if self.shared.record.visible(name).map_err(|error| error.of_blob("create", name))?.is_some() {
            return Err(VolumeError::Exists { name: name.clone() });
        }
        if self.shared.travels(name).is_none() {
            return Ok(inner);
        }
        Ok(Box::new(TieredWriter { inner, name: name.clone(), shared: Arc::clone(&self.shared) }))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        match self.shared.local.open(name) {
            // (T4) The bucket is only asked for blobs in the record.
            Err(VolumeError::NotFound { .. }) if Kind::of(name).is_some() => {}
            opened => return opened,
        }
        match self.shared.record.visible(name) {
            Ok(Some(len)) => {
                let far = FarBlob::open(&self.shared, name, len)?;
                Ok(self.shared.cold.place(name, len, far))
            }
            Ok(None) => Err(VolumeError::NotFound { name: name.clone() }),
            Err(error) => Err(error.of_blob("open", name)),
        }
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        let here = self.shared.local.list(prefix, after, limit)?;
        // (T4) The record is the listing of the bucket.
        let there = self.shared.record.page(prefix, after, limit.get());
        Ok(merge(here, there.map_err(|error| error.of_blob("list", prefix))?, limit))
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        let Shared { local, record, waiting, clock, .. } = &*self.shared;
        // Also what may not be copied (any more): it may have been.
        if Kind::of(name).is_none() {
            return local.remove(name);
        }
        let failed = |error: RecordError| error.of_blob("remove", name);
        let lies_there = record.visible(name).map_err(failed)?.is_some();
        let _removing = waiting.removing(name);
        if !lies_there && matches!(local.open(name), Err(VolumeError::NotFound { .. })) {
            return Err(VolumeError::NotFound { name: name.clone() });
        }
        // (T3) Whatever happens from here on, it is removed from the bucket, too. Recorded also if no copy is known:
        // one may be on its way, or have been made right before a crash.
        record.note_removal(name).map_err(failed)?;
        // (T9) Before its container: a crash must not leave ends without one, to be taken for those of another writing.
        let forgotten = self.shared.forget_kept(name).and_then(|()| forget_ends(&**local, name));
        match forgotten.and_then(|()| local.remove(name)) {
            Ok(()) => {
                waiting.removed(name);
                Ok(())
            }
            Err(VolumeError::NotFound { .. }) if lies_there => Ok(()),
            Err(error) => {
                if !error.may_have_written() && !matches!(error, VolumeError::NotFound { .. }) {
                    // The local blob stays, so its copy does, too. If this fails, the copy is removed and made again.
                    let _ = record.cancel_removal(name);
                    if let Ok(blob) = local.open(name) {
                        // A round may have skipped it.
                        waiting.note(name, blob.len(), clock.now_ms());
                    }
                }
                Err(error)
            }
        }
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        // (T5) Unfinished uploads are discarded by the first round of copying: a start does not wait for the bucket.
        self.shared.local.discard_unfinished()
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        self.shared.local.space()
    }

    fn remove_empty_folders(
        &self,
        below: &BlobName,
        is_left: &dyn Fn(&BlobName) -> bool,
    ) -> Result<(), VolumeError> {
        self.shared.local.remove_empty_folders(below, is_left)
    }

    fn here(&self) -> Option<Arc<dyn Volume>> {
        Some(Arc::clone(&self.shared.local))
    }

    fn evict(&self, name: &BlobName, ends: Ends) -> Result<bool, VolumeError> {
        self.lease.get().map_or(Ok(false), |lease| evict(&self.shared, lease, name, ends))
    }

    fn freeze(&self, name: &BlobName) -> Result<bool, VolumeError> {
        self.lease.get().map_or(Ok(false), |lease| freeze(&self.shared, lease, name))
    }

    fn handles_outlive_removal(&self) -> bool {
        self.shared.local.handles_outlive_removal() && self.shared.remote.reads.handles_outlive_removal()
    }
}

#[derive(Debug)]
struct TieredWriter {
    inner: Box<dyn BlobWriter>,
    name: BlobName,
    shared: Arc<Shared>,
}

impl BlobWriter for TieredWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        self.inner.append(bytes)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn seal(self: Box<Self>) -> Result<(), VolumeError> {
        let Self { inner, name, shared } = *self;
        // (T1) Numbered before anyone can see it.
        let is_noted = shared.waiting.begin(&name, inner.len(), shared.clock.now_ms());
        match inner.seal() {
            Ok(()) => {
                shared.waiting.sealed(&name);
                Ok(())
            }
            Err(error) => {
                // If it left a blob, the next process finds it.
                if is_noted {
                    shared.waiting.forget(&name);
                }
                Err(error)
            }
        }
    }
}

/// Merges a local page and a page of the record that start after the same name. The local blob wins if both have a
/// name.
pub(crate) fn merge(here: ListPage, there: ListPage, limit: NonZeroUsize) -> ListPage {
    // Past the end of a page that is not the last, names of that side may be missing.
    let end_of = |page: &ListPage| page.entries.last().filter(|_| page.more).map(|entry| entry.name.clone());
    let end = match (end_of(&here), end_of(&there)) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let more = here.more || there.more;
    let is_within = |name: &BlobName| end.as_ref().is_none_or(|end| name <= end);
    let mut entries: Vec<BlobEntry> = here.entries;
    entries.extend(there.entries);
    // The sort is stable: local entries stay first among equals.
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries.dedup_by(|later, first| later.name == first.name);
    let found = entries.len();
    entries.retain(|entry| is_within(&entry.name));
    let more = more || entries.len() < found || entries.len() > limit.get();
    entries.truncate(limit.get());
    ListPage { entries, more }
}

/// Stands in for a bucket that is no longer configured. Blobs that only it has cannot be read; copies and
/// removals wait.
#[derive(Debug)]
pub struct AbsentVolume {
    why: String,
}

impl AbsentVolume {
    /// `why`: the message for readers, with what to do.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    fn absent(&self, action: &'static str, name: &BlobName) -> VolumeError {
        VolumeError::Unavailable { action, name: name.to_string(), source: self.why.clone().into() }
    }
}

impl Volume for AbsentVolume {
    fn create_for(&self, name: &BlobName, _: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        Err(self.absent("create", name))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        // Unlike after a timeout, a retry does not help.
        Err(VolumeError::NotReadableNow { name: name.to_string(), source: self.why.clone().into() })
    }

    fn list(
        &self,
        prefix: &BlobName,
        _: Option<&BlobName>,
        _: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        Err(self.absent("list", prefix))
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        Err(self.absent("remove", name))
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        Ok(0)
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        Ok(None)
    }

    fn handles_outlive_removal(&self) -> bool {
        false
    }
}

impl RemoteVolume for AbsentVolume {
    fn stat(&self, name: &BlobName) -> Result<RemoteStat, VolumeError> {
        Err(self.absent("look at", name))
    }

    fn list_objects(&self, _: Option<&str>) -> Result<RemotePage, VolumeError> {
        let source = self.why.clone().into();
        Err(VolumeError::Unavailable { action: "list", name: "everything there".to_owned(), source })
    }

    fn remove_all(&self, names: &[BlobName]) -> Result<(), VolumeError> {
        names.first().map_or(Ok(()), |name| Err(self.absent("remove", name)))
    }

    fn read_tagged(&self, name: &BlobName) -> Result<Option<Tagged>, VolumeError> {
        Err(self.absent("read", name))
    }

    fn tag(&self, name: &BlobName) -> Result<Option<String>, VolumeError> {
        Err(self.absent("look at", name))
    }

    fn replace_tagged(
        &self,
        name: &BlobName,
        _: &[u8],
        _: Option<&str>,
    ) -> Result<Option<String>, VolumeError> {
        Err(self.absent("change", name))
    }

    fn sign_with(&self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: &[&str], more: bool) -> ListPage {
        let entry = |text: &&str| BlobEntry { name: BlobName::new(*text).unwrap(), len: 1 };
        ListPage { entries: names.iter().map(entry).collect(), more }
    }

    #[test]
    fn nothing_is_skipped_or_shown_twice() {
        let limit = NonZeroUsize::new(3).unwrap();
        let names = |page: &ListPage| {
            page.entries.iter().map(|entry| entry.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        for (here, there, expected, more) in [
            (page(&["a", "c"], false), page(&["b", "c"], false), "a b c", false),
            (page(&["a", "b", "c"], true), page(&[], false), "a b c", true),
            (page(&["a", "b"], true), page(&["c", "d"], false), "a b", true),
            (page(&["x", "y"], false), page(&["a", "b", "c"], true), "a b c", true),
            (page(&["a", "d"], true), page(&["b", "c"], true), "a b c", true),
            (page(&["a", "b"], false), page(&["c", "d"], false), "a b c", true),
            (page(&[], false), page(&[], false), "", false),
        ] {
            let merged = merge(here, there, limit);
            assert_eq!((names(&merged).as_str(), merged.more), (expected, more));
        }
    }
}
