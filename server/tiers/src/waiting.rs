//! Blobs sealed by this process that are not copied yet, that could not be read since, and that are being removed. In
//! memory: after a crash, the next process finds them by comparing the local listing with the record.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::OnceLock;

use holdfast_volume::BlobName;
use parking_lot::Mutex;

/// Most names kept: 65,536 × (200 + 120) bytes, 20 MiB, are 2 TiB in containers. If there are more, the local listing
/// is compared with the record again.
const NOTED_MAX: usize = 65_536;

/// A blob that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Noted {
    /// Ascending in the order in which seals began.
    number: u64,
    since_ms: i64,
    len: u64,
    /// True if its seal has returned.
    is_sealed: bool,
}

/// Totals of waiting blobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WaitingTotals {
    pub(crate) blobs: u64,
    pub(crate) bytes: u64,
    /// When the first of them was sealed.
    pub(crate) since_ms: Option<i64>,
}

/// Called when a blob was sealed.
type Tell = Box<dyn Fn() + Send + Sync>;

/// Blobs that were sealed in this process and are not copied yet, and removals in progress.
#[derive(Default)]
pub(crate) struct Waiting {
    state: Mutex<State>,
    tell: OnceLock<Tell>,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    noted: BTreeMap<BlobName, Noted>,
    /// Last number assigned.
    last: u64,
    /// True if a blob found no room since this was last taken.
    has_lost: bool,
    /// True if a waiting container was removed since this was last taken.
    has_removed: bool,
    /// Number of calls that are removing a blob, by name.
    removing: HashMap<BlobName, usize>,
}

impl Waiting {
    /// Called before a blob is sealed. (T1) It gets its number before anyone can see it, and after everything it needs
    /// was sealed. Returns `false` if a blob of that name waits already, or there is no room for more.
    pub(crate) fn begin(&self, name: &BlobName, len: u64, now_ms: i64) -> bool {
        let mut state = self.state.lock();
        if state.noted.contains_key(name) {
            return false;
        }
        state.last += 1;
        if state.noted.len() >= NOTED_MAX {
            state.has_lost = true;
            return false;
        }
        let number = state.last;
        state.noted.insert(name.clone(), Noted { number, since_ms: now_ms, len, is_sealed: false });
        true
    }

    /// Records that a blob's seal has returned.
    pub(crate) fn sealed(&self, name: &BlobName) {
        if let Some(noted) = self.state.lock().noted.get_mut(name) {
            noted.is_sealed = true;
        }
        if let Some(tell) = self.tell.get() {
            tell();
        }
    }

    /// Sets the function to call whenever a blob was sealed. It must not block.
    pub(crate) fn tell(&self, tell: Tell) {
        // Set once, right after construction.
        let _ = self.tell.set(tell);
    }

    /// Adds a sealed local blob.
    pub(crate) fn note(&self, name: &BlobName, len: u64, now_ms: i64) {
        self.begin(name, len, now_ms);
        self.sealed(name);
    }

    /// The last number assigned: everything sealed before this call has one up to it.
    pub(crate) fn last(&self) -> u64 {
        self.state.lock().last
    }

    /// Returns the first blobs of a kind with numbers up to `up_to`.
    pub(crate) fn first(&self, kind: Kind, up_to: u64, limit: usize) -> Vec<BlobName> {
        let Some(from) = BlobName::new(kind.text()) else { return Vec::new() };
        let state = self.state.lock();
        let of_kind =
            state.noted.range(from..).take_while(|(name, _)| name.as_str().starts_with(kind.text()));
        let wanted = |(name, noted): &(&BlobName, &Noted)| {
            noted.is_sealed && noted.number <= up_to && Kind::of(name) == Some(kind)
        };
        of_kind.filter(wanted).map(|(name, _)| name.clone()).take(limit).collect()
    }

    /// The number of a waiting blob.
    pub(crate) fn number(&self, name: &BlobName) -> Option<u64> {
        self.state.lock().noted.get(name).map(|noted| noted.number)
    }

    /// Removes a blob that need not be copied (any more).
    pub(crate) fn forget(&self, name: &BlobName) {
        self.state.lock().noted.remove(name);
    }

    /// Removes a blob that was removed locally.
    pub(crate) fn removed(&self, name: &BlobName) {
        let mut state = self.state.lock();
        if state.noted.remove(name).is_some() && Kind::of(name) == Some(Kind::Container) {
            state.has_removed = true;
        }
    }

    /// Returns true if a container was removed before it was copied, since the last call.
    pub(crate) fn take_removed(&self) -> bool {
        std::mem::take(&mut self.state.lock().has_removed)
    }

    /// Returns true if some blobs could not be noted, since the last call.
    pub(crate) fn take_lost(&self) -> bool {
        std::mem::take(&mut self.state.lock().has_lost)
    }

    /// Returns true if some blobs could not be noted.
    pub(crate) fn has_lost(&self) -> bool {
        self.state.lock().has_lost
    }

    /// Returns true if no waiting blob has a number up to this, except snapshots of the catalog, which come
    /// after all else.
    pub(crate) fn has_none_up_to(&self, number: u64) -> bool {
        let state = self.state.lock();
        let waits = |(name, noted): (&BlobName, &Noted)| {
            noted.number <= number && Kind::of(name) != Some(Kind::Snapshot)
        };
        !state.has_lost && !state.noted.iter().any(waits)
    }

