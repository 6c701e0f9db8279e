//! What a volume far away does beyond a [`Volume`]: tell what lies under a name without sending it, and remove many blobs
//! in one request.

use crate::{BlobName, Volume, VolumeError};

/// A checksum of a whole blob, as the far side keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobChecksum {
    /// CRC-64/NVME.
    Crc64Nvme(u64),
    /// CRC-32C (Castagnoli).
    Crc32c(u32),
}

/// What lies under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteStat {
    /// In bytes.
    pub len: u64,
    /// `None`: the far side keeps none that counts for the whole blob.
    pub checksum: Option<BlobChecksum>,
}

/// A volume far away.
pub trait RemoteVolume: Volume {
    /// What lies under `name`, without reading it.
    ///
    /// # Errors
    /// As [`Volume::open`].
    fn stat(&self, name: &BlobName) -> Result<RemoteStat, VolumeError>;

    /// Removes all of `names` in as few requests as may be; those that are not there count as removed.
    ///
    /// # Errors
    /// As [`Volume::remove`]; some may have been removed. Calling it again is safe.
    fn remove_all(&self, names: &[BlobName]) -> Result<(), VolumeError>;
}
