//! Containers: immutable blobs of compressed regions with a directory of what is in them. The engine's unit of
//! writing, placing and deleting.
//!
//! Invariants:
//! - Only a [`VerifiedRegion`] can be appended: its bytes hash to its fingerprints, or are sealed for them.
//! - Regions of one container are all sealed by agents, or none is.
//! - No one sees a container before [`ContainerWriter::seal`] returned, and it never changes after.
//! - [`OpenContainer`] exists only when header, footer and directory are whole and agree with each other and
//!   with the name; what it reads is checked against the directory before a caller gets it.
//!
//! A crash leaves an unfinished blob, which the volume discards, or a whole container.

mod cache;
mod cuts;
mod directory;
mod error;
mod name;
mod reader;
mod recent;
mod region;
mod salvage;
mod scan;
mod shared;
mod walk;
mod writer;

pub use cache::{CacheLimits, ContainerCache};
pub use directory::{ChunkRef, Directory};
pub use error::ContainerError;
pub use name::{ContainerListing, ContainerName, list_containers};
pub use reader::{CheckedBytes, OpenContainer, StoredRegion, read_header};
pub use recent::RecentDirectories;
pub use region::{UnverifiedRegion, VerifiedRegion};
pub use salvage::{Owner, salvage};
pub use scan::{scan_container, scan_container_while};
pub use shared::{SharedRegions, SharedStats};
pub use writer::{ContainerWriter, SealedContainer};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
