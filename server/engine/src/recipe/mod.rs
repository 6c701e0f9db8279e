//! Building and walking a disk's recipe, the Merkle tree of `format::recipe`.
//!
//! Both sides see nodes only through [`NodeSink`] and [`NodeSource`], so the tree knows nothing of containers
//! and can be tested against a map.
//!
//! [`node`] (the two traits) and [`shape`] (arithmetic) are used by [`builder`] and [`reader`], which do not
//! know each other.

mod builder;
mod reader;

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::extent_count;

use crate::format::recipe::{PAGE_CHILDREN, PAGE_EXTENTS};

pub(crate) use builder::{BuildError, TreeBuilder};
pub(crate) use reader::{TreeReader, WalkError};

/// Number of level-1 pages of a disk.
fn page_count(size_bytes: u64) -> u64 {
    extent_count(size_bytes).div_ceil(PAGE_EXTENTS as u64)
}

/// Number of entries of page `page` of a disk with `extents` extents.
fn entries_in_page(extents: u64, page: u64) -> usize {
    let left = extents.saturating_sub(page * PAGE_EXTENTS as u64);
    // What does not fit a usize is more than a page as well.
    usize::try_from(left).map_or(PAGE_EXTENTS, |left| left.min(PAGE_EXTENTS))
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

/// Disjoint, non-adjacent ranges by their first number.
#[derive(Debug, Default)]
struct Intervals {
    /// First number → end (one past the last).
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl Intervals {
    /// Numbers in the set.
    const fn count(&self) -> u64 {
        self.count
    }

    /// Ranges it takes to describe the set.
    fn len(&self) -> usize {
        self.ranges.len()
    }

    fn contains(&self, number: u64) -> bool {
        self.overlap(&(number..number + 1)).is_some()
    }

    /// Whether all of `range` is in the set. An empty range is.
    fn covers(&self, range: &Range<u64>) -> bool {
        let before = self.ranges.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, &end)| end >= range.end)
    }

    /// A number that `range` and the set share.
    fn overlap(&self, range: &Range<u64>) -> Option<u64> {
        let (&start, &end) = self.ranges.range(..range.end).next_back()?;
        (!range.is_empty() && end > range.start).then_some(start.max(range.start))
    }

    /// Adds `range`, which must not overlap the set.
    fn insert(&mut self, range: Range<u64>) {
        assert!(self.overlap(&range).is_none(), "{range:?} is in the set already");
        if range.is_empty() {
            return;
        }
        self.count += range.end - range.start;
        let after = self.ranges.remove(&range.end);
        let end = after.unwrap_or(range.end);
        match self.ranges.range_mut(..range.start).next_back() {
            Some((_, before)) if *before == range.start => *before = end,
            _ => {
                self.ranges.insert(range.start, end);
            }
        }
    }

    /// The ranges in order.
    fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests;
