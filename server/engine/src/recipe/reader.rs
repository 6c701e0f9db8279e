//! Walks a recipe: any extent of a disk, pages fetched once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{extent_count, extent_len};
use parking_lot::Mutex;

use super::NodeSource;
use super::{entries_in_page, page_count, root_level};
use crate::format::recipe::{
    ExtentEntry, ExtentNode, NodeError, PAGE_CHILDREN, PAGE_EXTENTS, Page, UpperPage,
};

/// Error of following a recipe.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalkError<E> {
    #[error("recipe node {node}: {source}")]
    Node { node: Fingerprint, source: NodeError },
    #[error("recipe node {node} describes {found} {what}; its place in the disk asks for {expected}")]
    Shape { node: Fingerprint, what: &'static str, expected: u64, found: u64 },
    #[error(transparent)]
    Source(E),
    /// A node above cannot be read; the tree was opened in spite of it.
    #[error("{0}")]
    Above(Arc<str>),
}

/// Pages below a node that cannot be read, and why it cannot.
#[derive(Debug)]
struct LostPages {
    pages: Range<u64>,
    reason: Arc<str>,
}

/// One disk's recipe. Holds one fingerprint for each page that is not all zero, so a huge empty disk costs
/// nothing, and the page read last.
#[derive(Debug)]
pub(crate) struct TreeReader<S> {
    source: S,
    size_bytes: u64,
    pages: BTreeMap<u64, Fingerprint>,
    /// Empty unless the tree was opened in spite of damage.
    lost: Vec<LostPages>,
    last: Mutex<Option<(u64, Arc<Page>)>>,
}

impl<S: NodeSource> TreeReader<S> {
    /// Fetches the upper pages below `root`.
    pub(crate) fn open(source: S, root: Fingerprint, size_bytes: u64) -> Result<Self, WalkError<S::Error>> {
        Self::open_past(source, root, size_bytes, |_| None)
    }

    /// As [`TreeReader::open`], but an upper page below the root that fails with an error for which `loses` gives a
    /// reason loses only what it describes: asking for that part of the disk fails with [`WalkError::Above`].
    pub(crate) fn open_past(
        source: S,
        root: Fingerprint,
        size_bytes: u64,
        loses: impl Fn(&WalkError<S::Error>) -> Option<String>,
    ) -> Result<Self, WalkError<S::Error>> {
        let mut lost = Vec::new();
        let root_at = root_level(page_count(size_bytes));
        let mut level = root_level(page_count(size_bytes));
        let mut row: BTreeMap<u64, Fingerprint> =
            (!root.is_zero()).then_some((0, root)).into_iter().collect();
        while level > 1 {
            let width = width_at(page_count(size_bytes), level - 1);
            let mut children = BTreeMap::new();
            for (&number, &node) in &row {
                match expand(&source, number, node, level, width) {
                    Ok(found) => children.extend(found),
                    Err(error) => {
                        let Some(reason) = loses(&error).filter(|_| level < root_at) else {
                            return Err(error);
                        };
                        lost.push(LostPages { pages: pages_below(number, level), reason: reason.into() });
                    }
                }
            }
            row = children;
            level -= 1;
        }
        Ok(Self { source, size_bytes, pages: row, lost, last: Mutex::new(None) })
    }

    /// The same tree, with another source for what is asked of it from now on.
    pub(crate) fn with_source<T>(self, source: T) -> TreeReader<T> {
        let Self { size_bytes, pages, lost, .. } = self;
        TreeReader { source, size_bytes, pages, lost, last: Mutex::default() }
    }

    /// Number of extents of the disk.
    pub(crate) const fn extent_count(&self) -> u64 {
        extent_count(self.size_bytes)
    }

    /// The name of page `number`: (A2) equal names are equal pages. [`Fingerprint::ZERO`] when all of it is zero, and
    /// past the end.
    pub(crate) fn page_name(&self, number: u64) -> Fingerprint {
        self.pages.get(&number).copied().unwrap_or(Fingerprint::ZERO)
    }

    /// Reason for which page `number` cannot be known, when a node above it cannot be read.
    pub(crate) fn lost_above(&self, number: u64) -> Option<&str> {
        let lost = self.lost.iter().find(|lost| lost.pages.contains(&number));
        lost.map(|lost| &*lost.reason)
    }

    /// The first extent from `index` on that lies in a page with data; the end of the disk when there is none.
    pub(crate) fn zero_until(&self, index: u64) -> u64 {
        let page = index / PAGE_EXTENTS as u64;
        let next = self.pages.range(page..).next().map(|(page, _)| *page);
        // Extents that cannot be read may hold data.
        let lost = self.lost.iter().filter(|lost| lost.pages.end > page).map(|lost| lost.pages.start).min();
        let next = next.into_iter().chain(lost).min();
        next.map_or(self.extent_count(), |page| (page * PAGE_EXTENTS as u64).max(index))
    }

    /// The entries of page `number`; none past the end.
    pub(crate) fn page_entries(&self, number: u64) -> Result<Vec<ExtentEntry>, WalkError<S::Error>> {
        self.fetch_page(number).map(|page| page.entries)
    }

