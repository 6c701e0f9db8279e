//! Sources of a backup's bytes.
//!
//! [`Source`] is what the rest of the agent knows of a disk; [`open()`] is the only place that chooses an
//! implementation: raw files and block devices (`raw.rs`), and what is read over NBD (`nbd.rs`): exports of other programs, and
//! images, which a child of ours opens (`format.rs`, `chain.rs`, `qemu.rs`). To add one (a running VM): a file beside them that implements the
//! trait, an arm in `open.rs`, and a test that passes the source to `testing::suite`.
//!
//! Nothing here writes to a disk that is read. A disk that changes size, cannot be read at an offset or vanishes ends in an error
//! that names the disk, its location and the offset; the disk is then left out of the backup, or the backup given up
//! if it was the only one. A disk that is written to without changing size is only reported, unless the server needs once
//! more what was overwritten.

mod chain;
mod error;
mod format;
mod nbd;
mod open;
pub(crate) mod qemu;
mod raw;
mod read;
mod spec;
#[cfg(test)]
pub(crate) mod testing;
mod times;
mod uncached;
pub mod walk;

use std::fmt::Debug;
use std::ops::Range;

use holdfast_proto::limits::{EXTENT_BYTES, extent_count};

pub use error::SourceError;
pub use format::Format;
pub use nbd::NbdDisk;
pub use open::{FailedDisk, Opening, open, open_all, open_as, open_each};
pub(crate) use qemu::tail;
pub use raw::RawDisk;
pub use read::read;
pub use spec::DiskArgument;
pub use times::WriteTimes;

/// One open disk: a flat array of bytes, whatever format it is stored in.
///
/// Many threads read one source at the same time, each at its own offset. Calls may block; they are made
/// from threads that may wait.
pub trait Source: Debug + Send + Sync {
    /// The disk's name within the backup.
    fn name(&self) -> &str;

    /// Location of the bytes, for messages: a path or an address.
    fn location(&self) -> &str;

    /// Size of the disk in bytes, as it was when opened. It never changes afterwards: a disk that is resized
    /// fails [`Source::check_unchanged`].
    fn size_bytes(&self) -> u64;

    /// Returns the disk's segments from `range.start` on: without gaps or overlaps, none empty, that reach
    /// `range.end` at least. The last may reach further, up to the disk's end, so that a hole of a terabyte
    /// takes one call. Where the source cannot tell, everything is [`Content::Data`].
    ///
    /// `range` is not empty and lies within the disk.
    ///
    /// # Errors
    /// [`SourceError::Read`] when the source cannot be asked.
    fn segments(&self, range: Range<u64>) -> Result<Vec<Segment>, SourceError>;

    /// Fills all of `buffer` with the bytes from `offset` on; holes read as zeros.
    ///
    /// # Errors
    /// [`SourceError::Read`] at the offset that failed, [`SourceError::Resized`] when the disk ends before
    /// `buffer` is full. Never a short read.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError>;

    /// Returns true if the bytes can change while they are read. A snapshot cannot; a file or a device can.
    fn can_change(&self) -> bool;

    /// Checks that the disk is still the one that was opened, of the size it had. Called at its end, for
    /// sources that [can change](Source::can_change). `offset` is how far reading has come, for the error.
    ///
    /// # Errors
    /// [`SourceError::Resized`], [`SourceError::Replaced`] or [`SourceError::Read`].
    fn check_unchanged(&self, offset: u64) -> Result<(), SourceError>;

    /// When the disk was last written to, where that can be told: compared before and after reading it, for a
    /// warning. `None`: it cannot be told, or the bytes cannot change.
    ///
    /// # Errors
    /// [`SourceError::Read`] when the source cannot be asked.
    fn write_times(&self) -> Result<Option<WriteTimes>, SourceError> {
        Ok(None)
    }

    /// The id of the backup since which the source has tracked changes (a dirty bitmap), if it does. Only
    /// then may its segments be [`Content::Unchanged`], and only a backup whose parent is this one believes
    /// them.
    fn changes_since(&self) -> Option<&str> {
        None
    }
}

/// A span of a disk with one kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    pub content: Content,
}

/// Content of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Bytes to be read.
    Data,
    /// Zeros, without reading.
    Hole,
    /// The same bytes as in the backup that [`Source::changes_since`] names. Reading them works as well.
    Unchanged,
}

/// The bytes of `count` extents from extent `first` on, of a disk of `size_bytes`.
///
/// # Panics
/// When the disk does not have these extents.
pub fn extent_bytes(size_bytes: u64, first: u64, count: u64) -> Range<u64> {
    let extents = extent_count(size_bytes);
    assert!(
        count > 0 && first < extents && count <= extents - first,
        "extents {first} + {count} of a disk of {extents}"
    );
    let extent_len = u64::from(EXTENT_BYTES);
    first * extent_len..((first + count) * extent_len).min(size_bytes)
}
