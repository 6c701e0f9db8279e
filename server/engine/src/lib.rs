//! The Holdfast storage engine: synchronous, independent of network and async runtime.
//!
//! Start with [`Engine`]. Its layers, each using only layers above it in this list (a test checks it):
//! - `progress`
//! - `format`: bytes to structs and back, pure
//! - `container`, `index`
//! - `error`, `health`, `lock`
//! - `recipe`: the Merkle tree that rebuilds a disk
//! - `store`: fingerprint to checked bytes
//! - `core`: what all operations share
//! - `recovery`
//! - `ingest`, `restore`, `check`, `changes`, `statistics`
//! - `engine`: the façade
//!
//! Below them are crates: `holdfast-types` (ids, time), `holdfast-volume` (blobs) and `holdfast-catalog`
//! (everything that is not chunk data).

mod changes;
pub mod check;
pub mod container;
mod core;
pub mod engine;
mod error;
pub mod format;
mod health;
pub mod index;
mod ingest;
mod lock;
mod progress;
mod recipe;
mod recovery;
mod restore;
pub mod statistics;
mod store;

pub use holdfast_catalog as catalog;
pub use holdfast_types::{clock, ids};

pub use changes::{ExtentHistory, HISTORY_DEPTH_MAX};
pub use engine::{Engine, EngineOptions, EngineStats};
pub use error::EngineError;
pub use ingest::{DiskStream, LiveDisk, LiveSession, StartBackup};
pub use progress::{NoProgress, Progress};
pub use recovery::OpenSummary;
pub use restore::{DiskReader, RangeReader};
pub use statistics::StorageStatistics;

#[cfg(test)]
mod tests;
