//! The Holdfast storage engine: synchronous, independent of network and async runtime.
//!
//! Start with [`Engine`], which is assembled from [`EngineParts`]: volumes, a catalog and a clock that the caller
//! opened. Its layers, each using only layers above it in this list (a test checks it):
//! - `health`, `memory`, `space`
//! - `format`: bytes to structs and back, pure
//! - `container`, `index`
//! - `error`, `guard`, `clean_stop`, `identity`, `generation`
//! - `parity`: making containers again of the others of their group
//! - `fair`: whose work comes next; `task`: work on a pool of threads; `jobs`: what background work is
//! - `quota`: what namespaces may take
//! - `recipe`: the Merkle tree that rebuilds a disk
//! - `store`: fingerprint to checked bytes
//! - `recovery`, `unrecorded`
//! - `claims`: chunks on their way; `in_use`: recipes that are read or taken over from
//! - `core`: what all operations share
//! - `rewrite`: regions on their way from old containers into new ones
//! - `digests`: what extents hash to; `reports`: what agents say of chunks that they sealed
//! - `audit`, `damage_report`, `scrub`: what is looked at in the background
//! - `points`: what the volume knows of each restore point; `snapshot`: copies of the catalog
//! - `retention`: deleting restore points, and what keeps them
//! - `ingest`, `catalog_check`, `restore`, `verify`, `check`, `container_repair`, `parity_job`, `extent_history`, `statistics`, `needs`, `readiness`, `start`, `stop`, `recover`
//! - `reclaim`: freeing what nothing refers to
//! - `engine`, `bench`: the façade, and what benchmarks reach
//!
//! Below them are crates: `holdfast-types` (ids, time), `holdfast-volume` (blobs) and `holdfast-catalog`
//! (everything that is not chunk data).

#![expect(
    unreachable_pub,
    reason = "`pub` in a private module says what the engine's other modules use; the exports below are the API"
)]

mod audit;
#[doc(hidden)]
pub mod bench;
mod catalog_check;
mod check;
mod claims;
mod clean_stop;
mod container;
mod container_repair;
mod core;
mod damage_report;
mod digests;
mod engine;
mod error;
mod extent_history;
mod fair;
mod format;
mod generation;
mod guard;
mod health;
mod identity;
mod in_use;
mod index;
mod ingest;
mod jobs;
mod memory;
mod needs;
mod parity;
mod parity_job;
mod points;
mod quota;
mod readiness;
mod recipe;
mod reclaim;
mod recover;
mod recovery;
mod reports;
mod restore;
mod retention;
mod rewrite;
mod scrub;
mod snapshot;
mod space;
mod start;
mod statistics;
mod stop;
mod store;
mod task;
mod unrecorded;
mod verify;

pub use holdfast_catalog as catalog;
pub use holdfast_types::{clock, ids, owner};

pub use catalog_check::DroppedRows;
pub use check::{CheckOptions, CheckReport, Problem};
pub use container::{CacheLimits, SharedStats};
pub use container_repair::Repaired;
pub use core::DigestStats;
pub use engine::{
    BLOB_FOLDERS, Engine, EngineOptions, EngineParts, EngineStats, RewriteRoom, count_containers,
};
pub use error::EngineError;
pub use extent_history::{ExtentHistory, HISTORY_DEPTH_MAX};
pub use fair::Tenant;
pub use health::{Health, Obstacle, Stopped, Work};
pub use index::{IndexOptions, IndexStats};
pub use ingest::{Committed, DiskStream, LiveDisk, LiveSession, StartBackup, Starter};
pub use jobs::{Budget, Job, JobError, JobProgress, NoProgress, Progress, Step, StepLimits, StopFlag};
pub use memory::MemoryBounds;
pub use needs::{LockedNeeds, NeededBlobs, NeedingPoint};
pub use parity::ParityStats;
pub use parity_job::ParityScheme;
pub use points::{Comparison, EnteredPoint, PointProblem};
pub use readiness::NotReady;
pub use reclaim::{
    Attribution, BackupShare, Control as ReclaimControl, Freed, Freezing, FreezingRule, Incomplete, Moving,
    Phase as ReclaimPhase, ReclaimOptions, ReclaimReport, Squeeze,
};
pub use recover::{enter_points, repository_on, traces_of_repository};
pub use recovery::OpenSummary;
pub use reports::FalseChunk;
pub use restore::{DiskReader, PartReader, RangeReader};
pub use scrub::{Load, SCRUB_DAYS, ScrubFindings, ScrubStatus, ScrubWatch};
pub use snapshot::{SnapshotHeader, list_snapshots, read_snapshot, read_snapshot_blob, seal_snapshot};
pub use statistics::{CHUNK_EDGES_BYTES, FACTOR_EDGES, StorageStatistics};
pub use store::OnLoss;
pub use verify::VerifyReport;

#[cfg(test)]
mod tests;
