//! A sealed blob being read.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use holdfast_keys::{BlobKey, DamagedPage, DataKeyId, SALT_BYTES, TAG_BYTES};
use holdfast_volume::{Blob, BlobName, ColdPlace, VolumeError};
use parking_lot::{Mutex, RwLock};

use crate::layout::{Form, Geometry, HeaderError, SEALED_HEADER_BYTES, SealedHeader};

/// Read of the volume with one request at most.
const REQUEST_BYTES: u64 = 4 << 20;

/// See [`Blob`].
#[derive(Debug)]
pub(crate) struct SealedBlob {
    inner: Arc<dyn Blob>,
    name: BlobName,
    key: BlobKey,
    geometry: Geometry,
    len: u64,
    last: u64,
}

/// What a sealed blob is, before there is a key.
#[derive(Debug)]
pub(crate) struct Unopened {
    inner: Arc<dyn Blob>,
    name: BlobName,
    pub(crate) header: SealedHeader,
    geometry: Geometry,
    len: u64,
    last: u64,
}

impl Unopened {
    /// The sealed blob `inner` that stands for `name`.
    ///
    /// # Errors
    /// Those of reading; [`VolumeError::Io`] when it is no sealed blob any more, [`VolumeError::NotReadableNow`] when it
    /// is a newer one.
    pub(crate) fn read(inner: Arc<dyn Blob>, name: &BlobName) -> Result<Self, VolumeError> {
        let geometry = Geometry::of(name);
        let (len, last) = geometry
            .opened(inner.len())
            .ok_or_else(|| damaged(name, "its length is not that of an encrypted blob"))?;
        let header = header(&*inner, name, geometry)?;
        Ok(Self { inner, name: name.clone(), header, geometry, len, last })
    }

    /// With its key.
    ///
    /// # Errors
    /// It says that it is empty, and is not.
    pub(crate) fn open(self, key: BlobKey) -> Result<SealedBlob, VolumeError> {
        let Self { inner, name, geometry, len, last, .. } = self;
        let blob = SealedBlob { inner, name, key, geometry, len, last };
        // No read would come to the page that says so.
        if len == 0 {
            let mut tag = [0; TAG_BYTES];
            blob.inner.read_at(geometry.page_offset(0), &mut tag)?;
            blob.open(0, &mut tag, 0, &mut []).map_err(|error| damaged(&blob.name, error))?;
        }
        Ok(blob)
    }
}

/// The first header that can be read and is right.
fn header(inner: &dyn Blob, name: &BlobName, geometry: Geometry) -> Result<SealedHeader, VolumeError> {
    let at = |offset: u64| {
        let mut bytes = [0; SEALED_HEADER_BYTES];
        inner.read_at(offset, &mut bytes)?;
        SealedHeader::decode(&bytes, geometry).map_err(|error| match error {
            HeaderError::Damaged => damaged(name, error),
            HeaderError::Newer(_) => {
                VolumeError::NotReadableNow { name: name.to_string(), source: error.into() }
            }
        })
    };
    let end = inner.len().saturating_sub(const { SEALED_HEADER_BYTES as u64 });
    match at(0) {
        // What proves nothing of one copy leaves open what the blob is.
        Err(error @ VolumeError::Io { .. }) => {
            at(end).map_err(|second| if error.proves_damage() { second } else { error })
        }
        header => header,
    }
}

/// What was written is not what lies there: callers treat it as a disk that does not give it back.
fn damaged(name: &BlobName, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> VolumeError {
    VolumeError::altered(name, why)
}

impl SealedBlob {
    /// Fills `buffer`, which is within the blob, by one request.
    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let page_bytes = self.geometry.page_bytes();
        let (first, end) = (offset / page_bytes, offset + buffer.len() as u64);
        let last = (end - 1) / page_bytes;
        let pages_end = self.sealed_end(last);
        let start = self.geometry.page_offset(first);
        let too_long = || damaged(&self.name, "more pages than memory");
        let mut sealed = vec![0; usize::try_from(pages_end - start).map_err(|_| too_long())?];
        self.inner.read_at(start, &mut sealed)?;
        let mut sealed = sealed.as_mut_slice();
        let mut buffer = buffer;
        let mut skip = usize::try_from(offset % page_bytes).map_err(|_| too_long())?;
        for page in first..=last {
            let bytes = self.sealed_end(page) - self.geometry.page_offset(page);
            let (this, rest) = sealed.split_at_mut(usize::try_from(bytes).map_err(|_| too_long())?);
            sealed = rest;
            let wanted = buffer.len().min(this.len().saturating_sub(TAG_BYTES + skip));
            let (to, later) = buffer.split_at_mut(wanted);
            buffer = later;
            self.open(page, this, skip, to).map_err(|error| damaged(&self.name, error))?;
            skip = 0;
        }
        Ok(())
    }

    /// Where a page and its tag end.
    fn sealed_end(&self, page: u64) -> u64 {
        if page == self.last {
            self.inner.len() - const { SEALED_HEADER_BYTES as u64 }
        } else {
            self.geometry.page_offset(page + 1)
        }
    }

    /// Opens a page, and puts what is behind its first `skip` bytes into `to`.
    fn open(&self, page: u64, sealed: &mut [u8], skip: usize, to: &mut [u8]) -> Result<(), DamagedPage> {
        let is_last = page == self.last;
        if skip == 0 && to.len() + TAG_BYTES == sealed.len() {
            return self.key.open_page_to(page, is_last, sealed, to);
        }
        let opened = self.key.open_page(page, is_last, sealed)?;
        let wanted = opened.get(skip..skip + to.len()).ok_or(DamagedPage { page })?;
        to.copy_from_slice(wanted);
        Ok(())
    }
}

