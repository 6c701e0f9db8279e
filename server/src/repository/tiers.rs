//! The bucket that gets copies of the volume, as the settings say.
//!
//! A data folder that once had copies keeps the record of them (`tiers.db`) up to date even while the settings name no
//! bucket: what is removed here must go from there, whenever it is back.

mod bucket;
mod cost;
mod figures;
mod kept_back;
mod usage;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_engine::clock::Clock;
use holdfast_engine::{Engine, EngineError};
use holdfast_proto::ErrorCode;
use holdfast_s3::S3Volume;
use holdfast_sealing::{is_left_open, is_sealed_name, name_above, names_below};
use holdfast_tiers::{
    AbsentVolume, Archive, Copies, Names, Record, RecordError, Remote, RetentionTotals, SurveyError,
    ThawCacheLimits, TieredVolume, enter_moved, has_moved_containers, moved_containers, survey,
};
use holdfast_volume::{BlobName, LocalVolume, Volume};
use parking_lot::Mutex;

use crate::config::{Encryption, Settings};
use crate::error::ServiceError;
use crate::memory::Budget;
use crate::repository::BLOBS;

use bucket::remote;
pub(super) use bucket::{Bucket, open_bucket};
pub(crate) use cost::{ClassCost, Cost, MonthCost, changing, cost, thawing};
use figures::Figures;
pub(crate) use figures::{Plan, Totals, read_usage, totals};
pub(crate) use kept_back::{KeptBack, kept_back};
pub(crate) use usage::{Asked, Month, Requests, Thawed};

/// Name of the folder of what was thawed, within the data folder.
const THAWED: &str = "thawed";

/// Name of the record within the data folder.
const RECORD: &str = "tiers.db";

/// Key in the record for the status of the copies, for `tier status`.
const STATUS: &str = "status";

/// Location of a data folder's copies, and the number of blobs removed here that are still to go from there; `None`: it
/// has none.
///
/// # Errors
/// The record's.
pub(crate) fn copies_of(data_dir: &Path) -> Result<Option<(String, u64)>, ServiceError> {
    let path = record_path(data_dir);
    if !path.exists() {
        return Ok(None);
    }
    let record = Record::open(&path).map_err(record_error)?;
    Ok(Some((record.location().map_err(record_error)?, record.removals_count().map_err(record_error)?)))
}

/// Path of the record of copies.
pub(crate) fn record_path(data_dir: &Path) -> PathBuf {
    data_dir.join(RECORD)
}

/// A bucket with copies of the volume, or the memory of one.
#[derive(Debug)]
pub struct Tiers {
    /// The bucket's location, for people.
    pub(crate) location: String,
    pub(crate) copies: Copies,
    /// A backup counts only when the bucket has it.
    pub(crate) is_primary: bool,
    pub(crate) archive: Archive,
    /// `None`: the settings name no bucket.
    pub(crate) bucket: Option<Arc<S3Volume>>,
    /// Why part of the data cannot be read: it lies in a bucket alone, which the settings do not name.
    pub(crate) lacks_bucket: Option<String>,
    /// The storage class that objects are put in.
    pub(crate) class: Option<String>,
    pub(crate) plan: Plan,
    figures: Figures,
    /// Why nothing can be made to stay there.
    retention_failure: Mutex<Option<String>>,
    /// The text that was published last.
    published: Mutex<String>,
}

/// A volume, and its tiers if it has any.
type Opened = (Arc<dyn Volume>, Option<Arc<Tiers>>);

/// `local` with the bucket of the settings behind it.
///
/// # Errors
/// When the settings are not valid, or the record is of another bucket. The bucket is not asked for anything.
pub(crate) fn around(
    local: Arc<dyn Volume>,
    settings: &Settings,
    budget: &Budget,
    clock: &Arc<dyn Clock>,
) -> Result<Opened, ServiceError> {
    match open(Arc::clone(&local), open_bucket(settings)?, settings, budget, clock)? {
        Some((volume, tiers)) => Ok((Arc::new(volume), Some(Arc::new(tiers)))),
        None => Ok((local, None)),
    }
}

