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

/// A small object that is changed in place, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged {
    pub bytes: Vec<u8>,
    /// Another one after each change.
    pub tag: String,
}

/// Most that an object changed in place has.
pub const TAGGED_MAX_BYTES: u64 = 4096;

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

    /// An object that is changed in place, of at most [`TAGGED_MAX_BYTES`]; `None`: there is none.
    ///
    /// # Errors
    /// As [`Volume::open`].
    fn read_tagged(&self, name: &BlobName) -> Result<Option<Tagged>, VolumeError>;

    /// Its tag alone.
    ///
    /// # Errors
    /// As [`Volume::open`].
    fn tag(&self, name: &BlobName) -> Result<Option<String>, VolumeError>;

    /// Changes it if it still has this tag, or makes it where nothing is (`None`), in one step for everyone. Returns its
    /// new tag; `None`: it is another by now.
    ///
    /// # Errors
    /// As [`crate::BlobWriter::seal`].
    fn replace_tagged(
        &self,
        name: &BlobName,
        bytes: &[u8],
        tag: Option<&str>,
    ) -> Result<Option<String>, VolumeError>;

    /// Whatever is written from now on carries this number: who wrote it.
    fn sign_with(&self, number: u64);
}
