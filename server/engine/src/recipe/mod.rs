//! Building and walking a disk's recipe, the Merkle tree of `format::recipe`.
//!
//! Both sides see nodes only through [`NodeSink`] and [`NodeSource`], so the tree knows nothing of containers and can be
//! tested against a map. [`TreeBuilder`] takes extents that arrive in any order, [`reader`] walks the tree.
//!
//! The cost of a growing tree is proportional to what the agent sent, not to the size of the disk: a range of zero
//! extents is one interval however long it is, a page without data is never held, and both the number of intervals and of
//! entries in unfinished pages is bounded.

mod reader;

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::extent_count;

use crate::format::recipe::{ExtentEntry, PAGE_CHILDREN, PAGE_EXTENTS, Page, UpperPage};

pub(crate) use reader::{TreeReader, WalkError};

/// Number of level-1 pages of a disk.
fn page_count(size_bytes: u64) -> u64 {
    extent_count(size_bytes).div_ceil(PAGE_EXTENTS as u64)
}

/// Number of entries of page `page` of a disk with `extents` extents.
fn entries_in_page(extents: u64, page: u64) -> usize {
    let left = extents.saturating_sub(page * PAGE_EXTENTS as u64);
    // A count that does not fit a usize is more than a page as well.
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

/// Store of finished nodes.
pub(crate) trait NodeSink {
    /// Error of storing.
    type Error;

    /// Takes a node and names it.
    fn put(&mut self, node: Vec<u8>) -> Result<Fingerprint, Self::Error>;
}

/// Source of nodes.
pub(crate) trait NodeSource {
    /// Error of fetching.
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

    /// Returns true if all of `range` is in the set. An empty range is.
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

/// Ranges with gaps between them at most: 64 Ki × some 50 bytes are 3 MiB. An agent sends extents nearly in
/// order and has a few dozen.
const INTERVALS_MAX: usize = 1 << 16;

/// Entries in pages that are not full yet at most: 64 Ki × some 120 bytes are 8 MiB. An agent has two or three
/// such pages of 512.
const OPEN_ENTRIES_MAX: usize = 1 << 16;

/// Error for an extent that was refused, or a tree that is not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError<E> {
    #[error("extent {index} lies past the end of the disk, which has {extents} extents")]
    PastEnd { index: u64, extents: u64 },
    #[error("extent {index} was sent twice")]
    Twice { index: u64 },
    #[error(
        "the extents arrive too far out of order: the limit is {INTERVALS_MAX} gaps, and {OPEN_ENTRIES_MAX} extents in incomplete groups of {PAGE_EXTENTS}"
    )]
    Scattered,
    #[error("{missing} extents of the disk were never sent, the first is extent {first}")]
    Incomplete { missing: u64, first: u64 },
    #[error(transparent)]
    Sink(E),
}

/// A tree in progress.
#[derive(Debug)]
pub(crate) struct TreeBuilder {
    extents: u64,
    pages: u64,
    accepted: Intervals,
    /// Entries that are not zero, of pages that are not complete yet.
    open: BTreeMap<u64, BTreeMap<usize, ExtentEntry>>,
    open_entries: usize,
    /// Complete pages that are not all zero.
    done: BTreeMap<u64, Fingerprint>,
}

impl TreeBuilder {
    pub(crate) fn new(size_bytes: u64) -> Self {
        Self {
            extents: extent_count(size_bytes),
            pages: page_count(size_bytes),
            accepted: Intervals::default(),
            open: BTreeMap::new(),
            open_entries: 0,
            done: BTreeMap::new(),
        }
    }

    /// Number of extents set so far.
    pub(crate) const fn accepted(&self) -> u64 {
        self.accepted.count()
    }

    /// Returns true if extent `index` was set already.
    pub(crate) fn has(&self, index: u64) -> bool {
        self.accepted.contains(index)
    }

    /// Memory it takes, about: nodes of the maps are two thirds full on average.
    pub(crate) fn memory_bytes(&self) -> u64 {
        const INTERVAL_BYTES: usize = 50;
        const ENTRY_BYTES: usize = 120;
        const PAGE_BYTES: usize = 64;
        let bytes = self.accepted.len() * INTERVAL_BYTES
            + self.open_entries * ENTRY_BYTES
            + (self.open.len() + self.done.len()) * PAGE_BYTES;
        bytes as u64
    }

    /// Sets extent `index`; a page that becomes complete goes to the sink.
    pub(crate) fn set<S: NodeSink>(
        &mut self,
        index: u64,
        entry: ExtentEntry,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        if entry == ExtentEntry::ZERO {
            return self.set_zero(index..index.saturating_add(1), sink);
        }
        self.check(&(index..index.saturating_add(1)))?;
        if self.open_entries >= OPEN_ENTRIES_MAX {
            return Err(BuildError::Scattered);
        }
        let (page, slot) = position(index);
        self.open.entry(page).or_default().insert(slot, entry);
        self.open_entries += 1;
        self.accepted.insert(index..index + 1);
        self.complete(page, sink)
    }