pub(super) fn open(
    local: Arc<dyn Volume>,
    bucket: Option<Bucket>,
    settings: &Settings,
    budget: &Budget,
    clock: &Arc<dyn Clock>,
) -> Result<Option<(TieredVolume, Tiers)>, ServiceError> {
    let path = record_path(&settings.data_dir);
    let needs_bucket = has_moved_containers(&*local).map_err(EngineError::from)?;
    let lacks_record = needs_bucket && !Record::is_at(&path).map_err(record_error)?;
    let (remote, record, bucket, location) = match bucket {
        Some(Bucket { store: bucket, location }) => {
            if lacks_record {
                make_record_anew(&path, &location, &bucket)?;
            }
            let record = Record::open_or_create(&path, &location).map_err(record_error)?;
            let entered =
                enter_moved(&*local, &*bucket, &record).map_err(|error| survey_error(error, &location))?;
            if entered > 0 {
                tracing::warn!(
                    "tiers.db, the record of what lies in {location}, was older than the data folder: {entered} containers were \
                     found in the bucket and entered"
                );
            }
            (remote(&bucket, settings, clock), record, Some(bucket), location)
        }
        None if lacks_record => return Err(needs_its_bucket()),
        None if !path.exists() => return Ok(None),
        None => {
            let record = Record::open(&path).map_err(record_error)?;
            let location = record.location().map_err(record_error)?;
            let why = format!(
                "it lies in {location}, and the settings name no bucket: set s3 (and what else the bucket needs)"
            );
            tracing::warn!(
                "copies of this repository lie in {location}, but the settings name no bucket: nothing is copied"
            );
            (Remote::plain(&Arc::new(AbsentVolume::new(why))), record, None, location)
        }
    };
    let volume =
        TieredVolume::new(local, remote, Arc::new(record), names(settings.s3_plain), Arc::clone(clock));
    let threads =
        NonZeroUsize::new(usize::try_from(budget.bucket_copies).unwrap_or(1)).unwrap_or(NonZeroUsize::MIN);
    let volume = as_set(volume, settings);
    let volume = keep_thawed(volume, settings).map_err(record_error)?;
    let archive = volume.archive();
    let copies = volume.copies(threads, &writer_name(&settings.data_dir)).map_err(record_error)?;
    let is_primary = settings.s3_primary && bucket.is_some();
    let figures = Figures::of(copies.record()).map_err(record_error)?;
    let (plan, class) = (Plan::of(settings), settings.s3_class.clone());
    let lacks_bucket = (needs_bucket && bucket.is_none()).then(|| names_no_bucket(&location));
    let tiers = Tiers {
        location,
        copies,
        archive,
        is_primary,
        bucket,
        lacks_bucket,
        class,
        plan,
        figures,
        retention_failure: Mutex::default(),
        published: Mutex::default(),
    };
    Ok(Some((volume, tiers)))
}

/// Part of a data folder lies in a bucket that neither the settings nor a record name.
pub(super) fn needs_its_bucket() -> ServiceError {
    ServiceError::invalid(
        "part of this repository lies in a bucket alone, the settings name none, and tiers.db, which knows which, is lost: set \
         s3 (and what else the bucket needs)",
    )
}

/// Says what to do about settings that do not name the bucket data lies in.
fn names_no_bucket(location: &str) -> String {
    format!(
        "data lies in {location} alone, and the settings name no bucket: set s3 (and what else the bucket needs), then restart the \
         server"
    )
}

/// (T16) Keeps what is thawed in a folder of its own, within its limits. A folder that is not wanted any more is emptied.
fn keep_thawed(volume: TieredVolume, settings: &Settings) -> Result<TieredVolume, RecordError> {
    let folder = settings.data_dir.join(THAWED);
    let limits = ThawCacheLimits { bytes: settings.s3_thaw_cache.0, days: settings.s3_thaw_cache_days };
    if limits.bytes == 0 && !folder.exists() {
        return Ok(volume);
    }
    let folder = LocalVolume::open(folder).map(|folder| Arc::new(folder) as Arc<dyn Volume>);
    volume.keeping_thawed(folder, limits)
}

/// The names of blobs as encryption and the engine give them. Nothing that is not encrypted leaves this machine unless
/// `may_travel_plain`.
pub(crate) fn names(may_travel_plain: bool) -> Names {
    Names {
        may_travel: if may_travel_plain {
            |_| true
        } else {
            |name| is_left_open(name) || is_sealed_name(name)
        },
        forms: |name| names_below(&name_above(name)).collect(),
        revision: |name| Engine::revision_in(&name_above(name)),
    }
}

