//! Reading a sealed blob.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use holdfast_keys::{BlobKey, DamagedPage, DataKeyId, SALT_BYTES, TAG_BYTES};
use holdfast_volume::{Blob, BlobName, ColdPlace, VolumeError};
use parking_lot::{Mutex, RwLock};

use crate::layout::{Form, Geometry, HeaderError, SEALED_HEADER_BYTES, SealedHeader};

/// Most bytes read from the volume by one request.
const REQUEST_BYTES: u64 = 4 << 20;

/// Opens the pages of a sealed blob (see [`Blob`]).
#[derive(Debug)]
pub(crate) struct SealedBlob {
    inner: Arc<dyn Blob>,
    name: BlobName,
    key: BlobKey,
    geometry: Geometry,
    len: u64,
    last: u64,
}

/// A sealed blob whose header was read and whose key is not at hand yet.
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
    /// Reads the header of the sealed blob `inner` that stands for `name`.
    ///
    /// # Errors
    /// Those of reading; [`VolumeError::Io`] when it is not a sealed blob, [`VolumeError::NotReadableNow`] when its
    /// version is newer than this build's.
    pub(crate) fn read(inner: Arc<dyn Blob>, name: &BlobName) -> Result<Self, VolumeError> {
        let geometry = Geometry::of(name);
        let (len, last) = geometry
            .opened(inner.len())
            .ok_or_else(|| damaged(name, "its length is not that of an encrypted blob"))?;
        let header = header(&*inner, name, geometry)?;
        Ok(Self { inner, name: name.clone(), header, geometry, len, last })
    }

    /// Opens the blob with its key.
    ///
    /// # Errors
    /// The blob claims to be empty, and is not.
    pub(crate) fn open(self, key: BlobKey) -> Result<SealedBlob, VolumeError> {
        let Self { inner, name, geometry, len, last, .. } = self;
        let blob = SealedBlob { inner, name, key, geometry, len, last };
        // Of an empty blob no read would verify the page that says so.
        if len == 0 {
            let mut tag = [0; TAG_BYTES];
            blob.inner.read_at(geometry.page_offset(0), &mut tag)?;
            blob.open(0, &mut tag, 0, &mut []).map_err(|error| damaged(&blob.name, error))?;
        }
        Ok(blob)
    }
}

/// Returns the first of the two headers that can be read and is valid.
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
        // If the first copy merely could not be read, its damage is not proved, whatever the second one shows.
        Err(error @ VolumeError::Io { .. }) => {
            at(end).map_err(|second| if error.proves_damage() { second } else { error })
        }
        header => header,
    }
}

/// The error for bytes that fail authentication: callers treat it as a disk that does not give the blob back.
fn damaged(name: &BlobName, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> VolumeError {
    VolumeError::altered(name, why)
}

impl SealedBlob {
    /// Fills `buffer`, which must be within the blob, by one request.
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

    /// Offset at which a page and its tag end.
    fn sealed_end(&self, page: u64) -> u64 {
        if page == self.last {
            self.inner.len() - const { SEALED_HEADER_BYTES as u64 }
        } else {
            self.geometry.page_offset(page + 1)
        }
    }

    /// Opens a page, and copies what follows its first `skip` bytes into `to`.
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
            // Requests are cut at a page boundary.
            let boundary = (offset / REQUEST_BYTES + 1) * REQUEST_BYTES;
            let now = usize::try_from(boundary - offset).unwrap_or(usize::MAX).min(buffer.len());
            let (this, rest) = buffer.split_at_mut(now);
            self.fill(offset, this)?;
            (offset, buffer) = (boundary, rest);
        }
        Ok(())
    }
}

/// Opens a blob again, in the form that it has by then.
pub(crate) type OpenAgain = Box<dyn Fn() -> Result<Found, VolumeError> + Send + Sync>;

/// Identifies one writing of a blob: its salt and data key; `None`: it is plain, and never written again.
pub(crate) type Salt = Option<([u8; SALT_BYTES], DataKeyId)>;

/// A blob in the form in which it was found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) blob: Arc<dyn Blob>,
    pub(crate) form: Form,
    pub(crate) salt: Salt,
}

/// All open blobs, by name.
#[derive(Debug, Default)]
pub(crate) struct Open {
    blobs: Mutex<HashMap<BlobName, Vec<Weak<Held>>>>,
    /// Number of forms that were removed.
    gone: AtomicU64,
}

impl Open {
    pub(crate) fn gone(&self) -> u64 {
        self.gone.load(Ordering::SeqCst)
    }

    fn add(&self, held: &Arc<Held>) {
        self.blobs.lock().entry(held.name.clone()).or_default().push(Arc::downgrade(held));
    }

    /// Moves the readers of a removed form to the form that is left, so that the space of the removed one is freed
    /// (K2). The caller keeps others from removing that one meanwhile.
    pub(crate) fn form_removed(&self, name: &BlobName, form: Form, salt: Salt) {
        self.gone.fetch_add(1, Ordering::SeqCst);
        // Dropping one takes the lock itself.
        let held: Vec<Arc<Held>> =
            self.blobs.lock().get(name).into_iter().flatten().filter_map(Weak::upgrade).collect();
        for held in held.iter().filter(|held| held.is(form, salt)) {
            // A reader that cannot reopen its blob now keeps the old form; so does one whose name was reused.
            if let Ok(found) = (held.open_again)()
                && found.blob.len() == held.len
            {
                *held.found.write() = found;
            }
        }
    }
}

/// State of a reader.
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

/// A blob that may change its form while it is read.
#[derive(Debug)]
pub(crate) struct MovingBlob {
    held: Arc<Held>,
    /// `true` if handles of the volume below can be read after a removal.
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
        // The form may have been removed before this reader was registered as open.
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
        // A different blob of that name.
        if moved.blob.len() != *len {
            return Err(VolumeError::NotFound { name: name.clone() });
        }
        *found.write() = moved.clone();
        moved.blob.read_at(offset, buffer)
    }
}
