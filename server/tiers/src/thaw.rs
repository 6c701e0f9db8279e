//! Thaws archived objects for a while: requests readable copies from the bucket, and checks whether they are there. A
//! request is recorded before it is sent, and its expiry once it was seen: so nothing is requested twice, by one
//! restore or several, whatever becomes of an answer.
//!
//! A crash leaves objects that count as requested and may not have been. The next check finds out; it is conclusive [a
//! minute](SHOWN_WITHIN_MS) after the request.

use std::sync::Arc;

use holdfast_volume::{BlobName, RemoteLook, Thawed, Volume, VolumeError};

use crate::cold::{ARCHIVES, MARGIN_MS, is_archive};
use crate::prices::{DEFAULT_CLASS, Thaw};
use crate::record::{ColdRow, RecordError};
use crate::shared::{ArchiveAsked, Shared};
use crate::thawed::{ThawCache, ThawCacheLimits, ThawCacheTotals};
use crate::volume::TieredVolume;

/// Names read at a time.
const PAGE: u32 = 4096;

/// The bucket shows a request within this time. If it does not, the request was lost, and is repeated.
const SHOWN_WITHIN_MS: u64 = 60_000;

/// After this long a request has been fulfilled, or never will be: the slowest speed takes two days.
pub const UNDER_WAY_MS: u64 = 7 * 24 * 3_600_000;

/// Key in the record: set if a recent process ran without the folder of thawed copies.
const WITHOUT_KEPT: &str = "without_kept";

/// State of an archived blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thawing {
    /// It must be thawed first.
    Cold,
    /// A thaw was requested.
    UnderWay,
    /// It can be read, at least for now.
    Readable,
}

/// Archived blobs, and thawing them. Calls block.
#[derive(Debug)]
pub struct Archive {
    shared: Arc<Shared>,
}

impl TieredVolume {
    /// Returns the archive of this volume.
    pub fn archive(&self) -> Archive {
        Archive { shared: Arc::clone(&self.shared) }
    }

    /// Sets the storage class for containers that are to be cold.
    #[must_use]
    pub fn archiving_to(self, class: &str) -> Self {
        // Set once, right after construction.
        let _ = self.shared.archive_class.set(class.to_owned());
        self
    }

    /// Keeps thawed copies in `folder`, along with those of an earlier process. If the folder cannot be used, thawed
    /// objects are read from the bucket: that must not keep a server from starting.
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
            // Set once, right after construction.
            Ok(cache) => thawed.set(cache).is_err(),
            Err(error) => {
                tracing::warn!(%error, "the folder of what was thawed cannot be used: it is read in the bucket");
                true
            }
        };
        // (T16) From now on removals are not carried out in the folder.
        if is_without != was_without {
            record.say(&[(WITHOUT_KEPT, u8::from(is_without).to_string())])?;
        }
        Ok(self)
    }
}

impl Archive {
    /// Storage classes other than the usual one that any object has.
    ///
    /// # Errors
    /// The record's.
    pub fn classes(&self) -> Result<Vec<String>, RecordError> {
        self.shared.record.cold_classes()
    }

    /// Returns true if any object has a storage class other than the usual one.
    ///
    /// # Errors
    /// The record's.
    pub fn has_any(&self) -> Result<bool, RecordError> {
        self.shared.record.has_cold()
    }

    /// Names of all blobs that must be thawed before they can be read, from the record.
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

    /// The storage class and state of a blob that is not in the usual class, from the record. Sends no request.
    ///
    /// # Errors
    /// The record's.
    pub fn known(&self, name: &BlobName) -> Result<Option<(String, Thawing)>, RecordError> {
        let now_ms = self.shared.clock.now_ms();
        Ok(self.shared.record.cold(name)?.filter(|row| is_archive(&row.class)).map(|row| {
            let thawing = match (row.until_ms, row.asked_ms) {
                _ if self.shared.is_kept(name) => Thawing::Readable,
                (Some(until_ms), _) if until_ms.saturating_sub(MARGIN_MS) > now_ms => Thawing::Readable,
                // Not seen since it was requested: its thawed copy came and expired.
                (_, Some(asked_ms)) if now_ms.abs_diff(asked_ms) < UNDER_WAY_MS => Thawing::UnderWay,
                _ => Thawing::Cold,
            };
            (row.class, thawing)
        }))
    }

