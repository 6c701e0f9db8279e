//! Options of making a restored file.

use crate::source::Format;

/// Mode of restored files unless another is asked for: a disk's bytes include its passwords and keys.
pub const MODE_DEFAULT: u32 = 0o600;

/// Options of making a restored file.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    /// Replace a file that exists, or write to a block device.
    pub force: bool,
    /// Flush the file before it counts as complete.
    pub sync: bool,
    /// Permission bits of the complete file, whatever the umask is and whatever file it replaces. A block device
    /// keeps its own.
    pub mode: u32,
    /// Format of a file; a block device and an export get the bytes of the disk.
    pub format: Format,
    /// Write into a regular file that exists instead of replacing it, so that what is not written stays.
    pub in_place: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { force: false, sync: true, mode: MODE_DEFAULT, format: Format::Raw, in_place: false }
    }
}
