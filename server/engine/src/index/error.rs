//! Errors of the index.

use std::sync::Arc;

use holdfast_types::ids::{ContainerId, RepositoryId};
use holdfast_volume::{BlobName, VolumeError};

use crate::format::{Defect, FormatError};

/// Error of a look-up or change of the index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A file is damaged. Nothing is lost: every entry is in a container's directory.
    #[error("index file {blob}: {source}; restart the server: a start rebuilds such an index by itself")]
    Damaged { blob: BlobName, source: FormatError },
    /// A page is damaged, as `Damaged`.
    #[error("page {page} of index file {blob}: {source}")]
    DamagedPage { blob: BlobName, run: u64, page: u32, source: FormatError },
    /// A page cannot be read from the disk, as `DamagedPage`.
    #[error("page {page} of index file {blob} cannot be read: {source}")]
    UnreadablePage { blob: BlobName, run: u64, page: u32, source: VolumeError },
    /// A file cannot be read from the disk, as `Damaged`.
    #[error(
        "index file {blob} cannot be read: {source}; restart the server: a start rebuilds such an index by itself"
    )]
    Unreadable { blob: BlobName, source: VolumeError },
    #[error(
        "index file {blob} is missing, but the manifest names it; restart the server: a start rebuilds such an index by itself"
    )]
    Missing { blob: BlobName },
    /// A newer format version. Not damage; never rebuild because of it.
    #[error("index file {blob}: {source}")]
    Unsupported { blob: BlobName, source: FormatError },
    /// A file of another repository: the data folder mixes files of two. Not damage either.
    #[error("index file {blob}: {source}; move files of another repository out of this data folder")]
    OtherRepository { blob: BlobName, source: FormatError },
    #[error("an entry given for container {expected} points into container {found}")]
    OtherContainer { found: ContainerId, expected: ContainerId },
    #[error("container number {0} is reserved and cannot be indexed")]
    ReservedContainer(ContainerId),
    /// A write in the background failed; the index takes nothing new until it is opened again, except
    /// after a full disk, when the next call tries again.
    #[error("index maintenance failed: {0}")]
    Maintenance(Arc<IndexError>),
    #[error("index maintenance panicked: {0}")]
    Panicked(String),
    #[error("the index is closed")]
    Closed,
    #[error("index manifest cannot be written: {0}")]
    Manifest(FormatError),
    #[error("cannot start the index's maintenance thread: {0}")]
    Thread(std::io::Error),
    /// Filters and fences would take more memory than the index may.
    #[error(
        "the index of {entries} entries needs {} MiB of memory, and {} MiB are set aside for it: give the server about {} MiB more memory (setting `memory`, or the limit of its control group)",
        needed_bytes >> 20, limit_bytes >> 20, needed_bytes.saturating_sub(*limit_bytes).saturating_mul(5) >> 20
    )]
    TooLarge { entries: u64, needed_bytes: u64, limit_bytes: u64 },
    #[error("no memory for {bytes} bytes of the index's write buffer")]
    OutOfMemory { bytes: usize },
    #[error("cannot get a random index secret: {0}")]
    Random(String),
}

impl IndexError {
    /// Returns true if a rebuild from the container directories is the remedy.
    pub fn needs_rebuild(&self) -> bool {
        match self {
            Self::Damaged { .. }
            | Self::Unreadable { .. }
            | Self::DamagedPage { .. }
            | Self::UnreadablePage { .. }
            | Self::Missing { .. } => true,
            Self::Maintenance(inner) => inner.needs_rebuild(),
            _ => false,
        }
    }

    /// The sorted run and the page, when one page is what is damaged: the index repairs that by itself.
    pub fn bad_page(&self) -> Option<(u64, u32)> {
        match self {
            Self::DamagedPage { run, page, .. } | Self::UnreadablePage { run, page, .. } => {
                Some((*run, *page))
            }
            Self::Maintenance(inner) => inner.bad_page(),
            _ => None,
        }
    }

    /// Returns true if the disk could not read a file of the index.
    pub fn is_read_failure(&self) -> bool {
        match self {
            Self::Volume(VolumeError::Io { .. }) => true,
            Self::Maintenance(inner) => inner.is_read_failure(),
            _ => false,
        }
    }

    /// Returns true if a file of the index cannot be read at the moment.
    pub fn is_unreadable_now(&self) -> bool {
        match self {
            Self::Volume(error) => error.is_unreadable_now(),
            Self::Maintenance(inner) => inner.is_unreadable_now(),
            _ => false,
        }
    }

    /// Returns true if the volume had no room left; the same call may succeed once there is room.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Volume(error) => error.is_full(),
            Self::Maintenance(inner) => inner.is_full(),
            _ => false,
        }
    }

    /// Returns true if it needs more memory than it may use.
    pub const fn is_too_large(&self) -> bool {
        matches!(self, Self::TooLarge { .. })
    }

    /// Returns true if the failure may pass by itself, so that the next call tries again. All other errors stop the
    /// index.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Volume(error) => error.is_full() || error.is_retryable(),
            Self::Maintenance(inner) => inner.may_pass(),
            _ => false,
        }
    }

    /// The error for a file that could not be read, twice.
    pub(super) fn reading(blob: &BlobName, source: VolumeError) -> Self {
        match source {
            VolumeError::Io { .. } => Self::Unreadable { blob: blob.clone(), source },
            other => Self::Volume(other),
        }
    }

    /// The error for a file whose bytes are not what they should be.
    pub(super) fn in_blob(blob: &BlobName, source: FormatError) -> Self {
        let blob = blob.clone();
        match source {
            FormatError::Unsupported { .. } => Self::Unsupported { blob, source },
            FormatError::Corrupt { defect: Defect::Foreign { .. }, .. } => {
                Self::OtherRepository { blob, source }
            }
            FormatError::Corrupt { .. } => Self::Damaged { blob, source },
        }
    }
}

/// Reads again what the disk failed to give back: what fails twice is damage.
pub(super) fn twice<T>(mut read: impl FnMut() -> Result<T, VolumeError>) -> Result<T, VolumeError> {
    match read() {
        Err(VolumeError::Io { .. }) => read(),
        done => done,
    }
}

/// Fails unless a file of the index belongs to this repository.
pub(super) fn check_repository(
    structure: &'static str,
    found: RepositoryId,
    expected: RepositoryId,
) -> Result<(), FormatError> {
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (found.to_string(), expected.to_string());
    Err(FormatError::corrupt(structure, Defect::Foreign { field: "repository", found, expected }))
}
