//! Why copying does not go on.

use holdfast_volume::{BlobName, VolumeError};

use crate::holder::Holder;
use crate::record::RecordError;

/// Why copying does not go on.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("cannot copy to the bucket: {0}")]
    Remote(#[source] VolumeError),
    #[error("cannot read what is to be copied: {0}")]
    Local(#[source] VolumeError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(
        "the bucket holds copies of another repository there (its blob \"repository\" is not this repository's): name another \
         bucket or prefix; nothing was changed there"
    )]
    OtherRepository,
    #[error(
        "{0} writes to the bucket, and a bucket has one writer: nothing is copied or removed from here, and nothing else \
         suffers. When that server is gone for good: 'holdfast-server tier take-over'"
    )]
    Leased(Holder),
    #[error(
        "the bucket cannot be taken over from {holder}: it is not what this data folder knows of it ({more} objects more, {fewer} \
         fewer), because that server went on writing there. Recover again into a new data folder while nothing writes, and take \
         the bucket over from there; nothing was changed"
    )]
    Changed { holder: Holder, more: u64, fewer: u64 },
    #[error(
        "{name} lies in the bucket with other content ({there} bytes, {here} here): another server writes there, or it was \
         damaged or replaced. Find out which; once it is certain that nothing needs it, delete the object and copying goes on"
    )]
    Other { name: BlobName, here: u64, there: u64 },
}

impl CopyError {
    /// Whether time may cure it.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Remote(_))
    }
}
