//! What was sealed by this process, could not be read here since, and so is not in the bucket. Backups wait for it (T12).

use std::collections::BTreeMap;

use holdfast_volume::BlobName;

use crate::kinds::Kind;

/// Names kept: 300 bytes each.
const NAMES_MAX: usize = 65_536;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// The numbers under which they were sealed.
    numbers: BTreeMap<BlobName, u64>,
    /// The lowest of those for which there was no room.
    others_from: Option<u64>,
}

impl Unread {
    /// Whether all of them have numbers above `mark`.
    pub(crate) fn is_above(&self, mark: u64) -> bool {
        self.numbers.values().chain(self.others_from.as_ref()).all(|number| *number > mark)
    }

    /// But for snapshots of the catalog, which no backup waits for.
    pub(crate) fn note(&mut self, name: &BlobName, number: u64) {
        if Kind::of(name) == Some(Kind::Snapshot) {
            return;
        }
        if self.numbers.contains_key(name) {
            // It was tried again, under a later number.
        } else if self.numbers.len() < NAMES_MAX {
            self.numbers.insert(name.clone(), number);
        } else {
            self.others_from = Some(self.others_from.map_or(number, |others| others.min(number)));
        }
    }

    /// It is there, or nowhere any more.
    pub(crate) fn forget(&mut self, name: &BlobName) {
        self.numbers.remove(name);
    }

    pub(crate) fn names(&self) -> Vec<BlobName> {
        self.numbers.keys().cloned().collect()
    }
}
