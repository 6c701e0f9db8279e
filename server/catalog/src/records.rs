//! What the catalog holds, as structs. Times are milliseconds since the Unix epoch.

use holdfast_proto::v1::RowStatus;
use holdfast_proto::{Fingerprint, v1};
use holdfast_types::ids::{
    BackupId, ContainerClass, ContainerId, JobId, NamespaceId, RepositoryId, RunId, SessionId, VmId,
};
use ulid::Ulid;

/// The repository itself.
#[derive(Debug, Clone, PartialEq)]
pub struct RepositoryRecord {
    pub id: RepositoryId,
    pub created_ms: i64,
    /// See [`REPOSITORY_FORMAT`](super::REPOSITORY_FORMAT).
    pub format_version: u32,
    /// How extents are cut, for ever.
    pub chunker: v1::ChunkerParams,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceRecord {
    pub id: NamespaceId,
    pub name: String,
    pub created_ms: i64,
}

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
}

/// One execution of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    pub id: RunId,
    pub namespace: NamespaceId,
    pub job_id: JobId,
    pub job: String,
    /// When its first session began.
    pub started_ms: i64,
    /// When its last session so far ended.
    pub finished_ms: i64,
}

/// Whether a container may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerState {
    Live,
    /// Unusable as a whole. A container with damaged regions only stays live.
    Damaged,
    /// Being deleted: readers must not rely on it any more.
    Condemned,
}

/// A sealed container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRecord {
    pub id: ContainerId,
    pub class: ContainerClass,
    pub namespace: NamespaceId,
    /// Its file, headers and directory included.
    pub stored_bytes: u64,
    /// Chunks (or recipe nodes) in it, uncompressed.
    pub plain_bytes: u64,
    pub chunk_count: u64,
    pub created_ms: i64,
    /// The run that wrote it; `None` when adopted from a run nobody recorded.
    pub run: Option<RunId>,
    pub state: ContainerState,
}

/// Damage found in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamageRecord {
    pub container: ContainerId,
    /// `None`: the container as a whole.
    pub region: Option<u16>,
    pub reason: String,
    /// When it was first found.
    pub found_ms: i64,
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
    /// Who did it, for the audit log: a token's name, or `engine` for what the engine did by itself.
    pub who: String,
    pub started_ms: i64,
    pub finished_ms: i64,
}

/// A backup to be made visible.
#[derive(Debug, Clone, PartialEq)]
pub struct BackupCommit {
    pub attempt: Attempt,
    pub backup: BackupId,
    /// In the VM's order.
    pub disks: Vec<DiskRecord>,
    /// One a disk, in the same order, as a report will show them: status done, names and numbers of this
    /// attempt.
    pub details: Vec<v1::DetailRow>,
    /// Every container this session sealed.
    pub containers: Vec<ContainerRecord>,
}

/// An attempt no backup came of.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedRun {
    pub attempt: Attempt,
    /// One a disk: status failed, aborted or expired, and why.
    pub details: Vec<v1::DetailRow>,
    /// Every container this session sealed: what is in them still serves others.
    pub containers: Vec<ContainerRecord>,
}

/// A disk of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskRecord {
    pub name: String,
    pub size_bytes: u64,
    /// Without holes and zeros.
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
    pub client_host: String,
    pub started_ms: i64,
    pub finished_ms: i64,
    /// In the VM's order.
    pub disks: Vec<DiskRecord>,
}

impl BackupRecord {
    /// As the protocol tells it.
    pub fn info(&self) -> v1::BackupInfo {
        let disk = |disk: &DiskRecord| v1::DiskInfo {
            name: disk.name.clone(),
            size_bytes: disk.size_bytes,
            data_bytes: disk.data_bytes,
            root: disk.root.to_string(),
        };
        v1::BackupInfo {
            id: self.id.to_string(),
            namespace: self.namespace_name.clone(),
            vm: self.vm.clone(),
            job: self.job.clone(),
            run_id: self.run.to_string(),
            started_ms: self.started_ms,
            finished_ms: self.finished_ms,
            disks: self.disks.iter().map(disk).collect(),
        }
    }
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

/// Which backups. Everything given must hold.
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

/// Which compression details. Everything given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DetailFilter {
    /// `None`: all; an empty list: none.
    pub namespaces: Option<Vec<NamespaceId>>,
    pub job: Option<String>,
    pub vm: Option<String>,
    pub disk: Option<String>,
    pub run: Option<RunId>,
    /// Any of these; an empty list: none.
    pub statuses: Option<Vec<RowStatus>>,
    /// Part of the namespace's, job's, VM's or disk's name or of the error, in any case (of ASCII).
    pub search: Option<String>,
    /// Started at or after.
    pub since_ms: Option<i64>,
    /// Started before.
    pub until_ms: Option<i64>,
}

/// Something worth remembering who did it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub who: String,
    /// Object and verb, such as `token.revoke`.
    pub action: String,
    /// Identifier of what it was done to.
    pub object: String,
    pub detail: String,
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    pub id: Ulid,
    pub at_ms: i64,
    pub entry: AuditEntry,
}
