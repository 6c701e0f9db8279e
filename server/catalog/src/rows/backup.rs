//! Restore points, the runs and VMs they belong to, and how an attempt to make one is recorded.

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, JobId, NamespaceId, RunId, SessionId, VmId};

use super::{ContainerRecord, DetailRow, NamespaceRecord, RetentionLock};

/// A VM and how many restore points it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmRecord {
    pub id: VmId,
    pub namespace: NamespaceId,
    pub namespace_name: String,
    pub name: String,
    pub backups: u64,
    /// The restore point committed last.
    pub latest: Option<BackupId>,
    /// `None`: no backup of it was ever committed.
    pub owner: Option<String>,
}

/// One execution of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    pub id: RunId,
    pub namespace: NamespaceId,
    pub job_id: JobId,
    pub job: String,
    /// The owner whose token began it.
    pub owner: String,
    /// Start of its first session.
    pub started_ms: i64,
    /// End of its last session so far.
    pub finished_ms: i64,
}

/// One session's attempt to back up a VM, however it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub session: SessionId,
    /// Created by the first attempt that names it; later ones must be of the same namespace and job.
    pub run: RunId,
    pub namespace: NamespaceId,
    /// Names; the VM and the job are created when they are new.
    pub vm: String,
    pub job: String,
    pub client_host: String,
    /// Owner of the run. Later attempts that join the run must have the same.
    pub owner: String,
    /// Owner that the VM has, or gets with its first backup.
    pub vm_owner: String,
    /// Actor for the audit log: a token's name, or `engine` for what the engine did by itself.
    pub who: String,
    pub started_ms: i64,
    pub finished_ms: i64,
    /// A disk was smaller than in the restore point before, or gone, and the agent was told to go on.
    pub accepted_change: bool,
}

/// A backup to be made visible.
#[derive(Debug, Clone, PartialEq)]
pub struct BackupCommit {
    pub attempt: Attempt,
    /// Its commit number, above that of every backup there is; 0: the next one.
    pub number: u64,
    pub backup: BackupId,
    /// In the VM's order.
    pub disks: Vec<DiskRecord>,
    /// Names of disks of the VM that could not be read, so that the restore point is partial.
    pub missing_disks: Vec<String>,
    /// One a disk, in the same order, as a report will show them: status done, names and numbers of this
    /// attempt.
    pub details: Vec<DetailRow>,
    /// Every container this session sealed.
    pub containers: Vec<ContainerRecord>,
    /// Lock of its point. Where a policy asks for more by now, the row gets that.
    pub lock: RetentionLock,
}

/// A restore point with all that a catalog without it needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct PointRecord {
    /// Its commit number; rises within a VM.
    pub number: u64,
    /// Created when there is none of its id.
    pub namespace: NamespaceRecord,
    pub attempt: Attempt,
    pub backup: BackupId,
    /// The restore point it was compared with, where that is known.
    pub parent: Option<BackupId>,
    /// In the VM's order.
    pub disks: Vec<DiskRecord>,
    /// Disks of the VM that could not be read.
    pub missing_disks: Vec<String>,
    /// One a disk, in the same order.
    pub details: Vec<DetailRow>,
    /// Every container the repository had when it was made has a number below this.
    pub next_container: u64,
    /// From 1 on. Read from the catalog: the revision that says what this record says.
    pub revision: u32,
    pub lock: RetentionLock,
    /// Time of the lock clock when it was written.
    pub lock_time_ms: Option<i64>,
}

/// State of the repository's commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitState {
    /// The highest commit number recorded; 0: none.
    pub last: u64,
    /// Set if every backup is known to have its point on the volume.
    pub points_written: bool,
    /// The lowest container number never handed out.
    pub next_container: u64,
    /// Number of times that deletions of restore points or containers were begun.
    pub generation: u64,
}

/// An attempt no backup came of.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedRun {
    pub attempt: Attempt,
    /// One a disk: status failed, aborted or expired, and why.
    pub details: Vec<DetailRow>,
    /// Every container this session sealed: what is in them still serves others.
    pub containers: Vec<ContainerRecord>,
}

/// A disk of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskRecord {
    pub name: String,
    pub size_bytes: u64,
    /// Bytes without holes and zeros.
    pub data_bytes: u64,
    pub extent_count: u64,
    /// The recipe's root; all zero for a disk of zeros only.
    pub root: Fingerprint,
}

/// A restore point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupRecord {
    pub id: BackupId,
    pub session: SessionId,
    pub namespace: NamespaceId,
    pub namespace_name: String,
    pub vm_id: VmId,
    pub vm: String,
    pub job: String,
    pub run: RunId,
    /// Its commit number, which orders the restore points of a VM whatever the clocks did.
    pub ordinal: u64,
    pub client_host: String,
    /// The VM's owner when it was committed: whose claims its extent digests are.
    pub owner: String,
    pub started_ms: i64,
    pub finished_ms: i64,
    /// In the VM's order.
    pub disks: Vec<DiskRecord>,
    /// Names of disks of the VM that could not be read for it; empty for a complete restore point.
    pub missing_disks: Vec<String>,
    /// As [`Attempt::accepted_change`].
    pub accepted_change: bool,
    /// Lock and hold that keep it from being deleted.
    pub lock: RetentionLock,
}

/// The root of a disk's recipe, for walks over everything that is referenced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootRecord {
    pub backup: BackupId,
    /// Index of the disk in the backup.
    pub position: u32,
    pub disk: String,
    pub size_bytes: u64,
    pub root: Fingerprint,
}

/// Filter of backups. Everything given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BackupFilter {
    /// `None`: all; an empty list: none.
    pub namespaces: Option<Vec<NamespaceId>>,
    pub vm: Option<String>,
    pub job: Option<String>,
    /// Started at or after. Pages go on where the last one ended even when this or the next has moved: "the
    /// last seven days" are others with every call.
    pub since_ms: Option<i64>,
    /// Started before.
    pub until_ms: Option<i64>,
}

/// Result of reading a restore point back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    pub backup: BackupId,
    pub at_ms: i64,
    /// A token's name.
    pub who: String,
    /// Set if an agent read it, which can see what is end-to-end encrypted; otherwise the server did.
    pub by_agent: bool,
    pub ok: bool,
    /// Data that was read, or the damage; clipped as every text written by others.
    pub detail: String,
}

/// Times at which agents last read a restore point and found it sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentsProof {
    pub backup: BackupId,
    /// Set if only agents can prove its content.
    pub end_to_end: bool,
    /// Proof of all of this restore point; `None`: not yet.
    pub point_ms: Option<i64>,
    /// Proof of all of any restore point of its VM, be it gone.
    pub vm_ms: Option<i64>,
}

/// Proofs by agents of a namespace that is end-to-end encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentsProofs {
    pub namespace: NamespaceId,
    pub name: String,
    /// VMs with restore points.
    pub vms: u64,
    /// VMs of which no agent has ever verified a restore point.
    pub never: u64,
    /// Verification of the VM that waits longest; `None`: none ever was verified.
    pub oldest_ms: Option<i64>,
    /// As `oldest_ms`, where a VM that never was verified counts from its first restore point.
    pub unproved_since_ms: i64,
}
