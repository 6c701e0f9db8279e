//! Rebuilds the record from a listing of the bucket: for a server made from the bucket alone, or whose record is lost.
//! One request for each 1,000 blobs; no object is opened, so no archived one is touched.

use std::cell::OnceCell;
use std::collections::HashMap;

use holdfast_types::ids::BackupId;
use holdfast_volume::{BlobEntry, BlobName, RemoteVolume, Volume, VolumeError, list_all};

use crate::prices::DEFAULT_CLASS;
use crate::record::{Record, RecordError};
use crate::shared::Names;
use crate::waiting::{ENDS, Kind};

/// Entries committed in one transaction.
const BATCH: usize = 4096;

/// Errors of a survey.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Adds all blobs of the bucket to `record`. Returns how many there are. Repeating it changes nothing.
///
/// (T15) Lists in reverse copy order: a server may be writing there, and the blobs a restore point needs were there
/// before its point (T1). If that server removes blobs meanwhile, a point here may lack them: then recover again.
///
/// # Errors
/// When the bucket cannot be listed; the record's.
pub fn survey(remote: &dyn RemoteVolume, record: &Record) -> Result<u64, SurveyError> {
    let mut count = 0;
    for kind in Kind::ALL.into_iter().rev() {
        let Some(folder) = kind.folder() else { continue };
        if kind == Kind::Mark {
            match remote.stat(&folder) {
                Ok(stat) => {
                    record.add(&folder, stat.len)?;
                    count += 1;
                }
                Err(VolumeError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            continue;
        }
        let mut batch = Vec::new();
        for entry in list_all(remote, &folder) {
            batch.push(entry?);
            count += 1;
            if batch.len() == BATCH {
                record.add_all(std::mem::take(&mut batch))?;
            }
        }
        record.add_all(batch)?;
    }
    survey_cold(remote, record)?;
    Ok(count)
}

/// Differences between a bucket and a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missing {
    /// Containers that the volume lacks, and that are read from the bucket.
    pub count: u64,
    /// Containers whose local file has another length, and hides the bucket's. The log names them.
    pub unequal: u64,
    /// Restore points, or revisions of them, newer than the volume's. Then no container is checked.
    pub points: u64,
}

/// (T15) Adds containers of the bucket that `local` lacks to `record`: for a recovery from a copy of a volume, which
/// may lack containers that were moved to the bucket. If the bucket has newer restore points than the copy, that is
/// reported and nothing is added: their containers would be freed as if nothing needed them. Existing entries are
/// unchanged, so repeating it is harmless.
///
/// # Errors
/// Same as [`survey`]; the local volume's.
pub fn survey_missing(
    local: &dyn Volume,
    remote: &dyn RemoteVolume,
    record: &Record,
    names: Names,
) -> Result<Missing, SurveyError> {
    let here = Here::new(local, names);
    let mut missing = Missing { points: newer_points(&here, remote, record)?, ..Missing::default() };
    let Some(folder) = Kind::Container.folder().filter(|_| missing.points == 0) else { return Ok(missing) };
    let mut batch = Vec::new();
    for entry in list_all(remote, &folder) {
        let entry = entry?;
        let found = here.find(&entry)?;
        if matches!(found, Local::Here) {
            continue;
        }
        let known = record.visible(&entry.name)?;
        match found {
            Local::Here | Local::Missing => {}
            // (T13) The length in the record decides: the object is at fault.
            Local::Unequal { len } if known == Some(len) => continue,
            Local::Unequal { len } => {
                let BlobEntry { name, len: there } = &entry;
                tracing::error!(%name, here = len, there, "a container has another length here than in the bucket");
                missing.unequal += 1;
                continue;
            }
        }
        if known.is_none() && record.is_to_go(&entry.name)? {
            continue;
        }
        missing.count += 1;
        if known.is_none() {
            batch.push(entry);
        }
        if batch.len() == BATCH {
            record.add_all(std::mem::take(&mut batch))?;
        }
    }
    record.add_all(batch)?;
    if missing.count > 0 {
        survey_cold(remote, record)?;
    }
    Ok(missing)
}

/// Counts points of the bucket that are neither here, in that revision or a later one, nor in the record (copied,
/// fetched, or due for removal). The log names them.
fn newer_points(here: &Here<'_>, remote: &dyn RemoteVolume, record: &Record) -> Result<u64, SurveyError> {
    let Some(folder) = Kind::Point.folder() else { return Ok(0) };
    let mut count = 0;
    for entry in list_all(remote, &folder) {
        let name = entry?.name;
        let Some(point) = (here.names.revision)(&name) else { continue };
        if here.has_revision(point)? || record.recorded(&name)?.is_some() || record.is_to_go(&name)? {
            continue;
        }
        tracing::error!(%name, "a restore point of the bucket that is not here");
        count += 1;
    }
    Ok(count)
}

/// A local volume, queried by what does not change when blobs are encrypted and restore points revised or renamed.
pub(crate) struct Here<'a> {
    local: &'a dyn Volume,
    names: Names,
    /// Highest revision of each restore point; read on first use.
    revisions: OnceCell<HashMap<BackupId, u32>>,
}

