//! How many pages a disk's tree has, and how they are stacked.

use holdfast_proto::limits::extent_count;

use crate::format::recipe::{PAGE_CHILDREN, PAGE_EXTENTS};

/// Number of level-1 pages of a disk.
pub(super) fn page_count(size_bytes: u64) -> u64 {
    extent_count(size_bytes).div_ceil(PAGE_EXTENTS as u64)
}

/// Number of entries of page `page` of a disk with `extents` extents.
pub(super) fn entries_in_page(extents: u64, page: u64) -> usize {
    let left = extents.saturating_sub(page * PAGE_EXTENTS as u64);
    // What does not fit a usize is more than a page as well.
    usize::try_from(left).map_or(PAGE_EXTENTS, |left| left.min(PAGE_EXTENTS))
}

/// The level of the root: 1 for one page, 2 for up to 1,024 pages, and so on.
pub(super) fn root_level(pages: u64) -> u8 {
    let mut level = 1;
    let mut width = pages;
    while width > 1 {
        width = width.div_ceil(PAGE_CHILDREN as u64);
        level += 1;
    }
    level
}
