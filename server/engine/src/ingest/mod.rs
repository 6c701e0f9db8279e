//! How a backup comes in.
//!
//! Read in this order: [`sessions`] (start, lease, one backup of a VM at a time) → [`stream`] (one disk's
//! messages) → [`verify`] (every region is decoded and hashed before its chunks count) → [`filler`]
//! (containers, sealed durably) → [`extents`] (recipes) → [`commit`] (the one transaction that makes the
//! backup exist).
//!
//! Invariants:
//! * A chunk is visible to other sessions only when its container is sealed and indexed.
//! * A session's own stream sees its own chunks at once; nothing is acknowledged as durable before the seal.
//! * A crash leaves sealed containers nobody refers to (adopted on start, reclaimed later) and temporary
//!   files (discarded on start); never half a backup.

mod commit;
mod extents;
mod filler;
mod live;
mod parent;
mod sessions;
mod stream;
mod verify;

pub use live::{LiveDisk, LiveSession};
pub(crate) use sessions::Sessions;
pub use sessions::StartBackup;
pub use stream::DiskStream;
