//! Room on the volume: promised before it is used, so that the reserve is kept exactly.
//!
//! One [`Ledger`] knows what the volume reports free and what is promised to blobs being written. A writer asks for
//! a [`Grant`] before it opens a blob and again before the blob grows past what was granted; what it did not use goes
//! back when the blob is sealed or discarded. However many agents write at once, the promises never add up to more
//! than there is, so none of them can take what is kept for the others.
//!
//! How far down each [`Purpose`] may go, with a reserve of R bytes:
//!
//! ```text
//! free space ──────────────────────────┬── R + headroom ──┬── R/2 ───────┬── R/4 ───────┬── 0
//!  data of backups, to here ───────────┘                  │              │              │
//!  copies of the catalog, to R (W15)                      │              │              │
//!  recipes, and the start of a backup, to here ───────────┘              │              │
//!  copies that reclaim makes before it deletes, to here ─────────────────┘              │
//!  sorted runs of the index, to here ───────────────────────────────────────────────────┘
//! ```
//!
//! So data that fills the volume leaves the reserve whole. From it live the recipe of a backup in which nothing changed,
//! the catalog's rows and log, the index, deletion, and what reclaim has to copy before it can delete. The catalog writes past the ledger: what its log may grow by
//! is in the headroom.
//!
//! Nothing of this is durable: after a crash the volume says what is free.

mod grant;
mod ledger;

pub(crate) use grant::Grant;
pub(crate) use ledger::{Ledger, SpaceError};

/// What room is for, and so how much of the reserve it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Chunks: nothing of the reserve.
    Data,
    /// Copies of the catalog and its snapshots: nothing of the reserve, which is for the catalog itself.
    Snapshot,
    /// Recipe nodes, and the start of a backup: half of the reserve.
    Recipe,
    /// What reclaim copies, a container at a time, before it deletes more than that: three quarters of the reserve.
    Reclaim,
    /// Sorted runs: all of the reserve. Without them what was sealed could not be found.
    Index,
}

impl Purpose {
    /// Bytes asked for at a time, so that the ledger is not locked for every region. Other writers cannot have
    /// what one of them was granted and does not use yet, so it is no more than a few regions.
    const fn step_bytes(self) -> u64 {
        match self {
            Self::Data => 4 << 20,
            Self::Recipe | Self::Reclaim | Self::Snapshot => 256 << 10,
            // Asked for in one piece.
            Self::Index => 0,
        }
    }

    /// What must stay free, of a reserve of `reserve` bytes.
    fn floor_bytes(self, reserve: u64) -> u64 {
        match self {
            Self::Data => reserve.saturating_add(HEADROOM_BYTES.min(reserve)),
            Self::Snapshot => reserve,
            Self::Recipe => reserve / 2,
            Self::Reclaim => reserve / 4,
            Self::Index => 0,
        }
    }
}

/// Kept free above the reserve for what is written without a grant: the catalog's log (SQLite folds it in at 1,000
/// pages of 4 KiB) and the rows of what is under way.
const HEADROOM_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests;
