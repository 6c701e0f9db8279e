//! The contract every place for blobs keeps. `testing/suite.rs` checks it.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::{Blob, BlobName, BlobWriter, ListPage, VolumeError};

/// Room on a volume, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// Whose a blob is. A volume that encrypts seals it with its owner's key, and who destroys that key destroys the blob
/// wherever copies of it lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// What belongs to no namespace.
    pub const REPOSITORY: Self = Self([0; 16]);

    /// A namespace, by its id.
    #[must_use]
    pub const fn namespace(id: [u8; 16]) -> Self {
        Self(id)
    }

    /// Its id; zeros for the repository as a whole.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

/// What of a blob stays at hand when the rest of it lies only far away, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// From its beginning.
    pub head: u64,
    /// To its end.
    pub tail: u64,
}

/// A place for blobs.
///
/// - **Immutable.** A sealed blob never changes. It can be removed; a caller does not use a removed blob's
///   name again while a call on the old blob is under way.
/// - **Names** are flat: a folder is a shared beginning of names up to a `/`, exists while a blob is in it, and
///   needs no call to be made. No blob's name is a folder of another's; whether a volume refuses such a pair is
///   unspecified. A volume may put every name below a root of its own (a folder, a key prefix).
/// - **Consistent.** What one call has done, every call that begins later sees, in this and in other
///   processes. (S3 is consistent in this way; a store with an eventually consistent listing is not enough.)
/// - **Concurrent.** Every method may be called from many threads at once. Calls block; they return within a
///   bounded time, so a remote volume puts a time limit on each request and answers with
///   [`VolumeError::Unavailable`] (nothing was done) or [`VolumeError::OutcomeUnknown`] (a write may have
///   happened).
/// - **Untrusted answers.** A remote volume bounds and checks what it is sent before it allocates or believes
///   it, and answers [`VolumeError::BadAnswer`].
/// - **No panics**, whatever the disk or the network does.
///
/// An implementation does not retry, pace, count or cache: decorators do. Requests inside one call that only
/// it can repeat (one part of a multipart upload) are the exception.
pub trait Volume: Send + Sync + fmt::Debug {
    /// Begins a blob. It becomes visible only by [`BlobWriter::seal`]; dropping the writer discards it.
    ///
    /// A name that is taken may be reported here, to save the caller from writing in vain, and must be
    /// reported by the seal, because another writer may seal the name in between.
    ///
    /// # Errors
    /// [`VolumeError::Exists`], [`VolumeError::Full`], [`VolumeError::Unavailable`] (also when the process has
    /// no file descriptor left), [`VolumeError::WriteFailed`]. After each nothing is visible.
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError>;

    /// As [`Volume::create_for`], of a blob that belongs to the repository as a whole.
    ///
    /// # Errors
    /// As [`Volume::create_for`].
    fn create(&self, name: &BlobName) -> Result<Box<dyn BlobWriter>, VolumeError> {
        self.create_for(name, Owner::REPOSITORY)
    }

    /// Opens a sealed blob for reading and learns its length (on S3: `HeadObject`).
    ///
    /// # Errors
    /// [`VolumeError::NotFound`] only when it is certain that there is no such blob: callers take it for
    /// data loss. A refusal (EACCES, 403) or an archived object is [`VolumeError::NotReadableNow`], a volume
    /// that cannot be reached is [`VolumeError::Unavailable`]. Otherwise [`VolumeError::Io`].
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError>;

    /// One page of the sealed blobs inside the folder `prefix` (a name without trailing slash), at any depth:
    /// those whose names are greater than `after`, or the first ones, in ascending byte order of their whole
    /// names, at most `limit` of them. `after` need not exist. A folder that does not exist is empty.
    ///
    /// A page may be shorter than `limit` while there is more (S3 gives at most 1,000 a request), but then it
    /// has at least one entry. Blobs sealed or removed during a walk from page to page appear or not; every
    /// other blob appears exactly once. [`crate::list_all`] walks.
    ///
    /// On S3: `ListObjectsV2` with the prefix `prefix/`, `start-after` and `max-keys`.
    ///
    /// # Errors
    /// [`VolumeError::NotReadableNow`], [`VolumeError::Unavailable`], [`VolumeError::BadAnswer`],
    /// [`VolumeError::Io`]. Never a silently incomplete page.
    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError>;

