//! Backing up a VM: one session, one ingest stream per disk, one commit.
//!
//! Where to start reading: [`run`], then `stream` (one disk), `scan` (read, hash, compare, cut), `packer`
//! (ask and pack), `compress`. A lost connection is made again and the stream reopened, where the server
//! says which extents it has; a lost session (the server restarted) begins anew, and deduplication makes
//! that cheap. Only `Commit` makes a backup exist: whatever ends the agent before leaves nothing visible.

mod compress;
mod known;
mod limit;
mod outbox;
mod packer;
mod parent;
mod scan;
mod session;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_proto::region::DEFAULT_LEVEL;
use holdfast_proto::v1;

use crate::cancel::Cancel;
use crate::connect::Settings;
use crate::error::ClientError;
use crate::pool::ObjectPool;
use crate::progress::Progress;
use crate::source::SourceDisk;
use crate::stages::{StageTotal, Stages};

/// What to back up and how.
#[derive(Debug, Clone)]
pub struct BackupOptions {
    pub namespace: String,
    pub vm: String,
    pub job: String,
    /// ULID of a run to join; empty for a run of its own.
    pub run_id: String,
    /// End a session of the same VM whose agent is dead.
    pub take_over: bool,
    /// zstd level, 1 to 19.
    pub level: i32,
    /// Threads that compress; `None`: one a core.
    pub threads: Option<usize>,
    /// Region bytes a second.
    pub limit_upload: Option<u64>,
    /// How long an outage may last.
    pub retry_for: Duration,
}

impl BackupOptions {
    /// Options for `vm` with everything else at its default.
    pub fn new(namespace: impl Into<String>, vm: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            vm: vm.into(),
            job: DEFAULT_JOB.to_owned(),
            run_id: String::new(),
            take_over: false,
            level: DEFAULT_LEVEL,
            threads: None,
            limit_upload: None,
            retry_for: DEFAULT_RETRY_FOR,
        }
    }
}

/// Job of backups that name none.
pub const DEFAULT_JOB: &str = "manual";

/// How long an outage may last unless told otherwise.
pub const DEFAULT_RETRY_FOR: Duration = Duration::from_secs(300);

/// What came of it.
#[derive(Debug, Clone)]
pub struct BackupSummary {
    pub backup_id: String,
    pub run_id: String,
    /// Compression details, one row a disk.
    pub details: Vec<v1::DetailRow>,
    /// From the first call to the last.
    pub seconds: f64,
    /// Region payload sent, whatever was sent twice included.
    pub sent_bytes: u64,
    pub stages: BTreeMap<&'static str, StageTotal>,
}

/// How much of everything there may be. Peak memory: `buffers` × 4 MiB + (2 × `regions` + 24) × 512 KiB +
/// threads × 1.5 MB (level 2) + 17 MiB known fingerprints + 16 MiB window: on 2 cores 56 + 20 + 3 + 17 + 16
/// = 112 MiB, on 24 cores or more 128 + 42 + 36 + 33 = 239 MiB if ever all were full at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) compress_threads: usize,
    pub(crate) scan_threads: usize,
    /// Extent buffers: one a scanning thread, and as many as wait to be packed.
    pub(crate) buffers: usize,
    /// Regions in compression or waiting to be sent.
    pub(crate) regions: usize,
}

impl Limits {
    pub(crate) fn for_threads(threads: Option<usize>) -> Self {
        let cores = threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
        let compress_threads = cores.unwrap_or(2).clamp(1, 24);
        // More than cores, so that reading and computing overlap; 4 keep a disk's queue busy.
        let scan_threads = compress_threads.clamp(4, 16);
        let buffers = scan_threads + (scan_threads * 2).clamp(10, 16);
        Self { compress_threads, scan_threads, buffers, regions: compress_threads + 6 }
    }
}

/// What all of a backup's streams share.
pub(crate) struct Machinery {
    pub(crate) limits: Limits,
    pub(crate) compressor: compress::Compressor,
    pub(crate) plain: packer::RegionBufferPool,
    pub(crate) limit: limit::UploadLimit,
    pub(crate) stages: Arc<Stages>,
    pub(crate) progress: Arc<dyn Progress>,
    pub(crate) sent_bytes: AtomicU64,
}

impl Machinery {
    fn new(options: &BackupOptions, progress: Arc<dyn Progress>) -> Result<Self, ClientError> {
        let limits = Limits::for_threads(options.threads);
        let (plain, stages) = (Arc::new(ObjectPool::default()), Arc::new(Stages::default()));
        let compressor = compress::Compressor::new(
            limits.compress_threads,
            options.level,
            Arc::clone(&plain),
            Arc::clone(&stages),
        )?;
        let limit = limit::UploadLimit::new(options.limit_upload);
        Ok(Self { limits, compressor, plain, limit, stages, progress, sent_bytes: AtomicU64::new(0) })
    }
}

/// Backs up `disks` as one restore point. They are read in turn.
///
/// # Errors
/// Any [`ClientError`]; the session is then aborted, and no restore point exists. [`ClientError::Interrupted`]
/// when `cancel` ended it.
pub async fn run(
    settings: &Settings,
    disks: Vec<SourceDisk>,
    options: &BackupOptions,
    progress: Arc<dyn Progress>,
    cancel: Cancel,
) -> Result<BackupSummary, ClientError> {
    let begun = Instant::now();
    let machinery = Machinery::new(options, progress)?;
    let disks: Vec<_> = disks.into_iter().map(Arc::new).collect();
    let mut agent = session::Agent::connect(settings, &disks, options, &machinery).await?;
    let outcome = tokio::select! {
        biased;
        () = cancel.cancelled() => Err(ClientError::Interrupted),
        outcome = agent.work() => outcome,
    };
    match outcome {
        Ok((run_id, commit)) => Ok(BackupSummary {
            backup_id: commit.backup_id,
            run_id,
            details: commit.details,
            seconds: begun.elapsed().as_secs_f64(),
            sent_bytes: machinery.sent_bytes.load(Ordering::Relaxed),
            stages: machinery.stages.totals(),
        }),
        Err(error) => {
            agent.give_up(&error).await;
            Err(agent.named(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_within_its_bound_on_any_machine() {
        for threads in [1, 2, 4, 8, 16, 32, 1000] {
            let limits = Limits::for_threads(Some(threads));
            assert!(limits.buffers > limits.scan_threads, "{limits:?}");
            let mib =
                limits.buffers * 4 + (2 * limits.regions + 24) / 2 + limits.compress_threads * 3 / 2 + 33;
            assert!(mib < 256, "{threads} threads: {mib} MiB");
        }
    }
}
