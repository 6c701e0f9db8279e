//! Points: what the volume itself knows of each restore point, so that the catalog is a copy of it and never the only
//! one.
//!
//! Read in this order: [`record`] (what a point says) → this file (where points and their revisions lie, sealing and
//! reading one) → [`change`] (points that change, and points that go) → [`compare`] (catalog against volume, at a start)
//! → [`lost`](mod@lost) (rows that got lost, points that are given up) → [`renames`] (names of an older catalog) → [`job`]
//! (points of restore points that have none) → [`verify`] (for `check`).
//!
//! Invariants:
//! - **The point is the commit** (P1): everything it refers to is durable before it is sealed, and the catalog's
//!   transaction follows it (P2). A crash between the two leaves a whole restore point, which the next start enters.
//! - **A point without a row is a backup to be entered, never one to be forgotten** (P3). What deletes restore points
//!   marks the row first, then removes the point, then drops the row.
//! - A point never changes. What it says can be sealed again under the next revision (L5); the highest readable one
//!   counts.
//! - A restore point that is being deleted has no row and no point that counts, wherever a crash came (L1).
//!
//! Where a point lies: `points/NAMESPACE/VM/BACKUP.REVISION`.
//!
//! Namespaces and VMs are called what people like, which may be a secret that names of files do not keep where
//! everything else is encrypted. So each folder is a hash: of the namespace's id, and of that and the VM's name. (Who
//! guesses a name can tell that he is right.) What counts is in the point, and the last part of the name: the folders
//! are only places, and those of earlier versions, which show names, are as good.

mod change;
mod compare;
mod job;
mod lost;
mod record;
mod renames;
mod verify;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use holdfast_catalog::{NamespaceRecord, PointRecord};
use holdfast_types::ids::{BackupId, NamespaceId, RepositoryId};
use holdfast_volume::{BlobName, Owner, Volume, VolumeError, list_all};

use crate::error::EngineError;
use crate::format::point::{POINT_MAX_BYTES, Point};

pub(crate) use change::{Ahead, finish_deletions, reseal, reseal_stale, seal_ahead, settle, unseal};
pub(crate) use compare::{Between, compare};
pub use compare::{Comparison, EnteredPoint, PointProblem};
pub(crate) use job::{MissingPoints, PointsJob, look_again, note_found, record_rest};
pub(crate) use lost::{enter_again, give_up, lacks_rows, listed, lost};
pub(crate) use record::encode;
pub(crate) use renames::OldFoldersJob;
pub(crate) use verify::verify;

/// Hex digits of a folder.
const FOLDER_DIGITS: usize = 32;

/// A restore point's revision, as a name tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PointName {
    pub(crate) backup: BackupId,
    pub(crate) revision: u32,
}

/// The folder of all points.
#[expect(clippy::expect_used, reason = "a constant")]
pub(crate) fn folder() -> BlobName {
    BlobName::new("points").expect("a valid name")
}

/// Returns true if all folders below that of all points, which `name` is in or is, are hashes; those of earlier versions show names.
fn is_hashed(name: &BlobName) -> bool {
    let is_hash = |part: &str| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        part.len() == FOLDER_DIGITS && part.bytes().all(is_digit)
    };
    name.as_str().split('/').skip(1).take(2).all(is_hash)
}