    /// Asks the bucket for the state of a blob.
    ///
    /// # Errors
    /// The bucket's: [`VolumeError::NotFound`] when it is gone.
    pub fn look(&self, name: &BlobName) -> Result<Thawing, VolumeError> {
        self.see(name)
    }

    /// Requests a copy of a blob that can be read for `days`, unless there is one or it was requested already. Returns
    /// `Cold` if this call requested it.
    ///
    /// # Errors
    /// The bucket's: [`VolumeError::NotFound`] when it is gone.
    pub fn ask(&self, name: &BlobName, days: u32, speed: Thaw) -> Result<Thawing, VolumeError> {
        let Shared { remote, record, clock, asking, .. } = &*self.shared;
        let _asks = asking.begin(name);
        let thawing = self.see(name)?;
        if thawing == Thawing::Cold {
            record.note_asking(name, clock.now_ms()).map_err(|error| noting(name, error))?;
            let asked = remote.store.ask_thaw(name, days, speed.text());
            // The request may have been carried out and billed, so it counts until the bucket was checked.
            if asked.as_ref().is_ok() || asked.as_ref().is_err_and(VolumeError::may_have_written) {
                self.count(name, days, speed);
            } else {
                record.note_thawed(name, None).map_err(|error| noting(name, error))?;
            }
            asked?;
        }
        Ok(thawing)
    }

    /// Requests sent to the archive since the process began.
    pub fn asked(&self) -> ArchiveAsked {
        self.shared.asked.all()
    }

    fn count(&self, name: &BlobName, days: u32, speed: Thaw) {
        let record = &self.shared.record;
        // The request was sent; if its class or length is unknown, it is not counted.
        if let (Ok(Some(row)), Ok(len)) = (record.cold(name), record.recorded(name)) {
            self.shared.asked.thaw(&row.class, speed, len.unwrap_or_default(), days);
        }
    }

    /// The current time, for [`Archive::keep`].
    pub fn now_ms(&self) -> i64 {
        self.shared.clock.now_ms()
    }

    /// (T16) Keeps a thawed blob here for a while, if there is room without evicting copies kept, or counted on, since
    /// `begun_ms`. Returns true if it is kept.
    ///
    /// # Errors
    /// When it cannot be read from the bucket or written here; [`VolumeError::BadAnswer`]: it is not what was sent.
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
        // Removed meanwhile, by a thread that found no copy to remove.
        if record.visible(name).map_err(|error| noting(name, error))?.is_none() {
            thawed.forget(name)?;
            return Ok(false);
        }
        Ok(is_kept)
    }

    /// Totals of the copies kept here; `None`: none are to be kept.
    pub fn kept(&self) -> Option<ThawCacheTotals> {
        self.shared.thawed.get().map(ThawCache::totals)
    }

    /// Removes copies kept here that have expired, or whose space backups need.
    ///
    /// # Errors
    /// The folder's.
    pub fn trim_kept(&self) -> Result<(), VolumeError> {
        self.shared.thawed.get().map_or(Ok(()), |thawed| thawed.trim(0, i64::MAX).map(drop))
    }

    /// How long a requested thaw has been in progress, in milliseconds.
    ///
    /// # Errors
    /// The record's.
    pub fn under_way_ms(&self, name: &BlobName) -> Result<Option<u64>, RecordError> {
        let asked_ms = self.shared.record.cold(name)?.and_then(|row| row.asked_ms);
        let now_ms = self.shared.clock.now_ms();
        Ok(asked_ms.map(|asked_ms| u64::try_from(now_ms.saturating_sub(asked_ms)).unwrap_or_default()))
    }

    /// Asks the bucket for the state of a blob, and records it.
    fn see(&self, name: &BlobName) -> Result<Thawing, VolumeError> {
        if self.shared.is_kept(name) {
            return Ok(Thawing::Readable);
        }
        // Read before the request: changes recorded meanwhile are newer than its answer.
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
            // (T10) Someone restored it for good. One that is about to be archived stays recorded.
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
            // A copy about to expire counts as cold: another request prolongs it.
            Thawed::No | Thawed::Until(_) => record.note_thawed(name, None).map(|()| Thawing::Cold),
        }
    }
}

fn noting(name: &BlobName, error: RecordError) -> VolumeError {
    VolumeError::Unavailable { action: "thaw", name: name.to_string(), source: error.into() }
}
