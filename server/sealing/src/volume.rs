//! The volume that seals.
//!
//! A blob has one of three forms on the volume below, and two while a conversion moves it from one to the other
//! (`convert.rs`). A reader finds any of them, and a removal removes all of them.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_volume::{Blob, BlobEntry, BlobName, BlobWriter, Ends, ListPage, Owner, Volume, VolumeError};
use parking_lot::RwLock;

use crate::blob::{Found, MovingBlob, Open, Salt, Unopened};
use crate::keys::Keys;
use crate::layout::{Form, Geometry, SealedHeader, is_left_open, sealed_name};
use crate::writer::SealedWriter;

/// Seals what is written to it, and opens what is read (see the crate documentation). Clones are one volume.
#[derive(Debug, Clone)]
pub struct SealedVolume {
    inner: Arc<dyn Volume>,
    /// `None`: locked. Blobs can be listed and removed, not read or written.
    keys: Option<Arc<Keys>>,
    pub(crate) moves: Arc<Moves>,
}

/// State that a conversion shares with readers, listings and removals.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Held shared by listings and removals; held exclusively by a conversion while a blob gets its second form or
    /// loses its first: a listing never misses a blob that is being moved, and a removed one does not come back.
    pub(crate) settled: RwLock<()>,
    /// Number of second forms made.
    count: AtomicU64,
    /// Open blobs: their readers move to the form that is left.
    pub(crate) open: Arc<Open>,
}

impl Moves {
    pub(crate) fn moved(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

impl SealedVolume {
    /// Creates a volume on `inner`, with the keys of its table.
    pub fn new(inner: Arc<dyn Volume>, keys: Arc<Keys>) -> Self {
        Self { inner, keys: Some(keys), moves: Arc::default() }
    }

    /// Creates a volume on `inner` without keys: blobs can be listed and removed.
    pub fn locked(inner: Arc<dyn Volume>) -> Self {
        Self { inner, keys: None, moves: Arc::default() }
    }

    pub(crate) fn keys(&self, name: &BlobName) -> Result<&Arc<Keys>, VolumeError> {
        self.keys.as_ref().ok_or_else(|| VolumeError::NotReadableNow {
            name: name.to_string(),
            source: "the repository is encrypted, and its keys were not opened".into(),
        })
    }

    /// The volume below.
    pub(crate) fn inner(&self) -> &dyn Volume {
        &*self.inner
    }

    /// Returns true if plain blobs are accepted. Later, a plain blob could be a forgery by anyone who can write
    /// to the volume.
    fn takes_plain(&self) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.accepts_plain())
    }

    /// The forms that a blob may have here.
    fn forms(&self) -> impl Iterator<Item = Form> {
        let takes_resealed = self.keys.as_ref().is_none_or(|keys| keys.was_rotated());
        let others = [(takes_resealed, Form::Resealed), (self.takes_plain(), Form::Plain)];
        std::iter::once(Form::Sealed)
            .chain(others.into_iter().filter(|(takes, _)| *takes).map(|(_, form)| form))
    }

    fn entry(&self, entry: BlobEntry) -> Option<(BlobEntry, Form)> {
        if is_left_open(&entry.name) {
            return Some((entry, Form::Plain));
        }
        let (name, form) = Form::parse(&entry.name);
        if form == Form::Plain {
            return self.takes_plain().then_some((entry, form));
        }
        // A blob of impossible length cannot be read, but it exists.
        let len = Geometry::of(&name).opened(entry.len).map_or(0, |(len, _)| len);
        Some((BlobEntry { name, len }, form))
    }

    /// Opens this form of a blob.
    pub(crate) fn open_form(&self, name: &BlobName, form: Form) -> Result<Arc<dyn Blob>, VolumeError> {
        Ok(self.open_writing(name, form)?.0)
    }

    /// Opens this form of a blob, and identifies its writing.
    fn open_writing(&self, name: &BlobName, form: Form) -> Result<(Arc<dyn Blob>, Salt), VolumeError> {
        let below = form.of(name).ok_or_else(|| VolumeError::NotFound { name: name.clone() })?;
        let inner = self.inner.open(&below).map_err(|error| renamed(error, name))?;
        if form == Form::Plain {
            return Ok((inner, None));
        }
        let unopened = Unopened::read(inner, name).map_err(|error| renamed(error, name))?;
        let salt = Some((unopened.header.salt, unopened.header.key));
        let key = self.keys(name)?.blob_key(unopened.header, name)?;
        Ok((Arc::new(unopened.open(key)?), salt))
    }

    /// Reads the header of this form; `None`: it is plain.
    pub(crate) fn header(&self, name: &BlobName, form: Form) -> Result<Option<SealedHeader>, VolumeError> {
        let below = form.of(name).ok_or_else(|| VolumeError::NotFound { name: name.clone() })?;
        let inner = self.inner.open(&below).map_err(|error| renamed(error, name))?;
        if form == Form::Plain {
            return Ok(None);
        }
        Ok(Some(Unopened::read(inner, name).map_err(|error| renamed(error, name))?.header))
    }

    /// Creates a writer of this form of a blob.
    pub(crate) fn writer(
        &self,
        name: &BlobName,
        form: Form,
        owner: Owner,
    ) -> Result<Box<dyn BlobWriter>, VolumeError> {
        let sealed = form.of(name).ok_or_else(|| refused(name))?;
        let (writing, sealer) = self.keys(name)?.sealer(owner, name)?;
        let header = SealedHeader { key: writing.key(), salt: *sealer.salt() };
        let inner = self.inner.create_for(&sealed, owner).map_err(|error| renamed(error, name))?;
        Ok(Box::new(SealedWriter::new(inner, name.clone(), (sealer, writing), header, Geometry::of(name))))
    }

