//! A volume in a bucket: Amazon S3, or whatever speaks its protocol.
//!
//! | file | what it holds |
//! |---|---|
//! | `config.rs` | [`S3Config`]: where the bucket is, who asks, how blobs are put |
//! | `credentials.rs` | who asks, out of a file |
//! | `client.rs` | requests: the runtime they run on, their time limits, their number |
//! | `volume.rs` | [`S3Volume`] |
//! | `blob.rs` | a blob being read, by ranges |
//! | `writer.rs` | a blob being written: one PUT, or parts of a large one |
//! | `checksum.rs` | checksums as S3 writes them |
//! | `classes.rs` | storage classes, and bringing objects back from an archive |
//! | `retention.rs` | Object Lock: how long objects must stay |
//! | `versions.rs` | what lies below an object, and bringing it back |
//! | `removal.rs` | removing many, also for good |
//! | `error.rs` | what refusals mean, and what to do about them |
//!
//! A blob is the object PREFIX/NAME. It is put with `If-None-Match: *`, so nothing is ever replaced, and with a checksum
//! that the service verifies before the object exists. Calls block; each request has a time limit. Nothing is tried again
//! here: `holdfast_volume::RetryVolume` does that.
//!
//! A crash leaves whole objects, and perhaps parts of a large one, which no reader sees, which cost money, and which
//! `discard_unfinished` and a lifecycle rule of the bucket remove.

mod blob;
mod checksum;
mod classes;
mod client;
mod config;
mod credentials;
mod error;
mod removal;
mod retention;
mod versions;
mod volume;
mod writer;

pub use client::{RequestCounts, RequestKind};
pub use config::{ChecksumKind, Credentials, OpenError, S3Config, ServerEncryption, parse_location};
pub use volume::S3Volume;
