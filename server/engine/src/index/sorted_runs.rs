//! The set of sorted runs at one moment, the lookup through it, and the manifests that name it.
//!
//! Order (I1): new sorted runs durable → new manifest durable → older manifests removed → sorted runs it does not name
//! removed. So every manifest that exists names only runs that exist, whatever the moment of a crash, and an
//! older one may stand in for a newer one that is damaged.

use std::sync::Arc;

use holdfast_types::ids::RepositoryId;
use holdfast_volume::{BlobName, Volume, VolumeError, list_all};

use super::error::{IndexError, check_repository, twice};
use super::sorted_run::{FOLDER, SortedRun, sorted_run_name};
use crate::format::index_manifest::{MANIFEST_MAX_BYTES, Manifest, SortedRunRecord};
use crate::format::sorted_run::{SHARDS, ShardRange};
use crate::format::{check_equal, check_limit};

/// Immutable; every change makes a new one.
#[derive(Debug, Clone)]
pub(super) struct SortedRuns {
    /// Runs of all shards, newest first.
    pub(super) wide: Vec<Arc<SortedRun>>,
    /// Runs of each shard, newest first; all older than the wide ones.
    shards: Vec<Vec<Arc<SortedRun>>>,
    /// The most runs of any one shard.
    shard_depth: usize,
}

impl SortedRuns {
    /// Creates an empty set.
    pub(super) fn new() -> Self {
        Self { wide: Vec::new(), shards: vec![Vec::new(); usize::from(SHARDS)], shard_depth: 0 }
    }

    /// Creates a set from runs in the manifest's order.
    pub(super) fn from_runs(runs: Vec<SortedRun>) -> Self {
        let mut set = Self::new();
        for run in runs {
            set.list_mut(run.record.shards).push(Arc::new(run));
        }
        set.measured()
    }

    /// The runs of one shard that are not wide.
    pub(super) fn shard(&self, shard: usize) -> &[Arc<SortedRun>] {
        self.shards.get(shard).map(Vec::as_slice).unwrap_or_default()
    }

    fn list_mut(&mut self, shards: ShardRange) -> &mut Vec<Arc<SortedRun>> {
        match self.shards.get_mut(usize::from(shards.first())) {
            Some(list) if shards.count() == 1 => list,
            _ => &mut self.wide,
        }
    }

    /// Every run, in the manifest's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<SortedRun>> {
        self.wide.iter().chain(self.shards.iter().flatten())
    }

    /// Records of the runs, as the manifest keeps them.
    pub(super) fn records(&self) -> Vec<SortedRunRecord> {
        self.iter().map(|run| run.record).collect()
    }

    /// Replaces runs by others. A new run takes the place of the newest replaced run of its list, or comes
    /// first.
    pub(super) fn replace(&self, old: &[Arc<SortedRun>], new: &[Arc<SortedRun>]) -> Self {
        let gone = |run: &Arc<SortedRun>| old.iter().any(|other| other.record.run == run.record.run);
        let mut set = self.clone();
        for run in new {
            let list = set.list_mut(run.record.shards);
            let place = list.iter().position(gone).unwrap_or(0);
            list.insert(place, Arc::clone(run));
        }
        set.wide.retain(|run| !gone(run));
        for list in &mut set.shards {
            list.retain(|run| !gone(run));
        }
        set.measured()
    }

    fn measured(mut self) -> Self {
        self.shard_depth = self.shards.iter().map(Vec::len).max().unwrap_or(0);
        self
    }

    /// The most runs a lookup in any one shard may have to ask.
    pub(super) fn depth(&self) -> usize {
        self.wide.len() + self.shard_depth()
    }

    /// The most runs of any one shard, wide ones not counted.
    pub(super) fn shard_depth(&self) -> usize {
        self.shard_depth
    }
}

const MANIFEST: &str = "index manifest";

