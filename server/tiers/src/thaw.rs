//! Brings back what lies in an archive, for a while: asks the bucket for copies that can be read, and looks whether they are
//! there. That something is going to be asked for is in the record before, and until when it can be read once that was seen:
//! so nothing is asked for twice, by one or by several, and whatever becomes of an answer.
//!
//! A crash leaves objects that count as asked for and may not have been. The next look finds out; it counts
//! [a minute](SHOWN_WITHIN_MS) after they were.

use std::sync::Arc;

use holdfast_volume::{BlobName, RemoteLook, Thawed, Volume, VolumeError};

use crate::cold::{ARCHIVES, MARGIN_MS, is_archive};
use crate::prices::{DEFAULT_CLASS, Thaw};
use crate::record::{ColdRow, RecordError};
use crate::shared::{ArchiveAsked, Shared};
use crate::thawed::{ThawCache, ThawCacheLimits, ThawCacheTotals};
use crate::volume::TieredVolume;

/// Names looked up at a time.
const PAGE: u32 = 4096;

/// The bucket shows within this time that something was asked for. If it does not, it was not, and is asked for again.
const SHOWN_WITHIN_MS: u64 = 60_000;

/// After this long what was asked for has come, or never will: the slowest way takes two days.
pub const UNDER_WAY_MS: u64 = 7 * 24 * 3_600_000;

/// Under this key the record says whether a process of late went without the folder of what was thawed.
const WITHOUT_KEPT: &str = "without_kept";

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

    /// What is thawed is kept in `folder`, and so is what an earlier process left there. Where the folder cannot be used, what
    /// was thawed is read in the bucket: that is no reason for a server not to start.
    ///
    /// # Errors
    /// The record's.
    pub fn keeping_thawed(
        self,
        folder: Result<Arc<dyn Volume>, VolumeError>,
        limits: ThawCacheLimits,
    ) -> Result<Self, RecordError> {
        let Shared { record, clock, thawed, .. } = &*self.shared;
        let was_without = record.said(WITHOUT_KEPT)?.is_some_and(|said| said == "1");
        let open = |folder| ThawCache::open(folder, limits, Arc::clone(clock), !was_without);
        let is_without = match folder.and_then(open) {
            // Set once, right after it was made.
            Ok(cache) => thawed.set(cache).is_err(),
            Err(error) => {
                tracing::warn!(%error, "the folder of what was thawed cannot be used: it is read in the bucket");
                true
            }
        };
        // (T16) From now on what is removed stays there.
        if is_without != was_without {
            record.say(&[(WITHOUT_KEPT, u8::from(is_without).to_string())])?;
        }
        Ok(self)
    }
}

impl Archive {
    /// The storage classes that anything has of its own.
    ///
    /// # Errors
    /// The record's.
    pub fn classes(&self) -> Result<Vec<String>, RecordError> {
        self.shared.record.cold_classes()
    }

    /// Whether anything has a storage class of its own.
    ///
    /// # Errors
    /// The record's.
    pub fn has_any(&self) -> Result<bool, RecordError> {
        self.shared.record.has_cold()
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
                _ if self.shared.is_kept(name) => Thawing::Readable,
                (Some(until_ms), _) if until_ms.saturating_sub(MARGIN_MS) > now_ms => Thawing::Readable,
                // Nothing was seen of it since: it came and went.
                (_, Some(asked_ms)) if now_ms.abs_diff(asked_ms) < UNDER_WAY_MS => Thawing::UnderWay,
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
        self.see(name)
    }

