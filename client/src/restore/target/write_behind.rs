//! Getting data on its way to the disk while more is still being restored.

use std::fs::File;
use std::num::NonZeroU64;

use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};

/// The kernel is asked to begin writing after so many bytes of a disk.
const WRITE_BEHIND_BYTES: u64 = 64 << 20;

/// How far the kernel was asked to begin writing. By itself it waits until a tenth of the memory is dirty, and
/// a restore that waits for the disk then waits for nearly all of it at its end.
#[derive(Debug, Default)]
pub(super) struct WriteBehind(Mutex<u64>);

impl WriteBehind {
    /// Nearly everything before `offset` has been written to `file`.
    pub(super) fn reached(&self, file: &File, offset: u64) {
        let mut begun = self.0.lock();
        let Some(len) = offset.checked_sub(*begun).filter(|len| *len >= WRITE_BEHIND_BYTES) else { return };
        // Advice only: Linux begins to write what is dirty there and drops only clean pages. A refusal does no
        // harm.
        let _ = fadvise(file, *begun, NonZeroU64::new(len), Advice::DontNeed);
        *begun = offset;
    }
}
