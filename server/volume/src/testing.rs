//! For tests of this and of other crates: the conformance suite, a volume that fails on demand, ways to damage
//! a [`crate::MemoryVolume`], and time and randomness that tests own. Built only with the feature `testing`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a suite of tests, whatever crate runs it")]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a failed check panics")]

mod faulty;
mod locked;
mod memory;
mod remote;
mod retention;
mod suite;
mod timer;

use crate::{BlobEntry, BlobName, Volume, list_all};

pub use faulty::{CrashPoint, Damage, Failure, Fault, FaultyVolume, InFlight, OpKind};
pub use locked::LockingVolume;
pub use retention::retention_suite;
pub use suite::{passes_on_drop_cached, volume_suite};
pub use timer::{FixedRandom, ManualTimer};

/// Seals a blob of `bytes`.
pub fn put(volume: &dyn Volume, name: &str, bytes: &[u8]) {
    let mut writer = volume.create(&BlobName::new(name).unwrap()).unwrap();
    writer.append(bytes).unwrap();
    writer.seal().unwrap();
}

/// Every blob in a folder.
pub fn list(volume: &dyn Volume, folder: &str) -> Vec<BlobEntry> {
    list_all(volume, &BlobName::new(folder).unwrap()).collect::<Result<_, _>>().unwrap()
}