/// The blob of a manifest.
#[expect(clippy::expect_used, reason = "the text is made of hexadecimal digits only")]
pub(super) fn manifest_name(sequence: u64) -> BlobName {
    BlobName::new(format!("{FOLDER}/manifest-{sequence:016x}")).expect("a valid name")
}

/// The folder of the index.
#[expect(clippy::expect_used, reason = "a constant")]
fn folder() -> BlobName {
    BlobName::new(FOLDER).expect("a valid name")
}

/// Blobs in the folder of the index.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Sequence numbers, ascending.
    pub(super) manifests: Vec<u64>,
    /// Numbers of sorted runs, ascending.
    pub(super) runs: Vec<u64>,
}

impl Listing {
    /// Lists the folder; names it does not know are ignored.
    pub(super) fn read(volume: &dyn Volume) -> Result<Self, VolumeError> {
        let mut listing = Self::default();
        for entry in list_all(volume, &folder()) {
            let entry = entry?;
            let number = |prefix: &str| {
                let digits = entry.name.as_str().strip_prefix(FOLDER)?.strip_prefix(prefix)?;
                (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
            };
            if let Some(sequence) = number("/manifest-") {
                listing.manifests.push(sequence);
            } else if let Some(run) = number("/run-") {
                listing.runs.push(run);
            }
        }
        listing.manifests.sort_unstable();
        listing.runs.sort_unstable();
        Ok(listing)
    }
}

/// The highest readable manifest of the listing; `None` when there is none at all.
///
/// # Errors
/// The newest one's damage when none is readable; `Unsupported` and `OtherRepository` at once: going back to
/// an older manifest would undo what another program wrote.
pub(super) fn load(
    volume: &dyn Volume,
    listing: &Listing,
    repository: RepositoryId,
) -> Result<Option<Manifest>, IndexError> {
    let mut damage = None;
    for &sequence in listing.manifests.iter().rev() {
        match read(volume, sequence, repository) {
            Err(error) if error.needs_rebuild() => damage = damage.or(Some(error)),
            other => return other.map(Some),
        }
    }
    damage.map_or(Ok(None), Err)
}

fn read(volume: &dyn Volume, sequence: u64, repository: RepositoryId) -> Result<Manifest, IndexError> {
    let name = manifest_name(sequence);
    let in_blob = |source| IndexError::in_blob(&name, source);
    let reading = |error| IndexError::reading(&name, error);
    let blob = twice(|| volume.open(&name)).map_err(reading)?;
    let len = blob.len();
    check_limit(MANIFEST, "length", len, MANIFEST_MAX_BYTES).map_err(in_blob)?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    twice(|| blob.read_at(0, &mut bytes)).map_err(reading)?;
    let manifest = Manifest::decode(&bytes).map_err(in_blob)?;
    check_repository(MANIFEST, manifest.repository, repository).map_err(in_blob)?;
    check_equal(MANIFEST, "sequence number", manifest.sequence, sequence).map_err(in_blob)?;
    Ok(manifest)
}

/// Makes a manifest durable.
pub(super) fn store(volume: &dyn Volume, manifest: &Manifest) -> Result<(), IndexError> {
    let bytes = manifest.encode().map_err(IndexError::Manifest)?;
    let mut blob = volume.create(&manifest_name(manifest.sequence))?;
    blob.append(&bytes)?;
    Ok(blob.seal()?)
}

/// Removes blobs; one that is gone already is fine.
pub(super) fn remove(
    volume: &dyn Volume,
    names: impl IntoIterator<Item = BlobName>,
) -> Result<(), VolumeError> {
    for name in names {
        match volume.remove(&name) {
            Ok(()) | Err(VolumeError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes the whole index. Manifests first: what a crash leaves is sorted runs that nothing names.
pub(super) fn discard(volume: &dyn Volume) -> Result<(), VolumeError> {
    let listing = Listing::read(volume)?;
    remove(volume, listing.manifests.iter().map(|&sequence| manifest_name(sequence)))?;
    remove(volume, listing.runs.iter().map(|&run| sorted_run_name(run)))
}
