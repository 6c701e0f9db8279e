//! The contract of every volume: the trait [`Volume`], blobs being written and read, and listings.
//! `testing/suite.rs` checks it.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::{BlobName, VolumeError};

/// Space on a volume, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// Owner of a blob. A volume that encrypts seals it with its owner's key; destroying that key destroys the blob and
/// all its copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// Owner of blobs that belong to no namespace.
    pub const REPOSITORY: Self = Self([0; 16]);

    /// A namespace, by its id.
    #[must_use]
    pub const fn namespace(id: [u8; 16]) -> Self {
        Self(id)
    }

    /// Id of the namespace; zeros for the repository as a whole.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

/// Lengths of the ends of a blob that stay local when the rest is only remote, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// From the beginning.
    pub head: u64,
    /// To the end.
    pub tail: u64,
}

/// A place for blobs.
///
/// - **Immutable.** A sealed blob never changes. It can be removed; a caller does not use a removed blob's
///   name again while a call on the old blob is under way.
/// - **Names** are flat: a folder is a shared beginning of names up to a `/`, exists while a blob is in it, and
///   needs no call to be made. No blob's name is a folder of another's; whether a volume refuses such a pair is
///   unspecified. A volume may put every name below a root of its own (a folder, a key prefix).
/// - **Consistent.** What one call has done, every call that begins later sees, in this and in other
///   processes. (S3 is consistent in this way; a store with an eventually consistent listing is not enough.)
/// - **Concurrent.** Every method may be called from many threads at once. Calls block; they return within a
///   bounded time, so a remote volume puts a time limit on each request and answers with
///   [`VolumeError::Unavailable`] (nothing was done) or [`VolumeError::OutcomeUnknown`] (a write may have
///   happened).
/// - **Untrusted answers.** A remote volume bounds and checks what it is sent before it allocates or believes
///   it, and answers [`VolumeError::BadAnswer`].
/// - **No panics**, whatever the disk or the network does.
///
/// An implementation does not retry, pace, count or cache: decorators do. Requests inside one call that only
/// it can repeat (one part of a multipart upload) are the exception.
pub trait Volume: Send + Sync + fmt::Debug {
    /// Begins a blob. It becomes visible only by [`BlobWriter::seal`]; dropping the writer discards it.
    ///
    /// A name that is taken may be reported here, to save the caller from writing in vain, and must be
    /// reported by the seal, because another writer may seal the name in between.
    ///
    /// # Errors
    /// [`VolumeError::Exists`], [`VolumeError::Full`], [`VolumeError::Unavailable`] (also when the process has
    /// no file descriptor left), [`VolumeError::WriteFailed`]. After each nothing is visible.
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError>;

    /// Same as [`Volume::create_for`], for a blob that belongs to the repository as a whole.
    ///
    /// # Errors
    /// Same as [`Volume::create_for`].
    fn create(&self, name: &BlobName) -> Result<Box<dyn BlobWriter>, VolumeError> {
        self.create_for(name, Owner::REPOSITORY)
    }

    /// Opens a sealed blob for reading and learns its length (on S3: `HeadObject`).
    ///
    /// # Errors
    /// [`VolumeError::NotFound`] only when it is certain that there is no such blob: callers take it for
    /// data loss. A refusal (EACCES, 403) or an archived object is [`VolumeError::NotReadableNow`], a volume
    /// that cannot be reached is [`VolumeError::Unavailable`]. Otherwise [`VolumeError::Io`].
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError>;

    /// One page of the sealed blobs inside the folder `prefix` (a name without trailing slash), at any depth:
    /// those whose names are greater than `after`, or the first ones, in ascending byte order of their whole
    /// names, at most `limit` of them. `after` need not exist. A folder that does not exist is empty.
    ///
    /// A page may be shorter than `limit` while there is more (S3 gives at most 1,000 a request), but then it
    /// has at least one entry. Blobs sealed or removed during a walk from page to page appear or not; every
    /// other blob appears exactly once. [`list_all`](crate::list_all) walks.
    ///
    /// On S3: `ListObjectsV2` with the prefix `prefix/`, `start-after` and `max-keys`.
    ///
    /// # Errors
    /// [`VolumeError::NotReadableNow`], [`VolumeError::Unavailable`], [`VolumeError::BadAnswer`],
    /// [`VolumeError::Io`]. Never a silently incomplete page.
    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError>;

    /// Removes a blob, durably: no crash brings it back once this returned `Ok`.
    ///
    /// On S3, where deleting what does not exist succeeds: `HeadObject` first.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`]; [`VolumeError::Unavailable`]: not removed; [`VolumeError::WriteFailed`],
    /// [`VolumeError::NotDurable`], [`VolumeError::OutcomeUnknown`]: removed or not.
    fn remove(&self, name: &BlobName) -> Result<(), VolumeError>;

