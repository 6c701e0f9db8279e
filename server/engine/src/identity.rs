//! The identity of a volume: a small blob that says whose containers it holds.
//!
//! Without it an empty folder below a mount point looks like a repository that has lost everything. It is
//! written when a repository is created, and by a start that finds containers of the repository without it.

use std::num::NonZeroUsize;

use holdfast_catalog::Catalog;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::{BlobName, Volume, VolumeError};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::container::{ContainerName, OpenContainer};
use crate::error::EngineError;
use crate::format::crc32c;

const MAGIC: u32 = u32::from_le_bytes(*b"HFRV");
const VERSION: u16 = 1;
/// The volume holds containers.
const ROLE_CONTAINERS: u16 = 1;
const BYTES: usize = size_of::<Raw>();
const CRC_AT: usize = BYTES - size_of::<u32>();

/// Containers opened at most to see whose a volume without mark is.
const SAMPLE: NonZeroUsize = NonZeroUsize::new(64).unwrap();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    version: U16,
    role: U16,
    repository: [u8; 16],
    zero: [u8; 36],
    crc: U32,
}

/// Result of reading a volume's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Of(RepositoryId),
    Missing,
    Damaged,
    Newer(u16),
}

#[expect(clippy::expect_used, reason = "a constant")]
fn name() -> BlobName {
    BlobName::new("repository").expect("a valid name")
}

