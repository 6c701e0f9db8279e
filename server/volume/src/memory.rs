//! Blobs in memory, for tests. Clones share the blobs, so that a test can "restart" on the same volume.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::volume::check_range;
use crate::{Blob, BlobEntry, BlobName, BlobWriter, ListPage, Owner, Space, Volume, VolumeError};

/// A volume in memory. A clone is another handle of the same volume.
#[derive(Debug, Clone, Default)]
pub struct MemoryVolume(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    sealed: BTreeMap<BlobName, Bytes>,
    /// Writers neither sealed nor dropped.
    unfinished: HashSet<u64>,
    next_writer: u64,
}

impl MemoryVolume {
    /// An empty volume.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes of a sealed blob.
    pub fn get(&self, name: &BlobName) -> Option<Bytes> {
        self.0.lock().sealed.get(name).cloned()
    }
}

/// Access for tests; see [`crate::testing`].
#[cfg(any(test, feature = "testing"))]
impl MemoryVolume {
    pub(crate) fn sealed(&self) -> BTreeMap<BlobName, Bytes> {
        self.0.lock().sealed.clone()
    }

    pub(crate) fn insert(&self, name: BlobName, bytes: Bytes) {
        self.0.lock().sealed.insert(name, bytes);
    }

    /// Replaces a blob if its content is `expected`. Returns true if it did.
    pub(crate) fn exchange(&self, name: &BlobName, expected: Option<&str>, bytes: Bytes) -> bool {
        let mut state = self.0.lock();
        let found = state.sealed.get(name).map(|found| String::from_utf8_lossy(found).into_owned());
        let is_same = found.as_deref() == expected;
        if is_same {
            state.sealed.insert(name.clone(), bytes);
        }
        is_same
    }
}

impl Volume for MemoryVolume {
    fn create_for(&self, name: &BlobName, _: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        let mut state = self.0.lock();
        if state.sealed.contains_key(name) {
            return Err(VolumeError::Exists { name: name.clone() });
        }
        let id = state.next_writer;
        state.next_writer += 1;
        state.unfinished.insert(id);
        Ok(Box::new(MemoryWriter { volume: self.clone(), id, name: name.clone(), bytes: Vec::new() }))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        match self.get(name) {
            Some(bytes) => Ok(Arc::new(MemoryBlob { name: name.clone(), bytes })),
            None => Err(VolumeError::NotFound { name: name.clone() }),
        }
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        // Everything inside a folder is greater than the folder's own name.
        let from = after.map_or(prefix, |after| after.max(prefix));
        let state = self.0.lock();
        let found = state
            .sealed
            .range((Excluded(from), Unbounded))
            .filter(|(name, _)| name.is_inside(prefix))
            .map(|(name, bytes)| BlobEntry { name: name.clone(), len: bytes.len() as u64 })
            .take(limit.get().saturating_add(1));
        Ok(ListPage::cut(found.collect(), limit))
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        match self.0.lock().sealed.remove(name) {
            Some(_) => Ok(()),
            None => Err(VolumeError::NotFound { name: name.clone() }),
        }
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        Ok(std::mem::take(&mut self.0.lock().unfinished).len() as u64)
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        Ok(None)
    }

    fn handles_outlive_removal(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct MemoryWriter {
    volume: MemoryVolume,
    id: u64,
    name: BlobName,
    bytes: Vec<u8>,
}

impl BlobWriter for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn seal(mut self: Box<Self>) -> Result<(), VolumeError> {
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        let mut state = self.volume.0.lock();
        if state.sealed.contains_key(&self.name) {
            return Err(VolumeError::Exists { name: self.name.clone() });
        }
        state.sealed.insert(self.name.clone(), bytes);
        Ok(())
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        self.volume.0.lock().unfinished.remove(&self.id);
    }
}

#[derive(Debug)]
struct MemoryBlob {
    name: BlobName,
    bytes: Bytes,
}

impl Blob for MemoryBlob {
    fn drop_cached(&self) {}

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        copy_range(&self.name, &self.bytes, offset, buffer)
    }
}

/// Fills `buffer` from `bytes` at `offset`, or fails.
pub(crate) fn copy_range(
    name: &BlobName,
    bytes: &[u8],
    offset: u64,
    buffer: &mut [u8],
) -> Result<(), VolumeError> {
    let (len, wanted) = (bytes.len() as u64, buffer.len() as u64);
    check_range(name, len, offset, wanted)?;
    let found = usize::try_from(offset).ok().and_then(|start| bytes.get(start..start + buffer.len()));
    let found = found.ok_or_else(|| VolumeError::OutOfRange { name: name.clone(), len, offset, wanted })?;
    buffer.copy_from_slice(found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::volume_suite;

    #[test]
    fn conforms() {
        volume_suite(|| Box::new(MemoryVolume::new()));
    }

    #[test]
    fn what_a_killed_process_left_is_counted() {
        let volume = MemoryVolume::new();
        let mut writer = volume.create(&BlobName::new("x").unwrap()).unwrap();
        writer.append(b"lost").unwrap();
        std::mem::forget(writer);
        assert_eq!(volume.discard_unfinished().unwrap(), 1);
        assert_eq!(volume.discard_unfinished().unwrap(), 0);
    }
}
