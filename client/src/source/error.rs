//! Why a disk cannot be backed up.

use std::io;
use std::path::Path;

use holdfast_proto::limits::DISK_MAX_BYTES;

use super::Source;

/// Why a disk cannot be opened, or can no longer be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A disk on the command line is not named properly.
    #[error("{0}")]
    Argument(String),
    #[error("cannot open {location}: {source}")]
    Open { location: String, source: io::Error },
    #[error("{location} is {what}; give a raw image file or a block device")]
    NotADisk { location: String, what: &'static str },
    /// An image that is not opened as it is, or a disk that may be one: the command line must say what is meant.
    #[error("{location} {why}")]
    Image { location: String, why: String },
    /// An image that is not whole: nothing on the command line helps.
    #[error("{location} {why}")]
    Damaged { location: String, why: String },
    #[error("reading the image {location} takes qemu-nbd, which is not installed; {PACKAGE}", PACKAGE = super::qemu::PACKAGE)]
    NoProgram { location: String },
    #[error("{location} is {size_bytes} bytes long; the largest supported disk has {DISK_MAX_BYTES} bytes")]
    TooLarge { location: String, size_bytes: u64 },
    #[error("disk {disk}: cannot read {location} at offset {offset}: {source}")]
    Read { disk: String, location: String, offset: u64, source: io::Error },
    #[error(
        "disk {disk}: {location} changed size from {before} to {after} bytes while it was being read (noticed \
         at offset {offset}); back up a snapshot, or stop what resizes it"
    )]
    Resized { disk: String, location: String, before: u64, after: u64, offset: u64 },
    #[error(
        "disk {disk}: {location} was removed or replaced while it was being read (noticed at offset {offset}); \
         back up a snapshot, or run the backup again"
    )]
    Replaced { disk: String, location: String, offset: u64 },
    #[error(
        "disk {disk}: {location} was written to while it was being read (noticed at offset {offset}), and an image that \
         changes cannot be read; back up a snapshot, or stop what writes to it"
    )]
    Changed { disk: String, location: String, offset: u64 },
    #[error(
        "disk {disk}: {location} was written to during the backup: what was read of the 4 MiB at offset {offset} is no \
         longer there, and the server asked for it once more, because another backup that was sending the same data \
         ended early; back up a snapshot, or run the backup again"
    )]
    Written { disk: String, location: String, offset: u64 },
}

impl SourceError {
    /// The disk that can no longer be read; `None` when it has not been opened.
    pub fn disk(&self) -> Option<&str> {
        match self {
            Self::Read { disk, .. }
            | Self::Resized { disk, .. }
            | Self::Replaced { disk, .. }
            | Self::Changed { disk, .. }
            | Self::Written { disk, .. } => Some(disk),
            Self::Argument(_)
            | Self::Open { .. }
            | Self::NotADisk { .. }
            | Self::Image { .. }
            | Self::Damaged { .. }
            | Self::NoProgram { .. }
            | Self::TooLarge { .. } => None,
        }
    }

    /// Opening `path` failed.
    pub(super) fn open(path: &Path, source: io::Error) -> Self {
        Self::Open { location: path.display().to_string(), source }
    }

    /// Reading `disk`, or asking about it, failed at `offset`.
    pub(super) fn read(disk: &dyn Source, offset: u64, source: io::Error) -> Self {
        let (disk, location) = (disk.name().to_owned(), disk.location().to_owned());
        Self::Read { disk, location, offset, source }
    }

    /// `disk` now has `after` bytes.
    pub(super) fn resized(disk: &dyn Source, after: u64, offset: u64) -> Self {
        let before = disk.size_bytes();
        let (disk, location) = (disk.name().to_owned(), disk.location().to_owned());
        Self::Resized { disk, location, before, after, offset }
    }

    /// The location of `disk` leads nowhere, or to another disk.
    pub(super) fn replaced(disk: &dyn Source, offset: u64) -> Self {
        let (disk, location) = (disk.name().to_owned(), disk.location().to_owned());
        Self::Replaced { disk, location, offset }
    }

    /// A file of an image was written to.
    pub(super) fn changed(file: &dyn Source, offset: u64) -> Self {
        let (disk, location) = (file.name().to_owned(), file.location().to_owned());
        Self::Changed { disk, location, offset }
    }

    /// Creates the error for data of `disk` at `offset` that is needed once more and no longer there.
    pub(crate) fn written(disk: &dyn Source, offset: u64) -> Self {
        let (disk, location) = (disk.name().to_owned(), disk.location().to_owned());
        Self::Written { disk, location, offset }
    }
}
