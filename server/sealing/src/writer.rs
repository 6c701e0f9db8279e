//! Sealing a blob while it is written. Memory: one page, and up to 256 KiB of sealed ones that go to the volume
//! together.

use holdfast_keys::BlobSealer;
use holdfast_volume::{BlobName, BlobWriter, VolumeError};

use crate::keys::Writing;
use crate::layout::{Geometry, SealedHeader};

/// Sealed bytes handed to the volume at once.
const BATCH_BYTES: usize = 256 << 10;

/// Seals a blob page by page (see [`BlobWriter`]).
#[derive(Debug)]
pub(crate) struct SealedWriter {
    inner: Box<dyn BlobWriter>,
    /// Name of the blob, for errors.
    name: BlobName,
    sealer: BlobSealer,
    /// (K3) Held until the blob has its name.
    _writing: Writing,
    header: SealedHeader,
    geometry: Geometry,
    /// Not sealed yet: a full page is held back until it is known not to be the last.
    page: Vec<u8>,
    number: u64,
    /// Sealed, but not handed over yet.
    batch: Vec<u8>,
    len: u64,
    /// `true` after a failure: the blob has a hole.
    has_failed: bool,
}

impl SealedWriter {
    pub(crate) fn new(
        inner: Box<dyn BlobWriter>,
        name: BlobName,
        (sealer, writing): (BlobSealer, Writing),
        header: SealedHeader,
        geometry: Geometry,
    ) -> Self {
        Self {
            inner,
            name,
            sealer,
            _writing: writing,
            header,
            geometry,
            page: Vec::new(),
            number: 0,
            batch: header.encode(geometry).to_vec(),
            len: 0,
            has_failed: false,
        }
    }

    fn room(&self) -> usize {
        let page = usize::try_from(self.geometry.page_bytes()).unwrap_or(usize::MAX);
        page.saturating_sub(self.page.len())
    }

    fn add(&mut self, mut bytes: &[u8]) -> Result<(), VolumeError> {
        while !bytes.is_empty() {
            if self.room() == 0 {
                self.end_page(false)?;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(self.room()));
            self.page.extend_from_slice(now);
            bytes = rest;
        }
        Ok(())
    }

    fn end_page(&mut self, is_last: bool) -> Result<(), VolumeError> {
        let sealed = self.sealer.seal_page(self.number, is_last, &mut self.page);
        // Nothing of it was written, and nothing will be.
        sealed.map_err(|error| VolumeError::Unavailable {
            action: "encrypt",
            name: self.name.to_string(),
            source: error.into(),
        })?;
        self.number += 1;
        self.batch.append(&mut self.page);
        if self.batch.len() >= BATCH_BYTES { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> Result<(), VolumeError> {
        self.inner.append(&self.batch)?;
        self.batch.clear();
        Ok(())
    }

    fn check(&self) -> Result<(), VolumeError> {
        if !self.has_failed {
            return Ok(());
        }
        Err(VolumeError::Unavailable {
            action: "encrypt",
            name: self.name.to_string(),
            source: "an earlier part of it could not be written".into(),
        })
    }
}

impl BlobWriter for SealedWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        self.check()?;
        self.add(bytes).inspect_err(|_| self.has_failed = true)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn seal(mut self: Box<Self>) -> Result<(), VolumeError> {
        self.check()?;
        self.end_page(true)?;
        let header = self.header.encode(self.geometry);
        self.batch.extend_from_slice(&header);
        self.hand_over()?;
        let Self { inner, _writing: writing, .. } = *self;
        let sealed = inner.seal();
        drop(writing);
        sealed
    }
}