    pub(crate) fn totals(&self) -> WaitingTotals {
        let state = self.state.lock();
        let sealed = || state.noted.values().filter(|noted| noted.is_sealed);
        WaitingTotals {
            blobs: sealed().count() as u64,
            bytes: sealed().map(|noted| noted.len).sum(),
            since_ms: sealed().map(|noted| noted.since_ms).min(),
        }
    }

    /// Returns true if no sealed blob waits.
    pub(crate) fn is_empty(&self) -> bool {
        !self.state.lock().noted.values().any(|noted| noted.is_sealed)
    }

    /// Marks `name` as being removed until the guard is dropped.
    pub(crate) fn removing(&self, name: &BlobName) -> Removing<'_> {
        *self.state.lock().removing.entry(name.clone()).or_default() += 1;
        Removing { waiting: self, name: name.clone() }
    }

    /// Returns true if a call is removing `name`.
    pub(crate) fn is_removing(&self, name: &BlobName) -> bool {
        self.state.lock().removing.contains_key(name)
    }
}

/// Guard of a removal in progress.
#[derive(Debug)]
pub(crate) struct Removing<'a> {
    waiting: &'a Waiting,
    name: BlobName,
}

impl Drop for Removing<'_> {
    fn drop(&mut self) {
        let mut state = self.waiting.state.lock();
        let left = state.removing.get_mut(&self.name).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            state.removing.remove(&self.name);
        }
    }
}

/// Most names kept, of 300 bytes each.
const NAMES_MAX: usize = 65_536;

/// Blobs sealed by this process that could not be read since, so they are not in the bucket. Backups wait for them
/// (T12).
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// The numbers under which they were sealed.
    numbers: BTreeMap<BlobName, u64>,
    /// Lowest number of a blob for which there was no room.
    others_from: Option<u64>,
}

impl Unread {
    /// Returns true if all their numbers are above `mark`.
    pub(crate) fn is_above(&self, mark: u64) -> bool {
        self.numbers.values().chain(self.others_from.as_ref()).all(|number| *number > mark)
    }

    /// Adds a blob, except snapshots of the catalog, which no backup waits for.
    pub(crate) fn note(&mut self, name: &BlobName, number: u64) {
        if Kind::of(name) == Some(Kind::Snapshot) {
            return;
        }
        if self.numbers.contains_key(name) {
            // It was retried under a later number.
        } else if self.numbers.len() < NAMES_MAX {
            self.numbers.insert(name.clone(), number);
        } else {
            self.others_from = Some(self.others_from.map_or(number, |others| others.min(number)));
        }
    }

    /// Removes a blob that was copied, or removed locally.
    pub(crate) fn forget(&mut self, name: &BlobName) {
        self.numbers.remove(name);
    }

    pub(crate) fn names(&self) -> Vec<BlobName> {
        self.numbers.keys().cloned().collect()
    }
}

/// The folder of ends of containers, which are not one of these kinds.
pub(crate) const ENDS: &str = "ends";

/// Kinds of blobs that are copied, in that order. The index is not: it is rebuilt of the containers. Parity is not: it
/// protects against a local disk. (T1) Restore points come after what they need: containers, and
/// before these the keys that they are encrypted with, without which the bucket would not be one of a repository. Snapshots
/// of the catalog name restore points, so they come after those.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Identity of the repository: first, so that two repositories never mix in one place.
    Mark,
    Keys,
    Container,
    Point,
    Snapshot,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Mark, Self::Keys, Self::Container, Self::Point, Self::Snapshot];

    /// Folder of its blobs, or the name of its only blob.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Mark => "repository",
            Self::Container => "containers",
            Self::Keys => "keys",
            Self::Point => "points",
            Self::Snapshot => "snapshots",
        }
    }

    /// Kind of `name`; `None`: it is not copied.
    pub(crate) fn of(name: &BlobName) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| {
            let rest = name.as_str().strip_prefix(kind.text());
            match kind {
                Self::Mark => rest == Some(""),
                _ => rest.is_some_and(|rest| rest.starts_with('/')),
            }
        })
    }

    /// Its folder, as a name.
    pub(crate) fn folder(self) -> Option<BlobName> {
        BlobName::new(self.text())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn it_tells_of_what_can_be_copied_now() {
        let waiting = Arc::new(Waiting::default());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (of, into) = (Arc::downgrade(&waiting), Arc::clone(&seen));
        waiting.tell(Box::new(move || {
            let waiting = of.upgrade().unwrap();
            into.lock().push(waiting.first(Kind::Container, u64::MAX, 9).len());
        }));
        let names = ["containers/00/1", "containers/00/2"].map(|name| BlobName::new(name).unwrap());
        waiting.begin(&names[0], 1, 0);
        assert!(seen.lock().is_empty(), "not sealed yet");
        waiting.sealed(&names[0]);
        waiting.note(&names[1], 1, 0);
        assert_eq!(*seen.lock(), [1, 2]);
    }

    #[test]
    fn the_index_stays() {
        let kind = |text: &str| Kind::of(&BlobName::new(text).unwrap());
        assert_eq!(kind("repository"), Some(Kind::Mark));
        assert_eq!(kind("containers/0000000/0000000001.data-"), Some(Kind::Container));
        assert_eq!(kind("points/a/b/c.1-"), Some(Kind::Point));
        assert_eq!(kind("keys/00000000000000000001"), Some(Kind::Keys));
        for stays in ["index/manifest-1", "parity/1", "repository/x", "containers", "containersx/1"] {
            assert_eq!(kind(stays), None, "{stays}");
        }
        assert!(Kind::ALL.is_sorted());
    }
}
