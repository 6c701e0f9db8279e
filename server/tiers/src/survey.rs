//! Makes the record of a listing of the bucket: for a server that is made of the bucket alone, or whose record is lost.
//! A request for each 1,000 blobs; nothing is opened, so nothing that lies in an archive is touched.

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
/// # Errors
/// When the bucket cannot be listed; the record's.
pub fn survey(remote: &dyn RemoteVolume, record: &Record) -> Result<u64, SurveyError> {
    let mut count = 0;
    for kind in Kind::ALL {
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

/// Containers of a bucket that a volume lacks, or has otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missing {
    /// Containers that the volume lacks, and that are read from the bucket.
    pub count: u64,
    /// Containers of which the volume has a file of another length, which hides the bucket's. The log names them.
    pub unequal: u64,
}

/// (T15) Enters the containers of the bucket that `local` lacks into `record`: for a recovery from a copy of a volume, which
/// may lack what lies in the bucket alone. Nothing but containers is entered: a restore point that is only there may have been
/// deleted here. Of what the record knows already nothing changes, so repeating it does nothing.
///
/// # Errors
/// As [`survey`]; the local volume's.
pub fn survey_missing(
    local: &dyn Volume,
    remote: &dyn RemoteVolume,
    record: &Record,
) -> Result<Missing, SurveyError> {
    let mut missing = Missing::default();
    let Some(folder) = Kind::Container.folder() else { return Ok(missing) };
    let mut batch = Vec::new();
    for entry in list_all(remote, &folder) {
        let entry = entry?;
        match find(local, &entry)? {
            Local::Here => continue,
            Local::Unequal { len } => {
                let BlobEntry { name, len: there } = &entry;
                tracing::error!(%name, here = len, there, "a container has another length here than in the bucket");
                missing.unequal += 1;
                continue;
            }
            Local::Missing => {}
        }
        let is_known = record.visible(&entry.name)?.is_some();
        if !is_known && record.is_to_go(&entry.name)? {
            continue;
        }
        missing.count += 1;
        if !is_known {
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

/// A container of the bucket on the local volume.
enum Local {
    Here,
    /// It has another length, so it is not what was copied.
    Unequal {
        len: u64,
    },
    Missing,
}

/// Looks for it encrypted and not: what a conversion replaced may still lie in the bucket.
fn find(local: &dyn Volume, there: &BlobEntry) -> Result<Local, VolumeError> {
    let plain = there.name.as_str().trim_end_matches('-');
    let mut found = Local::Missing;
    for name in [BlobName::new(plain), BlobName::new(format!("{plain}-"))].into_iter().flatten() {
        match local.open(&name) {
            Err(VolumeError::NotFound { .. }) => {}
            Ok(blob) if name == there.name && blob.len() != there.len => {
                found = Local::Unequal { len: blob.len() };
            }
            // (S12) One that cannot be read is here all the same.
            Ok(_) | Err(VolumeError::Io { .. } | VolumeError::NotReadableNow { .. }) => {
                return Ok(Local::Here);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
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
