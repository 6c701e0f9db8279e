//! Getting a disk back: windows of chunks come in, are decoded and checked on a pool of threads, and go to
//! a target. Nothing unchecked is ever written.
//!
//! Start with [`Reader::read_disk`]; `window` says what a stream must look like, `job` what is done with one
//! region, `extents` what becomes of its chunks, `jobs` how many are in progress, `writes` who writes, [`target`] where
//! the bytes go. Over a long line several connections read one disk: `spans` says which reads what, `stream` is one of
//! them, `workers` all of them. After a lost connection the agent connects again, and what that one was reading is read on
//! from its first extent that is not complete.
//!
//! Data that cannot be read ends a restore, unless it was told to go on: then the server names the range in the stream,
//! and it is collected in `bad`, written as a map by `bad_map`, and never passes for success.
//!
//! Memory: transport windows of 16 MiB for each connection; `JOBS_PER_THREAD` regions of 2 × 256 KiB per thread;
//! extents that are put together or wait to be written, 128 MiB at most, or 256 MiB with several connections; a pipe
//! needs one window of 64 MiB besides.

mod bad;
mod bad_map;
mod digests;
mod extents;
mod job;
mod jobs;
mod poison;
mod reader;
mod spans;
mod stream;
pub mod target;
pub mod window;
mod workers;
mod writes;

pub use bad::{BadRange, OnDamage};
pub use bad_map::{MAP_SUFFIX, check_free};
pub(crate) use jobs::DecodePool;
pub use poison::FalseChunk;
pub use reader::{ReadOptions, Reader};

/// One disk of one backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOfBackup {
    pub backup_id: String,
    pub disk: String,
    pub size_bytes: u64,
}

/// Options for data that cannot be read back.
#[derive(Debug, Clone, Default)]
pub struct Salvage {
    pub on_damage: OnDamage,
    /// Where to write the map of bad ranges, if there are any.
    pub map: Option<std::path::PathBuf>,
}

/// Result of reading a disk.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadSummary {
    /// The disk's size.
    pub size_bytes: u64,
    /// Bytes decoded, checked and written, without zeros.
    pub data_bytes: u64,
    pub seconds: f64,
    /// Ranges that could not be read, in order. Empty: every extent matched its digest, or its chunks their fingerprints.
    pub bad: Vec<BadRange>,
    /// Chunks among them that some agent sealed as they are.
    pub false_chunks: Vec<FalseChunk>,
    /// The first extents that could be read and do not hash to what their backup recorded. Where nothing is bad, they end the
    /// reading with [`ClientError::FalseDigests`](crate::error::ClientError::FalseDigests) instead.
    pub false_digests: Vec<u64>,
}
