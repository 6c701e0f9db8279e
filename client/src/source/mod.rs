//! Where a backup's bytes come from: raw files and block devices, opened once and watched for change.
//!
//! Nothing here writes. A disk that changes size, cannot be read at an offset or vanishes ends in an error
//! that names the disk, the path and the place; the backup is then given up as a whole.

pub mod disk;
pub mod extents;
pub mod spec;

use std::ops::Range;
use std::path::PathBuf;

use holdfast_proto::limits::{EXTENT_BYTES, extent_count};

pub use disk::SourceDisk;
pub use spec::DiskArgument;

/// Why a disk cannot be backed up.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{0}")]
    Argument(String),
    #[error("cannot open {}: {source}", .path.display())]
    Open { path: PathBuf, source: std::io::Error },
    #[error("{} is {what}; a disk is a raw image file or a block device", .path.display())]
    NotADisk { path: PathBuf, what: &'static str },
    #[error("{} is {size_bytes} bytes long; a disk has at most {} bytes", .path.display(), holdfast_proto::limits::DISK_MAX_BYTES)]
    TooLarge { path: PathBuf, size_bytes: u64 },
    #[error("disk {disk}: reading {} at offset {offset} failed: {source}", .path.display())]
    Read { disk: String, path: PathBuf, offset: u64, source: std::io::Error },
    #[error(
        "disk {disk}: {} changed its size from {before} to {after} bytes while it was read (seen at offset \
         {offset}); back up a snapshot, or stop whatever resizes it",
        .path.display()
    )]
    Resized { disk: String, path: PathBuf, before: u64, after: u64, offset: u64 },
    #[error(
        "disk {disk}: {} vanished or was replaced while it was read (seen at offset {offset})",
        .path.display()
    )]
    Vanished { disk: String, path: PathBuf, offset: u64 },
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
