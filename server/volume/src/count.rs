//! A volume that counts: calls, failures and bytes, by kind of call.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Blob, BlobName, BlobWriter, ListPage, Owner, Space, Volume, VolumeError};

/// What was counted of one kind of call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls that have returned, failed ones included.
    pub calls: u64,
    pub failures: u64,
    /// Bytes of calls that succeeded: appended, sealed or read. Zero for other kinds.
    pub bytes: u64,
}

/// What was counted up to a moment, by kind of call. Each number only grows. Counters are read one after the
/// other, so while calls are under way two numbers may be a call apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct VolumeCounts {
    pub create: CallCounts,
    pub append: CallCounts,
    pub seal: CallCounts,
    pub remove: CallCounts,
    pub open: CallCounts,
    pub read: CallCounts,
    /// A page each.
    pub list: CallCounts,
    /// [`Volume::discard_unfinished`].
    pub discard: CallCounts,
    pub space: CallCounts,
}

/// The counters, shared with the code that reports them.
#[derive(Debug, Default)]
pub struct VolumeCounters {
    create: Counter,
    append: Counter,
    seal: Counter,
    remove: Counter,
    open: Counter,
    read: Counter,
    list: Counter,
    discard: Counter,
    space: Counter,
}

impl VolumeCounters {
    /// The counts so far.
    pub fn snapshot(&self) -> VolumeCounts {
        VolumeCounts {
            create: self.create.snapshot(),
            append: self.append.snapshot(),
            seal: self.seal.snapshot(),
            remove: self.remove.snapshot(),
            open: self.open.snapshot(),
            read: self.read.snapshot(),
            list: self.list.snapshot(),
            discard: self.discard.snapshot(),
            space: self.space.snapshot(),
        }
    }
}

/// Statistics only: no other memory is published through these, so no ordering is needed.
#[derive(Debug, Default)]
struct Counter {
    calls: AtomicU64,
    failures: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    fn count<T>(&self, bytes: u64, result: Result<T, VolumeError>) -> Result<T, VolumeError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match &result {
            Ok(_) => self.bytes.fetch_add(bytes, Ordering::Relaxed),
            Err(_) => self.failures.fetch_add(1, Ordering::Relaxed),
        };
        result
    }

    fn snapshot(&self) -> CallCounts {
        CallCounts {
            calls: self.calls.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct CountVolume {
    inner: Arc<dyn Volume>,
    counters: Arc<VolumeCounters>,
}

impl CountVolume {
    /// Adds what is done on `inner` to `counters`.
    pub fn new(inner: Arc<dyn Volume>, counters: Arc<VolumeCounters>) -> Self {
        Self { inner, counters }
    }
}

impl Volume for CountVolume {
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        let inner = self.counters.create.count(0, self.inner.create_for(name, owner))?;
        Ok(Box::new(CountWriter { inner, counters: Arc::clone(&self.counters) }))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let inner = self.counters.open.count(0, self.inner.open(name))?;
        Ok(Arc::new(CountBlob { inner, counters: Arc::clone(&self.counters) }))
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        self.counters.list.count(0, self.inner.list(prefix, after, limit))
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        self.counters.remove.count(0, self.inner.remove(name))
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        self.counters.discard.count(0, self.inner.discard_unfinished())
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        self.counters.space.count(0, self.inner.space())
    }

    crate::pass_on!(handles_outlive_removal, evict, freeze to inner);
}

#[derive(Debug)]
struct CountWriter {
    inner: Box<dyn BlobWriter>,
    counters: Arc<VolumeCounters>,
}

impl BlobWriter for CountWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        self.counters.append.count(bytes.len() as u64, self.inner.append(bytes))
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn seal(self: Box<Self>) -> Result<(), VolumeError> {
        let bytes = self.inner.len();
        self.counters.seal.count(bytes, self.inner.seal())
    }
}

#[derive(Debug)]
struct CountBlob {
    inner: Arc<dyn Blob>,
    counters: Arc<VolumeCounters>,
}

impl Blob for CountBlob {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_at_hand(&self) -> bool {
        self.inner.is_at_hand()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let bytes = buffer.len() as u64;
        self.counters.read.count(bytes, self.inner.read_at(offset, buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryVolume;
    use crate::testing::{Fault, FaultyVolume, OpKind, list, put, volume_suite};

    fn name(text: &str) -> BlobName {
        BlobName::new(text).unwrap()
    }

    const fn counts(calls: u64, failures: u64, bytes: u64) -> CallCounts {
        CallCounts { calls, failures, bytes }
    }

    #[test]
    fn conforms() {
        volume_suite(|| Box::new(CountVolume::new(Arc::new(MemoryVolume::new()), Arc::default())));
    }

    #[test]
    fn every_kind_is_counted_apart() {
        let faulty = Arc::new(FaultyVolume::new(MemoryVolume::new()));
        let counters = Arc::new(VolumeCounters::default());
        let inner = Arc::<FaultyVolume<MemoryVolume>>::clone(&faulty);
        let volume = CountVolume::new(inner, Arc::clone(&counters));
        put(&volume, "c/x", &[1; 10]);
        put(&volume, "c/y", &[1; 20]);
        let blob = volume.open(&name("c/x")).unwrap();
        blob.read_at(2, &mut [0; 5]).unwrap();
        blob.read_at(8, &mut [0; 5]).unwrap_err();
        list(&volume, "c");
        volume.space().unwrap();
        volume.discard_unfinished().unwrap();
        volume.remove(&name("c/y")).unwrap();
        volume.remove(&name("c/y")).unwrap_err();
        volume.open(&name("c/y")).unwrap_err();
        faulty.fail_next(OpKind::Append, 1, Fault::Io);
        volume.create(&name("c/z")).unwrap().append(&[1; 100]).unwrap_err();
        faulty.fail_next(OpKind::Seal, 1, Fault::Io);
        let mut writer = volume.create(&name("c/z")).unwrap();
        writer.append(&[1; 3]).unwrap();
        writer.seal().unwrap_err();
        let expected = VolumeCounts {
            create: counts(4, 0, 0),
            append: counts(4, 1, 33),
            seal: counts(3, 1, 30),
            remove: counts(2, 1, 0),
            open: counts(2, 1, 0),
            read: counts(2, 1, 5),
            list: counts(1, 0, 0),
            discard: counts(1, 0, 0),
            space: counts(1, 0, 0),
        };
        assert_eq!(counters.snapshot(), expected);
    }
}
