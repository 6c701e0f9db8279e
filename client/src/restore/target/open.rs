//! The one place that chooses how a path is written.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use super::{DeviceTarget, FileTarget, Target, failed};
use crate::error::ClientError;

/// Mode of restored files unless another is asked for: a disk's bytes include its passwords and keys.
pub const MODE_DEFAULT: u32 = 0o600;

/// How a restored file is made.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    /// Replace a file that exists, or write to a block device.
    pub force: bool,
    /// Flush the file before it counts as complete.
    pub sync: bool,
    /// Permission bits of the complete file, whatever the umask is and whatever file it replaces. A block device
    /// keeps its own.
    pub mode: u32,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { force: false, sync: true, mode: MODE_DEFAULT }
    }
}

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