/// The local counterpart of an object of the bucket.
pub(crate) enum Local {
    Here,
    /// It has another length, so it is not what was copied.
    Unequal {
        len: u64,
    },
    Missing,
}

impl<'a> Here<'a> {
    pub(crate) fn new(local: &'a dyn Volume, names: Names) -> Self {
        Self { local, names, revisions: OnceCell::new() }
    }

    /// Looks for its own name first; then for another form, or a later revision: the bucket may still have blobs that
    /// a conversion or a change of a lock replaced.
    pub(crate) fn find(&self, there: &BlobEntry) -> Result<Local, VolumeError> {
        match self.open(&there.name)? {
            Some(len) if len.is_some_and(|len| len != there.len) => {
                return Ok(Local::Unequal { len: len.unwrap_or(0) });
            }
            Some(_) => return Ok(Local::Here),
            None => {}
        }
        let is_here = match (self.names.revision)(&there.name) {
            Some(point) => self.has_revision(point)?,
            None => {
                let mut others =
                    (self.names.forms)(&there.name).into_iter().filter(|name| *name != there.name);
                others.try_fold(false, |found, name| Ok(found || self.open(&name)?.is_some()))?
            }
        };
        Ok(if is_here { Local::Here } else { Local::Missing })
    }

    /// Length of a local blob; `Some(None)`: (S12) it cannot be read, but exists.
    fn open(&self, name: &BlobName) -> Result<Option<Option<u64>>, VolumeError> {
        match self.local.open(name) {
            Ok(blob) => Ok(Some(Some(blob.len()))),
            Err(VolumeError::Io { .. } | VolumeError::NotReadableNow { .. }) => Ok(Some(None)),
            Err(VolumeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn has_revision(&self, (backup, revision): (BackupId, u32)) -> Result<bool, VolumeError> {
        let revisions = match self.revisions.get() {
            Some(revisions) => revisions,
            None => {
                let listed = self.list_revisions()?;
                self.revisions.get_or_init(|| listed)
            }
        };
        Ok(revisions.get(&backup).is_some_and(|here| *here >= revision))
    }

    fn list_revisions(&self) -> Result<HashMap<BackupId, u32>, VolumeError> {
        let mut revisions = HashMap::new();
        for entry in Kind::Point.folder().iter().flat_map(|folder| list_all(self.local, folder)) {
            if let Some((backup, revision)) = (self.names.revision)(&entry?.name) {
                let highest = revisions.entry(backup).or_insert(revision);
                *highest = revision.max(*highest);
            }
        }
        Ok(revisions)
    }
}

/// Returns true if `volume` has containers.
///
/// # Errors
/// When it cannot be listed.
pub fn holds_blobs(volume: &dyn Volume) -> Result<bool, VolumeError> {
    let Some(folder) = Kind::Container.folder() else { return Ok(false) };
    Ok(list_all(volume, &folder).next().transpose()?.is_some())
}

/// (T10) An object that may be cold has its ends beside it; a request for each tells its storage class. An existing
/// entry is unchanged: a thaw may be in progress.
fn survey_cold(remote: &dyn RemoteVolume, record: &Record) -> Result<(), SurveyError> {
    let Some(folder) = BlobName::new(ENDS) else { return Ok(()) };
    for entry in list_all(remote, &folder) {
        let entry = entry?;
        let name = entry.name.as_str().strip_prefix(ENDS).and_then(|rest| rest.strip_prefix('/'));
        let Some(name) = name.and_then(BlobName::new) else { continue };
        if record.visible(&name)?.is_none() || record.cold(&name)?.is_some() {
            continue;
        }
        match remote.look(&name) {
            Ok(look) => {
                record.note_frozen(&name, look.class.as_deref().unwrap_or(DEFAULT_CLASS))?;
                record.add(&entry.name, entry.len)?;
            }
            Err(VolumeError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
