//! Totals of blobs by place: in the data folder, in the bucket, or in both. Compares the local listing with the
//! record, page by page, without a request to the bucket.

use std::cmp::Ordering;

use holdfast_volume::{BlobEntry, VolumeError, list_all};

use crate::copies::Copies;
use crate::error::CopyError;
use crate::evict::has_moved_containers;
use crate::record::Record;
use crate::waiting::Kind;

/// Entries of the record read at a time.
const PAGE: usize = 4096;

/// Blobs and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    pub blobs: u64,
    pub bytes: u64,
}

impl Held {
    const fn add(&mut self, len: u64) {
        self.blobs += 1;
        self.bytes = self.bytes.saturating_add(len);
    }
}

/// Totals of the blobs of one kind, by place. Blobs due for removal from the bucket are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindPlaces {
    /// Folder of the kind.
    pub kind: &'static str,
    /// Blobs in the data folder only: not copied yet, or never.
    pub local: Held,
    pub both: Held,
    /// Blobs in the bucket only, apart from the local ends of containers.
    pub bucket: Held,
}

/// Iterates over the record in name order.
struct Recorded<'a> {
    record: &'a Record,
    kind: Kind,
    page: std::vec::IntoIter<BlobEntry>,
    last: Option<BlobEntry>,
    more: bool,
}

impl Recorded<'_> {
    fn next(&mut self) -> Result<Option<BlobEntry>, CopyError> {
        loop {
            if let Some(entry) = self.page.next() {
                self.last = Some(entry.clone());
                return Ok(Some(entry));
            }
            let Some(folder) = self.kind.folder().filter(|_| self.more) else { return Ok(None) };
            let page = self.record.page(&folder, self.last.as_ref().map(|entry| &entry.name), PAGE)?;
            self.more = page.more;
            self.page = page.entries.into_iter();
        }
    }
}

impl Copies {
    /// Returns the totals of each kind by place. Lists the data folder.
    ///
    /// # Errors
    /// When the data folder cannot be listed; the record's.
    pub fn places(&self) -> Result<Vec<KindPlaces>, CopyError> {
        Kind::ALL.into_iter().map(|kind| self.places_of(kind)).collect()
    }

    /// Same as [`crate::has_moved_containers`], for the data folder. Lists at most one name.
    ///
    /// # Errors
    /// When the data folder cannot be listed.
    pub fn has_moved_containers(&self) -> Result<bool, VolumeError> {
        let (local, _) = self.parts();
        has_moved_containers(local)
    }

    fn places_of(&self, kind: Kind) -> Result<KindPlaces, CopyError> {
        let mut places = KindPlaces {
            kind: kind.text(),
            local: Held::default(),
            both: Held::default(),
            bucket: Held::default(),
        };
        let Some(folder) = kind.folder() else { return Ok(places) };
        let (local, record) = self.parts();
        if kind == Kind::Mark {
            let here = match local.open(&folder) {
                Ok(blob) => Some(blob.len()),
                Err(VolumeError::NotFound { .. }) => None,
                Err(error) => return Err(CopyError::Local(error)),
            };
            match (here, record.visible(&folder)?) {
                (Some(len), Some(_)) => places.both.add(len),
                (Some(len), None) => places.local.add(len),
                (None, Some(len)) => places.bucket.add(len),
                (None, None) => {}
            }
            return Ok(places);
        }
        let mut here = list_all(local, &folder);
        let mut there = Recorded { record, kind, page: Vec::new().into_iter(), last: None, more: true };
        let mut next_here = here.next().transpose().map_err(CopyError::Local)?;
        let mut next_there = there.next()?;
        loop {
            let order = match (&next_here, &next_there) {
                (None, None) => return Ok(places),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(here), Some(there)) => here.name.cmp(&there.name),
            };
            let place = match order {
                Ordering::Less => &mut places.local,
                Ordering::Equal => &mut places.both,
                Ordering::Greater => &mut places.bucket,
            };
            let entry = if order == Ordering::Greater { &next_there } else { &next_here };
            place.add(entry.as_ref().map_or(0, |entry| entry.len));
            if order != Ordering::Greater {
                next_here = here.next().transpose().map_err(CopyError::Local)?;
            }
            if order != Ordering::Less {
                next_there = there.next()?;
            }
        }
    }
}
