//! Recovery with a bucket: of one that is all that is left, or of a volume whose bucket may hold more.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_engine::clock::Clock;
use holdfast_engine::ids::RepositoryId;
use holdfast_engine::{EngineError, repository_on};
use holdfast_proto::ErrorCode;
use holdfast_sealing::name_above;
use holdfast_tiers::{
    FetchError, Fetched, Holder, Missing, Record, SurveyError, has_moved_containers, holds_blobs,
    note_made_of_bucket, survey, survey_missing,
};
use holdfast_volume::{BlobName, LocalVolume, Volume, VolumeError};

use crate::config::Settings;
use crate::error::ServiceError;
use crate::memory::Budget;
use crate::repository::tiers::{
    Bucket, Requests, make_record, names, needs_its_bucket, open, open_bucket, record_error, record_path,
};

/// Blobs brought at once: each takes as long as its requests, however small it is, and holds a piece of 1 MiB.
const FETCH_THREADS: NonZeroUsize = NonZeroUsize::new(32).unwrap();

/// Looks whether the bucket that the settings name can be read and holds anything of a repository.
///
/// # Errors
/// `Unavailable` when it cannot be read; `Invalid` when nothing is there.
pub(super) fn refuse_empty(settings: &Settings) -> Result<(), ServiceError> {
    let bucket = open_bucket(settings)?.ok_or_else(|| ServiceError::defect("no bucket is named"))?;
    match holds_blobs(&*bucket.store) {
        Ok(true) => Ok(()),
        Ok(false) => Err(holds_nothing(&bucket.location)),
        Err(error) => Err(unavailable(&bucket.location, &error)),
    }
}

fn holds_nothing(location: &str) -> ServiceError {
    ServiceError::invalid(format!("{location} holds nothing of a repository"))
}

fn unavailable(location: &str, error: &dyn fmt::Display) -> ServiceError {
    ServiceError::new(ErrorCode::Unavailable, format!("cannot read {location}: {error}"))
}

/// Brings what a server made of the bucket alone should have at hand into the folder `blobs`: all but data containers. Nothing is
/// made here before the bucket was listed.
///
/// # Errors
/// When the bucket cannot be reached or holds nothing of a repository; when nothing can be written here.
pub(super) fn bring(
    blobs: PathBuf,
    settings: &Settings,
    budget: &Budget,
    clock: &Arc<dyn Clock>,
) -> Result<(Arc<dyn Volume>, Brought), ServiceError> {
    let no_bucket = || ServiceError::defect("no bucket is named");
    let bucket = open_bucket(settings)?.ok_or_else(no_bucket)?;
    let location = bucket.location.clone();
    let unavailable = |error: &dyn fmt::Display| unavailable(&location, error);
    // Anew each time: an earlier try may have been of another place, or know what has gone since.
    let count = make_record(&record_path(&settings.data_dir), &location, |record| {
        let surveyed = survey(&*bucket.store, record).map_err(|error| match error {
            SurveyError::Volume(error) => unavailable(&error),
            SurveyError::Record(error) => record_error(error),
        });
        surveyed.map(|count| (count, count > 0))
    })?;
    if count == 0 {
        return Err(holds_nothing(&location));
    }
    let local: Arc<dyn Volume> = Arc::new(LocalVolume::open(blobs).map_err(EngineError::from)?);
    let (volume, tiers) =
        open(Arc::clone(&local), Some(bucket), settings, budget, clock)?.ok_or_else(no_bucket)?;
    let recipe = |name: &BlobName| name_above(name).as_str().ends_with(".recipe");
    note_made_of_bucket(&*local).map_err(EngineError::from)?;
    let fetched = volume.fetch(recipe, FETCH_THREADS).map_err(|error| match error {
        FetchError::Volume(error) => unavailable(&error),
        FetchError::Record(error) => record_error(error),
    })?;
    let writer = tiers.copies.other_writer().map_err(|error| unavailable(&error))?;
    let brought = Brought { blobs: count, fetched, requests: tiers.requests(), writer };
    Ok((Arc::new(volume), brought))
}

/// The bucket of the settings, if they name one, for a recovery of `repository` from the volume `local`. Nothing is made here:
/// a wrong name must not become that of this data folder's copies. `has_record`: a record in the data folder is of the volume.
///
/// # Errors
/// `Unavailable` when it cannot be asked; `Invalid` when it holds nothing of a repository, or another's, or when the settings
/// name none and part of the volume lies in one.
pub(super) fn bucket_of(
    local: &dyn Volume,
    repository: RepositoryId,
    settings: &Settings,
    has_record: bool,
) -> Result<Option<Bucket>, ServiceError> {
    let Some(bucket) = open_bucket(settings)? else {
        let is_known = has_record && Record::is_at(&record_path(&settings.data_dir)).map_err(record_error)?;
        return if is_known || !lies_in_part_there(local)? { Ok(None) } else { Err(needs_its_bucket()) };
    };
    let (location, without) = (&bucket.location, without(local)?);
    match repository_on(&*bucket.store).map_err(|error| cannot_ask(location, &error, without))? {
        Some(found) if found == repository => return Ok(Some(bucket)),
        Some(other) => {
            return Err(ServiceError::invalid(format!(
                "{location} holds copies of repository {other}, not of {repository}"
            )));
        }
        None => {}
    }
    let what = if holds_blobs(&*bucket.store).map_err(|error| volume_error(error, location, without))? {
        "holds containers, but not the mark of the repository they are of (the object \"repository\"): if they are of this one, \
         put the volume's file of that name back there"
    } else {
        "holds nothing of a repository: check s3"
    };
    Err(ServiceError::invalid(format!(
        "{location}, where containers may lie that are missing here, {what}{without}"
    )))
}

