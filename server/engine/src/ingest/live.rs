//! What backups in the making are doing, for people who look on.
//!
//! A stream stores where it is after each message; who asks reads that and waits for nobody. The numbers of
//! one disk may be of two neighbouring messages; each of them only grows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_types::ids::{BackupId, NamespaceId, RunId, SessionId};

use super::sessions::{DiskSlot, Session};
use super::stream::StreamState;
use crate::core::Core;

/// A backup in the making.
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
    /// The agent's last sign of life.
    pub last_seen_ms: i64,
    /// In the order the agent named them.
    pub disks: Vec<LiveDisk>,
}

/// A disk of a backup in the making. Bytes as in the compression details, so far.
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

/// Where a stream is.
#[derive(Debug, Default)]
pub(super) struct DiskProgress {
    extents: AtomicU64,
    unchanged_bytes: AtomicU64,
    dup_bytes: AtomicU64,
    new_bytes: AtomicU64,
    wire_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    finished: AtomicBool,
}

impl DiskProgress {
    /// Notes where the stream is. A few plain stores, on a path that has just handled up to a megabyte.
    pub(super) fn store(&self, state: &StreamState) {
        let store = |to: &AtomicU64, value| to.store(value, Ordering::Relaxed);
        store(&self.extents, state.recipe.accepted());
        store(&self.unchanged_bytes, state.counters.unchanged_bytes);
        store(&self.dup_bytes, state.counters.dup_bytes);
        store(&self.new_bytes, state.counters.new_bytes);
        store(&self.wire_bytes, state.counters.wire_bytes);
        store(&self.stored_bytes, state.data.sealed_bytes() + state.recipe.sealed_bytes());
        self.finished.store(state.finished.is_some(), Ordering::Relaxed);
    }
}

impl DiskSlot {
    fn live(&self) -> LiveDisk {
        let load = |from: &AtomicU64| from.load(Ordering::Relaxed);
        let progress = &self.progress;
        LiveDisk {
            name: self.name.clone(),
            size_bytes: self.size_bytes,
            done_bytes: load(&progress.extents)
                .saturating_mul(EXTENT_BYTES.into())
                .max(load(&progress.wire_bytes))
                .min(self.size_bytes),
            unchanged_bytes: load(&progress.unchanged_bytes),
            dup_bytes: load(&progress.dup_bytes),
            new_bytes: load(&progress.new_bytes),
            wire_bytes: load(&progress.wire_bytes),
            stored_bytes: load(&progress.stored_bytes),
            finished: progress.finished.load(Ordering::Relaxed),
        }
    }
}

impl Session {
    pub(super) fn live(&self, core: &Core) -> LiveSession {
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
            last_seen_ms: self.last_seen_ms(core),
            disks: self.disks.iter().map(DiskSlot::live).collect(),
        }
    }
}
