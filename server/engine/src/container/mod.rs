//! Containers: immutable blobs of compressed regions with a directory of what is in them. The engine's unit of
//! writing, placing and deleting.
//!
//! Invariants:
//! - Only a [`VerifiedRegion`] can be appended: its bytes hash to its fingerprints.
//! - A container is seen by nobody before [`ContainerWriter::seal`] returned, and never changes after.
//! - [`OpenContainer`] exists only when header, footer and directory are whole and agree with each other and
//!   with the name; what it reads is checked against the directory before anybody gets it.
//!
//! A crash leaves an unfinished blob, which the volume discards, or a whole container.

mod cache;
mod directory;
mod error;
mod name;
mod reader;
mod recent;
mod region;
mod scan;
mod writer;

pub use cache::{CacheLimits, ContainerCache};
#[cfg(test)]
pub use directory::ChunkRef;
pub use directory::Directory;
pub use error::ContainerError;
pub use name::{ContainerListing, ContainerName, list_containers};
pub use reader::{OpenContainer, StoredRegion};
pub use recent::RecentDirectories;
pub use region::{UnverifiedRegion, VerifiedRegion};
pub use scan::scan_container;
pub use writer::{ContainerWriter, SealedContainer};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
