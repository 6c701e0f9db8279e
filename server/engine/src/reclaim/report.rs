//! The options of a round, its report and steps, and what deleting restore points would free.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_types::ids::{BackupId, NamespaceId};

use super::control::Control;
use super::live::{Candidates, WINDOW_BYTES, is_live_data};
use super::mark::{Taken, only_in};
use super::roots::{Root, Roots};
use crate::core::Core;
use crate::error::EngineError;

/// Containers of which less than this is live are copied forward, in percent. To free a byte of a container of which
/// the share s is live, s/(1-s) bytes are written: at 85 %, six.
const LIVE_SHARE_PCT: u8 = 85;

/// Bytes a round may write for each byte it frees, all in all. A round that frees much of what is wholly dead can afford
/// to take more of what is dead here and there: on the benchmark's disks 97 % of what is dead came back instead of 88 %.
/// One that finds a hundredth of everything dead, all over the repository, does not rewrite it for that.
pub const COPIED_PER_FREED: u8 = 3;

/// Options of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReclaimOptions {
    /// Containers of which less than this is live, in percent, are copied forward; 0: only what is wholly dead goes.
    pub live_share_pct: u8,
    /// Limit of bytes written for each byte freed, up to which containers above that share are copied forward too, the
    /// sparsest first.
    pub copied_per_freed: u8,
    /// True if small containers are merged.
    pub merge: bool,
    /// Recompresses old containers.
    pub squeeze: Option<Squeeze>,
    /// Gives up local copies of what only old restore points need, where there are others far away.
    pub moving: Option<Moving>,
    /// Moves containers that are only in the bucket to an archive.
    pub freezing: Option<Freezing>,
    /// Reports what a round would do, and changes nothing.
    pub dry_run: bool,
}

/// Selection of containers to recompress, and the level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Squeeze {
    /// Compression level of zstd.
    pub level: i32,
    /// Containers that were made at least so long ago.
    pub min_age_days: u32,
}

/// Selection of containers to remove from the local volume, so that only the bucket has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moving {
    /// Age below which a restore point keeps the containers it needs.
    pub min_age_days: u32,
    /// While less than this share of the volume is free, in percent.
    pub until_free_pct: u8,
}

/// Selection of containers to move to an archive: those only in the bucket that no restore point needs that is younger
/// than its minimum age.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freezing {
    /// Minimum age of restore points that no rule is about.
    pub min_age_days: u32,
    /// The first that covers a restore point counts.
    pub rules: Vec<FreezingRule>,
    /// Restore points that will be deleted so soon that the archive is not worth it: what no other needs stays.
    pub leaving: Arc<HashSet<BackupId>>,
}

/// The days of some restore points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreezingRule {
    pub namespace: NamespaceId,
    /// `None`: of every VM.
    pub vm: Option<String>,
    /// `None`: of every job.
    pub job: Option<String>,
    /// `None`: as of those that no rule is about.
    pub min_age_days: Option<u32>,
}

impl Default for ReclaimOptions {
    fn default() -> Self {
        Self {
            live_share_pct: LIVE_SHARE_PCT,
            copied_per_freed: COPIED_PER_FREED,
            merge: true,
            squeeze: None,
            moving: None,
            freezing: None,
            dry_run: false,
        }
    }
}

/// Results of a round. Bytes are those of container files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReclaimReport {
    /// Containers looked at.
    pub containers: u64,
    /// Bytes that no restore point needs, in containers that were looked at: to the byte.
    pub dead_bytes: u64,
    /// Dead bytes that the round was to free: wholly dead containers, and the dead part of those to be copied forward.
    pub cleanable_bytes: u64,
    /// Bytes deleted, less those written.
    pub freed_bytes: u64,
    /// Bytes in containers that were deleted.
    pub deleted_bytes: u64,
    /// Bytes written into new containers.
    pub copied_bytes: u64,
    pub containers_deleted: u64,
    pub containers_written: u64,
    /// Containers that stayed because a backup in progress found something in them that is dead otherwise.
    pub containers_held: u64,
    /// Small containers that were merged.
    pub small_merged: u64,
    /// Bytes of containers that were recompressed, without dead ones.
    pub squeezed_bytes_before: u64,
    pub squeezed_bytes_after: u64,
    /// Containers that lie far away alone now, and their bytes.
    pub moved_containers: u64,
    pub moved_bytes: u64,
    /// Reason for which no more were moved, if something failed.
    pub moving_failed: Option<String>,
    /// Containers that lie in an archive now, and their bytes.
    pub frozen_containers: u64,
    pub frozen_bytes: u64,
    /// Containers that stayed because only restore points need them that will be deleted soon, and their bytes.
    pub kept_back_containers: u64,
    pub kept_back_bytes: u64,
    /// Containers with which something is wrong where they lie.
    pub unfrozen_containers: u64,
    /// Reason for which no more were moved to the archive, if something failed.
    pub freezing_failed: Option<String>,
    /// References to chunks that were followed.
    pub references: u64,
    pub marked_ms: u64,
    /// Reasons for which containers stayed that may be dead.
    pub incomplete: Vec<Incomplete>,
}

