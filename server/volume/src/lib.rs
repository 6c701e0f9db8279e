//! Where blobs live. The only code that touches files; everything above it sees named, immutable blobs that
//! appear whole and durable, or not at all.
//!
//! | file | what it holds |
//! |---|---|
//! | `volume.rs` | the trait [`Volume`]: the contract, exact enough to implement another volume from |
//! | `blob.rs` | [`BlobWriter`] and [`Blob`]: a blob being written, a blob being read |
//! | `error.rs` | [`VolumeError`] and the questions callers ask of it |
//! | `remote.rs`, `retained.rs` | what a volume far away does beyond the trait; how long an object must stay there |
//! | `list.rs`, `list_all.rs` | one page of a listing, and [`list_all`], which walks them |
//! | `local.rs`, `memory.rs` | volumes that hold blobs: files below a folder, and memory |
//! | `retry.rs`, `throttle.rs`, `count.rs`, `cache.rs` | volumes around a volume, one concern each |
//! | `pass_on.rs` | [`pass_on!`]: what such a volume does not change |
//! | `testing/` | with the feature `testing`: the conformance suite, the faulty volume, a manual timer |
//!
//! A new kind of volume implements the three traits and runs `testing::volume_suite`.
//!
//! A recommended order of the decorators, outermost first: cache (a hit costs no request), retry, throttle (so
//! that each attempt is paced), count (so that each attempt is counted), the volume itself.
//!
//! A crash leaves sealed blobs, whole, and perhaps unfinished ones, which no reader ever sees and
//! [`Volume::discard_unfinished`] removes.

mod blob;
mod count;
mod durable;
mod error;
mod list;
mod list_all;
mod local;
mod memory;
mod name;
mod pass_on;
mod remote;
mod retained;
mod retry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod throttle;
mod timer;
mod volume;

pub use blob::{Blob, BlobWriter, ColdPlace};
pub use count::{CallCounts, CountVolume, VolumeCounters, VolumeCounts};
pub use error::{Cause, VolumeError};
pub use list::{BlobEntry, ListPage};
pub use list_all::{LIST_PAGE_ENTRIES, ListAll, list_all};
pub use local::LocalVolume;
pub use memory::MemoryVolume;
pub use name::BlobName;
pub use remote::{
    BlobChecksum, RemoteLook, RemoteObject, RemotePage, RemoteStat, RemoteVolume, TAGGED_MAX_BYTES, Tagged,
    Thawed,
};
pub use retained::{Hold, LockMode, Retained};
pub use retry::{RetryPolicy, RetryVolume};
pub use throttle::{RateSchedule, Rates, ThrottleVolume, TokenBucket};
pub use timer::{Random, SystemRandom, SystemTimer, Timer};
pub use volume::{Ends, Owner, Space, Volume};
