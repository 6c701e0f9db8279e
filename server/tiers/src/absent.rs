//! Stands in for a bucket that the settings do not name (any more). What is only there cannot be read; what is sealed
//! or removed waits.

use std::num::NonZeroUsize;
use std::sync::Arc;

use holdfast_volume::{
    Blob, BlobName, BlobWriter, ListPage, Owner, RemotePage, RemoteStat, RemoteVolume, Space, Tagged, Volume,
    VolumeError,
};

/// Answers that it is not there.
#[derive(Debug)]
pub struct AbsentVolume {
    why: String,
}

impl AbsentVolume {
    /// `why`: what to tell who asks, and what to do.
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
        // Asking again does not help, as it does after a timeout.
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
