//! Errors that stop copying.

use holdfast_volume::{BlobName, VolumeError};

use crate::holder::Holder;
use crate::record::RecordError;

/// Why copying cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("cannot copy to the bucket: {0}")]
    Remote(#[source] VolumeError),
    #[error("cannot read what is to be copied: {0}")]
    Local(#[source] VolumeError),
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Unreachable: the copier creates the lease.
    #[error("it is not said who writes to the bucket")]
    Unnamed,
    #[error(
        "the bucket holds copies of another repository there (its blob \"repository\" is not this repository's): name another \
         bucket or prefix; nothing was changed there"
    )]
    OtherRepository,
    #[error(
        "the bucket has no Object Lock, which s3_object_lock needs, so nothing of locked restore points is made to stay there: turn \
         it on (versioning first: 'aws s3api put-bucket-versioning --bucket BUCKET --versioning-configuration Status=Enabled', then \
         'aws s3api put-object-lock-configuration --bucket BUCKET --object-lock-configuration ObjectLockEnabled=Enabled'), copy to a \
         bucket that was made with it, or set s3_object_lock = \"off\""
    )]
    NoObjectLock,
    #[error(
        "{0} writes to the bucket, and a bucket has one writer: nothing is copied or removed from here, and nothing else \
         suffers. When that server is gone for good: 'holdfast-server tier take-over'"
    )]
    Leased(Holder),
    #[error(
        "the bucket cannot be taken over from {holder}: it is not what this data folder knows of it ({more} objects more, {fewer} \
         fewer), because another server wrote there, or objects were deleted. Recover again into a new data folder while nothing \
         writes, and take the bucket over from there; nothing was changed"
    )]
    Changed { holder: Holder, more: u64, fewer: u64 },
    #[error(
        "the bucket's lease is missing, and the bucket is not what this data folder knows of it ({more} objects more, {fewer} \
         fewer): another server may have written there, or objects were deleted. Find out which, put back what can be, and \
         start again; where this server is the one to go on, 'holdfast-server tier take-over'. Nothing was changed"
    )]
    NoLease { more: u64, fewer: u64 },
    #[error(
        "{name} lies in the bucket with other content ({there} bytes, {here} here): another server writes there, or it was \
         damaged or replaced. Find out which; once it is certain that nothing needs it, delete the object and copying goes on"
    )]
    Other { name: BlobName, here: u64, there: u64 },
}

impl CopyError {
    /// Converts it to a failure to do `action` with the blob `name`.
    pub(crate) fn of_blob(self, action: &'static str, name: &BlobName) -> VolumeError {
        match self {
            Self::Remote(error) | Self::Local(error) => error,
            Self::Record(error) => error.of_blob(action, name),
            error => VolumeError::NotReadableNow { name: name.to_string(), source: error.into() },
        }
    }

    /// Returns true if a retry may succeed.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Remote(_))
    }
}
