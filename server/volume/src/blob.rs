//! A blob being written and a blob being read.

use std::fmt;

use crate::{BlobName, VolumeError};

/// A blob being written, by one thread at a time. Until [`BlobWriter::seal`] nothing of it can be opened or
/// listed. Dropping the writer discards it; what cannot be discarded then (the process was killed, the network
/// is down) is left for [`crate::Volume::discard_unfinished`].
#[must_use = "a writer that is dropped discards its blob; seal it"]
pub trait BlobWriter: Send + fmt::Debug {
    /// Appends bytes: any number, from none to the whole blob. They need not be durable, nor even sent, before
    /// [`BlobWriter::seal`], but a writer holds a bounded number of them (state the bound), so that a caller's
    /// memory does not grow with the blob.
    ///
    /// # Errors
    /// [`VolumeError::Full`], [`VolumeError::WriteFailed`], [`VolumeError::Unavailable`]. After any of them the
    /// blob can only be dropped: a further append or the seal must fail, or the blob would have a hole.
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError>;

    /// Bytes appended so far.
    fn len(&self) -> u64;

    /// Whether nothing was appended so far.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the blob durable, then visible under its name, durably so, in one step that replaces nothing.
    /// When this returns `Ok`, the blob survives any crash, and every later call, from any thread or process,
    /// sees it whole. Of several writers of one name the first to seal wins.
    ///
    /// On S3: `PutObject` or `CompleteMultipartUpload` with `If-None-Match: *`, and a checksum of the whole
    /// blob that the service verifies.
    ///
    /// # Errors
    /// - [`VolumeError::Exists`]: the name is taken; this blob is discarded.
    /// - [`VolumeError::Full`], [`VolumeError::Unavailable`], [`VolumeError::WriteFailed`]: not visible;
    ///   discarded.
    /// - [`VolumeError::NotDurable`]: visible or not, durable or not; local volumes only.
    /// - [`VolumeError::OutcomeUnknown`]: sealed or not, but if it is visible it is whole and durable. It may
    ///   still become visible later. Trying the same name again is safe, because nothing is replaced:
    ///   [`VolumeError::Exists`] then means that one of the two attempts got through.
    fn seal(self: Box<Self>) -> Result<(), VolumeError>;
}

/// A blob that lies in an archive, from where it must be brought back before it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdPlace {
    /// As the place far away knows it.
    pub name: BlobName,
    /// Of what lies there, in bytes.
    pub len: u64,
    /// Whether a copy that was brought back can be read, for a while.
    pub is_readable: bool,
    /// Whether it is known to lie there: moving it there may have been cut off.
    pub is_certain: bool,
}

/// A sealed blob. Its bytes never change, so any number of threads may read it at once.
pub trait Blob: Send + Sync + fmt::Debug {
    /// Its length in bytes, known since it was opened: no request.
    fn len(&self) -> u64;

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills the whole `buffer` with the bytes from `offset`, or fails; after a failure the buffer's content
    /// is undefined and must not be used. An empty buffer inside the blob or at its end succeeds. One call is
    /// one request of a remote volume (`GetObject` with `Range`, and `If-Match` with the entity tag of the
    /// open), so callers read in large pieces.
    ///
    /// The bytes are not verified: what they mean is checked by the layer that wrote them.
    ///
    /// # Errors
    /// [`VolumeError::OutOfRange`] when the blob ends before that, [`VolumeError::NotReadableNow`],
    /// [`VolumeError::Unavailable`], [`VolumeError::Io`]; [`VolumeError::NotFound`] when the blob was removed
    /// and [`crate::Volume::handles_outlive_removal`] is false.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError>;

    /// Whether reading all of it asks nothing of a place far away.
    fn is_at_hand(&self) -> bool {
        true
    }

    /// Where it lies if that is an archive, as far as is known. A volume around a volume that has an archive passes it on.
    fn cold(&self) -> Option<ColdPlace> {
        None
    }
}

/// Fails with [`VolumeError::OutOfRange`] unless a blob of `len` bytes has `wanted` bytes at `offset`.
pub(crate) fn check_range(name: &BlobName, len: u64, offset: u64, wanted: u64) -> Result<(), VolumeError> {
    match offset.checked_add(wanted) {
        Some(end) if end <= len => Ok(()),
        _ => Err(VolumeError::OutOfRange { name: name.clone(), len, offset, wanted }),
    }
}

impl dyn Blob {
    /// Reads `len` bytes from `offset`. Nothing is allocated for a range that the blob does not have.
    ///
    /// # Errors
    /// As [`Blob::read_at`].
    pub fn read_vec(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>, VolumeError> {
        check_range(name, self.len(), offset, len as u64)?;
        let mut buffer = vec![0; len];
        self.read_at(offset, &mut buffer)?;
        Ok(buffer)
    }
}
