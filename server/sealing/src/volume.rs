//! The volume.

use std::num::NonZeroUsize;
use std::sync::Arc;

use holdfast_volume::{Blob, BlobEntry, BlobName, BlobWriter, ListPage, Owner, Space, Volume, VolumeError};

use crate::blob::Unopened;
use crate::keys::Keys;
use crate::layout::{Geometry, SealedHeader, is_left_open, opened_name, sealed_name};
use crate::writer::SealedWriter;

/// Seals what is written to it, and opens what is read. See the crate's text.
#[derive(Debug)]
pub struct SealedVolume {
    inner: Arc<dyn Volume>,
    /// `None`: locked. Blobs can be listed and removed, not read or written.
    keys: Option<Arc<Keys>>,
}

impl SealedVolume {
    /// On `inner`, with the keys that lie there.
    pub fn new(inner: Arc<dyn Volume>, keys: Arc<Keys>) -> Self {
        Self { inner, keys: Some(keys) }
    }

    /// On `inner`, without keys: what there is can be told, and deleted.
    pub fn locked(inner: Arc<dyn Volume>) -> Self {
        Self { inner, keys: None }
    }

    fn keys(&self, name: &BlobName) -> Result<&Arc<Keys>, VolumeError> {
        self.keys.as_ref().ok_or_else(|| VolumeError::NotReadableNow {
            name: name.to_string(),
            source: "the repository is encrypted, and its keys were not opened".into(),
        })
    }

    /// Whether a blob may lie here as it is: who writes to the volume could put one in the place of a sealed one.
    fn takes_plain(&self) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.accepts_plain())
    }

    fn entry(&self, entry: BlobEntry) -> Option<BlobEntry> {
        if is_left_open(&entry.name) {
            return Some(entry);
        }
        let Some(name) = opened_name(&entry.name) else {
            return self.takes_plain().then_some(entry);
        };
        // Nothing can be read of one that has an impossible length; that it is there counts.
        let len = Geometry::of(&name).opened(entry.len).map_or(0, |(len, _)| len);
        Some(BlobEntry { name, len })
    }
}

/// What cannot have a sealed form.
fn refused(name: &BlobName) -> VolumeError {
    VolumeError::BadAnswer {
        action: "encrypt",
        name: name.to_string(),
        found: "a name that no encrypted blob can have".to_owned(),
    }
}

impl Volume for SealedVolume {
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        if is_left_open(name) {
            return self.inner.create_for(name, owner);
        }
        let sealed = sealed_name(name).ok_or_else(|| refused(name))?;
        let (key, sealer) = self.keys(name)?.sealer(owner, name)?;
        let header = SealedHeader { key, salt: *sealer.salt() };
        let inner = self.inner.create_for(&sealed, owner).map_err(|error| renamed(error, name))?;
        Ok(Box::new(SealedWriter::new(inner, name.clone(), sealer, header, Geometry::of(name))))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        if is_left_open(name) {
            return self.inner.open(name);
        }
        let sealed = sealed_name(name).ok_or_else(|| refused(name))?;
        match self.inner.open(&sealed) {
            Ok(inner) => {
                let unopened = Unopened::read(inner, name)?;
                let key = self.keys(name)?.blob_key(unopened.header, name)?;
                Ok(Arc::new(unopened.open(key)?))
            }
            Err(VolumeError::NotFound { .. }) if self.takes_plain() => self.inner.open(name),
            Err(error) => Err(renamed(error, name)),
        }
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        // A sealed name is the one that follows the name it stands for.
        let mut after = after.map(|after| sealed_name(after).unwrap_or_else(|| after.clone()));
        loop {
            let ListPage { entries, more } = self.inner.list(prefix, after.as_ref(), limit)?;
            let end = entries.last().map(|entry| entry.name.clone());
            let entries: Vec<_> = entries.into_iter().filter_map(|entry| self.entry(entry)).collect();
            // A page with more behind it has an entry.
            if !more || !entries.is_empty() {
                return Ok(ListPage { entries, more });
            }
            after = end;
        }
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        if is_left_open(name) {
            return self.inner.remove(name);
        }
        let sealed = sealed_name(name).ok_or_else(|| refused(name))?;
        match self.inner.remove(&sealed) {
            Err(VolumeError::NotFound { .. }) if self.takes_plain() => self.inner.remove(name),
            removed => removed.map_err(|error| renamed(error, name)),
        }
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        self.inner.discard_unfinished()
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        self.inner.space()
    }

    fn handles_outlive_removal(&self) -> bool {
        self.inner.handles_outlive_removal()
    }
}

/// What the volume below says of a sealed name, said of the name it stands for.
fn renamed(error: VolumeError, name: &BlobName) -> VolumeError {
    match error {
        VolumeError::NotFound { .. } => VolumeError::NotFound { name: name.clone() },
        VolumeError::Exists { .. } => VolumeError::Exists { name: name.clone() },
        other => other,
    }
}
