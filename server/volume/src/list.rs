//! Listings, page by page: a volume of a million containers is never one list in memory.

use std::num::NonZeroUsize;

use crate::{BlobName, Volume, VolumeError};

/// Entries that [`list_all`] asks for at a time. A name has 200 bytes at most, so a page of this many takes
/// 4,096 × (200 + 48) bytes, about 1 MiB; a local folder of containers holds some 4,096 of them and so is read
/// about once.
pub const LIST_PAGE_ENTRIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// A blob in a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobEntry {
    pub name: BlobName,
    /// In bytes.
    pub len: u64,
}

/// A part of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct ListPage {
    /// Ascending by name.
    pub entries: Vec<BlobEntry>,
    /// Whether there may be entries after the last of these. Never set on an empty page.
    pub more: bool,
}

impl ListPage {
    /// The first `limit` of `found`, which are ascending and one more than the page holds when there is more.
    pub(crate) fn cut(mut found: Vec<BlobEntry>, limit: NonZeroUsize) -> Self {
        debug_assert!(found.is_sorted_by(|a, b| a.name < b.name), "a listing out of order");
        let more = found.len() > limit.get();
        found.truncate(limit.get());
        Self { entries: found, more }
    }

    /// What is wrong with this page as the answer to a request, if anything.
    fn defect(&self, prefix: &BlobName, after: Option<&BlobName>, limit: NonZeroUsize) -> Option<String> {
        let (len, limit) = (self.entries.len(), limit.get());
        if len > limit {
            return Some(format!("{len} entries where {limit} were asked for"));
        }
        if self.more && self.entries.is_empty() {
            return Some("an empty page that is said not to be the last".to_owned());
        }
        let mut before = after;
        for BlobEntry { name, .. } in &self.entries {
            if !name.is_inside(prefix) {
                return Some(format!("{name}, which is outside the folder"));
            }
            if let Some(before) = before.filter(|before| *before >= name) {
                return Some(format!("{name} after {before}, which is out of order"));
            }
            before = Some(name);
        }
        None
    }
}

/// Every sealed blob inside the folder `prefix`, ascending by name, fetched in pages of
/// [`LIST_PAGE_ENTRIES`]. The iterator ends after its first error. A page out of order, which could loop for
/// ever, is [`VolumeError::BadAnswer`].
pub const fn list_all<'a>(volume: &'a dyn Volume, prefix: &'a BlobName) -> ListAll<'a> {
    ListAll { volume, prefix, limit: LIST_PAGE_ENTRIES, after: None, page: Vec::new(), more: true }
}

/// See [`list_all`].
#[derive(Debug)]
#[must_use = "nothing is listed until it is iterated"]
pub struct ListAll<'a> {
    volume: &'a dyn Volume,
    prefix: &'a BlobName,
    limit: NonZeroUsize,
    after: Option<BlobName>,
    /// What is left of the current page, last entry first.
    page: Vec<BlobEntry>,
    more: bool,
}

impl ListAll<'_> {
    /// Fetches pages of `limit` entries instead.
    pub const fn in_pages_of(mut self, limit: NonZeroUsize) -> Self {
        self.limit = limit;
        self
    }

    fn fetch(&mut self) -> Result<(), VolumeError> {
        // An error ends the walk: going on would skip blobs unnoticed.
        self.more = false;
        let page = self.volume.list(self.prefix, self.after.as_ref(), self.limit)?;
        if let Some(found) = page.defect(self.prefix, self.after.as_ref(), self.limit) {
            return Err(VolumeError::BadAnswer { action: "list", name: self.prefix.to_string(), found });
        }
        self.more = page.more;
        self.page = page.entries;
        self.page.reverse();
        if let Some(last) = self.page.first() {
            self.after = Some(last.name.clone());
        }
        Ok(())
    }
}

impl Iterator for ListAll<'_> {
    type Item = Result<BlobEntry, VolumeError>;

    fn next(&mut self) -> Option<Self::Item> {
        // A page that says that there is more is never empty, so this fetches once.
        while self.page.is_empty() && self.more {
            if let Err(error) = self.fetch() {
                return Some(Err(error));
            }
        }
        self.page.pop().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> BlobName {
        BlobName::new(text).unwrap()
    }

    fn page(names: &[&str], more: bool) -> ListPage {
        let entries = names.iter().map(|text| BlobEntry { name: name(text), len: 1 }).collect();
        ListPage { entries, more }
    }

    #[test]
    fn a_page_that_breaks_the_contract_is_found_out() {
        let limit = NonZeroUsize::new(2).unwrap();
        let defect = |page: ListPage| page.defect(&name("c"), Some(&name("c/b")), limit);
        assert_eq!(defect(page(&["c/c", "c/d"], true)), None);
        assert_eq!(defect(page(&[], false)), None);
        for (wrong, part) in [
            (page(&["c/c", "c/d", "c/e"], true), "3 entries"),
            (page(&[], true), "empty page"),
            (page(&["c2/x"], false), "outside"),
            (page(&["c/b"], false), "c/b after c/b"),
            (page(&["c/a"], false), "c/a after c/b"),
            (page(&["c/d", "c/c"], false), "c/c after c/d"),
            (page(&["c/c", "c/c"], false), "c/c after c/c"),
        ] {
            let found = defect(wrong.clone());
            assert!(found.as_ref().is_some_and(|text| text.contains(part)), "{wrong:?}: {found:?}");
        }
    }
}