/// Applies the settings for objects in the bucket beyond copying them: cold ones, and ones that must stay.
fn as_set(volume: TieredVolume, settings: &Settings) -> TieredVolume {
    let volume = match settings.s3_archive_after_days {
        Some(_) => volume.archiving_to(&settings.s3_archive_class),
        None => volume,
    };
    match settings.s3_object_lock.mode() {
        Some(mode) => volume.retaining(mode),
        None => volume,
    }
}

/// The record is lost of a data folder of which part lies in the bucket alone: a listing makes it anew, as a whole or not at
/// all.
fn make_record_anew(path: &Path, location: &str, bucket: &S3Volume) -> Result<(), ServiceError> {
    tracing::warn!(
        "tiers.db, the record of what lies in {location}, is lost: the bucket is listed to make it anew"
    );
    make_record(path, location, |record| {
        survey(bucket, record).map_err(|error| survey_error(error, location)).map(|_| ((), true))
    })
}

/// Makes a record at `path` as a whole or not at all: one that lacks containers would tell a start that they lie nowhere.
/// `fill` also returns true if it is to be kept.
pub(super) fn make_record<T>(
    path: &Path,
    location: &str,
    fill: impl FnOnce(&Record) -> Result<(T, bool), ServiceError>,
) -> Result<T, ServiceError> {
    let unfinished = path.with_extension("new");
    let failed = |error: std::io::Error| {
        ServiceError::new(ErrorCode::Internal, format!("cannot make {}: {error}", path.display()))
    };
    for end in ["new", "new-wal", "new-shm", "db-wal", "db-shm"] {
        match std::fs::remove_file(path.with_extension(end)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    let record = Record::open_or_create(&unfinished, location).map_err(record_error)?;
    let (filled, is_kept) = fill(&record)?;
    // Closing it brings all of it into the one file.
    drop(record);
    if is_kept {
        std::fs::rename(&unfinished, path).map_err(failed)?;
    }
    Ok(filled)
}

/// The record lacks what lies in the bucket alone, and the bucket cannot be asked.
fn survey_error(error: SurveyError, location: &str) -> ServiceError {
    match error {
        SurveyError::Record(error) => record_error(error),
        SurveyError::Volume(error) => ServiceError::new(
            ErrorCode::Unavailable,
            format!(
                "part of this repository lies in {location} alone, tiers.db, which knows which, is lost or older than that, and \
                 the bucket cannot be asked to bring it up to date: {error}"
            ),
        ),
    }
}

/// Containers of a data folder that lie in its bucket alone.
///
/// # Errors
/// The volume's.
pub(crate) fn moved(data_dir: &Path) -> Result<u64, ServiceError> {
    let local = LocalVolume::open(data_dir.join(BLOBS)).map_err(EngineError::from)?;
    Ok(moved_containers(&local).map_err(EngineError::from)?)
}

/// Name of this server where another finds it in the way: its machine and data folder.
fn writer_name(data_dir: &Path) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "a machine without name" } else { host.trim() };
    let data_dir = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    format!("{host}:{}", data_dir.display())
}

