//! Where the revisions of points lie, found with as little listing as is sure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use holdfast_types::ids::BackupId;
use holdfast_volume::{BlobName, Volume, list_all};

use super::name::{PointName, folder};
use crate::error::EngineError;

/// A restore point, and where its point is if nothing unusual happened.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) backup: BackupId,
    /// The folder that its names say.
    pub(super) folder: BlobName,
    /// The revision on record.
    pub(super) revision: u32,
    /// There may be others elsewhere: it was being sealed anew.
    pub(super) scattered: bool,
}

/// Every revision of these restore points' points, in no particular order. A folder is listed once; when what is
/// expected is not where it is expected, all folders are.
///
/// # Errors
/// When the volume cannot be listed.
pub(super) fn revisions(
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
pub(super) fn all_of(
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

/// How many revisions each restore point has on the volume, and the highest of them.
///
/// # Errors
/// When the volume cannot be listed.
pub(super) fn count(volume: &dyn Volume) -> Result<HashMap<BackupId, (u32, u32)>, EngineError> {
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
