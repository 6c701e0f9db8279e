//! Scrub results: times at which data was proved sound, and lost ranges of restore points.

use holdfast_types::ids::{BackupId, ContainerId, NamespaceId, VmId};

/// Phase of a pass of the scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScrubPhase {
    /// No pass is in progress.
    #[default]
    Idle,
    /// Reading containers.
    Containers,
    /// Comparing extents of restore points with their digests.
    RestorePoints,
}

/// Progress of the scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrubState {
    /// Passes begun so far.
    pub pass: u64,
    pub phase: ScrubPhase,
    /// Start of the pass.
    pub began_ms: i64,
    /// End of the last whole pass.
    pub ended_ms: Option<i64>,
    /// Containers below this number are done.
    pub container: u64,
    /// Containers from this number on are for the next pass.
    pub end: u64,
    /// The restore point done last, by VM and commit number.
    pub after: Option<(VmId, u64)>,
    /// The restore point that is being read.
    pub within: Option<WithinBackup>,
    /// Containers, or restore points, done in this phase.
    pub done: u64,
}

/// A position within a restore point: everything before it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WithinBackup {
    pub backup: BackupId,
    /// The disk's index.
    pub disk: u32,
    pub extent: u64,
    /// Set while nothing was found wrong.
    pub sound: bool,
}

/// Containers and backups proved sound since the last time, and the scrub's progress.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scrubbed {
    /// Time at which each was read.
    pub containers: Vec<(ContainerId, i64)>,
    pub backups: Vec<(BackupId, i64)>,
    pub state: ScrubState,
}

/// A restore point in the order of the scrub: by VM, then by commit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupInOrder {
    pub backup: BackupId,
    pub vm: VmId,
    pub number: u64,
    /// The restore point before it of the same VM, and when that last proved sound.
    pub before: Option<(BackupId, Option<i64>)>,
}

/// Amount proved sound, and the oldest proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProofSummary {
    pub containers: u64,
    /// Containers never read again since they were written.
    pub containers_unproven: u64,
    /// Time of the oldest read of a container; one never read counts from when it was written. `None`: there is none.
    pub oldest_container_ms: Option<i64>,
    pub backups: u64,
    /// Restore points never compared with their digests.
    pub backups_unproven: u64,
    /// As `oldest_container_ms`, of restore points.
    pub oldest_backup_ms: Option<i64>,
}

/// Bytes of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    pub start: u64,
    pub bytes: u64,
}

/// Ranges of one disk of a restore point that cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRanges {
    /// The disk's index in the restore point.
    pub position: u32,
    /// Bytes lost in all, and the number of ranges they are in.
    pub bytes: u64,
    pub ranges: u64,
    /// The first of them, at most [`LISTED_RANGES_MAX`](crate::LISTED_RANGES_MAX), in the order of the disk.
    pub listed: Vec<ByteRange>,
}

/// A disk of a restore point that lacks something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedDisk {
    pub backup: BackupId,
    pub namespace: NamespaceId,
    pub namespace_name: String,
    pub vm: String,
    /// Start of the restore point.
    pub started_ms: i64,
    pub disk: String,
    pub found_ms: i64,
    pub lost: LostRanges,
}

/// Restore points that lack something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DamageTotals {
    pub restore_points: u64,
    pub disks: u64,
    pub bytes: u64,
}
