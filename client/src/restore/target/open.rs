//! The one place that chooses how a path is written.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use super::{DeviceTarget, ExportTarget, FileOptions, FileTarget, ImageTarget, Target, failed, sync_parent};
use crate::error::ClientError;
use crate::source::Format;

/// Opens what `path` names for a disk of `size_bytes`: an export or a block device if it is one, a new file of the chosen
/// format otherwise.
///
/// # Errors
/// [`ClientError::Exists`] without `force` when `path` exists, [`ClientError::File`] when it cannot be written
/// or a device is too small.
pub fn open(path: &Path, size_bytes: u64, options: FileOptions) -> Result<Box<dyn Target>, ClientError> {
    let is_address = ExportTarget::is_address(path);
    let found = if is_address { Ok(None) } else { existing(path) }?;
    let refused = |why: &str| Err(failed("writing", path)(io::Error::other(why.to_owned())));
    match found {
        _ if !options.force && (is_address || found.is_some()) => Err(ClientError::Exists(path.to_owned())),
        None if is_address => Ok(Box::new(ExportTarget::connect(path, size_bytes)?)),
        // Its name may have been that of a file, or led to one, when the format was chosen.
        Some(kind) if kind.is_block_device() && options.format != Format::Raw => {
            refused("it is a block device, which gets the bytes of the disk: an image is for a file")
        }
        Some(kind) if kind.is_block_device() => Ok(Box::new(DeviceTarget::open(path, size_bytes)?)),
        Some(kind) if !kind.is_file() => refused("it is neither a regular file nor a block device"),
        Some(_) if options.in_place && options.format == Format::Raw => {
            Ok(Box::new(DeviceTarget::open_file(path, size_bytes, options)?))
        }
        _ if options.format == Format::Raw => Ok(Box::new(FileTarget::create(path, size_bytes, options)?)),
        _ => Ok(Box::new(ImageTarget::create(path, options.format, size_bytes, options)?)),
    }
}

/// The kind of file at a path, if there is one.
fn existing(path: &Path) -> Result<Option<std::fs::FileType>, ClientError> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(found.file_type())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("examining", path)(error)),
    }
}

/// Makes a folder to restore to, unless there is one; with `sync` durably.
///
/// # Errors
/// [`ClientError::File`].
pub fn make_folder(path: &Path, sync: bool) -> Result<(), ClientError> {
    if path.is_dir() {
        return Ok(());
    }
    std::fs::create_dir(path).map_err(failed("making", path))?;
    if sync { sync_parent(path) } else { Ok(()) }
}
