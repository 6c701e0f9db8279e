//! Every blob of a folder, fetched page by page: a volume of a million containers is never one list in memory.

use std::num::NonZeroUsize;

use crate::{BlobEntry, BlobName, Volume, VolumeError};

/// Entries that [`list_all`] asks for at a time. A name has 200 bytes at most, so a page of this many takes
/// 4,096 × (200 + 48) bytes, about 1 MiB; a local folder of containers holds some 4,096 of them and so is read
/// about once.
pub const LIST_PAGE_ENTRIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

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
