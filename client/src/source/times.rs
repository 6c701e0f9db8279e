//! Detects that a file was written to while it was read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// When a file was last written to, to the nanosecond. `mtime` can be set back by its owner, `ctime` cannot; a new
/// mode or link changes `ctime`, too, so a difference says that the file *may* have been written to.
///
/// Writes that the file system has not dated yet go unnoticed: those within one tick of its clock (some
/// milliseconds), and those through a memory map until they are flushed. The times of a block device's node say
/// nothing about writes to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteTimes {
    /// Seconds and nanoseconds.
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl WriteTimes {
    /// Returns the times of an open file.
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns true if the file's bytes were last written at the same moment, whatever else was changed.
    pub(super) fn is_same_write(self, other: Self) -> bool {
        self.mtime == other.mtime
    }

    /// Returns the later times of two files, as if they were one.
    pub(super) fn latest(self, other: Self) -> Self {
        Self { mtime: self.mtime.max(other.mtime), ctime: self.ctime.max(other.ctime) }
    }
}