    /// Source of the nodes.
    pub(crate) const fn source(&self) -> &S {
        &self.source
    }

    /// Entry of extent `index` in its page; zero past the end.
    pub(crate) fn entry(&self, index: u64) -> Result<ExtentEntry, WalkError<S::Error>> {
        let page = self.page(index / PAGE_EXTENTS as u64)?;
        if index >= self.extent_count() {
            return Ok(ExtentEntry::ZERO);
        }
        page.entries.get(slot_of(index)).copied().ok_or_else(|| WalkError::Shape {
            node: self.page_name(index / PAGE_EXTENTS as u64),
            what: "extents",
            expected: slot_of(index) as u64 + 1,
            found: page.entries.len() as u64,
        })
    }

    /// Node of extent `index`; `None` when it is all zero.
    pub(crate) fn extent(&self, index: u64) -> Result<Option<ExtentNode>, WalkError<S::Error>> {
        self.extent_of(index, &self.entry(index)?)
    }

    /// Node of extent, as [`TreeReader::extent`], with the entry at hand.
    pub(crate) fn extent_of(
        &self,
        index: u64,
        entry: &ExtentEntry,
    ) -> Result<Option<ExtentNode>, WalkError<S::Error>> {
        let node = entry.node;
        let Some(extent) = self.extent_named(entry)? else { return Ok(None) };
        let expected = extent_len(self.size_bytes, index);
        if extent.extent_bytes() != expected {
            let (expected, found) = (expected.into(), extent.extent_bytes().into());
            return Err(WalkError::Shape { node, what: "bytes", expected, found });
        }
        Ok(Some(extent))
    }

    /// Node that `entry` refers to, whichever extent of the disk it is.
    pub(crate) fn extent_named(
        &self,
        entry: &ExtentEntry,
    ) -> Result<Option<ExtentNode>, WalkError<S::Error>> {
        let node = entry.node;
        if node.is_zero() {
            return Ok(None);
        }
        let bytes = self.source.node(&node).map_err(WalkError::Source)?;
        ExtentNode::decode(&bytes).map(Some).map_err(|source| WalkError::Node { node, source })
    }

    fn page(&self, number: u64) -> Result<Arc<Page>, WalkError<S::Error>> {
        let mut last = self.last.lock();
        if let Some((kept, page)) = &*last
            && *kept == number
        {
            return Ok(Arc::clone(page));
        }
        let page = Arc::new(self.fetch_page(number)?);
        *last = Some((number, Arc::clone(&page)));
        Ok(page)
    }

    fn fetch_page(&self, number: u64) -> Result<Page, WalkError<S::Error>> {
        if let Some(lost) = self.lost.iter().find(|lost| lost.pages.contains(&number)) {
            return Err(WalkError::Above(Arc::clone(&lost.reason)));
        }
        let count = entries_in_page(self.extent_count(), number);
        let node = self.page_name(number);
        if node.is_zero() {
            return Ok(Page { entries: vec![ExtentEntry::ZERO; count] });
        }
        let bytes = self.source.node(&node).map_err(WalkError::Source)?;
        let page = Page::decode(&bytes).map_err(|source| WalkError::Node { node, source })?;
        check_shape(node, "extents", count, page.entries.len())?;
        Ok(page)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder below 512")]
const fn slot_of(index: u64) -> usize {
    (index % PAGE_EXTENTS as u64) as usize
}

/// Number of nodes on `level` (1 = pages) above `pages` pages.
fn width_at(pages: u64, level: u8) -> u64 {
    (1..level).fold(pages, |width, _| width.div_ceil(PAGE_CHILDREN as u64))
}

/// The children of upper page `number` of `level`, by number, those that are all zero left out; `width`: how many
/// there are on their level.
fn expand<S: NodeSource>(
    source: &S,
    number: u64,
    node: Fingerprint,
    level: u8,
    width: u64,
) -> Result<Vec<(u64, Fingerprint)>, WalkError<S::Error>> {
    let first = number * PAGE_CHILDREN as u64;
    let count = children_left(width, first);
    let bytes = source.node(&node).map_err(WalkError::Source)?;
    let page = UpperPage::decode(&bytes).map_err(|source| WalkError::Node { node, source })?;
    check_shape(node, "levels", level.into(), page.level.into())?;
    check_shape(node, "children", count, page.children.len())?;
    Ok((first..).zip(page.children).filter(|(_, child)| !child.is_zero()).collect())
}

/// The pages below node `number` of `level`.
fn pages_below(number: u64, level: u8) -> Range<u64> {
    let pages = (PAGE_CHILDREN as u64).saturating_pow(u32::from(level.saturating_sub(1)));
    let first = number.saturating_mul(pages);
    first..first.saturating_add(pages)
}

/// Number of children of the next node, after `taken` of `width`.
fn children_left(width: u64, taken: u64) -> usize {
    let left = width.saturating_sub(taken);
    usize::try_from(left).map_or(PAGE_CHILDREN, |left| left.min(PAGE_CHILDREN))
}

fn check_shape<E>(
    node: Fingerprint,
    what: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), WalkError<E>> {
    if expected == found {
        return Ok(());
    }
    Err(WalkError::Shape { node, what, expected: expected as u64, found: found as u64 })
}
