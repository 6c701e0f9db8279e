//! Attribution of live bytes to backups, VMs and jobs.

use holdfast_types::ids::{BackupId, NamespaceId, VmId};

/// Result of a round.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttributionRecord {
    pub at_ms: i64,
    /// Live bytes of all data containers; what is attributed to all backups adds up to it.
    pub live_bytes: u64,
    /// Set if every recipe could be followed.
    pub is_complete: bool,
    pub backups: Vec<BackupShareRecord>,
    /// Bytes that only backups of this VM have.
    pub vms: Vec<(VmId, u64)>,
    /// Bytes that only backups of the job of this name have.
    pub jobs: Vec<(NamespaceId, String, u64)>,
}

/// A backup's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupShareRecord {
    pub backup: BackupId,
    /// Bytes that only this backup has.
    pub exclusive_bytes: u64,
    pub attributed_bytes: u64,
}

/// A backup's part, as the last round counted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedShare {
    pub backup: BackupId,
    /// Time of the round.
    pub at_ms: i64,
    /// Bytes that only it had then; `None`: its VM has a newer backup that the round did not know, which may have most of it.
    pub exclusive_bytes: Option<u64>,
    pub attributed_bytes: u64,
}

/// Time of the attribution, and the number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributionState {
    pub at_ms: i64,
    pub live_bytes: u64,
    pub is_complete: bool,
}

/// Groups that shares are added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttributedBy {
    Namespace,
    Vm,
    Job,
}

impl AttributedBy {
    /// Its word in the catalog.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Vm => "vm",
            Self::Job => "job",
        }
    }
}

/// The part of a namespace, a VM or a job on a day, as the last round of that day found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributedDay {
    /// Days since 1970-01-01, in UTC.
    pub day: i32,
    pub backups: u64,
    pub exclusive_bytes: u64,
    pub attributed_bytes: u64,
}

/// The part of a namespace, a VM or a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributedGroup {
    pub namespace: NamespaceId,
    pub namespace_name: String,
    /// The name of the VM, the job or the namespace.
    pub name: String,
    /// Backups it has that were attributed something, or nothing.
    pub backups: u64,
    /// Bytes that nothing else has. Of a namespace all of it, because namespaces share nothing.
    pub exclusive_bytes: u64,
    pub attributed_bytes: u64,
}
