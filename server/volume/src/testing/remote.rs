//! Volumes of tests as volumes far away.

use super::FaultyVolume;
use crate::{BlobName, MemoryVolume, RemoteStat, RemoteVolume, Volume, VolumeError};

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
}

impl<V: Volume + 'static> RemoteVolume for FaultyVolume<V> {
    fn stat(&self, name: &BlobName) -> Result<RemoteStat, VolumeError> {
        stat(self, name)
    }

    fn remove_all(&self, names: &[BlobName]) -> Result<(), VolumeError> {
        remove_all(self, names)
    }
}
