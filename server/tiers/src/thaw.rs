//! Brings back what lies in an archive, for a while: asks the bucket for copies that can be read, and looks whether they are
//! there. What was asked for, and until when it can be read, is in the record, so nothing is asked for twice.

use std::sync::Arc;

use holdfast_volume::{BlobName, RemoteLook, Thawed, VolumeError};

use crate::asked::ArchiveAsked;
use crate::cold::{ARCHIVES, is_archive};
use crate::prices::{DEFAULT_CLASS, Thaw};
use crate::record::{ColdTotals, RecordError};
use crate::shared::Shared;
use crate::volume::TieredVolume;

/// Names looked up at a time.
const PAGE: u32 = 4096;

/// How a blob of an archive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thawing {
    /// It must be asked for.
    Cold,
    /// It was asked for.
    UnderWay,
    /// It can be read, at least for now.
    Readable,
}

/// What lies in an archive, and how it comes back. Calls block.
#[derive(Debug)]
pub struct Archive {
    shared: Arc<Shared>,
}

impl TieredVolume {
    /// Its archive.
    pub fn archive(&self) -> Archive {
        Archive { shared: Arc::clone(&self.shared) }
    }

    /// Containers are given this storage class when they are to be cold.
    #[must_use]
    pub fn archiving_to(self, class: &str) -> Self {
        // Set once, right after it was made.
        let _ = self.shared.archive_class.set(class.to_owned());
        self
    }
}

impl Archive {
    /// What has a storage class of its own.
    ///
    /// # Errors
    /// The record's.
    pub fn totals(&self) -> Result<Vec<ColdTotals>, RecordError> {
        self.shared.record.cold_totals()
    }

    /// All that must be thawed before it can be read, as the record knows it.
    ///
    /// # Errors
    /// The record's.
    pub fn names(&self) -> Result<Vec<BlobName>, RecordError> {
        let mut names: Vec<BlobName> = Vec::new();
        loop {
            let after = names.last().map_or("", BlobName::as_str).to_owned();
            let page = self.shared.record.names_in_classes(ARCHIVES, &after, PAGE)?;
            if page.is_empty() {
                return Ok(names);
            }
            names.extend(page);
        }
    }

    /// The storage class of a blob that has one of its own, and how it is, as the record knows it. Asks nothing.
    ///
    /// # Errors
    /// The record's.
    pub fn known(&self, name: &BlobName) -> Result<Option<(String, Thawing)>, RecordError> {
        let now_ms = self.shared.clock.now_ms();
        Ok(self.shared.record.cold(name)?.filter(|row| is_archive(&row.class)).map(|row| {
            let thawing = match (row.until_ms, row.asked_ms) {
                (Some(until_ms), _) if until_ms > now_ms => Thawing::Readable,
                (_, Some(_)) => Thawing::UnderWay,
                _ => Thawing::Cold,
            };
            (row.class, thawing)
        }))
    }

    /// Looks how a blob is there.
    ///
    /// # Errors
    /// The bucket's: [`VolumeError::NotFound`] when it lies there no more.
    pub fn look(&self, name: &BlobName) -> Result<Thawing, VolumeError> {
        let look = self.shared.remote.store.look(name)?;
        self.enter(name, &look)
    }

    /// Asks for a copy of a blob that can be read for `days`, unless there is one or one was asked for. `Cold`: it was
    /// asked for now.
    ///
    /// # Errors
    /// The bucket's: [`VolumeError::NotFound`] when it lies there no more.
    pub fn ask(&self, name: &BlobName, days: u32, speed: Thaw) -> Result<Thawing, VolumeError> {
        let thawing = self.look(name)?;
        if thawing == Thawing::Cold {
            self.shared.remote.store.ask_thaw(name, days, speed.text())?;
            self.count(name, days, speed);
            let now_ms = self.shared.clock.now_ms();
            self.shared.record.note_thawing(name, now_ms).map_err(|error| noting(name, error))?;
        }
        Ok(thawing)
    }

    /// What was asked of it since the process began.
    pub fn asked(&self) -> ArchiveAsked {
        self.shared.asked.all()
    }

    fn count(&self, name: &BlobName, days: u32, speed: Thaw) {
        let record = &self.shared.record;
        // It was asked for, whatever can be told of it.
        if let (Ok(Some(row)), Ok(len)) = (record.cold(name), record.recorded(name)) {
            self.shared.asked.thaw(&row.class, speed, len.unwrap_or_default(), days);
        }
    }

    /// The record knows what was seen.
    fn enter(&self, name: &BlobName, look: &RemoteLook) -> Result<Thawing, VolumeError> {
        let Shared { record, clock, .. } = &*self.shared;
        let known = record.cold(name).map_err(|error| noting(name, error))?;
        let class = look.class.as_deref().filter(|class| is_archive(class));
        let Some(class) = class else {
            // It never got there, or someone brought it back for good.
            if known.is_some_and(|row| is_archive(&row.class)) {
                record.note_frozen(name, DEFAULT_CLASS).map_err(|error| noting(name, error))?;
            }
            return Ok(Thawing::Readable);
        };
        if !known.is_some_and(|row| row.is_done && row.class == class) {
            record.note_frozen(name, class).map_err(|error| noting(name, error))?;
        }
        let noted = match look.thawed {
            Thawed::Until(until_ms) => record.note_thawed(name, Some(until_ms)).map(|()| Thawing::Readable),
            Thawed::UnderWay => record.note_thawing(name, clock.now_ms()).map(|()| Thawing::UnderWay),
            Thawed::No => record.note_thawed(name, None).map(|()| Thawing::Cold),
        };
        noted.map_err(|error| noting(name, error))
    }
}

fn noting(name: &BlobName, error: RecordError) -> VolumeError {
    VolumeError::Unavailable { action: "thaw", name: name.to_string(), source: error.into() }
}