    /// Sets all extents of a range to zero; costs the same however long it is.
    pub(crate) fn set_zero<S: NodeSink>(
        &mut self,
        range: Range<u64>,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        if range.is_empty() {
            return Ok(());
        }
        self.check(&range)?;
        let (first, _) = position(range.start);
        let (last, _) = position(range.end - 1);
        self.accepted.insert(range);
        // Pages between the two have no entries: an entry there would overlap the range.
        self.complete(first, sink)?;
        if last == first { Ok(()) } else { self.complete(last, sink) }
    }

    /// Fails unless `range` lies on the disk, is new, and fits the bounds.
    fn check<E>(&self, range: &Range<u64>) -> Result<(), BuildError<E>> {
        if range.end > self.extents {
            return Err(BuildError::PastEnd { index: range.start.max(self.extents), extents: self.extents });
        }
        if let Some(index) = self.accepted.overlap(range) {
            return Err(BuildError::Twice { index });
        }
        if self.accepted.len() >= INTERVALS_MAX {
            return Err(BuildError::Scattered);
        }
        Ok(())
    }

    /// Hands page `page` to the sink if it is complete and not all zero.
    fn complete<S: NodeSink>(&mut self, page: u64, sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let len = entries_in_page(self.extents, page);
        let first = page * PAGE_EXTENTS as u64;
        if !self.accepted.covers(&(first..first + len as u64)) {
            return Ok(());
        }
        let Some(mut entries) = self.open.remove(&page) else { return Ok(()) };
        self.open_entries -= entries.len();
        let whole = (0..len).map(|slot| entries.remove(&slot).unwrap_or(ExtentEntry::ZERO)).collect();
        assert!(entries.is_empty(), "page {page} has {len} extents, but also entries {entries:?}");
        let fingerprint = sink.put(Page { entries: whole }.encode()).map_err(BuildError::Sink)?;
        self.done.insert(page, fingerprint);
        Ok(())
    }

    /// Ranges of consecutive extents set so far, as (first, count).
    pub(crate) fn accepted_ranges(&self) -> Vec<(u64, u64)> {
        self.accepted.iter().map(|range| (range.start, range.end - range.start)).collect()
    }

    /// Writes the upper pages and returns the root: [`Fingerprint::ZERO`] for a disk without data.
    pub(crate) fn finish<S: NodeSink>(&self, sink: &mut S) -> Result<Fingerprint, BuildError<S::Error>> {
        let accepted = self.accepted();
        if accepted != self.extents {
            let head = self.accepted.iter().next().filter(|range| range.start == 0);
            let first = head.map_or(0, |range| range.end);
            return Err(BuildError::Incomplete { missing: self.extents - accepted, first });
        }
        assert!(self.open.is_empty(), "all extents were set, but pages {:?} are open", self.open.keys());
        let (mut row, mut width, mut level) = (self.done.clone(), self.pages, 2);
        while width > 1 {
            row = upper_row(level, &row, width, sink)?;
            width = width.div_ceil(PAGE_CHILDREN as u64);
            level += 1;
        }
        Ok(row.get(&0).copied().unwrap_or(Fingerprint::ZERO))
    }
}

/// The nodes above a row of `width` nodes, by number; those without data are left out of both rows.
fn upper_row<S: NodeSink>(
    level: u8,
    row: &BTreeMap<u64, Fingerprint>,
    width: u64,
    sink: &mut S,
) -> Result<BTreeMap<u64, Fingerprint>, BuildError<S::Error>> {
    let mut upper = BTreeMap::new();
    let mut rest = row.iter().peekable();
    while let Some(number) = rest.peek().map(|entry| *entry.0) {
        let parent = number / PAGE_CHILDREN as u64;
        let first = parent * PAGE_CHILDREN as u64;
        let end = width.min(first + PAGE_CHILDREN as u64);
        let child = |number: u64| {
            rest.next_if(|entry| *entry.0 == number).map_or(Fingerprint::ZERO, |(_, node)| *node)
        };
        let children: Vec<Fingerprint> = (first..end).map(child).collect();
        let node = sink.put(UpperPage { level, children }.encode()).map_err(BuildError::Sink)?;
        upper.insert(parent, node);
    }
    Ok(upper)
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder below 512")]
const fn position(index: u64) -> (u64, usize) {
    (index / PAGE_EXTENTS as u64, (index % PAGE_EXTENTS as u64) as usize)
}

#[cfg(test)]
mod tests;
