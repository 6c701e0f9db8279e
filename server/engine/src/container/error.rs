//! What can go wrong with a container. Every message begins with the container's name.

use holdfast_proto::ErrorCode;
use holdfast_proto::region::RegionError;
use holdfast_volume::{BlobName, VolumeError};

use crate::format::{Defect, FormatError};

/// Why a container cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The volume failed, or has no such container.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Header, directory or footer are damaged, or newer than this build.
    #[error("{container}: {source}")]
    Structure { container: BlobName, source: FormatError },
    /// A region's header or payload is damaged; the rest of the container may be sound.
    #[error("{container}, region {region}: {source}")]
    RegionStructure { container: BlobName, region: u16, source: FormatError },
    /// A region's payload is what was written, but does not decode to what its fingerprints say.
    #[error("{container}, region {region}: {source}")]
    Content { container: BlobName, region: u16, source: RegionError },
    /// Something refers to a region that the container does not have.
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
    /// Whether stored data is damaged or missing, so that another copy, if there is one, must serve.
    pub const fn is_damage(&self) -> bool {
        match self {
            Self::Volume(VolumeError::NotFound { .. })
            | Self::Structure { source: FormatError::Corrupt { .. }, .. }
            | Self::RegionStructure { source: FormatError::Corrupt { .. }, .. }
            | Self::Content { .. }
            | Self::NoSuchRegion { .. }
            | Self::ChunkOutside { .. } => true,
            Self::Volume(_) | Self::Structure { .. } | Self::RegionStructure { .. } | Self::NoRoom { .. } => {
                false
            }
        }
    }

    /// The region that is concerned, when only one is.
    pub const fn region(&self) -> Option<u16> {
        match self {
            Self::RegionStructure { region, .. }
            | Self::Content { region, .. }
            | Self::NoSuchRegion { region, .. }
            | Self::ChunkOutside { region, .. } => Some(*region),
            Self::Volume(_) | Self::Structure { .. } | Self::NoRoom { .. } => None,
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

    /// A read of `container` failed. A blob that ends too early is damage, not a failing volume.
    pub(super) fn reading(container: &BlobName, region: Option<u16>, error: VolumeError) -> Self {
        let VolumeError::OutOfRange { len, offset, wanted, .. } = error else { return Self::Volume(error) };
        let needed = offset.saturating_add(wanted);
        let source = FormatError::corrupt("file", Defect::TooShort { len, needed });
        Self::in_region(container, region, source)
    }

    pub(super) fn in_region(container: &BlobName, region: Option<u16>, source: FormatError) -> Self {
        let container = container.clone();
        match region {
            Some(region) => Self::RegionStructure { container, region, source },
            None => Self::Structure { container, source },
        }
    }
}
