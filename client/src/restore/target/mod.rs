//! Targets of restored bytes.
//!
//! [`Target`] is what the rest of the agent knows of it; one file per kind. [`open()`] chooses between a file, an image, a
//! block device and an export of an NBD server; a pipe and nothing at all are asked for by name. To add a kind: a file here that
//! implements the trait, and an arm in `open.rs`.

mod device;
mod export;
mod file;
mod image;
mod lock;
mod null;
mod open;
mod options;
mod output;
mod pipe;

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd as _;
use std::path::Path;

use crate::error::ClientError;

pub use device::DeviceTarget;
pub use export::ExportTarget;
pub use file::{FileTarget, PARTIAL_SUFFIX};
pub use image::{ImageTarget, check_possible};
pub use null::NullTarget;
pub use open::{make_folder, open};
pub use options::{FileOptions, MODE_DEFAULT};
pub use pipe::PipeTarget;

/// Takes a disk's bytes. Calls may come from several threads at once, for ranges that do not overlap; all
/// ranges lie within the disk.
pub trait Target: Send + Sync {
    /// Writes bytes that are not known to be all zero.
    ///
    /// # Errors
    /// [`ClientError::File`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError>;

    /// Makes `len` bytes from `offset` on zero.
    ///
    /// # Errors
    /// [`ClientError::File`].
    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError>;

    /// Returns true if [`Target::window_done`] has to be called after each window, in order.
    fn needs_order(&self) -> bool {
        false
    }

    /// All bytes from `start` to `end` have been written.
    ///
    /// # Errors
    /// [`ClientError::File`].
    fn window_done(&self, start: u64, end: u64) -> Result<(), ClientError> {
        let _ = (start, end);
        Ok(())
    }

    /// Nearly everything before `offset` has been written: the time to begin flushing it, so that finishing
    /// need not wait for all of it.
    fn reached(&self, offset: u64) {
        let _ = offset;
    }

    /// Says what a restore that fails leaves behind; `None` when that goes without saying.
    fn left_unfinished(&self) -> Option<String> {
        None
    }

    /// Returns true if what was at the path before is still there, as it was.
    fn is_untouched(&self) -> bool {
        false
    }

    /// The disk is complete: makes it durable, and visible under its name.
    ///
    /// # Errors
    /// [`ClientError::File`], or [`ClientError::Exists`] when another process made the file meanwhile.
    fn finish(&self) -> Result<(), ClientError>;
}

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> ClientError {
    move |source| ClientError::File { what, path: path.to_owned(), source }
}

/// Makes a new name durable.
fn sync_parent(path: &Path) -> Result<(), ClientError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("flushing", folder))
}

/// Tells what closing a file would: some file systems say only then that what was written has no room.
fn close(file: &File) -> io::Result<()> {
    // Each closing tells it, also that of a second descriptor.
    let copy = file.try_clone()?.into_raw_fd();
    // SAFETY: the descriptor is owned by no one else, and not used afterwards.
    if unsafe { libc::close(copy) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// # Panics
/// When a write reaches past the disk's end: it would make a file longer, or hit what follows on a device.
fn assert_within(offset: u64, len: u64, size_bytes: u64) {
    let within = offset.checked_add(len).is_some_and(|end| end <= size_bytes);
    assert!(within, "a write of {len} bytes at {offset} of a disk of {size_bytes}");
}
