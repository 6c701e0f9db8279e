//! Blobs in memory, for tests. Clones share the blobs, so that a test can "restart" on the same volume.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::{Blob, BlobEntry, BlobName, BlobWriter, Space, Volume, VolumeError};

/// A volume in memory. A clone is another handle of the same volume.
#[derive(Debug, Clone, Default)]
pub struct MemoryVolume(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    sealed: BTreeMap<BlobName, Bytes>,
    unfinished: HashSet<u64>,
    next_writer: u64,
}

impl MemoryVolume {
    /// An empty volume.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy that shares nothing: what a disk image taken now would hold.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let sealed = self.0.lock().sealed.clone();
        Self(Arc::new(Mutex::new(State { sealed, ..State::default() })))
    }

    /// The bytes of a sealed blob.
    pub fn get(&self, name: &BlobName) -> Option<Bytes> {
        self.0.lock().sealed.get(name).cloned()
    }

    /// Puts or replaces a sealed blob, as no [`Volume`] can: how tests damage things for good.
    pub fn replace(&self, name: &BlobName, bytes: impl Into<Bytes>) {
        self.0.lock().sealed.insert(name.clone(), bytes.into());
    }
}

impl Volume for MemoryVolume {
    fn create(&self, name: &BlobName) -> Result<Box<dyn BlobWriter>, VolumeError> {
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

    fn list(&self, prefix: &BlobName) -> Result<Vec<BlobEntry>, VolumeError> {
        let inside = |name: &BlobName| {
            name.as_str().strip_prefix(prefix.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        let state = self.0.lock();
        let found = state.sealed.iter().filter(|(name, _)| inside(name));
        Ok(found.map(|(name, bytes)| BlobEntry { name: name.clone(), len: bytes.len() as u64 }).collect())
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
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        copy_range(&self.name, &self.bytes, offset, buffer)
    }
}

/// Fills `buffer` from `bytes` at `offset`, or says what is missing.
pub(super) fn copy_range(
    name: &BlobName,
    bytes: &[u8],
    offset: u64,
    buffer: &mut [u8],
) -> Result<(), VolumeError> {
    let wanted = buffer.len() as u64;
    let found = usize::try_from(offset)
        .ok()
        .and_then(|start| bytes.get(start..start.checked_add(buffer.len())?))
        .ok_or_else(|| VolumeError::OutOfRange {
            name: name.clone(),
            len: bytes.len() as u64,
            offset,
            wanted,
        })?;
    buffer.copy_from_slice(found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{put, volume_suite};

    #[test]
    fn conforms() {
        volume_suite(|| Box::new(MemoryVolume::new()));
    }

    #[test]
    fn clones_share_and_snapshots_do_not() {
        let volume = MemoryVolume::new();
        let (clone, snapshot) = (volume.clone(), volume.snapshot());
        put(&volume, "x", b"1");
        let name = BlobName::new("x").unwrap();
        assert_eq!(clone.get(&name).unwrap(), "1");
        assert_eq!(snapshot.get(&name), None);
    }
}