    /// Removes a blob, durably: no crash brings it back once this returned `Ok`.
    ///
    /// On S3, where deleting what does not exist succeeds: `HeadObject` first.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`]; [`VolumeError::Unavailable`]: not removed; [`VolumeError::WriteFailed`],
    /// [`VolumeError::NotDurable`], [`VolumeError::OutcomeUnknown`]: removed or not.
    fn remove(&self, name: &BlobName) -> Result<(), VolumeError>;

    /// Discards what writers of an earlier process left behind (temporary files, multipart uploads below this
    /// volume's prefix) and returns how many it discarded; fewer than were begun when some left nothing. Only
    /// for start-up, before any [`Volume::create_for`], and by one process at a time.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`], [`VolumeError::WriteFailed`], [`VolumeError::Io`]; some may be left, and
    /// calling again is safe.
    fn discard_unfinished(&self) -> Result<u64, VolumeError>;

    /// Room left; `None` where there is no answer (a bucket).
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`], [`VolumeError::NotReadableNow`], [`VolumeError::Io`].
    fn space(&self) -> Result<Option<Space>, VolumeError>;

    /// Removes the folders below `below` in which nothing is and of which `is_left` says that nothing will be written to them.
    /// Where blobs lie in no folders, or a volume does not show those of the one below, nothing happens.
    ///
    /// # Errors
    /// Folders cannot be read or removed; some may be left.
    fn remove_empty_folders(
        &self,
        _below: &BlobName,
        _is_left: &dyn Fn(&BlobName) -> bool,
    ) -> Result<(), VolumeError> {
        Ok(())
    }

    /// Whether a [`Blob`] opened before [`Volume::remove`] can still be read after it, as a file can. Where it
    /// is false, reads of such a handle return the blob's bytes or [`VolumeError::NotFound`], never others. A
    /// decorator answers what the volume inside it answers.
    fn handles_outlive_removal(&self) -> bool;

    /// What of this volume lies on this machine, where other blobs lie far away; `None`: all of it is in one place.
    fn here(&self) -> Option<Arc<dyn Volume>> {
        None
    }

    /// Gives up the local copy of a blob that has another far away, proved to be the same; `ends` of it stay at hand.
    /// Whether it did: `false` where there is no other copy, or none yet. The blob stays what it was for every other call.
    ///
    /// # Errors
    /// As [`Volume::open`] and [`Volume::remove`]; the blob is there still.
    fn evict(&self, name: &BlobName, ends: Ends) -> Result<bool, VolumeError> {
        let _ = (name, ends);
        Ok(false)
    }

    /// Puts a blob that lies far away alone (see [`Volume::evict`]) into an archive, if there is one for it. Whether it lies
    /// there now that did not before. It stays what it was for every other call but for reads of more than its ends, which
    /// may fail with [`VolumeError::NotReadableNow`] from now on ([`VolumeError::is_archived`]).
    ///
    /// # Errors
    /// As [`Volume::open`]; after [`VolumeError::may_have_written`] it may lie there.
    fn freeze(&self, name: &BlobName) -> Result<bool, VolumeError> {
        let _ = name;
        Ok(false)
    }
}

/// A shared volume is a volume.
impl<V: Volume + ?Sized> Volume for Arc<V> {
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        (**self).create_for(name, owner)
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        (**self).open(name)
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        (**self).list(prefix, after, limit)
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

    fn remove_empty_folders(
        &self,
        below: &BlobName,
        is_left: &dyn Fn(&BlobName) -> bool,
    ) -> Result<(), VolumeError> {
        (**self).remove_empty_folders(below, is_left)
    }

    fn handles_outlive_removal(&self) -> bool {
        (**self).handles_outlive_removal()
    }

    fn here(&self) -> Option<Arc<dyn Volume>> {
        (**self).here()
    }

    fn evict(&self, name: &BlobName, ends: Ends) -> Result<bool, VolumeError> {
        (**self).evict(name, ends)
    }

    fn freeze(&self, name: &BlobName) -> Result<bool, VolumeError> {
        (**self).freeze(name)
    }
}