/// A repository that is not encrypted, or not yet as a whole, is not copied unless the settings allow it: a bucket is not
/// this machine's own disk. `has_data`: whether there is anything yet.
///
/// # Errors
/// `Invalid`, saying what to do.
pub(crate) fn require_encryption(
    settings: &Settings,
    raw: &dyn Volume,
    has_data: bool,
) -> Result<(), ServiceError> {
    let Some(location) = settings.s3.as_ref().filter(|_| !settings.s3_plain) else { return Ok(()) };
    let begins_encrypted = !has_data && settings.encryption == Some(Encryption::On);
    let what = match holdfast_sealing::read_table(raw).map_err(super::encryption::table_error)? {
        Some(table) if !table.accepts_plain() => return Ok(()),
        None if begins_encrypted => return Ok(()),
        Some(_) => "is not encrypted as a whole yet",
        None => "is not encrypted",
    };
    Err(ServiceError::invalid(format!(
        "copies are to go to {location}, but the repository {what}, and anyone who reads the bucket would read every disk. Either start \
         without s3 and with encryption = \"on\" until 'holdfast-server key status' says that all is encrypted (docs/operations/\
         encryption.md), or set s3_plain = true to copy it as it is"
    )))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn record_error(error: RecordError) -> ServiceError {
    let code = match &error {
        RecordError::OtherPlace { .. } => ErrorCode::Invalid,
        RecordError::Newer(_) => ErrorCode::Unsupported,
        RecordError::Foreign(_) => ErrorCode::Damaged,
        error if error.is_full() => ErrorCode::Full,
        RecordError::Sql { .. } => ErrorCode::Internal,
    };
    ServiceError::new(code, error.to_string())
}

impl Tiers {
    /// Requests made, by kind; all zero when the settings name no bucket.
    pub(crate) fn requests(&self) -> Requests {
        self.bucket.as_ref().map_or_else(Requests::default, |bucket| Requests::of(&bucket.requests()))
    }

    /// Ends copying under way, so that a shutdown need not wait for the network.
    pub(crate) fn stop(&self) {
        if let Some(bucket) = &self.bucket {
            bucket.stop_writing();
        }
    }

    /// Copies and removes until nothing waits, while no server runs: for commands.
    ///
    /// # Errors
    /// Why it does not go on; a later server does.
    pub(crate) fn settle(&self) -> Result<(), String> {
        if self.bucket.is_none() {
            return Err("the settings name no bucket: set s3 (and what else it needs)".to_owned());
        }
        loop {
            match self.copies.work(&|| false) {
                Ok(worked) if worked.more => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Writes down how the copies are, for `tier status`, if that has changed.
    ///
    /// # Errors
    /// The record's.
    pub(crate) fn publish(&self, now_ms: i64) -> Result<(), RecordError> {
        let status = self.copies.status();
        let kept = self.archive.kept();
        let text = serde_json::json!({
            "thawed_containers": kept.map(|kept| kept.containers),
            "thawed_bytes": kept.map(|kept| kept.bytes),
            "copied_up_to_ms": status.copied_up_to_ms.filter(|_| status.waiting_blobs > 0 || status.is_comparing),
            "comparing": status.is_comparing,
            "waiting_blobs": status.waiting_blobs,
            "waiting_bytes": status.waiting_bytes,
            "unreadable": status.unreadable.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "failure": status.failure,
            "retention_failure": self.retention_failure(),
            "requests": self.requests().by_kind(),
            "sent_bytes": self.requests().sent_bytes,
        })
        .to_string();
        let usage = self.unwritten(now_ms)?;
        let mut published = self.published.lock();
        if *published != text || usage.is_some() {
            let mut said = vec![(STATUS, text.clone()), ("at_ms", now_ms.to_string())];
            said.extend(usage);
            self.copies.record().say(&said)?;
            *published = text;
        }
        Ok(())
    }

    /// Why what locked restore points need cannot be made to stay; `None`: it can.
    pub(crate) fn note_retention_failure(&self, failure: Option<String>) {
        *self.retention_failure.lock() = failure;
    }

    /// The status noted last.
    pub(crate) fn retention_failure(&self) -> Option<String> {
        self.retention_failure.lock().clone()
    }

    /// Totals of what must stay, and of what is behind. Blocks.
    ///
    /// # Errors
    /// The record's.
    pub(crate) fn retention(&self, now_ms: i64) -> Result<RetentionTotals, RecordError> {
        self.figures.retention(now_ms, || self.copies.record().retention_totals(now_ms))
    }

    /// (T10) The containers that lie in the archive, by their names for the engine.
    ///
    /// # Errors
    /// The record's.
    pub(crate) fn cold_containers(&self) -> Result<Vec<BlobName>, ServiceError> {
        let names = self.archive.names().map_err(record_error)?;
        // As encryption names them.
        Ok(names.iter().map(name_above).collect())
    }
}

/// The status of copies that the last server noted.
///
/// # Errors
/// The record's.
pub(crate) fn published(record: &Record) -> Result<Option<(serde_json::Value, Option<i64>)>, RecordError> {
    let at = record.said("at_ms")?.and_then(|text| text.parse().ok());
    let status = record.said(STATUS)?.and_then(|text| serde_json::from_str(&text).ok());
    Ok(status.map(|status| (status, at)))
}
