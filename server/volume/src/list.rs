//! One page of a listing, and what is wrong with one that breaks the contract of [`Volume::list`](crate::Volume::list).

use std::num::NonZeroUsize;

use crate::BlobName;

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
    pub(crate) fn defect(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Option<String> {
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