impl Blob for SealedBlob {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_at_hand(&self) -> bool {
        self.inner.is_at_hand()
    }

    fn drop_cached(&self) {
        self.inner.drop_cached();
    }

    fn cold(&self) -> Option<ColdPlace> {
        self.inner.cold()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let wanted = buffer.len() as u64;
        if offset.checked_add(wanted).is_none_or(|end| end > self.len) {
            return Err(VolumeError::OutOfRange { name: self.name.clone(), len: self.len, offset, wanted });
        }
        let (mut offset, mut buffer) = (offset, buffer);
        while !buffer.is_empty() {
            // Cut where a page begins.
            let boundary = (offset / REQUEST_BYTES + 1) * REQUEST_BYTES;
            let now = usize::try_from(boundary - offset).unwrap_or(usize::MAX).min(buffer.len());
            let (this, rest) = buffer.split_at_mut(now);
            self.fill(offset, this)?;
            (offset, buffer) = (boundary, rest);
        }
        Ok(())
    }
}

/// Opens a blob again, in whichever form it has by then.
pub(crate) type OpenAgain = Box<dyn Fn() -> Result<Found, VolumeError> + Send + Sync>;

/// Which writing of a blob a form is: its salt and data key; `None`: it lies in the open, and is never written again.
pub(crate) type Salt = Option<([u8; SALT_BYTES], DataKeyId)>;

/// A blob in the form in which it was found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) blob: Arc<dyn Blob>,
    pub(crate) form: Form,
    pub(crate) salt: Salt,
}

/// All blobs that are open, by their names.
#[derive(Debug, Default)]
pub(crate) struct Open {
    blobs: Mutex<HashMap<BlobName, Vec<Weak<Held>>>>,
    /// Forms that were removed.
    gone: AtomicU64,
}

impl Open {
    pub(crate) fn gone(&self) -> u64 {
        self.gone.load(Ordering::SeqCst)
    }

    fn add(&self, held: &Arc<Held>) {
        self.blobs.lock().entry(held.name.clone()).or_default().push(Arc::downgrade(held));
    }

    /// Takes note that one form of a blob was removed: its readers go on in the form that is left, so that the room
    /// of the one that is gone is free (K2). No one removes that meanwhile: the caller keeps others from it.
    pub(crate) fn form_removed(&self, name: &BlobName, form: Form, salt: Salt) {
        self.gone.fetch_add(1, Ordering::SeqCst);
        // What is dropped here takes the lock itself.
        let held: Vec<Arc<Held>> =
            self.blobs.lock().get(name).into_iter().flatten().filter_map(Weak::upgrade).collect();
        for held in held.iter().filter(|held| held.is(form, salt)) {
            // One that cannot be opened now reads on as it is; so does one of a name that was used again.
            if let Ok(found) = (held.open_again)()
                && found.blob.len() == held.len
            {
                *held.found.write() = found;
            }
        }
    }
}

/// What a reader holds.
struct Held {
    open: Arc<Open>,
    open_again: OpenAgain,
    name: BlobName,
    len: u64,
    found: RwLock<Found>,
}

impl Held {
    fn is(&self, form: Form, salt: Salt) -> bool {
        let found = self.found.read();
        found.form == form && found.salt == salt
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("found", &self.found).finish_non_exhaustive()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut blobs = self.open.blobs.lock();
        if let Some(held) = blobs.get_mut(&self.name) {
            held.retain(|held| held.strong_count() > 0);
            if held.is_empty() {
                blobs.remove(&self.name);
            }
        }
    }
}

/// A blob that may get another form while it is read.
#[derive(Debug)]
pub(crate) struct MovingBlob {
    held: Arc<Held>,
    /// Whether what is open below can be read once it was removed.
    outlives_removal: bool,
}

impl MovingBlob {
    pub(crate) fn open(
        open: &Arc<Open>,
        name: &BlobName,
        open_again: OpenAgain,
        outlives_removal: bool,
    ) -> Result<Self, VolumeError> {
        let mut gone = open.gone();
        let found = open_again()?;
        let (open, name, len) = (Arc::clone(open), name.clone(), found.blob.len());
        let held = Arc::new(Held { open, open_again, name, len, found: RwLock::new(found) });
        held.open.add(&held);
        // It may be the one that was removed before it was known that it is open.
        while held.open.gone() != gone {
            gone = held.open.gone();
            let found = (held.open_again)()?;
            if found.blob.len() != len {
                return Err(VolumeError::NotFound { name: held.name.clone() });
            }
            *held.found.write() = found;
        }
        Ok(Self { held, outlives_removal })
    }
}

impl Blob for MovingBlob {
    fn len(&self) -> u64 {
        self.held.len
    }

    fn is_at_hand(&self) -> bool {
        self.held.found.read().blob.is_at_hand()
    }

    fn drop_cached(&self) {
        self.held.found.read().blob.drop_cached();
    }

    fn cold(&self) -> Option<ColdPlace> {
        self.held.found.read().blob.cold()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let Held { found, name, len, open_again, .. } = &*self.held;
        let blob = Arc::clone(&found.read().blob);
        match blob.read_at(offset, buffer) {
            Err(VolumeError::NotFound { .. }) if !self.outlives_removal => {}
            read => return read,
        }
        let moved = open_again()?;
        // Another blob of that name is not this one.
        if moved.blob.len() != *len {
            return Err(VolumeError::NotFound { name: name.clone() });
        }
        *found.write() = moved.clone();
        moved.blob.read_at(offset, buffer)
    }
}
