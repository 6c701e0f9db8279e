//! Points: what the volume itself knows of each restore point, so that the catalog is a copy of it and never the only
//! one.
//!
//! Read in this order: [`record`] (what a point says) → [`name`] (where it lies) → [`store`] (sealing and reading one)
//! → [`change`] (points that change, and points that go) → [`places`] (where revisions lie) → [`compare`] (catalog
//! against volume, at a start) → [`lost`](mod@lost) (rows that got lost) → [`job`] (points of restore points that have none)
//! → [`verify`] (for `check`).
//!
//! Invariants:
//! - **The point is the commit** (P1): everything it refers to is durable before it is sealed, and the catalog's
//!   transaction follows it (P2). A crash between the two leaves a whole restore point, which the next start enters.
//! - **A point without a row is a backup to be entered, never one to be forgotten** (P3). What deletes restore points
//!   marks the row first, then removes the point, then drops the row.
//! - A point never changes. What it says can be sealed again under the next revision (L5); the highest readable one
//!   counts.
//! - A restore point that is being deleted has no row and no point that counts, wherever a crash came (L1).

mod change;
mod compare;
mod give_up;
mod job;
mod lost;
mod name;
mod old_folders;
mod places;
mod record;
mod renames;
mod store;
#[cfg(test)]
mod tests;
mod verify;

pub(crate) use change::{Ahead, finish_deletions, reseal, reseal_stale, seal_ahead, settle, unseal};
pub(crate) use compare::{Between, compare};
pub use compare::{Comparison, EnteredPoint, PointProblem};
pub(crate) use give_up::give_up;
pub(crate) use job::{MissingPoints, PointsJob, look_again, note_found, record_rest};
pub(crate) use lost::{enter_again, lacks_rows, listed, lost};
pub(crate) use name::{PointName, folder};
pub(crate) use old_folders::OldFoldersJob;
pub(crate) use record::encode;
pub(crate) use store::{read_header, seal};
pub(crate) use verify::verify;
