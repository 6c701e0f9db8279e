//! Overviews of objects and their cost, as structs. Times are milliseconds since the Unix epoch.

use std::str::FromStr;

use holdfast_proto::details::Totals;
use holdfast_types::ids::{BackupId, ContainerClass, NamespaceId, RunId, VmId};

use super::super::{ContainerState, NamespaceRecord, Verification};
use super::NotAColumn;

/// A VM, what it protects and what it costs.
#[derive(Debug, Clone, PartialEq)]
pub struct VmOverview {
    pub id: VmId,
    pub namespace: NamespaceId,
    pub namespace_name: String,
    pub vm: String,
    /// `None`: no backup of it was ever committed.
    pub owner: Option<String>,
    /// Restore points.
    pub backups: u64,
    /// Disks of the latest restore point.
    pub disks: u64,
    /// Start of the earliest restore point that it still has.
    pub first_ms: Option<i64>,
    /// The restore point committed last.
    pub latest: Option<LatestBackup>,
    /// Size of the disks of the latest restore point.
    pub virtual_bytes: u64,
    /// Their bytes without holes and zeros.
    pub protected_bytes: u64,
    /// `post_lc` and `meta_bytes` of all its runs, failed ones included.
    pub stored_bytes: u64,
    /// New bytes of runs begun in the last 30 days.
    pub new_bytes_30d: u64,
    /// [`Totals::factors`] over all its runs; `None` when nothing was stored.
    pub total_factor: Option<f64>,
    /// Outcome of the run begun last: `done`, `failed`, `aborted` or `expired`.
    pub last_status: String,
    /// Why it failed; empty when it did not.
    pub last_error: String,
    /// Set if no complete restore point was finished since the time asked about.
    pub stale: bool,
    /// Verification of the latest restore point.
    pub verification: Option<Verification>,
    /// Set if its namespace is end-to-end encrypted.
    pub end_to_end: bool,
    /// Time at which an agent last read a restore point of it and found it sound.
    pub agent_verified_ms: Option<i64>,
}

/// A VM's latest restore point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatestBackup {
    pub id: BackupId,
    pub started_ms: i64,
    pub finished_ms: i64,
    pub job: String,
    /// Names of disks that could not be read for it; empty for a complete one.
    pub missing_disks: Vec<String>,
}

/// Query of VMs: filter, order and page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmQuery {
    /// The VM of exactly this name (in each namespace).
    pub vm: Option<String>,
    /// Part of the VM's or the namespace's name, in any case (of ASCII).
    pub search: Option<String>,
    /// VMs without a complete restore point finished at or after this are stale; one finished later than
    /// [`AHEAD_MS`](crate::AHEAD_MS) after now, or twice that, does not count, for a clock was ahead.
    pub stale_before_ms: i64,
    /// Stale ones, others, or both.
    pub stale: Option<bool>,
    pub sort: VmSort,
    pub descending: bool,
    pub offset: u64,
    pub limit: u32,
    pub now_ms: i64,
}

/// Sort keys of VMs. Those that compare equal are in order of namespace and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VmSort {
    /// By name; those of one name by namespace.
    Vm,
    /// By namespace, then name.
    Namespace,
    Backups,
    /// Finish of the latest restore point; VMs without one come last.
    Latest,
    ProtectedBytes,
    StoredBytes,
    NewBytes30d,
    /// VMs without a factor come last.
    TotalFactor,
}

impl VmSort {
    /// All sort keys of VMs.
    pub const ALL: [Self; 8] = [
        Self::Vm,
        Self::Namespace,
        Self::Backups,
        Self::Latest,
        Self::ProtectedBytes,
        Self::StoredBytes,
        Self::NewBytes30d,
        Self::TotalFactor,
    ];

    /// Its name.
    pub const fn column(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Namespace => "namespace",
            Self::Backups => "backups",
            Self::Latest => "latest",
            Self::ProtectedBytes => "protected_bytes",
            Self::StoredBytes => "stored_bytes",
            Self::NewBytes30d => "new_bytes_30d",
            Self::TotalFactor => "total_factor",
        }
    }
}

impl FromStr for VmSort {
    type Err = NotAColumn;

    fn from_str(text: &str) -> Result<Self, NotAColumn> {
        Self::ALL
            .into_iter()
            .find(|sort| sort.column() == text)
            .ok_or_else(|| NotAColumn::new(text, Self::ALL.map(Self::column)))
    }
}

/// A disk of a VM's latest restore point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOverview {
    pub namespace: NamespaceId,
    pub namespace_name: String,
    pub vm: String,
    pub disk: String,
    pub size_bytes: u64,
    /// Bytes without holes and zeros.
    pub data_bytes: u64,
    pub latest_backup: BackupId,
    /// `post_lc` and `meta_bytes` of all its runs, failed ones included.
    pub stored_bytes: u64,
    /// New bytes of runs begun in the last 30 days.
    pub new_bytes_30d: u64,
}

/// Query of disks: filter and page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskQuery {
    pub vm: Option<String>,
    pub offset: u64,
    pub limit: u32,
    pub now_ms: i64,
}

/// A job and what its runs cost.
#[derive(Debug, Clone, PartialEq)]
pub struct JobOverview {
    pub namespace: NamespaceId,
    pub namespace_name: String,
    pub job: String,
    pub runs: u64,
    /// Different VMs it ever backed up, or tried to.
    pub vms: u64,
    /// The run begun last.
    pub last_run: Option<LastRun>,
    /// VMs of which a disk failed in this job since the VM was last backed up as a whole, by any job; removed ones left out.
    pub failing_vms: u64,
    /// Over all its runs, failed rows included, as far as sums are kept: `rows`, `failed`, `bytes`, `new_bytes`,
    /// `post_lc`, `meta_bytes`, `wire_bytes` and those of rows that are done. The rest is empty.
    pub sums: Totals,
}

/// Protected and written bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepositoryOverview {
    /// VMs with restore points.
    pub vms: u64,
    pub backups: u64,
    /// Size of the disks of each VM's latest restore point.
    pub virtual_bytes: u64,
    /// Their bytes without holes and zeros.
    pub protected_bytes: u64,
    /// One for each time asked for, in their order.
    pub windows: Vec<WindowTotals>,
}

/// The rows finished at or after a time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WindowTotals {
    /// Different runs among them.
    pub runs: u64,
    /// As far as sums are kept (see [`JobOverview::sums`]).
    pub sums: Totals,
}

/// A job's latest run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRun {
    pub id: RunId,
    pub started_ms: i64,
    pub finished_ms: i64,
    /// Rows of details.
    pub disks: u64,
    /// Rows that are not done.
    pub failed: u64,
}

/// A namespace and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceOverview {
    pub namespace: NamespaceRecord,
    pub vms: u64,
    pub backups: u64,
    /// Bytes of its containers.
    pub stored_bytes: u64,
}

/// Bytes that a backup added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackupCost {
    pub new_bytes: u64,
    pub post_lc: u64,
    pub meta_bytes: u64,
}

/// Containers of one class and state added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerTotals {
    pub class: ContainerClass,
    pub state: ContainerState,
    pub count: u64,
    pub stored_bytes: u64,
    pub plain_bytes: u64,
    pub chunk_count: u64,
}
