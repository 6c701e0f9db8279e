//! Disks that a server offers, by name.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::connection::Extent;

/// A disk that a server shows. Its bytes never change.
pub trait Disk: Send + Sync {
    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// Fills `buffer` with the bytes from `offset` on, all of which the disk has.
    ///
    /// # Errors
    /// They cannot be read. The client is told the text.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// The extents of `range`, in order and without gaps; they cover its first byte at least, and reach beyond it or not.
    ///
    /// # Errors
    /// As [`Disk::read_at`].
    fn extents(&self, range: Range<u64>) -> io::Result<Vec<Extent>>;

    /// Returns true if these bytes are in memory, so that reading them does not take long.
    fn is_at_hand(&self, range: Range<u64>) -> bool;
}

/// The disks of a server, by name.
pub struct Exports {
    /// Shown under the empty name, too.
    default: Option<Arc<dyn Disk>>,
    named: Vec<(String, Arc<dyn Disk>)>,
}

impl Exports {
    /// Disks by name, and the one that clients get who name none.
    pub fn new(named: Vec<(String, Arc<dyn Disk>)>, default: Option<Arc<dyn Disk>>) -> Self {
        Self { default, named }
    }

    /// The disk of this name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<dyn Disk>> {
        if name.is_empty() {
            return self.default.clone();
        }
        self.named
            .iter()
            .find(|(candidate, _)| candidate.as_bytes() == name)
            .map(|(_, disk)| Arc::clone(disk))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }
}

impl std::fmt::Debug for Exports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
