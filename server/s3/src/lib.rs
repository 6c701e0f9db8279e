//! A volume in a bucket of Amazon S3 or a compatible service.
//!
//! | file | what it holds |
//! |---|---|
//! | `config.rs` | [`S3Config`]: location, credentials, properties of new objects |
//! | `credentials.rs` | credentials from a file |
//! | `client.rs` | requests: their runtime, time limits and counts |
//! | `volume.rs` | [`S3Volume`] |
//! | `blob.rs` | reading a blob, by ranges |
//! | `writer.rs` | writing a blob: one PUT, or parts of a large one |
//! | `checksum.rs` | checksums as S3 encodes them |
//! | `classes.rs` | storage classes, and restoring objects from an archive |
//! | `retention.rs` | Object Lock: retention of objects |
//! | `versions.rs` | older versions of an object, and restoring them |
//! | `removal.rs` | removing many objects, also for good |
//! | `error.rs` | meaning of refused requests, and advice for them |
//!
//! A blob is the object PREFIX/NAME. It is put with `If-None-Match: *`, so nothing is ever replaced, and with a
//! checksum that the service verifies before the object exists. Calls block; each request has a time limit. Nothing is
//! retried here: `holdfast_volume::RetryVolume` does that.
//!
//! A crash leaves whole objects, and perhaps parts of a large one, which no reader sees and which are billed until
//! `discard_unfinished` or a lifecycle rule of the bucket removes them.

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
