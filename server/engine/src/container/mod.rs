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
mod directory;
mod error;
mod reader;
mod region;
mod salvage;
mod scan;
mod shared;
#[cfg(test)]
pub(crate) mod testing;
mod writer;

use holdfast_types::ids::{ContainerClass, ContainerId};
use holdfast_volume::{BlobName, Volume, VolumeError, list_all};

pub use cache::{CacheLimits, ContainerCache, Proving, RecentDirectories};
pub use directory::{ChunkRef, Directory};
pub use error::ContainerError;
pub use reader::{CheckedBytes, OpenContainer, StoredRegion, read_header};
pub use region::{UnverifiedRegion, VerifiedRegion};
pub use salvage::{Owner, salvage};
pub use scan::{scan_container, scan_container_while};
pub use shared::{SharedRegions, SharedStats};
pub use writer::{ContainerWriter, SealedContainer};

const FOLDER: &str = "containers";
const GROUP_BITS: u32 = 12;

/// A container's identity, as its name tells it: `containers/GROUP/ID.data` or `.recipe`, `ID` in ten hexadecimal digits,
/// `GROUP` (`ID` without its last 12 bits, so that no folder grows beyond 4,096 containers) in seven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerName {
    pub id: ContainerId,
    pub class: ContainerClass,
}

impl ContainerName {
    /// The blob that holds the container.
    #[expect(clippy::expect_used, reason = "letters, hexadecimal digits, dot and slash always make a name")]
    pub fn blob(self) -> BlobName {
        let group = self.id.get() >> GROUP_BITS;
        BlobName::new(format!("{FOLDER}/{group:07x}/{}.{}", self.id, self.class.text()))
            .expect("a valid name")
    }

    /// The container that `blob` holds; `None` when it is not exactly the name of one.
    pub fn parse(blob: &BlobName) -> Option<Self> {
        let (_, file) = blob.as_str().rsplit_once('/')?;
        let (number, class) = file.split_once('.')?;
        let class = [ContainerClass::Data, ContainerClass::Recipe].into_iter().find(|c| c.text() == class)?;
        let id = ContainerId::new(u64::from_str_radix(number, 16).ok()?)?;
        let name = Self { id, class };
        (name.blob() == *blob).then_some(name)
    }
}

/// Entries of the containers' folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerListing {
    /// Containers with their lengths in bytes, by number.
    pub containers: Vec<(ContainerName, u64)>,
    /// Blobs that are no containers by their name.
    pub strays: Vec<BlobName>,
}

/// Lists every container of a volume.
///
/// # Errors
/// When the volume cannot be listed.
#[expect(clippy::expect_used, reason = "a constant")]
pub fn list_containers(volume: &dyn Volume) -> Result<ContainerListing, VolumeError> {
    let folder = BlobName::new(FOLDER).expect("a valid name");
    let mut listing = ContainerListing::default();
    for entry in list_all(volume, &folder) {
        let entry = entry?;
        match ContainerName::parse(&entry.name) {
            Some(name) => listing.containers.push((name, entry.len)),
            None => listing.strays.push(entry.name),
        }
    }
    listing.containers.sort_unstable();
    Ok(listing)
}

#[cfg(test)]
mod tests;
