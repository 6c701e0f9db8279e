//! Ingest: the server's side of a backup.
//!
//! Read from the session down: [`table`] (one backup of a VM at a time) → [`start`] (a request becomes a
//! session) → [`stream`] (one disk's messages) → [`append`] (every region is decoded and hashed before its
//! chunks count, and goes into containers, sealed durably) → [`extents`] and [`recipe_writer`] (recipes) →
//! [`commit`] (the one transaction that makes the backup exist).
//!
//! Each file imports only from those before it in this list:
//!
//! 1. [`append`], [`parent`], [`progress`], [`promises`]: parts that know nothing of
//!    each other; [`chunks`] (on `promises`);
//! 2. [`recipe_writer`] (on `append`);
//! 3. [`disk`] (one disk's state, from these parts);
//! 4. [`extents`] (what a message of extents does to a disk and its parent);
//! 5. [`session`] (identity, disks, lease);
//! 6. [`reliance`] (what a session relies on, looked at before it is committed);
//! 7. [`commit`], [`stream`], [`start`] (what is done with a session);
//! 8. [`table`] (which sessions there are).
//!
//! Invariants:
//! * (A4) A chunk is visible to other sessions only when its container is sealed and indexed.
//! * A session's own stream sees its own chunks at once; nothing is acknowledged as durable before the seal.
//! * A crash leaves sealed containers that no backup refers to (adopted on start, reclaimed later) and
//!   temporary files (discarded on start); never half a backup.

mod append;
mod chunks;
mod commit;
mod disk;
mod extents;
mod parent;
mod progress;
mod promises;
mod proof;
mod recipe_writer;
mod reliance;
mod session;
mod start;
mod stream;
mod table;

use holdfast_catalog::BackupCommit;
use holdfast_volume::BlobName;

pub use commit::Committed;
pub use session::Starter;
pub use start::StartBackup;
pub use stream::{DiskStream, LiveDisk, LiveSession};
pub(crate) use table::Sessions;

/// A backup that is to exist, and its point.
#[derive(Debug)]
struct Prepared {
    commit: BackupCommit,
    name: BlobName,
    bytes: Vec<u8>,
    /// True once the point is durable: from then on the backup exists, and only the catalog may not know yet.
    sealed: bool,
}
