//! Building and walking a disk's recipe, the Merkle tree of `format::recipe`.
//!
//! Both sides see nodes only through [`NodeSink`] and [`NodeSource`], so the tree knows nothing of containers
//! and can be tested against a map.

mod builder;
mod intervals;
mod reader;

pub(crate) use builder::{BuildError, TreeBuilder};
pub(crate) use reader::{TreeReader, WalkError};

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::extent_count;

use crate::format::recipe::{PAGE_CHILDREN, PAGE_EXTENTS};

/// Where finished nodes go.
pub(crate) trait NodeSink {
    /// What storing can fail with.
    type Error;

    /// Takes a node and names it.
    fn put(&mut self, node: Vec<u8>) -> Result<Fingerprint, Self::Error>;
}

/// Where nodes come from.
pub(crate) trait NodeSource {
    /// What fetching can fail with.
    type Error;

    /// The node of that name; its bytes hash to it.
    fn node(&self, fingerprint: &Fingerprint) -> Result<Bytes, Self::Error>;
}

/// Number of level-1 pages of a disk.
fn page_count(size_bytes: u64) -> u64 {
    extent_count(size_bytes).div_ceil(PAGE_EXTENTS as u64)
}

/// Number of entries of page `page` of a disk with `extents` extents.
fn entries_in_page(extents: u64, page: u64) -> usize {
    let left = extents.saturating_sub(page * PAGE_EXTENTS as u64);
    usize::try_from(left).unwrap_or(usize::MAX).min(PAGE_EXTENTS)
}

/// The level of the root: 1 for one page, 2 for up to 1,024 pages, and so on.
fn root_level(pages: u64) -> u8 {
    let mut level = 1;
    let mut width = pages;
    while width > 1 {
        width = width.div_ceil(PAGE_CHILDREN as u64);
        level += 1;
    }
    level
}

#[cfg(test)]
mod tests;