    /// Asks for a copy of a blob that can be read for `days`, unless there is one or one was asked for. `Cold`: it was
    /// asked for now.
    ///
    /// # Errors
    /// The bucket's: [`VolumeError::NotFound`] when it lies there no more.
    pub fn ask(&self, name: &BlobName, days: u32, speed: Thaw) -> Result<Thawing, VolumeError> {
        let Shared { remote, record, clock, asking, .. } = &*self.shared;
        let _asks = asking.begin(name);
        let thawing = self.see(name)?;
        if thawing == Thawing::Cold {
            record.note_asking(name, clock.now_ms()).map_err(|error| noting(name, error))?;
            let asked = remote.store.ask_thaw(name, days, speed.text());
            // What may have been asked for may be paid for, and counts as asked for until the bucket was looked at.
            if asked.as_ref().is_ok() || asked.as_ref().is_err_and(VolumeError::may_have_written) {
                self.count(name, days, speed);
            } else {
                record.note_thawed(name, None).map_err(|error| noting(name, error))?;
            }
            asked?;
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

    /// The time of day, for [`Archive::keep`].
    pub fn now_ms(&self) -> i64 {
        self.shared.clock.now_ms()
    }

    /// (T16) Keeps a thawed blob here for a while, if there is room without giving up what was kept, or found to be, since
    /// `begun_ms`. Whether it is kept.
    ///
    /// # Errors
    /// When it cannot be read there or written here; [`VolumeError::BadAnswer`]: it is not what was sent.
    pub fn keep(&self, name: &BlobName, begun_ms: i64) -> Result<bool, VolumeError> {
        let Shared { remote, record, thawed, .. } = &*self.shared;
        let Some(thawed) = thawed.get() else { return Ok(false) };
        let row = record.cold(name).map_err(|error| noting(name, error))?;
        let known = record.known_one(name).map_err(|error| noting(name, error))?;
        // (T14)
        let known = known.filter(|known| known.flaw.as_ref().is_none_or(|flaw| !flaw.is_loss()));
        let (Some(_), Some(known)) = (row.filter(|row| is_archive(&row.class)), known) else {
            return Ok(false);
        };
        let is_kept = thawed.keep(&known, &*remote.store, begun_ms)?;
        // Removed meanwhile, by one who found nothing kept.
        if record.visible(name).map_err(|error| noting(name, error))?.is_none() {
            thawed.forget(name)?;
            return Ok(false);
        }
        Ok(is_kept)
    }

    /// What is kept here; `None`: nothing is to be.
    pub fn kept(&self) -> Option<ThawCacheTotals> {
        self.shared.thawed.get().map(ThawCache::totals)
    }

    /// Gives up what is kept here and has expired, or is in the way of backups.
    ///
    /// # Errors
    /// The folder's.
    pub fn trim_kept(&self) -> Result<(), VolumeError> {
        self.shared.thawed.get().map_or(Ok(()), |thawed| thawed.trim(0, i64::MAX).map(drop))
    }

    /// For how long a blob that is under way has been so, in milliseconds.
    ///
    /// # Errors
    /// The record's.
    pub fn under_way_ms(&self, name: &BlobName) -> Result<Option<u64>, RecordError> {
        let asked_ms = self.shared.record.cold(name)?.and_then(|row| row.asked_ms);
        let now_ms = self.shared.clock.now_ms();
        Ok(asked_ms.map(|asked_ms| u64::try_from(now_ms.saturating_sub(asked_ms)).unwrap_or_default()))
    }

    /// Looks, and has the record know what was seen.
    fn see(&self, name: &BlobName) -> Result<Thawing, VolumeError> {
        if self.shared.is_kept(name) {
            return Ok(Thawing::Readable);
        }
        // Before the look: what is noted meanwhile is newer than what it shows.
        let known = self.shared.record.cold(name).map_err(|error| noting(name, error))?;
        let look = self.shared.remote.store.look(name)?;
        self.enter(name, known, &look).map_err(|error| noting(name, error))
    }

    fn enter(
        &self,
        name: &BlobName,
        known: Option<ColdRow>,
        look: &RemoteLook,
    ) -> Result<Thawing, RecordError> {
        let Shared { record, clock, .. } = &*self.shared;
        let Some(class) = look.class.as_deref().filter(|class| is_archive(class)) else {
            // (T10) Someone brought it back for good. One that is about to get there stays noted.
            if known.as_ref().is_some_and(|row| row.is_done && is_archive(&row.class)) {
                record.note_seen(name, known.as_ref(), DEFAULT_CLASS)?;
            }
            return Ok(Thawing::Readable);
        };
        if !known.as_ref().is_some_and(|row| row.is_done && row.class == class) {
            record.note_seen(name, known.as_ref(), class)?;
        }
        let now_ms = clock.now_ms();
        let is_asked =
            |row: ColdRow| row.asked_ms.is_some_and(|asked_ms| now_ms.abs_diff(asked_ms) < SHOWN_WITHIN_MS);
        match look.thawed {
            Thawed::Until(until_ms) if until_ms.saturating_sub(MARGIN_MS) > now_ms => {
                record.note_thawed(name, Some(until_ms)).map(|()| Thawing::Readable)
            }
            Thawed::UnderWay => record.note_thawing(name, now_ms).map(|()| Thawing::UnderWay),
            Thawed::No if known.is_some_and(is_asked) => Ok(Thawing::UnderWay),
            // What ends in a moment is as good as cold: asking again prolongs it.
            Thawed::No | Thawed::Until(_) => record.note_thawed(name, None).map(|()| Thawing::Cold),
        }
    }
}

fn noting(name: &BlobName, error: RecordError) -> VolumeError {
    VolumeError::Unavailable { action: "thaw", name: name.to_string(), source: error.into() }
}