fn encode(repository: RepositoryId) -> [u8; BYTES] {
    let raw = Raw {
        magic: U32::new(MAGIC),
        version: U16::new(VERSION),
        role: U16::new(ROLE_CONTAINERS),
        repository: repository.to_bytes(),
        zero: [0; 36],
        crc: U32::ZERO,
    };
    let mut bytes: [u8; BYTES] = zerocopy::transmute!(raw);
    let (body, crc) = bytes.split_at_mut(CRC_AT);
    crc.copy_from_slice(&crc32c(body).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Mark {
    let Ok(bytes): Result<&[u8; BYTES], _> = bytes.try_into() else { return Mark::Damaged };
    let raw: &Raw = zerocopy::transmute_ref!(bytes);
    let body = bytes.get(..CRC_AT).unwrap_or_default();
    if raw.magic.get() != MAGIC || raw.crc.get() != crc32c(body) {
        return Mark::Damaged;
    }
    match (raw.version.get(), raw.role.get()) {
        (VERSION, ROLE_CONTAINERS) => Mark::Of(RepositoryId::from_bytes(raw.repository)),
        (VERSION, _) => Mark::Damaged,
        (newer, _) => Mark::Newer(newer),
    }
}

fn read(volume: &dyn Volume) -> Result<Mark, VolumeError> {
    let name = name();
    let bytes = volume.open(&name).and_then(|blob| match blob.len() {
        // (R3) Bounded before it is read.
        len if len == BYTES as u64 => blob.read_vec(&name, 0, BYTES),
        _ => Ok(Vec::new()),
    });
    match bytes {
        Ok(bytes) => Ok(decode(&bytes)),
        Err(VolumeError::NotFound { .. }) => Ok(Mark::Missing),
        // A bad sector is no reason not to start: the containers say whose the volume is.
        Err(VolumeError::Io { .. } | VolumeError::OutOfRange { .. }) => Ok(Mark::Damaged),
        Err(error) => Err(error),
    }
}

fn write(volume: &dyn Volume, repository: RepositoryId) -> Result<(), VolumeError> {
    match volume.remove(&name()) {
        Ok(()) | Err(VolumeError::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut blob = volume.create(&name())?;
    blob.append(&encode(repository))?;
    blob.seal()
}

/// Describes the mark of a volume in words; `None`: it has none.
///
/// # Errors
/// When the volume cannot be asked.
pub(crate) fn describe(volume: &dyn Volume) -> Result<Option<String>, EngineError> {
    Ok(match read(volume)? {
        Mark::Of(repository) => Some(format!("repository {repository}")),
        Mark::Missing => None,
        Mark::Damaged => Some("a repository whose mark is damaged".to_owned()),
        Mark::Newer(_) => Some("a repository of a newer version".to_owned()),
    })
}

/// The repository that a volume's mark names; `None`: it has no mark that can be read.
///
/// # Errors
/// [`EngineError::Unsupported`] when a newer version wrote the mark; the volume's.
pub(crate) fn marked(volume: &dyn Volume) -> Result<Option<RepositoryId>, EngineError> {
    match read(volume)? {
        Mark::Of(repository) => Ok(Some(repository)),
        Mark::Missing | Mark::Damaged => Ok(None),
        Mark::Newer(version) => Err(EngineError::Unsupported(format!(
            "the mark {} has version {version}; this build knows version {VERSION}",
            name()
        ))),
    }
}

/// Checks by its mark that the volume is present and belongs to this repository. A damaged mark proves nothing. (S3)
/// Blobs in the bucket do not prove that a file system is mounted here.
///
/// # Errors
/// The reason, in words for people.
pub(crate) fn is_present(volume: &dyn Volume, repository: RepositoryId) -> Result<(), String> {
    let here = volume.here();
    match read(here.as_deref().unwrap_or(volume)) {
        Ok(Mark::Of(found)) if found == repository => Ok(()),
        Ok(Mark::Damaged) => Ok(()),
        Ok(Mark::Of(found)) => Err(format!("it belongs to repository {found}, not to {repository}")),
        Ok(Mark::Missing) => Err(format!("{} is missing; is the file system mounted?", name())),
        Ok(Mark::Newer(version)) => {
            Err(format!("{} has version {version}, which is newer than this build", name()))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Makes sure that the volume at `location` is this repository's, and marks it when it has no mark yet.
///
/// # Errors
/// [`EngineError::Damaged`] when it is not, `Unsupported` when a newer version marked it; the volume's.
pub(crate) fn ensure(
    volume: &dyn Volume,
    catalog: &Catalog,
    repository: RepositoryId,
    location: &str,
    accept_loss: bool,
) -> Result<(), EngineError> {
    // (S3) The copies in a bucket are there whether the file system is mounted here or not.
    let near = volume.here();
    let here = near.as_deref().unwrap_or(volume);
    let what = match read(here)? {
        Mark::Of(found) if found == repository => return Ok(()),
        Mark::Of(found) => {
            return Err(EngineError::Damaged(format!(
                "{location} belongs to repository {found}, and the catalog to repository {repository}: see that the right file system is mounted there and that catalog.db is the one beside it, then start again; nothing was changed"
            )));
        }
        Mark::Newer(version) => {
            return Err(EngineError::Unsupported(format!(
                "{location}/{} has version {version}; this build knows version {VERSION}",
                name()
            )));
        }
        Mark::Missing => "is missing",
        Mark::Damaged => "is damaged",
    };
    if !accept_loss && !is_ours(here, catalog, repository)? {
        return Err(EngineError::Damaged(format!(
            "{location} does not hold the containers of repository {repository}: the file {location}/{} {what}, and no container of this repository is there, though the catalog knows some; is the file system mounted? Mount it (or put the files back) and start again; nothing was changed. If the containers are lost for good, run `holdfast-server check --accept-loss`",
            name()
        )));
    }
    // One that lies far away already is the same, and stays.
    let is_far = near.is_some() && matches!(read(volume), Ok(Mark::Of(found)) if found == repository);
    match write(if is_far { here } else { volume }, repository) {
        Ok(()) => tracing::info!(location, %repository, "marked the volume as this repository's"),
        // Stored data can be read without the mark; the next start tries again.
        Err(error) if error.is_full() => tracing::warn!(location, %error, "cannot mark the volume"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Returns true if a volume without a mark holds containers of this repository, or if the catalog knows of none that it
/// should hold.
#[expect(clippy::expect_used, reason = "a constant")]
fn is_ours(volume: &dyn Volume, catalog: &Catalog, repository: RepositoryId) -> Result<bool, EngineError> {
    let folder = BlobName::new("containers").expect("a valid name");
    let page = volume.list(&folder, None, SAMPLE)?;
    if page.entries.is_empty() {
        return Ok(catalog.containers(None, 1)?.is_empty());
    }
    let names = page.entries.iter().filter_map(|entry| ContainerName::parse(&entry.name));
    Ok(names
        .into_iter()
        .any(|ContainerName { id, class }| OpenContainer::open(volume, repository, id, class).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ulid::Ulid;

    const REPOSITORY: RepositoryId = RepositoryId(Ulid(7));

    #[test]
    fn its_bytes_are_these() {
        let mut golden = b"HFRV\x01\0\x01\0".to_vec();
        golden.extend([0; 15]);
        golden.push(7);
        golden.extend([0; 36]);
        golden.extend(crc32c(&golden).to_le_bytes());
        assert_eq!(encode(REPOSITORY).as_slice(), golden);
        assert_eq!(golden.len(), 64);
        assert_eq!(decode(&golden), Mark::Of(REPOSITORY));
    }

    #[test]
    fn no_changed_byte_is_believed() {
        let bytes = encode(REPOSITORY);
        for at in 0..bytes.len() {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert_eq!(decode(&changed), Mark::Damaged, "byte {at}");
        }
        assert_eq!(decode(&bytes[..63]), Mark::Damaged);
        let mut newer = bytes;
        newer[4] = 2;
        let crc = crc32c(&newer[..CRC_AT]);
        newer[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&newer), Mark::Newer(2));
    }
}
