//! Errors of containers. Every message begins with the container's name.

use holdfast_proto::ErrorCode;
use holdfast_proto::region::RegionError;
use holdfast_volume::{BlobName, VolumeError};

use crate::format::{Defect, FormatError};

/// Error of writing or reading a container.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The volume failed, or has no such container.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The disk does not give back what was written: of a region, or of header, footer or directory.
    #[error("{container}{}: {source}", of_region(*region))]
    Unreadable { container: BlobName, region: Option<u16>, source: VolumeError },
    /// The file is not as long as the catalog says.
    #[error("{container}: its file is {found} bytes long; it was sealed with {sealed}")]
    Length { container: BlobName, found: u64, sealed: u64 },
    /// Header, directory or footer are damaged, or newer than this build.
    #[error("{container}: {source}")]
    Structure { container: BlobName, source: FormatError },
    /// A region's header or payload is damaged; the rest of the container may be sound.
    #[error("{container}, region {region}: {source}")]
    RegionStructure { container: BlobName, region: u16, source: FormatError },
    /// A region's payload is what was written, but does not decode to what its fingerprints say.
    #[error("{container}, region {region}: {source}")]
    Content { container: BlobName, region: u16, source: RegionError },
    /// A reference names a region that the container does not have.
    #[error("{container} has {count} regions; region {region} was asked for")]
    NoSuchRegion { container: BlobName, region: u16, count: usize },
    /// The directory places a chunk outside its region's plain bytes.
    #[error("{container}, region {region}: a chunk lies at {offset} + {bytes} of {plain_bytes} plain bytes")]
    ChunkOutside { container: BlobName, region: u16, offset: u32, bytes: u32, plain_bytes: usize },
    /// The region does not fit any more: a caller did not ask [`super::ContainerWriter::fits`].
    #[error("{container} is full")]
    NoRoom { container: BlobName },
}

impl ContainerError {
    /// Returns true if stored data is damaged or missing, so that another copy, if there is one, must serve.
    pub const fn is_damage(&self) -> bool {
        match self {
            // Data that only an agent can read is as it should be.
            Self::Content { source: RegionError::Sealed, .. } => false,
            Self::Volume(VolumeError::NotFound { .. })
            | Self::Structure { source: FormatError::Corrupt { .. }, .. }
            | Self::RegionStructure { source: FormatError::Corrupt { .. }, .. }
            | Self::Unreadable { .. }
            | Self::Length { .. }
            | Self::Content { .. }
            | Self::NoSuchRegion { .. }
            | Self::ChunkOutside { .. } => true,
            Self::Volume(_) | Self::Structure { .. } | Self::RegionStructure { .. } | Self::NoRoom { .. } => {
                false
            }
        }
    }

    /// Returns true if nothing of the container can be read: the file is lost, or the volume cannot read it.
    pub const fn is_absence(&self) -> bool {
        matches!(self, Self::Volume(VolumeError::NotFound { .. }) | Self::Unreadable { region: None, .. })
    }

    /// Returns true if it was sealed with a key that is not available. That is no evidence of damage.
    pub fn lacks_key(&self) -> bool {
        matches!(self, Self::Volume(error) if error.lacks_key())
    }

    /// Returns true if it exists and cannot be read until something changes: it is in an archive, access is refused, or
    /// its key is not available. That is no evidence of damage.
    pub const fn is_unreadable_now(&self) -> bool {
        matches!(self, Self::Volume(VolumeError::NotReadableNow { .. }))
    }

    /// Returns true if there is no such file: it may have been deleted.
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Volume(VolumeError::NotFound { .. }))
    }

    /// The region that is concerned, when only one is.
    pub const fn region(&self) -> Option<u16> {
        match self {
            Self::RegionStructure { region, .. }
            | Self::Content { region, .. }
            | Self::NoSuchRegion { region, .. }
            | Self::ChunkOutside { region, .. } => Some(*region),
            Self::Unreadable { region, .. } => *region,
            Self::Volume(_) | Self::Length { .. } | Self::Structure { .. } | Self::NoRoom { .. } => None,
        }
    }

    /// The stable code of this error.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Volume(error) if error.is_full() => ErrorCode::Full,
            Self::Structure { source: FormatError::Unsupported { .. }, .. }
            | Self::RegionStructure { source: FormatError::Unsupported { .. }, .. } => ErrorCode::Unsupported,
            _ if self.is_damage() => ErrorCode::Damaged,
            _ => ErrorCode::Internal,
        }
    }

    /// Opening or reading `container` failed. A blob that ends too early is damage, and so is a disk that cannot
    /// read it: another copy must serve. What only says that it cannot be read now is not.
    pub(super) fn reading(container: &BlobName, region: Option<u16>, error: VolumeError) -> Self {
        match error {
            VolumeError::OutOfRange { len, offset, wanted, .. } => {
                let needed = offset.saturating_add(wanted);
                let source = FormatError::corrupt("file", Defect::TooShort { len, needed });
                Self::in_region(container, region, source)
            }
            source @ VolumeError::Io { .. } => {
                Self::Unreadable { container: container.clone(), region, source }
            }
            other => Self::Volume(other),
        }
    }

    pub(super) fn in_region(container: &BlobName, region: Option<u16>, source: FormatError) -> Self {
        let container = container.clone();
        match region {
            Some(region) => Self::RegionStructure { container, region, source },
            None => Self::Structure { container, source },
        }
    }
}

fn of_region(region: Option<u16>) -> String {
    region.map(|region| format!(", region {region}")).unwrap_or_default()
}
