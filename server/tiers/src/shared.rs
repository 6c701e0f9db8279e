//! What the volume, the copies, the lease and moving share.

use std::sync::{Arc, OnceLock};

use holdfast_types::clock::Clock;
use holdfast_volume::{BlobName, LockMode, Volume, VolumeError};

use crate::asked::Asked;
use crate::asking::Asking;
use crate::cold::Cold;
use crate::kinds::Kind;
use crate::record::Record;
use crate::remote::Remote;
use crate::thawed::ThawCache;
use crate::waiting::Waiting;

/// Whether a blob may leave this machine, by its name.
pub type Travels = fn(&BlobName) -> bool;

/// What the volume and the copies share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) local: Arc<dyn Volume>,
    pub(crate) remote: Remote,
    pub(crate) record: Arc<Record>,
    pub(crate) waiting: Waiting,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) may_travel: Travels,
    pub(crate) cold: Cold,
    /// The storage class of what is to be cold; none: nothing is.
    pub(crate) archive_class: OnceLock<String>,
    pub(crate) asked: Asked,
    pub(crate) asking: Asking,
    /// How what locked restore points need is made to stay; none: it is not.
    pub(crate) retention: OnceLock<LockMode>,
    /// What was thawed and is kept here; none: nothing is.
    pub(crate) thawed: OnceLock<ThawCache>,
}

impl Shared {
    /// Whether a thawed copy of the blob is kept here, long enough for a restore that is yet to begin.
    pub(crate) fn is_kept(&self, name: &BlobName) -> bool {
        // Most are not, and the record need not be asked of them.
        self.thawed.get().filter(|thawed| thawed.may_have(name)).is_some_and(|thawed| {
            let len = self.record.visible(name).ok().flatten();
            len.is_some_and(|len| thawed.has_for_long(name, len))
        })
    }

    /// (T16) A thawed copy that is kept here goes, if there is one.
    pub(crate) fn forget_kept(&self, name: &BlobName) -> Result<(), VolumeError> {
        self.thawed.get().map_or(Ok(()), |thawed| thawed.forget(name))
    }

    /// What `name` is, if it is to be copied. What is not may still lie there, from a time when it was.
    pub(crate) fn travels(&self, name: &BlobName) -> Option<Kind> {
        Kind::of(name).filter(|_| (self.may_travel)(name))
    }
}
