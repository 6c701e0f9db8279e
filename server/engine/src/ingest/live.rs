//! What backups in progress are doing, for the UI and the API.
//!
//! Reads what each stream stored last and waits for none of them.

use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_types::ids::{BackupId, NamespaceId, RunId, SessionId};

use super::session::{DiskSlot, Session};

/// A backup in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveSession {
    pub session: SessionId,
    /// What it will be called when it is committed.
    pub backup: BackupId,
    pub run: RunId,
    pub namespace: NamespaceId,
    pub namespace_name: String,
    pub vm: String,
    pub job: String,
    /// Where the agent runs, as it says.
    pub host: String,
    pub started_ms: i64,
    /// When the agent's last heartbeat arrived.
    pub last_seen_ms: i64,
    /// In the order the agent named them.
    pub disks: Vec<LiveDisk>,
}

/// A disk of a backup in progress. Bytes as in the compression details, so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveDisk {
    pub name: String,
    pub size_bytes: u64,
    /// Bytes of the disk dealt with so far, zeros included, at least: those described, or those received while
    /// descriptions wait at the agent for a message to fill; `size_bytes` at the end.
    pub done_bytes: u64,
    pub unchanged_bytes: u64,
    pub dup_bytes: u64,
    pub new_bytes: u64,
    pub wire_bytes: u64,
    /// Bytes of its sealed containers, data and recipe.
    pub stored_bytes: u64,
    pub finished: bool,
}

impl DiskSlot {
    fn live(&self) -> LiveDisk {
        let at = self.progress.load();
        LiveDisk {
            name: self.name.clone(),
            size_bytes: self.size_bytes,
            done_bytes: at
                .extents
                .saturating_mul(EXTENT_BYTES.into())
                .max(at.wire_bytes)
                .min(self.size_bytes),
            unchanged_bytes: at.unchanged_bytes,
            dup_bytes: at.dup_bytes,
            new_bytes: at.new_bytes,
            wire_bytes: at.wire_bytes,
            stored_bytes: at.stored_bytes,
            finished: at.finished,
        }
    }
}

impl Session {
    pub(super) fn live(&self) -> LiveSession {
        LiveSession {
            session: self.id,
            backup: self.backup,
            run: self.run,
            namespace: self.namespace.id,
            namespace_name: self.namespace.name.clone(),
            vm: self.vm.clone(),
            job: self.job.clone(),
            host: self.host.clone(),
            started_ms: self.started_ms,
            last_seen_ms: self.last_seen_ms(),
            disks: self.disks.iter().map(DiskSlot::live).collect(),
        }
    }
}
