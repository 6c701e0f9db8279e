//! One restore at a time writes a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::failed;
use crate::error::ClientError;
use crate::pool::{NFS, file_system};

/// File systems that make of a lock of a whole file one of its bytes, which those of another program collide with: NFS, SMB.
const LOCK_BYTES: [u64; 3] = [NFS, 0xFF53_4D42, 0xFE53_4D42];

/// Locks an open file for as long as it is open.
///
/// # Errors
/// [`ClientError::File`] when another process has locked it. A file system without locks is no error.
pub(super) fn lock(file: &File, path: &Path) -> Result<(), ClientError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(in_use(path)),
        Ok(()) | Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(()),
        Err(error) => Err(failed("locking", path)(error.into())),
    }
}

/// Leaves a locked file to a program that locks it itself, where our lock would keep it from that.
pub(super) fn leave_to_another(file: &File) {
    if file_system(file).is_some_and(|kind| LOCK_BYTES.contains(&kind)) {
        // If it stays locked, that program says so.
        let _ = flock(file, FlockOperation::Unlock);
    }
}

/// The refusal of a file that another restore writes.
pub(super) fn in_use(path: &Path) -> ClientError {
    let message = "another restore is writing it; wait until it has ended, or restore to another path";
    failed("writing", path)(io::Error::other(message))
}

/// Returns whether the name leads to this open file, and not to another of the same name.
pub(super) fn leads_to(path: &Path, file: &File) -> io::Result<bool> {
    let ours = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
