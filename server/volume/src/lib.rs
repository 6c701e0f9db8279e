//! Where blobs live. The only code of the engine that touches files; everything above it sees named,
//! immutable blobs that appear whole and durable, or not at all.
//!
//! [`LocalVolume`] keeps blobs in files, [`MemoryVolume`] in memory; [`FaultyVolume`] wraps any volume and
//! makes it fail, lie or lose power on demand. One conformance suite (`conformance.rs`) runs on all of them.
//!
//! A crash leaves sealed blobs, whole, and perhaps unfinished ones, which no reader ever sees and
//! [`Volume::discard_unfinished`] removes.

use std::fmt;
use std::sync::Arc;

mod durable;
#[cfg(any(test, feature = "testing"))]
pub mod faulty;
pub mod local;
pub mod memory;

#[cfg(any(test, feature = "testing"))]
pub mod conformance;

#[cfg(any(test, feature = "testing"))]
pub use faulty::FaultyVolume;
pub use local::LocalVolume;
pub use memory::MemoryVolume;

/// A blob's name: `/`-separated segments of `a–z`, `0–9`, `.`, `_` and `-`, none of them beginning with a
/// dot, 200 bytes at most. So no name leaves the volume and none collides with temporary files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobName(String);

impl BlobName {
    /// `None` when the text breaks the rule above.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let segment_is_fine = |segment: &str| {
            !segment.is_empty()
                && !segment.starts_with('.')
                && segment.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
        };
        (text.len() <= 200 && text.split('/').all(segment_is_fine)).then_some(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A blob in a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobEntry {
    pub name: BlobName,
    pub len: u64,
}

/// Room on a volume, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// What a volume can fail with. Callers act differently on each.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("{name} does not exist")]
    NotFound { name: BlobName },
    #[error("{name} exists already")]
    Exists { name: BlobName },
    /// Nothing was lost: the write that failed was never acknowledged and its blob is discarded.
    #[error("no room left writing {name}")]
    Full { name: BlobName, source: std::io::Error },
    #[error("{name} ends at byte {len}; {wanted} bytes at offset {offset} were asked for")]
    OutOfRange { name: BlobName, len: u64, offset: u64, wanted: u64 },
    /// What was written may or may not be on the disk: after it, nothing may be retried or trusted until
    /// a restart.
    #[error("cannot make {name} durable: {source}")]
    NotDurable { name: String, source: std::io::Error },
    #[error("cannot {action} {name}: {source}")]
    Io { action: &'static str, name: String, source: std::io::Error },
}

impl VolumeError {
    /// `source` met while writing `name`: [`VolumeError::Full`] when there was no room (or quota) left,
    /// [`VolumeError::Io`] otherwise.
    fn writing(name: &BlobName, action: &'static str, source: std::io::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        if matches!(source.kind(), StorageFull | QuotaExceeded) {
            Self::Full { name: name.clone(), source }
        } else {
            Self::Io { action, name: name.to_string(), source }
        }
    }
}

/// A place for blobs.
pub trait Volume: Send + Sync + fmt::Debug {
    /// Begins a blob. It becomes visible only by [`BlobWriter::seal`]; dropping the writer discards it.
    ///
    /// # Errors
    /// [`VolumeError::Exists`], [`VolumeError::Full`], [`VolumeError::Io`].
    fn create(&self, name: &BlobName) -> Result<Box<dyn BlobWriter>, VolumeError>;

    /// Opens a sealed blob for reading. The handle stays readable after [`Volume::remove`].
    ///
    /// # Errors
    /// [`VolumeError::NotFound`], [`VolumeError::Io`].
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError>;

    /// Every sealed blob below the folder `prefix` (a name without trailing slash), in order of name.
    /// A folder that does not exist is empty.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    fn list(&self, prefix: &BlobName) -> Result<Vec<BlobEntry>, VolumeError>;

    /// Removes a blob, durably.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`], [`VolumeError::NotDurable`], [`VolumeError::Io`].
    fn remove(&self, name: &BlobName) -> Result<(), VolumeError>;

    /// Discards what writers of an earlier process left behind; says how many blobs that were. Only for
    /// start-up, before any [`Volume::create`], and by one process at a time.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    fn discard_unfinished(&self) -> Result<u64, VolumeError>;

    /// Room left; `None` where the question makes no sense.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    fn space(&self) -> Result<Option<Space>, VolumeError>;
}

/// A blob being written.
pub trait BlobWriter: Send + fmt::Debug {
    /// Appends bytes.
    ///
    /// # Errors
    /// [`VolumeError::Full`], [`VolumeError::Io`]; the blob can then only be dropped.
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError>;

    /// Bytes appended so far.
    fn len(&self) -> u64;

    /// Whether nothing was appended so far.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the blob durable, then visible under its name, durably so. When this returns `Ok`, the blob
    /// survives any crash.
    ///
    /// # Errors
    /// [`VolumeError::Exists`], [`VolumeError::Full`]: discarded. [`VolumeError::NotDurable`]: unknown.
    fn seal(self: Box<Self>) -> Result<(), VolumeError>;
}

/// A sealed blob.
pub trait Blob: Send + Sync + fmt::Debug {
    /// Its length in bytes.
    fn len(&self) -> u64;

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// [`VolumeError::OutOfRange`] when the blob ends before that, [`VolumeError::Io`].
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError>;
}

impl dyn Blob {
    /// Reads `len` bytes from `offset`. Nothing is allocated for a range that the blob does not have.
    ///
    /// # Errors
    /// As [`Blob::read_at`].
    pub fn read_vec(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>, VolumeError> {
        let wanted = len as u64;
        if offset.checked_add(wanted).is_none_or(|end| end > self.len()) {
            return Err(VolumeError::OutOfRange { name: name.clone(), len: self.len(), offset, wanted });
        }
        let mut buffer = vec![0; len];
        self.read_at(offset, &mut buffer)?;
        Ok(buffer)
    }
}

/// A shared volume is a volume.
impl<V: Volume + ?Sized> Volume for Arc<V> {
    fn create(&self, name: &BlobName) -> Result<Box<dyn BlobWriter>, VolumeError> {
        (**self).create(name)
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        (**self).open(name)
    }

    fn list(&self, prefix: &BlobName) -> Result<Vec<BlobEntry>, VolumeError> {
        (**self).list(prefix)
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        (**self).remove(name)
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        (**self).discard_unfinished()
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        (**self).space()
    }
}