/// Looks in `bucket`, found with [`bucket_of`], for containers that `local` lacks: a copy of the volume, whose record is lost.
/// Returns where that is and how many they are; from then on they are read from there.
///
/// # Errors
/// `Unavailable` when the bucket cannot be listed: nothing may be called lost then. `Invalid` when the bucket holds newer restore
/// points, or files of `local` would hide containers of the bucket.
pub(super) fn find_missing(
    local: &Arc<dyn Volume>,
    bucket: Bucket,
    settings: &Settings,
    budget: &Budget,
    clock: &Arc<dyn Clock>,
) -> Result<Option<(String, u64)>, ServiceError> {
    let (location, without) = (bucket.location.clone(), without(&**local)?);
    let path = record_path(&settings.data_dir);
    let look = |record: &Record| -> Result<Missing, ServiceError> {
        survey_missing(&**local, &*bucket.store, record, names(settings.s3_plain)).map_err(
            |error| match error {
                SurveyError::Volume(error) => volume_error(error, &location, without),
                SurveyError::Record(error) => record_error(error),
            },
        )
    };
    let Missing { count, unequal, points } = if Record::is_at(&path).map_err(record_error)? {
        look(&Record::open_or_create(&path, &location).map_err(record_error)?)?
    } else {
        make_record(&path, &location, |record| {
            let found = look(record)?;
            Ok((found, found.points == 0 && found.unequal == 0))
        })?
    };
    if points > 0 {
        return Err(ServiceError::invalid(format!(
            "{location} holds restore points that are not here ({points}; the log names them): this volume is older, or they were \
             deleted here and not yet there. Where it is older, 'holdfast-server recover --from s3://…' into an empty --data-dir \
             brings all of them. Where they were deleted, delete these objects there and recover again{without}"
        )));
    }
    if unequal > 0 {
        return Err(ServiceError::invalid(format!(
            "{unequal} containers have another length here than in {location}: one of the two is cut off; the log names them, with both \
             lengths. Where the file here is the shorter one, move it away, so that the bucket's is used, and recover again{without}"
        )));
    }
    if count == 0 {
        return Ok(None);
    }
    note_made_of_bucket(&**local).map_err(EngineError::from)?;
    // (T15) It has a record now: none is made of all that lies in the bucket.
    let Some((volume, _)) = open(Arc::clone(local), Some(bucket), settings, budget, clock)? else {
        return Err(ServiceError::defect("no bucket is named"));
    };
    volume.fetch_ends(FETCH_THREADS, &mut Fetched::default()).map_err(|error| match error {
        FetchError::Volume(error) => volume_error(error, &location, without),
        FetchError::Record(error) => record_error(error),
    })?;
    Ok(Some((location, count)))
}

fn lies_in_part_there(local: &dyn Volume) -> Result<bool, ServiceError> {
    Ok(has_moved_containers(local).map_err(EngineError::from)?)
}

/// The other way out of a recovery that does not get what it needs of its bucket. A volume that is known to lie there in part
/// has none.
fn without(local: &dyn Volume) -> Result<&'static str, ServiceError> {
    Ok(if lies_in_part_there(local)? {
        ""
    } else {
        "; or recover without the bucket, with settings that do not name s3: then containers that are missing here are recorded as \
         damage, and naming s3 later does not look for them"
    })
}

/// An error of the local volume or the bucket.
fn volume_error(error: VolumeError, location: &str, without: &str) -> ServiceError {
    match error {
        VolumeError::Unavailable { .. } | VolumeError::NotReadableNow { .. } => {
            cannot_ask(location, &error, without)
        }
        error => EngineError::from(error).into(),
    }
}

/// A recovery from a volume must not go on without the bucket.
fn cannot_ask(location: &str, error: &dyn fmt::Display, without: &str) -> ServiceError {
    let text = format!(
        "cannot read {location}, where containers may lie that are missing here: {error}. Try again when it can be reached{without}"
    );
    ServiceError::new(ErrorCode::Unavailable, text)
}

/// The share of a recovery that came from a bucket.
#[derive(Debug, Clone)]
pub struct Brought {
    /// Blobs there.
    pub(crate) blobs: u64,
    pub(crate) fetched: Fetched,
    pub(crate) requests: Requests,
    /// The server that writes there.
    pub(crate) writer: Option<Holder>,
}
