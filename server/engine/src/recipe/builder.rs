//! Builds a recipe from extents that arrive in any order.

use std::collections::BTreeMap;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::extent_count;

use super::node::NodeSink;
use super::shape::{entries_in_page, page_count};
use crate::format::recipe::{ExtentEntry, PAGE_CHILDREN, PAGE_EXTENTS, Page, UpperPage};

/// Why an extent was refused, or the tree is not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError<E> {
    #[error("extent {index} lies past the end of the disk, which has {extents} extents")]
    PastEnd { index: u64, extents: u64 },
    #[error("extent {index} was sent twice")]
    Twice { index: u64 },
    /// A defect of this program; the tree must not be used.
    #[error("the recipe's page {page} has no place for extent {index}")]
    NoPlace { page: u64, index: u64 },
    #[error("{missing} extents of the disk were never sent, the first is extent {first}")]
    Incomplete { missing: u64, first: u64 },
    #[error(transparent)]
    Sink(E),
}

/// An unfinished tree. Holds only pages that are not full yet, and one fingerprint a page.
#[derive(Debug)]
pub(crate) struct TreeBuilder {
    extents: u64,
    open: BTreeMap<u64, Vec<Option<ExtentEntry>>>,
    done: BTreeMap<u64, Fingerprint>,
    pages: u64,
    accepted: u64,
}

impl TreeBuilder {
    pub(crate) fn new(size_bytes: u64) -> Self {
        Self {
            extents: extent_count(size_bytes),
            open: BTreeMap::new(),
            done: BTreeMap::new(),
            pages: page_count(size_bytes),
            accepted: 0,
        }
    }

    /// Number of extents set so far.
    pub(crate) const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Whether extent `index` was set already.
    pub(crate) fn has(&self, index: u64) -> bool {
        let (page, slot) = position(index);
        self.done.contains_key(&page)
            || self.open.get(&page).and_then(|entries| entries.get(slot)).is_some_and(Option::is_some)
    }

    /// Sets extent `index`; a page that becomes full goes to the sink.
    pub(crate) fn set<S: NodeSink>(
        &mut self,
        index: u64,
        entry: ExtentEntry,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        if index >= self.extents {
            return Err(BuildError::PastEnd { index, extents: self.extents });
        }
        if self.has(index) {
            return Err(BuildError::Twice { index });
        }
        let (page, slot) = position(index);
        let entries =
            self.open.entry(page).or_insert_with(|| vec![None; entries_in_page(self.extents, page)]);
        *entries.get_mut(slot).ok_or(BuildError::NoPlace { page, index })? = Some(entry);
        self.accepted += 1;
        if let Some(full) = entries.iter().copied().collect::<Option<Vec<ExtentEntry>>>() {
            let fingerprint = put_page(full, sink)?;
            self.open.remove(&page);
            self.done.insert(page, fingerprint);
        }
        Ok(())
    }

    /// Consecutive ranges of extents set so far, as (first, count).
    pub(crate) fn accepted_ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut add = |first: u64, count: u64| match ranges.last_mut() {
            Some((start, length)) if *start + *length == first => *length += count,
            _ => ranges.push((first, count)),
        };
        for page in 0..self.pages {
            let first = page * PAGE_EXTENTS as u64;
            if self.done.contains_key(&page) {
                add(first, entries_in_page(self.extents, page) as u64);
            } else if let Some(entries) = self.open.get(&page) {
                for (index, _) in (first..).zip(entries).filter(|(_, entry)| entry.is_some()) {
                    add(index, 1);
                }
            }
        }
        ranges
    }

    /// Writes the upper pages and returns the root: [`Fingerprint::ZERO`] for a disk without data.
    pub(crate) fn finish<S: NodeSink>(&self, sink: &mut S) -> Result<Fingerprint, BuildError<S::Error>> {
        if self.accepted != self.extents {
            let mut first = 0;
            for (start, count) in self.accepted_ranges() {
                if start == first {
                    first = start + count;
                }
            }
            return Err(BuildError::Incomplete { missing: self.extents - self.accepted, first });
        }
        assert!(self.open.is_empty(), "all extents are set, and pages are open");
        assert_eq!(self.done.len() as u64, self.pages, "pages of a complete recipe");
        let mut row: Vec<Fingerprint> = self.done.values().copied().collect();
        let mut level = 2;
        while row.len() > 1 {
            row = row
                .chunks(PAGE_CHILDREN)
                .map(|children| put_upper(level, children, sink))
                .collect::<Result<_, _>>()?;
            level += 1;
        }
        // No page at all: an empty disk.
        Ok(row.first().copied().unwrap_or(Fingerprint::ZERO))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder below 512")]
const fn position(index: u64) -> (u64, usize) {
    (index / PAGE_EXTENTS as u64, (index % PAGE_EXTENTS as u64) as usize)
}

fn put_page<S: NodeSink>(
    entries: Vec<ExtentEntry>,
    sink: &mut S,
) -> Result<Fingerprint, BuildError<S::Error>> {
    if entries.iter().all(|entry| *entry == ExtentEntry::ZERO) {
        return Ok(Fingerprint::ZERO);
    }
    sink.put(Page { entries }.encode()).map_err(BuildError::Sink)
}

fn put_upper<S: NodeSink>(
    level: u8,
    children: &[Fingerprint],
    sink: &mut S,
) -> Result<Fingerprint, BuildError<S::Error>> {
    if children.iter().all(Fingerprint::is_zero) {
        return Ok(Fingerprint::ZERO);
    }
    sink.put(UpperPage { level, children: children.to_vec() }.encode()).map_err(BuildError::Sink)
}
