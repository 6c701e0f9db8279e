//! The right to write so many bytes.

use std::sync::Arc;

use super::{Ledger, Purpose, SpaceError};

/// What a file takes beside its bytes: an inode, a block that is not full, an entry of a folder.
const FILE_BYTES: u64 = 16 << 10;

/// What a volume may keep in its own memory of a blob being written, so that the file system does not know of
/// it yet: a local volume's write buffer.
const LAG_BYTES: u64 = 1 << 20;

/// Room promised to one blob. Dropping it gives back what was not written.
#[derive(Debug)]
pub(crate) struct Grant {
    ledger: Arc<Ledger>,
    purpose: Purpose,
    /// Promised in all.
    granted_bytes: u64,
    /// Known to be on the volume.
    written_bytes: u64,
}

impl Grant {
    /// For nothing yet.
    pub(crate) fn new(ledger: &Arc<Ledger>, purpose: Purpose) -> Self {
        Self { ledger: Arc::clone(ledger), purpose, granted_bytes: 0, written_bytes: 0 }
    }

    /// Makes sure that the blob may become `total_bytes` long.
    ///
    /// # Errors
    /// [`SpaceError::NoRoom`]; what was granted before stays. The volume's.
    pub(crate) fn cover(&mut self, total_bytes: u64) -> Result<(), SpaceError> {
        let wanted = total_bytes.saturating_add(FILE_BYTES);
        if wanted > self.granted_bytes {
            self.granted_bytes += self.ledger.promise(self.purpose, wanted - self.granted_bytes)?;
        }
        Ok(())
    }

    /// Takes note that the blob is `total_bytes` long.
    pub(crate) fn wrote(&mut self, total_bytes: u64) {
        let seen = total_bytes.saturating_sub(LAG_BYTES).min(self.granted_bytes);
        if seen > self.written_bytes {
            self.ledger.written(seen - self.written_bytes);
            self.written_bytes = seen;
        }
    }

    /// The blob is on the volume, and this long: the rest is free for others.
    pub(crate) fn sealed(mut self, total_bytes: u64) {
        let seen = total_bytes.min(self.granted_bytes);
        if seen > self.written_bytes {
            self.ledger.written(seen - self.written_bytes);
            self.written_bytes = seen;
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.ledger.give_back(self.granted_bytes.saturating_sub(self.written_bytes));
    }
}
