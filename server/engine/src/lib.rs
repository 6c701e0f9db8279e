//! The Holdfast storage engine: synchronous, independent of network and async runtime.
//!
//! Start with [`Engine`]. Layers, each importing only what stands above it in this list (a test checks it):
//! [`mod@format`] (bytes ↔ structs, pure) → [`container`], [`index`] → `recipe` → `store` (fingerprint to checked
//! bytes) → `ingest`, `restore`, `recovery`, [`check`], `extent_history`, [`statistics`] → [`engine`], the façade.

pub mod check;
pub mod container;
mod core;
pub mod engine;
mod error;
mod extent_history;
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
mod task;

pub use holdfast_catalog as catalog;
pub use holdfast_types::{clock, ids};

pub use engine::{Engine, EngineOptions, EngineStats};
pub use error::EngineError;
pub use extent_history::{ExtentHistory, HISTORY_DEPTH_MAX};
pub use ingest::{DiskStream, LiveDisk, LiveSession, StartBackup};
pub use progress::{NoProgress, Progress};
pub use recovery::OpenSummary;
pub use restore::{DiskReader, RangeReader};
pub use statistics::StorageStatistics;

#[cfg(test)]
mod layers;
#[cfg(test)]
mod tests;
