//! Storage of blobs. The only code that touches files; the layers above see named, immutable blobs that appear whole
//! and durable, or not at all.
//!
//! | file | what it holds |
//! |---|---|
//! | `volume.rs` | the trait [`Volume`]: the contract, exact enough to implement another volume from; [`BlobWriter`] and [`Blob`]; [`list_all`], which walks a listing page by page |
//! | `error.rs` | [`VolumeError`] and the questions callers ask of it |
//! | `remote.rs` | the trait [`RemoteVolume`]: operations of a remote volume beyond those of [`Volume`], such as retention |
//! | `local.rs`, `memory.rs` | volumes that hold blobs: files below a folder, and memory |
//! | `retry.rs`, `throttle.rs` (with time and randomness for both) | volumes around a volume, one concern each |
//! | `pass_on.rs` | [`pass_on!`]: delegates methods that such a volume does not change |
//! | `testing/` | with the feature `testing`: the conformance suite, the faulty volume, a manual timer |
//!
//! A new kind of volume implements the three traits and runs `testing::volume_suite`.
//!
//! A recommended order of the decorators, outermost first: cache (a hit costs no request), retry, throttle (so
//! that each attempt is paced), the volume itself.
//!
//! A crash leaves sealed blobs, whole, and perhaps unfinished ones, which no reader ever sees and
//! [`Volume::discard_unfinished`] removes.

mod durable;
mod error;
mod local;
mod memory;
mod name;
mod pass_on;
mod remote;
mod retry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod throttle;
mod volume;

pub use error::{Cause, VolumeError};
pub use local::LocalVolume;
pub use memory::MemoryVolume;
pub use name::BlobName;
pub use remote::{
    BlobChecksum, Hold, LockMode, RemoteLook, RemoteObject, RemotePage, RemoteStat, RemoteVolume, Retained,
    TAGGED_MAX_BYTES, Tagged, Thawed,
};
pub use retry::{RetryPolicy, RetryVolume};
pub use throttle::{
    Random, RateSchedule, Rates, SystemRandom, SystemTimer, ThrottleVolume, Timer, TokenBucket,
};
pub use volume::{
    Blob, BlobEntry, BlobWriter, ColdPlace, Ends, LIST_PAGE_ENTRIES, ListAll, ListPage, Owner, Space, Volume,
    list_all,
};