    /// Opens a blob in any form. One that changes its form meanwhile is looked up again: the new form exists before it
    /// is counted, and is counted before the old one is removed.
    pub(crate) fn open_any(&self, name: &BlobName) -> Result<Found, VolumeError> {
        loop {
            let moves = self.moves.count();
            for form in self.forms() {
                match self.open_writing(name, form) {
                    Err(VolumeError::NotFound { .. }) => {}
                    found => return found.map(|(blob, salt)| Found { blob, form, salt }),
                }
            }
            if moves == self.moves.count() {
                return Err(VolumeError::NotFound { name: name.clone() });
            }
        }
    }

    /// Returns true if the name is taken in a form other than the sealed one.
    fn is_taken(&self, name: &BlobName) -> Result<bool, VolumeError> {
        for form in self.forms().filter(|form| *form != Form::Sealed) {
            let Some(below) = form.of(name) else { continue };
            match self.inner.open(&below) {
                Err(VolumeError::NotFound { .. }) => {}
                Ok(_) | Err(VolumeError::Io { .. } | VolumeError::NotReadableNow { .. }) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// Error for a name that cannot have a sealed form.
fn refused(name: &BlobName) -> VolumeError {
    VolumeError::BadAnswer {
        action: "encrypt",
        name: name.to_string(),
        found: "a name that no encrypted blob can have".to_owned(),
    }
}

impl Volume for SealedVolume {
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        if is_left_open(name) {
            return self.inner.create_for(name, owner);
        }
        let writer = self.writer(name, Form::Sealed, owner)?;
        if self.is_taken(name)? {
            return Err(VolumeError::Exists { name: name.clone() });
        }
        Ok(writer)
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        if is_left_open(name) {
            return self.inner.open(name);
        }
        sealed_name(name).ok_or_else(|| refused(name))?;
        if self.keys.is_none() {
            return Ok(self.open_any(name)?.blob);
        }
        // Keys may change while it is open, and then it moves.
        let (volume, again) = (self.clone(), name.clone());
        let open_again = Box::new(move || volume.open_any(&again));
        let outlives_removal = self.inner.handles_outlive_removal();
        Ok(Arc::new(MovingBlob::open(&self.moves.open, name, open_again, outlives_removal)?))
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        let _settled = self.moves.settled.read();
        let mut after = after.map(Form::last_of);
        loop {
            let ListPage { entries, more } = self.inner.list(prefix, after.as_ref(), limit)?;
            let end = entries.last().map(|entry| entry.name.clone());
            let mut found: Vec<BlobEntry> = Vec::with_capacity(entries.len());
            for (entry, form) in entries.into_iter().filter_map(|entry| self.entry(entry)) {
                match found.last_mut().filter(|last| last.name == entry.name) {
                    // Two forms during a conversion: the sealed one is the final one.
                    Some(last) if form == Form::Sealed => *last = entry,
                    Some(_) => {}
                    None => found.push(entry),
                }
            }
            // A page that is not the last has an entry.
            if !more || !found.is_empty() {
                return Ok(ListPage { entries: found, more });
            }
            after = end;
        }
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        if is_left_open(name) {
            return self.inner.remove(name);
        }
        sealed_name(name).ok_or_else(|| refused(name))?;
        // (K2) Removes all forms, and none can be made meanwhile.
        let _settled = self.moves.settled.read();
        let mut removed = false;
        for form in self.forms() {
            let Some(below) = form.of(name) else { continue };
            match self.inner.remove(&below) {
                Ok(()) => removed = true,
                Err(VolumeError::NotFound { .. }) => {}
                Err(error) => return Err(renamed(error, name)),
            }
        }
        if removed { Ok(()) } else { Err(VolumeError::NotFound { name: name.clone() }) }
    }

    fn evict(&self, name: &BlobName, ends: Ends) -> Result<bool, VolumeError> {
        let geometry = Geometry::of(name);
        let below = Ends { head: geometry.head_of(ends.head), tail: geometry.tail_of(ends.tail) };
        let mut evicted = false;
        for form in self.forms() {
            let Some(name) = form.of(name) else { continue };
            let ends = if form == Form::Plain { ends } else { below };
            evicted |= self.inner.evict(&name, ends)?;
        }
        Ok(evicted)
    }

    fn here(&self) -> Option<Arc<dyn Volume>> {
        let inner = self.inner.here()?;
        Some(Arc::new(Self { inner, keys: self.keys.clone(), moves: Arc::clone(&self.moves) }))
    }

    fn freeze(&self, name: &BlobName) -> Result<bool, VolumeError> {
        let mut frozen = false;
        for form in self.forms() {
            let Some(name) = form.of(name) else { continue };
            frozen |= self.inner.freeze(&name)?;
        }
        Ok(frozen)
    }

    holdfast_volume::pass_on!(discard_unfinished, space, remove_empty_folders, handles_outlive_removal to inner);
}

/// Replaces the sealed name in an error of the volume below by the name it stands for.
fn renamed(error: VolumeError, name: &BlobName) -> VolumeError {
    match error {
        VolumeError::NotFound { .. } => VolumeError::NotFound { name: name.clone() },
        VolumeError::Exists { .. } => VolumeError::Exists { name: name.clone() },
        other => other,
    }
}
