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
//! the catalog's rows and log, the index, deletion, and what reclaim has to copy before it can delete. The catalog writes
//! past the ledger: what its log may grow by is in the headroom.
//!
//! Nothing of this is durable: after a crash the volume says what is free.

use std::sync::Arc;

use holdfast_volume::{Space, Volume, VolumeError};
use parking_lot::Mutex;

/// Purpose of room, which decides how much of the reserve it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Chunks: nothing of the reserve.
    Data,
    /// Copies of the catalog and its snapshots: nothing of the reserve, which is for the catalog itself.
    Snapshot,
    /// Recipe nodes, and the start of a backup: half of the reserve.
    Recipe,
    /// Copies that reclaim makes, a container at a time, before it deletes more than that: three quarters of the reserve.
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

    /// Bytes that must stay free, of a reserve of `reserve` bytes.
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

/// Room that a file takes beside its bytes: an inode, a block that is not full, an entry of a folder.
const FILE_BYTES: u64 = 16 << 10;

/// Bytes that a volume may keep in its own memory of a blob being written, so that the file system does not know of
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
    /// Creates a grant of no bytes.
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

/// Bytes promised between two looks at the volume: others may write to it as well, and the file system needs some
/// room of its own. A refusal is never made without a look.
const LOOK_INTERVAL_BYTES: u64 = 64 << 20;

/// Reason for which there is no grant.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpaceError {
    #[error(
        "the repository has {} MiB free, of which {} MiB are promised to backups being written and {} MiB are kept for housekeeping; {wanted_bytes} bytes more do not fit",
        mib(*free_bytes), mib(*promised_bytes), mib(*reserve_bytes)
    )]
    NoRoom { free_bytes: u64, promised_bytes: u64, reserve_bytes: u64, wanted_bytes: u64 },
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

const fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// The room there is, for people and monitoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) space: Space,
    /// Promised to blobs being written, and not written yet.
    pub(crate) promised_bytes: u64,
    /// Bytes that data of backups may still take.
    pub(crate) for_data_bytes: u64,
}

/// Free room, and the part of it that is promised.
#[derive(Debug)]
pub(crate) struct Ledger {
    volume: Arc<dyn Volume>,
    reserve_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Promised, and not known to be on the volume.
    promised_bytes: u64,
    /// Free bytes by the volume's last answer, less those written since; `None`: not asked yet.
    free_bytes: Option<u64>,
    /// Promised since it was asked.
    since_look_bytes: u64,
}

impl Ledger {
    /// Creates a ledger without promises.
    pub(crate) fn new(volume: Arc<dyn Volume>, reserve_bytes: u64) -> Arc<Self> {
        Arc::new(Self { volume, reserve_bytes, state: Mutex::default() })
    }

    /// The volume whose room it counts.
    pub(crate) const fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }

    /// Bytes kept for housekeeping.
    pub(crate) const fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// Room there is; asks the volume. `None` where a volume has no limit.
    pub(crate) fn room(&self) -> Result<Option<Room>, VolumeError> {
        let mut state = self.state.lock();
        let Some(space) = self.look(&mut state)? else { return Ok(None) };
        let for_data_bytes = state.left_for(Purpose::Data, self.reserve_bytes);
        Ok(Some(Room { space, promised_bytes: state.promised_bytes, for_data_bytes }))
    }

    /// Promises `wanted_bytes`, or more up to `step_bytes` when there is plenty; returns how many.
    fn promise(&self, purpose: Purpose, wanted_bytes: u64) -> Result<u64, SpaceError> {
        let mut state = self.state.lock();
        let mut looked = false;
        if state.free_bytes.is_none() || state.since_look_bytes >= LOOK_INTERVAL_BYTES {
            looked = true;
            if self.look(&mut state)?.is_none() {
                // No limit: counted all the same, so that what is returned balances.
                state.promised_bytes = state.promised_bytes.saturating_add(wanted_bytes);
                return Ok(wanted_bytes);
            }
        }
        loop {
            let left = state.left_for(purpose, self.reserve_bytes);
            let plenty = wanted_bytes.max(purpose.step_bytes());
            let granted = if left >= plenty { plenty } else { wanted_bytes };
            if left >= granted {
                state.promised_bytes = state.promised_bytes.saturating_add(granted);
                state.since_look_bytes = state.since_look_bytes.saturating_add(granted);
                return Ok(granted);
            }
            if looked {
                return Err(SpaceError::NoRoom {
                    free_bytes: state.free_bytes.unwrap_or(0),
                    promised_bytes: state.promised_bytes,
                    reserve_bytes: purpose.floor_bytes(self.reserve_bytes),
                    wanted_bytes,
                });
            }
            looked = true;
            self.look(&mut state)?;
        }
    }

    /// Bytes that were promised are on the volume now. Until the next look they count twice where the volume
    /// has been asked in between: too little is promised for a while, never too much.
    fn written(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.promised_bytes = state.promised_bytes.saturating_sub(bytes);
        state.free_bytes = state.free_bytes.map(|free| free.saturating_sub(bytes));
    }

    /// Bytes that were promised will not be written.
    fn give_back(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.promised_bytes = state.promised_bytes.saturating_sub(bytes);
    }

    /// Asks the volume, under the lock: a promise is made from one answer at a time.
    fn look(&self, state: &mut State) -> Result<Option<Space>, VolumeError> {
        let space = self.volume.space()?;
        state.free_bytes = space.map(|space| space.free_bytes);
        state.since_look_bytes = 0;
        Ok(space)
    }
}

impl State {
    fn left_for(&self, purpose: Purpose, reserve_bytes: u64) -> u64 {
        let free = self.free_bytes.unwrap_or(0);
        free.saturating_sub(self.promised_bytes).saturating_sub(purpose.floor_bytes(reserve_bytes))
    }
}

#[cfg(test)]
mod tests;
