//! The whole contract between a Holdfast agent and a Holdfast server: the messages, and everything both
//! sides must agree on to the byte. Nothing here does I/O.
//!
//! Start with [`limits`] for the sizes, [`chunker`] for how an extent is cut, [`region`] for how chunks are
//! packed, and `proto/holdfast/v1/backup.proto` for the conversation.

pub mod address;
pub mod api;
pub mod cert_fingerprint;
pub mod chunker;
pub mod details;
pub mod error;
pub mod fingerprint;
pub mod join;
pub mod key_id;
pub mod limits;
pub mod rate_window;
pub mod region;
pub mod request;
pub mod reread;
pub mod schedule;
pub mod size;
pub mod version;
pub mod when;

/// Messages and services generated from `proto/holdfast/v1/*.proto`.
#[allow(clippy::all, clippy::pedantic, clippy::restriction, missing_debug_implementations, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("holdfast.v1");
}

pub use error::{ErrorCode, RETRY_AFTER_METADATA};
pub use fingerprint::Fingerprint;
pub use key_id::KeyId;
