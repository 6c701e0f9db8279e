//! Makes the record of a listing of the bucket: for a server that is made of the bucket alone, or whose record is lost.
//! A request for each 1,000 blobs; nothing is opened, so nothing that lies in an archive is touched.

use std::collections::HashMap;

use holdfast_volume::{BlobEntry, BlobName, RemoteVolume, Volume, VolumeError, list_all};

use crate::prices::DEFAULT_CLASS;
use crate::record::{Record, RecordError};
use crate::waiting::{ENDS, Kind};

/// Entries that become durable together.
const BATCH: usize = 4096;

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Enters all that lies in the bucket into `record`. Returns how many blobs that are. Repeating it does nothing.
///
/// (T15) Lists in the reverse order of copying: a server may be writing there, and what a restore point needs was there before
/// the point (T1). What that server removes meanwhile, a point here may lack: then recover again.
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

/// What a bucket has that a volume lacks, or has otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missing {
    /// Containers that the volume lacks, and that are read from the bucket.
    pub count: u64,
    /// Containers of which the volume has a file of another length, which hides the bucket's. The log names them.
    pub unequal: u64,
    /// Restore points, or revisions of them, that are newer than the volume's. Then no container is looked at.
    pub points: u64,
}

/// (T15) Enters the containers of the bucket that `local` lacks into `record`: for a recovery from a copy of a volume, which
/// may lack what lies in the bucket alone. A copy that is older than the bucket's restore points is told as such, and nothing is
/// entered: containers of theirs would be freed as if nothing needed them. Of what the record knows already nothing changes, so
/// repeating it does nothing.
///
/// # Errors
/// As [`survey`]; the local volume's.
pub fn survey_missing(
    local: &dyn Volume,
    remote: &dyn RemoteVolume,
    record: &Record,
) -> Result<Missing, SurveyError> {
    let here = Here::of(local)?;
    let mut missing = Missing { points: newer_points(&here, remote, record)?, ..Missing::default() };
    let Some(folder) = Kind::Container.folder().filter(|_| missing.points == 0) else { return Ok(missing) };
    let mut batch = Vec::new();
    for entry in list_all(remote, &folder) {
        let entry = entry?;
        let known = record.visible(&entry.name)?;
        match find(&here, &entry)? {
            Local::Here => continue,
            // (T13) Where the record says how long it is, that decides: the object is at fault.
            Local::Unequal { len } if known == Some(len) => continue,
            Local::Unequal { len } => {
                let BlobEntry { name, len: there } = &entry;
                tracing::error!(%name, here = len, there, "a container has another length here than in the bucket");
                missing.unequal += 1;
                continue;
            }
            Local::Missing => {}
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

/// Points of the bucket that are neither here, in that revision or a later one, nor known to the record: copied from here,
/// brought from there, or to go. The log names them.
fn newer_points(here: &Here<'_>, remote: &dyn RemoteVolume, record: &Record) -> Result<u64, SurveyError> {
    let Some(folder) = Kind::Point.folder() else { return Ok(0) };
    let mut count = 0;
    for entry in list_all(remote, &folder) {
        let name = entry?.name;
        let is_known = revision_of(&name).is_none() || here.has_revision(&name);
        if is_known || record.recorded(&name)?.is_some() || record.is_to_go(&name)? {
            continue;
        }
        tracing::error!(%name, "a restore point of the bucket that is not here");
        count += 1;
    }
    Ok(count)
}

/// A local volume, asked by what stays when blobs are encrypted, and restore points revised or renamed.
pub(crate) struct Here<'a> {
    local: &'a dyn Volume,
    /// The highest of each restore point.
    revisions: HashMap<String, u64>,
}

impl<'a> Here<'a> {
    /// Lists restore points.
    pub(crate) fn of(local: &'a dyn Volume) -> Result<Self, VolumeError> {
        let mut revisions = HashMap::new();
        for entry in Kind::Point.folder().iter().flat_map(|folder| list_all(local, folder)) {
            if let Some((backup, revision)) = revision_of(&entry?.name) {
                let highest = revisions.entry(backup.to_owned()).or_insert(revision);
                *highest = revision.max(*highest);
            }
        }
        Ok(Self { local, revisions })
    }

    /// Returns true if the blob, in any form, or a later revision of the restore point is here.
    pub(crate) fn has(&self, name: &BlobName) -> Result<bool, VolumeError> {
        if Kind::of(name) == Some(Kind::Point) {
            return Ok(self.has_revision(name));
        }
        for form in forms(name) {
            match self.local.open(&form) {
                // (S12) What cannot be read is here all the same.
                Ok(_) | Err(VolumeError::Io { .. } | VolumeError::NotReadableNow { .. }) => return Ok(true),
                Err(VolumeError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn has_revision(&self, point: &BlobName) -> bool {
        let known = |(backup, revision): (&str, u64)| {
            self.revisions.get(backup).is_some_and(|here| *here >= revision)
        };
        revision_of(point).is_some_and(known)
    }
}

/// A blob not encrypted, encrypted, and encrypted anew.
fn forms(name: &BlobName) -> impl Iterator<Item = BlobName> {
    let plain = name.as_str().trim_end_matches('-');
    ["", "-", "--"].into_iter().filter_map(move |end| BlobName::new(format!("{plain}{end}")))
}

/// The id of a restore point, and the number of its revision. The folder changes with the name of the VM.
fn revision_of(point: &BlobName) -> Option<(&str, u64)> {
    let (backup, revision) = point.as_str().trim_end_matches('-').rsplit_once('.')?;
    Some((backup.rsplit('/').next()?, revision.parse().ok()?))
}

/// Returns true if `volume` has containers.
///
/// # Errors
/// When it cannot be listed.
pub fn holds_blobs(volume: &dyn Volume) -> Result<bool, VolumeError> {
    let Some(folder) = Kind::Container.folder() else { return Ok(false) };
    Ok(list_all(volume, &folder).next().transpose()?.is_some())
}

/// A container of the bucket on the local volume.
enum Local {
    Here,
    /// It has another length, so it is not what was copied.
    Unequal {
        len: u64,
    },
    Missing,
}

/// Looks for it by its own name first; then encrypted otherwise, or not: what a conversion replaced may still lie in the bucket.
fn find(here: &Here<'_>, there: &BlobEntry) -> Result<Local, VolumeError> {
    match here.local.open(&there.name) {
        Ok(blob) if blob.len() != there.len => return Ok(Local::Unequal { len: blob.len() }),
        _ => {}
    }
    Ok(if here.has(&there.name)? { Local::Here } else { Local::Missing })
}

/// (T10) An object that may be cold has its ends beside it; a request for each tells its storage class. Where the record has one
/// already, nothing changes: a thaw may be under way.
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
                record.note_beside(&name, entry.len)?;
            }
            Err(VolumeError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