    /// Discards what writers of an earlier process left behind (temporary files, multipart uploads below this
    /// volume's prefix) and returns how many it discarded; fewer than were begun when some left nothing. Only
    /// for start-up, before any [`Volume::create_for`], and by one process at a time.
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`], [`VolumeError::WriteFailed`], [`VolumeError::Io`]; some may be left, and
    /// calling again is safe.
    fn discard_unfinished(&self) -> Result<u64, VolumeError>;

    /// Space left; `None` if it is unknown (a bucket).
    ///
    /// # Errors
    /// [`VolumeError::Unavailable`], [`VolumeError::NotReadableNow`], [`VolumeError::Io`].
    fn space(&self) -> Result<Option<Space>, VolumeError>;

    /// Removes empty folders below `below` for which `is_left` says that nothing will be written to them. A volume
    /// without folders, or that hides those of the one below, does nothing.
    ///
    /// # Errors
    /// Folders cannot be read or removed; some may be left.
    fn remove_empty_folders(
        &self,
        _below: &BlobName,
        _is_left: &dyn Fn(&BlobName) -> bool,
    ) -> Result<(), VolumeError> {
        Ok(())
    }

    /// Returns true if a [`Blob`] opened before [`Volume::remove`] can still be read after it, as a file can. Where it
    /// is false, reads of such a handle return the blob's bytes or [`VolumeError::NotFound`], never others. A
    /// decorator answers what the volume inside it answers.
    fn handles_outlive_removal(&self) -> bool;

    /// The local part of this volume if other blobs are remote; `None`: all of it is in one place.
    fn here(&self) -> Option<Arc<dyn Volume>> {
        None
    }

    /// Removes the local copy of a blob after proving that its remote copy is equal; its `ends` stay local. Returns
    /// `false` if there is no other copy, or none yet. For every other call the blob is unchanged.
    ///
    /// # Errors
    /// Same as [`Volume::open`] and [`Volume::remove`]; the blob is still there.
    fn evict(&self, name: &BlobName, ends: Ends) -> Result<bool, VolumeError> {
        let _ = (name, ends);
        Ok(false)
    }

    /// Archives a blob that is only remote (see [`Volume::evict`]), if there is an archive. Returns true if this call
    /// archived it. For every other call the blob is unchanged, but reads of more than its ends may fail with
    /// [`VolumeError::NotReadableNow`] from now on ([`VolumeError::is_archived`]).
    ///
    /// # Errors
    /// Same as [`Volume::open`]; after [`VolumeError::may_have_written`] it may be archived.
    fn freeze(&self, name: &BlobName) -> Result<bool, VolumeError> {
        let _ = name;
        Ok(false)
    }
}

/// A shared volume is a volume.
impl<V: Volume + ?Sized> Volume for Arc<V> {
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        (**self).create_for(name, owner)
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        (**self).open(name)
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        (**self).list(prefix, after, limit)
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        (**self).remove(name)
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        (**self).discard_unfinished()
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        (**self).space()
    }

    fn remove_empty_folders(
        &self,
        below: &BlobName,
        is_left: &dyn Fn(&BlobName) -> bool,
    ) -> Result<(), VolumeError> {
        (**self).remove_empty_folders(below, is_left)
    }

    fn handles_outlive_removal(&self) -> bool {
        (**self).handles_outlive_removal()
    }

    fn here(&self) -> Option<Arc<dyn Volume>> {
        (**self).here()
    }

    fn evict(&self, name: &BlobName, ends: Ends) -> Result<bool, VolumeError> {
        (**self).evict(name, ends)
    }

    fn freeze(&self, name: &BlobName) -> Result<bool, VolumeError> {
        (**self).freeze(name)
    }
}

/// A blob being written, by one thread at a time. Until [`BlobWriter::seal`] nothing of it can be opened or
/// listed. Dropping the writer discards it; what cannot be discarded then (the process was killed, the network
/// is down) is left for [`crate::Volume::discard_unfinished`].
#[must_use = "a writer that is dropped discards its blob; seal it"]
pub trait BlobWriter: Send + fmt::Debug {
    /// Appends bytes: any number, from none to the whole blob. They need not be durable, nor even sent, before
    /// [`BlobWriter::seal`], but a writer holds a bounded number of them (state the bound), so that a caller's
    /// memory does not grow with the blob.
    ///
    /// # Errors
    /// [`VolumeError::Full`], [`VolumeError::WriteFailed`], [`VolumeError::Unavailable`]. After any of them the
    /// blob can only be dropped: a further append or the seal must fail, or the blob would have a hole.
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError>;

    /// Bytes appended so far.
    fn len(&self) -> u64;

    /// Returns true if nothing was appended so far.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the blob durable, then visible under its name, durably so, in one step that replaces nothing.
    /// When this returns `Ok`, the blob survives any crash, and every later call, from any thread or process,
    /// sees it whole. Of several writers of one name the first to seal wins.
    ///
    /// On S3: `PutObject` or `CompleteMultipartUpload` with `If-None-Match: *`, and a checksum of the whole
    /// blob that the service verifies.
    ///
    /// # Errors
    /// - [`VolumeError::Exists`]: the name is taken; this blob is discarded.
    /// - [`VolumeError::Full`], [`VolumeError::Unavailable`], [`VolumeError::WriteFailed`]: not visible;
    ///   discarded.
    /// - [`VolumeError::NotDurable`]: visible or not, durable or not; local volumes only.
    /// - [`VolumeError::OutcomeUnknown`]: sealed or not, but if it is visible it is whole and durable. It may
    ///   still become visible later. Trying the same name again is safe, because nothing is replaced:
    ///   [`VolumeError::Exists`] then means that one of the two attempts got through.
    fn seal(self: Box<Self>) -> Result<(), VolumeError>;
}

/// An archived blob, which must be thawed before it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdPlace {
    /// Name in the remote place.
    pub name: BlobName,
    /// Length of the blob, in bytes.
    pub len: u64,
    /// True if a thawed copy can be read, for a while.
    pub is_readable: bool,
    /// True if it is known to be archived: the request may have been cut off.
    pub is_certain: bool,
}

/// A sealed blob. Its bytes never change, so any number of threads may read it at once.
pub trait Blob: Send + Sync + fmt::Debug {
    /// Length in bytes, known since it was opened: no request.
    fn len(&self) -> u64;

    /// Returns true if the blob is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills the whole `buffer` with the bytes from `offset`, or fails; after a failure the buffer's content
    /// is undefined and must not be used. An empty buffer inside the blob or at its end succeeds. One call is
    /// one request of a remote volume (`GetObject` with `Range`, and `If-Match` with the entity tag of the
    /// open), so callers read in large pieces.
    ///
    /// The bytes are not verified: what they mean is checked by the layer that wrote them.
    ///
    /// # Errors
    /// [`VolumeError::OutOfRange`] when the blob ends before that, [`VolumeError::NotReadableNow`],
    /// [`VolumeError::Unavailable`], [`VolumeError::Io`]; [`VolumeError::NotFound`] when the blob was removed
    /// and [`crate::Volume::handles_outlive_removal`] is false.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError>;

    /// Returns true if reading all of it sends no request to a remote place.
    fn is_at_hand(&self) -> bool {
        true
    }

    /// Makes later reads come from storage and not from memory of the operating system, as far as that complies: before
    /// they are taken for a proof or for damage. A decorator passes it on; a volume without such memory does nothing.
    fn drop_cached(&self);

    /// Returns the blob's place if it is archived, as far as is known. A decorator of a volume with an archive passes
    /// it on.
    fn cold(&self) -> Option<ColdPlace> {
        None
    }
}

/// Fails with [`VolumeError::OutOfRange`] unless a blob of `len` bytes has `wanted` bytes at `offset`.
pub(crate) fn check_range(name: &BlobName, len: u64, offset: u64, wanted: u64) -> Result<(), VolumeError> {
    match offset.checked_add(wanted) {
        Some(end) if end <= len => Ok(()),
        _ => Err(VolumeError::OutOfRange { name: name.clone(), len, offset, wanted }),
    }
}

impl dyn Blob {
    /// Reads `len` bytes from `offset`. Nothing is allocated for a range that the blob does not have.
    ///
    /// # Errors
    /// Same as [`Blob::read_at`].
    pub fn read_vec(&self, name: &BlobName, offset: u64, len: usize) -> Result<Vec<u8>, VolumeError> {
        check_range(name, self.len(), offset, len as u64)?;
        let mut buffer = vec![0; len];
        self.read_at(offset, &mut buffer)?;
        Ok(buffer)
    }
}

/// A blob in a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobEntry {
    pub name: BlobName,
    /// Length in bytes.
    pub len: u64,
}

/// A part of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct ListPage {
    /// Ascending by name.
    pub entries: Vec<BlobEntry>,
    /// True if there may be entries after the last of these. Never set on an empty page.
    pub more: bool,
}

impl ListPage {
    /// Returns the first `limit` of `found`, which are ascending and one more than the page holds when there are more.
    pub(crate) fn cut(mut found: Vec<BlobEntry>, limit: NonZeroUsize) -> Self {
        debug_assert!(found.is_sorted_by(|a, b| a.name < b.name), "a listing out of order");
        let more = found.len() > limit.get();
        found.truncate(limit.get());
        Self { entries: found, more }
    }

    /// The defect of this page as the answer to a request, if any.
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

/// Iterator of [`list_all`].
#[derive(Debug)]
#[must_use = "nothing is listed until it is iterated"]
pub struct ListAll<'a> {
    volume: &'a dyn Volume,
    prefix: &'a BlobName,
    limit: NonZeroUsize,
    after: Option<BlobName>,
    /// Entries left of the current page, last entry first.
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
        // A page that is not the last is never empty, so this fetches once.
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
