//! Volumes of tests as volumes far away. The tag of what is changed in place is its text.

use bytes::Bytes;

use super::{FaultyVolume, OpKind};
use crate::{BlobName, MemoryVolume, RemoteStat, RemoteVolume, Tagged, Volume, VolumeError};

fn stat(volume: &dyn Volume, name: &BlobName) -> Result<RemoteStat, VolumeError> {
    Ok(RemoteStat { len: volume.open(name)?.len(), checksum: None })
}

fn remove_all(volume: &dyn Volume, names: &[BlobName]) -> Result<(), VolumeError> {
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