impl PointName {
    /// `None` when it is no point's name.
    pub(crate) fn parse(name: &BlobName) -> Option<Self> {
        let mut parts = name.as_str().split('/');
        let (Some("points"), Some(_), Some(_), Some(last), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let (backup, revision) = last.split_once('.')?;
        let backup: BackupId = backup.to_ascii_uppercase().parse().ok()?;
        let revision = revision.parse().ok().filter(|revision| *revision > 0)?;
        // Other ways of writing the same are no names of points.
        let found = Self { backup, revision };
        (found.last() == last).then_some(found)
    }

    fn last(self) -> String {
        format!("{}.{}", self.backup.to_string().to_ascii_lowercase(), self.revision)
    }

    /// The whole name: 7 + 2 × 33 + 26 + 11 bytes at most, well below a blob name's 200.
    #[expect(clippy::expect_used, reason = "made of what a name may have")]
    pub(crate) fn blob(self, point: &PointRecord) -> BlobName {
        let folder = vm_folder(&point.namespace, &point.attempt.vm);
        BlobName::new(format!("{folder}/{}", self.last())).expect("a valid name")
    }
}

/// The folder of a VM's points.
#[expect(clippy::expect_used, reason = "made of what a name may have")]
pub(crate) fn vm_folder(namespace: &NamespaceRecord, vm: &str) -> BlobName {
    let namespace = namespace.id.to_bytes();
    let of_namespace = digits(&[&namespace]);
    let of_vm = digits(&[&namespace, vm.as_bytes()]);
    BlobName::new(format!("points/{of_namespace}/{of_vm}")).expect("a valid name")
}

fn digits(identity: &[&[u8]]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in identity {
        hasher.update(part);
    }
    hasher.finalize().to_hex().chars().take(FOLDER_DIGITS).collect()
}

/// A restore point, and where its point is if nothing unusual happened.
#[derive(Debug, Clone)]
struct Expected {
    backup: BackupId,
    /// The folder that its names say.
    folder: BlobName,
    /// The revision on record.
    revision: u32,
    /// Set if there may be others elsewhere: it was being sealed anew.
    scattered: bool,
}

/// Every revision of these restore points' points, in no particular order. A folder is listed once; when what is
/// expected is not where it is expected, all folders are.
///
/// # Errors
/// When the volume cannot be listed.
fn revisions(
    volume: &dyn Volume,
    expected: &[Expected],
) -> Result<BTreeMap<BackupId, Vec<(u32, BlobName)>>, EngineError> {
    let asked: HashSet<BackupId> = expected.iter().map(|one| one.backup).collect();
    let folders: BTreeSet<&BlobName> = expected.iter().map(|one| &one.folder).collect();
    let scattered = expected.iter().any(|one| one.scattered);
    let mut found = BTreeMap::new();
    if !scattered {
        for folder in folders {
            collect(volume, folder, &asked, &mut found)?;
        }
    }
    let is_found = |one: &Expected| {
        found.get(&one.backup).is_some_and(|names: &Vec<(u32, BlobName)>| {
            names.iter().any(|(revision, _)| *revision == one.revision)
        })
    };
    if scattered || !expected.iter().all(is_found) {
        found.clear();
        collect(volume, &folder(), &asked, &mut found)?;
    }
    Ok(found)
}

fn collect(
    volume: &dyn Volume,
    folder: &BlobName,
    asked: &HashSet<BackupId>,
    found: &mut BTreeMap<BackupId, Vec<(u32, BlobName)>>,
) -> Result<(), EngineError> {
    for entry in list_all(volume, folder) {
        let entry = entry?;
        if let Some(name) = PointName::parse(&entry.name)
            && asked.contains(&name.backup)
        {
            found.entry(name.backup).or_default().push((name.revision, entry.name));
        }
    }
    Ok(())
}

/// Every revision of these restore points' points, wherever they lie, the highest first.
///
/// # Errors
/// When the volume cannot be listed.
fn all_of(
    volume: &dyn Volume,
    asked: &HashSet<BackupId>,
) -> Result<BTreeMap<BackupId, Vec<(u32, BlobName)>>, EngineError> {
    let mut found = BTreeMap::new();
    collect(volume, &folder(), asked, &mut found)?;
    for names in found.values_mut() {
        names.sort_unstable_by(|a, b| b.cmp(a));
    }
    Ok(found)
}

/// Number of revisions of each restore point on the volume, and the highest of them.
///
/// # Errors
/// When the volume cannot be listed.
fn count(volume: &dyn Volume) -> Result<HashMap<BackupId, (u32, u32)>, EngineError> {
    let mut counts: HashMap<BackupId, (u32, u32)> = HashMap::new();
    for entry in list_all(volume, &folder()) {
        let entry = entry?;
        match PointName::parse(&entry.name) {
            Some(name) => {
                let (count, highest) = counts.entry(name.backup).or_default();
                *count += 1;
                *highest = (*highest).max(name.revision);
            }
            None => tracing::warn!(name = %entry.name, "ignored an unexpected file among the points"),
        }
    }
    Ok(counts)
}

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
fn read(volume: &dyn Volume, repository: RepositoryId, name: &BlobName) -> Result<PointRecord, EngineError> {
    let once = || record::decode(&read_bytes(volume, name)?);
    let (point, record) = match once() {
        // A transient failure is no damage.
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

/// Repository that a point belongs to.
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
        // (P7) Bytes that the disk does not return now, it may return the next time.
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

#[cfg(test)]
mod tests;
