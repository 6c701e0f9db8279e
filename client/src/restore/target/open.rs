//! The one place that chooses how a path is written.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use super::{DeviceTarget, FileOptions, FileTarget, Target, failed};
use crate::error::ClientError;

/// Opens what `path` names for a disk of `size_bytes`: a block device if it is one, a new file otherwise.
///
/// # Errors
/// [`ClientError::Exists`] without `force` when `path` exists, [`ClientError::File`] when it cannot be written
/// or a device is too small.
pub fn open(path: &Path, size_bytes: u64, options: FileOptions) -> Result<Box<dyn Target>, ClientError> {
    match std::fs::metadata(path) {
        Ok(_) if !options.force => Err(ClientError::Exists(path.to_owned())),
        Ok(metadata) if metadata.file_type().is_block_device() => {
            Ok(Box::new(DeviceTarget::open(path, size_bytes)?))
        }
        Ok(metadata) if metadata.is_file() && options.in_place => {
            Ok(Box::new(DeviceTarget::open_file(path, size_bytes, options)?))
        }
        Ok(metadata) if !metadata.is_file() => {
            Err(failed("writing", path)(io::Error::other("it is neither a regular file nor a block device")))
        }
        Ok(_) => Ok(Box::new(FileTarget::create(path, size_bytes, options)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Box::new(FileTarget::create(path, size_bytes, options)?))
        }
        Err(error) => Err(failed("examining", path)(error)),
    }
}
