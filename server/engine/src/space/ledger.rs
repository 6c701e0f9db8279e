//! What is free, and what of it is promised.

use std::sync::Arc;

use holdfast_volume::{Space, Volume, VolumeError};
use parking_lot::Mutex;

use super::Purpose;

/// Bytes promised between two looks at the volume: others may write to it as well, and the file system needs some
/// room of its own. A refusal is never made without a look.
const LOOK_INTERVAL_BYTES: u64 = 64 << 20;

/// Why there is no grant.
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
    /// What data of backups may still take.
    pub(crate) for_data_bytes: u64,
}

/// See the module's text.
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
    /// As the volume said the last time it was asked, less what was written since; `None`: not asked yet.
    free_bytes: Option<u64>,
    /// Promised since it was asked.
    since_look_bytes: u64,
}

impl Ledger {
    /// Nothing is promised yet.
    pub(crate) fn new(volume: Arc<dyn Volume>, reserve_bytes: u64) -> Arc<Self> {
        Arc::new(Self { volume, reserve_bytes, state: Mutex::default() })
    }

    /// What it counts.
    pub(crate) const fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }

    /// Bytes kept for housekeeping.
    pub(crate) const fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// What there is; asks the volume. `None` where a volume has no limit.
    pub(crate) fn room(&self) -> Result<Option<Room>, VolumeError> {
        let mut state = self.state.lock();
        let Some(space) = self.look(&mut state)? else { return Ok(None) };
        let for_data_bytes = state.left_for(Purpose::Data, self.reserve_bytes);
        Ok(Some(Room { space, promised_bytes: state.promised_bytes, for_data_bytes }))
    }

    /// Promises `wanted_bytes`, or more up to `step_bytes` when there is plenty; returns how many.
    pub(super) fn promise(&self, purpose: Purpose, wanted_bytes: u64) -> Result<u64, SpaceError> {
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
    pub(super) fn written(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.promised_bytes = state.promised_bytes.saturating_sub(bytes);
        state.free_bytes = state.free_bytes.map(|free| free.saturating_sub(bytes));
    }

    /// Bytes that were promised will not be written.
    pub(super) fn give_back(&self, bytes: u64) {
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
