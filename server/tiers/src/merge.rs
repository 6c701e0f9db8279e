//! One listing of two.

use std::num::NonZeroUsize;

use holdfast_volume::{BlobEntry, BlobName, ListPage};

/// The page that follows of a page here and one of the record, both of what comes after the same name. Of a name in both
/// the blob here counts.
pub(crate) fn merge(here: ListPage, there: ListPage, limit: NonZeroUsize) -> ListPage {
    // Behind the end of a page that has more behind it, names of that side may be missing.
    let end_of = |page: &ListPage| page.entries.last().filter(|_| page.more).map(|entry| entry.name.clone());
    let end = match (end_of(&here), end_of(&there)) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let more = here.more || there.more;
    let is_within = |name: &BlobName| end.as_ref().is_none_or(|end| name <= end);
    let mut entries: Vec<BlobEntry> = here.entries;
    entries.extend(there.entries);
    // Stable: what is here stays first among equals.
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries.dedup_by(|later, first| later.name == first.name);
    let found = entries.len();
    entries.retain(|entry| is_within(&entry.name));
    let more = more || entries.len() < found || entries.len() > limit.get();
    entries.truncate(limit.get());
    ListPage { entries, more }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: &[&str], more: bool) -> ListPage {
        let entry = |text: &&str| BlobEntry { name: BlobName::new(*text).unwrap(), len: 1 };
        ListPage { entries: names.iter().map(entry).collect(), more }
    }

    #[test]
    fn nothing_is_skipped_or_shown_twice() {
        let limit = NonZeroUsize::new(3).unwrap();
        let names = |page: &ListPage| {
            page.entries.iter().map(|entry| entry.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        for (here, there, expected, more) in [
            (page(&["a", "c"], false), page(&["b", "c"], false), "a b c", false),
            (page(&["a", "b", "c"], true), page(&[], false), "a b c", true),
            (page(&["a", "b"], true), page(&["c", "d"], false), "a b", true),
            (page(&["x", "y"], false), page(&["a", "b", "c"], true), "a b c", true),
            (page(&["a", "d"], true), page(&["b", "c"], true), "a b c", true),
            (page(&["a", "b"], false), page(&["c", "d"], false), "a b c", true),
            (page(&[], false), page(&[], false), "", false),
        ] {
            let merged = merge(here, there, limit);
            assert_eq!((names(&merged).as_str(), merged.more), (expected, more));
        }
    }
}
