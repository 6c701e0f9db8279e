//! Volumes for tests as remote volumes. The tag of an object changed in place is its text, in a listing its hash.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bytes::Bytes;

use super::{FaultyVolume, OpKind};
use crate::{
    BlobName, MemoryVolume, RemoteObject, RemotePage, RemoteStat, RemoteVolume, Tagged, Volume, VolumeError,
};

/// Objects of a page: fewer than in any test of paging.
const PAGE: usize = 4;

/// Hash of the bytes.
pub(super) fn hash(bytes: &Bytes) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{:x}", hasher.finish())
}

fn stat(volume: &dyn Volume, name: &BlobName) -> Result<RemoteStat, VolumeError> {
    Ok(RemoteStat { len: volume.open(name)?.len(), checksum: None, class: None })
}

/// Removes blobs one by one; missing ones count as removed.
pub(super) fn remove_all(volume: &dyn Volume, names: &[BlobName]) -> Result<(), VolumeError> {
    for name in names {
        match volume.remove(name) {
            Ok(()) | Err(VolumeError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl RemoteVolume for MemoryVolume {
    fn stat(&self, name: &BlobName) -> Result<RemoteStat, VolumeError> {
        stat(self, name)
    }

    fn list_objects(&self, after: Option<&str>) -> Result<RemotePage, VolumeError> {
        let object = |(name, bytes): (BlobName, Bytes)| {
            let tag = Some(hash(&bytes));
            RemoteObject { name, len: bytes.len() as u64, tag, class: None }
        };
        let all = self.sealed().into_iter();
        let mut behind = all.filter(|(name, _)| after.is_none_or(|after| name.as_str() > after)).map(object);
        let objects: Vec<RemoteObject> = behind.by_ref().take(PAGE).collect();
        let next = behind.next().and_then(|_| objects.last().map(|last| last.name.to_string()));
        Ok(RemotePage { objects, strangers: 0, next })
    }

    fn remove_all(&self, names: &[BlobName]) -> Result<(), VolumeError> {
        remove_all(self, names)
    }

    fn read_tagged(&self, name: &BlobName) -> Result<Option<Tagged>, VolumeError> {
        let tagged = |bytes: Bytes| Tagged {
            tag: String::from_utf8_lossy(&bytes).into_owned(),
            bytes: bytes.to_vec(),
        };
        Ok(self.get(name).map(tagged))
    }

    fn tag(&self, name: &BlobName) -> Result<Option<String>, VolumeError> {
        Ok(self.read_tagged(name)?.map(|found| found.tag))
    }

    fn replace_tagged(
        &self,
        name: &BlobName,
        bytes: &[u8],
        tag: Option<&str>,
    ) -> Result<Option<String>, VolumeError> {
        let is_done = self.exchange(name, tag, Bytes::copy_from_slice(bytes));
        Ok(is_done.then(|| String::from_utf8_lossy(bytes).into_owned()))
    }

    fn sign_with(&self, _: u64) {}
}

impl<V: RemoteVolume + 'static> RemoteVolume for FaultyVolume<V> {
    fn stat(&self, name: &BlobName) -> Result<RemoteStat, VolumeError> {
        stat(self, name)
    }

    fn list_objects(&self, after: Option<&str>) -> Result<RemotePage, VolumeError> {
        self.admit(OpKind::List, &after.and_then(BlobName::new).unwrap_or_else(everything))?;
        self.inner.list_objects(after)
    }

    fn remove_all(&self, names: &[BlobName]) -> Result<(), VolumeError> {
        remove_all(self, names)
    }

    fn read_tagged(&self, name: &BlobName) -> Result<Option<Tagged>, VolumeError> {
        self.admit(OpKind::Open, name)?;
        self.inner.read_tagged(name)
    }

    fn tag(&self, name: &BlobName) -> Result<Option<String>, VolumeError> {
        self.admit(OpKind::Open, name)?;
        self.inner.tag(name)
    }

    fn replace_tagged(
        &self,
        name: &BlobName,
        bytes: &[u8],
        tag: Option<&str>,
    ) -> Result<Option<String>, VolumeError> {
        self.admit(OpKind::Open, name)?;
        self.inner.replace_tagged(name, bytes, tag)
    }

    fn sign_with(&self, number: u64) {
        self.inner.sign_with(number);
    }
}

fn everything() -> BlobName {
    BlobName::new("everything").unwrap()
}
