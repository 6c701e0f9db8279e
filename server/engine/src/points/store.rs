//! Sealing a point and reading one back.

use holdfast_catalog::PointRecord;
use holdfast_types::ids::{NamespaceId, RepositoryId};
use holdfast_volume::{BlobName, Owner, Volume, VolumeError};

use super::name::PointName;
use super::record;
use crate::error::EngineError;
use crate::format::point::{POINT_MAX_BYTES, Point};

/// Seals `bytes`, which belong to `namespace`, under `name`, durably. A blob of the same bytes that is there already is this one: an earlier try whose
/// answer was lost.
///
/// # Errors
/// The volume's; another blob of that name.
pub(crate) fn seal(
    volume: &dyn Volume,
    namespace: NamespaceId,
    name: &BlobName,
    bytes: &[u8],
) -> Result<(), EngineError> {
    let sealed = volume.create_for(name, Owner::namespace(namespace.to_bytes())).and_then(|mut blob| {
        blob.append(bytes)?;
        blob.seal()
    });
    match sealed {
        Err(VolumeError::Exists { .. }) if read_bytes(volume, name)? == bytes => Ok(()),
        sealed => Ok(sealed?),
    }
}

/// The point called `name`, checked against its name and the repository.
///
/// # Errors
/// [`EngineError::Damaged`] when what lies there was read twice and is no such point; `Unsupported` when it is newer; the
/// volume's, which say nothing of what it is (P7).
pub(super) fn read(
    volume: &dyn Volume,
    repository: RepositoryId,
    name: &BlobName,
) -> Result<PointRecord, EngineError> {
    let once = || record::decode(&read_bytes(volume, name)?);
    let (point, record) = match once() {
        // What passes is no damage.
        Err(EngineError::Damaged(_)) => once()?,
        read => read?,
    };
    let told = PointName { backup: point.backup, revision: point.revision };
    if PointName::parse(name) != Some(told) {
        return Err(EngineError::Damaged(format!(
            "it says that it is revision {} of backup {}, which its name does not",
            point.revision, point.backup
        )));
    }
    if point.repository != repository {
        return Err(EngineError::Damaged(format!(
            "it belongs to repository {}, not to {repository}",
            point.repository
        )));
    }
    Ok(record)
}

/// Which repository a point belongs to.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_header(volume: &dyn Volume, name: &BlobName) -> Result<RepositoryId, EngineError> {
    let point = Point::decode(&read_bytes(volume, name)?);
    Ok(point.map_err(|error| EngineError::Damaged(error.to_string()))?.repository)
}

fn read_bytes(volume: &dyn Volume, name: &BlobName) -> Result<Vec<u8>, EngineError> {
    // Once more after an I/O error, which may pass.
    let bytes = match try_read(volume, name) {
        Err(VolumeError::Io { .. }) => try_read(volume, name),
        read => read,
    };
    match bytes {
        // (P7) What the disk does not give back now, it may give back the next time.
        Err(error) if error.proves_damage() => Err(EngineError::Damaged(error.to_string())),
        Ok(bytes) if bytes.is_empty() => {
            Err(EngineError::Damaged("it is empty, or too long for a point".into()))
        }
        read => Ok(read?),
    }
}

fn try_read(volume: &dyn Volume, name: &BlobName) -> Result<Vec<u8>, VolumeError> {
    let blob = volume.open(name)?;
    // (R3) Bounded before it is read.
    match usize::try_from(blob.len()) {
        Ok(len) if blob.len() <= POINT_MAX_BYTES => blob.read_vec(name, 0, len),
        _ => Ok(Vec::new()),
    }
}