/// A reference that could not be followed: nothing of its namespace was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incomplete {
    pub namespace: NamespaceId,
    /// The restore point that leads there.
    pub backup: Option<BackupId>,
    /// Empty when the restore point has gone since.
    pub vm: String,
    pub disk: String,
    pub reason: String,
}

/// Bytes that only some restore points refer to. Each chunk counts with its part of what its container takes, such that the
/// chunks of a container add up to the length of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// Chunks of disks.
    pub data_bytes: u64,
    /// Recipe nodes.
    pub recipe_bytes: u64,
    /// True if everything was followed. Otherwise something of other restore points cannot be read, which may need
    /// some of this, too.
    pub is_exact: bool,
}

impl Freed {
    /// Sum of both.
    pub const fn total_bytes(&self) -> u64 {
        self.data_bytes + self.recipe_bytes
    }
}

/// See [`Engine::freed_by_deleting`](crate::Engine::freed_by_deleting).
pub(crate) fn freed_by_deleting(
    core: &Core,
    backups: &[BackupId],
    control: &Control,
) -> Result<Freed, EngineError> {
    freed_in_windows(core, backups, control, WINDOW_BYTES)
}

pub(super) fn freed_in_windows(
    core: &Core,
    backups: &[BackupId],
    control: &Control,
    window_bytes: u64,
) -> Result<Freed, EngineError> {
    let mut namespaces = HashSet::new();
    for id in backups {
        let not_found = || EngineError::NotFound { what: "backup", name: id.to_string() };
        namespaces.insert(core.catalog.backup(*id)?.ok_or_else(not_found)?.namespace);
    }
    let chosen: HashSet<BackupId> = backups.iter().copied().collect();
    // Namespaces share nothing.
    let (roots, _) = Roots::load(core)?.split(|root: &Root| namespaces.contains(&root.namespace));
    let (theirs, others) = roots.split(|root| chosen.contains(&root.backup));
    let mut freed = Freed { data_bytes: 0, recipe_bytes: 0, is_exact: true };
    let mut after = None;
    loop {
        let window = Candidates::window(&core.catalog, after, window_bytes, |row| {
            is_live_data(row) && namespaces.contains(&row.namespace)
        })?;
        let (candidates, last) = match (window, after) {
            (Some((candidates, last)), _) => (candidates, Some(last)),
            // Recipes alone.
            (None, None) => (Candidates::default(), None),
            (None, Some(_)) => return Ok(freed),
        };
        let (Taken { data_bytes, recipe_bytes }, marked) =
            only_in(core, &theirs, &others, &candidates, control)?;
        freed.data_bytes += data_bytes;
        // The same in every window.
        freed.recipe_bytes = recipe_bytes;
        freed.is_exact &= marked.incomplete.is_empty();
        if last.is_none() {
            return Ok(freed);
        }
        after = last;
    }
}

/// Steps of a round, for tests that act in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundStep {
    /// Chunks that sessions hold are kept, and their containers are known.
    Begun,
    /// The containers that are looked at are known.
    Listed,
    /// The roots are known.
    Rooted,
    Marked,
    /// Copies are in the index.
    Copied,
    /// The catalog has condemned containers.
    Condemned,
    Deleted,
}

impl RoundStep {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] =
        [Self::Begun, Self::Listed, Self::Rooted, Self::Marked, Self::Copied, Self::Condemned, Self::Deleted];
}

/// Told of each step.
pub(crate) type Watch<'a> = &'a (dyn Fn(RoundStep) + Send + Sync);
