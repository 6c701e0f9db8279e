//! Parity: a group of containers and a blob from which as many of them as it has spares can be made again.
//!
//! A blob is `parity/NUMBER`, ten hexadecimal digits. It is written for containers that were read and found sound, and
//! never changes (A2). What is made of it is checked window by window, and as a whole where all of it could be made, and is no
//! copy until it was read as the container it must be (R1, R2).
//!
//! Nothing here knows the catalog, which says which container is in which group. A crash leaves an unfinished blob, which
//! the start discards, or a blob that the catalog does not know.

mod read;
mod write;

use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_types::ids::ContainerId;
use holdfast_volume::BlobName;

pub use crate::format::parity::{MEMBERS_MAX, SPARES_MAX};
#[cfg(test)]
pub use read::reconstruct_bytes;
pub use read::{prove, read_members, reconstruct, repairable};
pub use write::{Group, write};

/// The folder of all parity.
#[expect(clippy::expect_used, reason = "a constant")]
pub fn folder() -> BlobName {
    BlobName::new("parity").expect("a valid name")
}

/// The blob of a group.
#[expect(clippy::expect_used, reason = "made of digits")]
pub fn name(number: ContainerId) -> BlobName {
    BlobName::new(format!("parity/{number}")).expect("a valid name")
}

/// The group of a blob.
pub fn parse(blob: &BlobName) -> Option<ContainerId> {
    let digits = blob.as_str().strip_prefix("parity/")?;
    let number = ContainerId::new(u64::from_str_radix(digits, 16).ok()?)?;
    (name(number) == *blob).then_some(number)
}

/// Counted while the engine runs.
#[derive(Debug, Default)]
pub struct ParityCounters {
    read: AtomicU64,
    repaired: AtomicU64,
}

/// Since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParityStats {
    /// Damaged containers made again in memory, because something was to be read of them.
    pub read: u64,
    /// Damaged containers of which everything damaged was written into sound ones.
    pub repaired: u64,
}

impl ParityCounters {
    pub fn read(&self) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    pub fn repaired(&self) {
        self.repaired.fetch_add(1, Ordering::Relaxed);
    }

    pub fn stats(&self) -> ParityStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ParityStats { read: count(&self.read), repaired: count(&self.repaired) }
    }
}
