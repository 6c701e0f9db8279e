//! What the volume, the copies, the lease and moving share.

use std::sync::{Arc, OnceLock};

use holdfast_types::clock::Clock;
use holdfast_volume::{BlobName, LockMode, Volume};

use crate::asked::Asked;
use crate::asking::Asking;
use crate::cold::Cold;
use crate::kinds::Kind;
use crate::record::Record;
use crate::remote::Remote;
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
}

impl Shared {
    /// What `name` is, if it is to be copied. What is not may still lie there, from a time when it was.
    pub(crate) fn travels(&self, name: &BlobName) -> Option<Kind> {
        Kind::of(name).filter(|_| (self.may_travel)(name))
    }
}
