//! Backing up a VM: one session, one ingest stream per disk, one commit.
//!
//! Where to start reading: [`run`], then `session` (start to commit), `stream` (one disk), `scan` (read, hash,
//! compare, cut), `packer` (ask and pack), `compress`, `again` (what others were to bring and did not). Beside these:
//! `known` (chunks that need not be asked about again) and `limits` (threads, buffers, memory).
//!
//! After a lost connection the agent connects again and reopens the stream, and the server says which extents it has;
//! after a lost session (the server restarted) it starts a new one, and deduplication makes that cheap. Only `Commit`
//! makes a backup exist: an agent that ends before leaves nothing visible.
//!
//! A disk that cannot be read does not cost the others: the session is given up with the reason, and another in the
//! same run backs up the rest. The protocol commits all disks of a session or none, so those read before are read
//! again; what was sent is not sent again.

mod again;
mod compress;
mod known;
mod limits;
mod message_builder;
mod packer;
mod parent;
mod scan;
mod session;
mod stream;
mod upload_limit;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_proto::api::DetailRow;
use holdfast_proto::region::DEFAULT_LEVEL;
use holdfast_proto::v1;

use crate::backup::compress::Compressor;
use crate::backup::limits::Limits;
pub(crate) use crate::backup::session::host_name;
pub use crate::backup::upload_limit::UploadLimit;
use crate::cancel::Cancel;
use crate::connect::connections::Connections;
use crate::connect::{Connection, Settings};
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::pool::RegionBufferPool;
use crate::progress::Progress;
use crate::source::{FailedDisk, Source};
use crate::stages::{StageTotal, Stages};

/// Time that recording disks that could not be opened may hold up the end of a backup that is committed.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);

/// Time that an interrupted command waits for the answer of a commit under way. A second signal ends it at once.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Until the commit is under way, that is so whatever happens.
const NOTHING_KEPT: &str = "nothing of this run was kept";

/// A committed backup, and what it took.
#[derive(Debug, Clone)]
pub struct BackupSummary {
    pub backup_id: String,
    pub run_id: String,
    /// Disks that are not part of the backup, and why. If there are any, it is partial.
    pub failed_disks: Vec<FailedDisk>,
    /// Names of disks that were written to while they were read: they may not be as they were at any one moment.
    pub written_disks: Vec<String>,
    /// Compression details, one row per disk of the backup.
    pub details: Vec<DetailRow>,
    /// Time from the first call to the last.
    pub seconds: f64,
    /// Region payload sent, including what was sent again after a loss.
    pub sent_bytes: u64,
    /// Extents read again although nothing said that they had changed.
    pub reread_extents: u64,
    pub stages: BTreeMap<&'static str, StageTotal>,
}

/// Backs up `disks` as one restore point. They are read in turn. One that cannot be read to its end is left out,
/// unless it is the only one left. `unopened` are disks that could not be opened: they are named in the run's details.
///
/// # Errors
/// Any [`ClientError`]. The session is then aborted, and no restore point exists; but for [`ClientError::Leaving`], when
/// it is not known whether one does. Interrupted ([`ClientError::is_interrupted`]) when `cancel` ended it.
pub async fn run(
    settings: &Settings,
    disks: &[Arc<dyn Source>],
    unopened: Vec<FailedDisk>,
    options: &BackupOptions,
    progress: Arc<dyn Progress>,
    cancel: Cancel,
) -> Result<BackupSummary, ClientError> {
    let begun = Instant::now();
    let pipeline = Pipeline::new(options, progress)?;
    let mut agent = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(cancel.error()),
        agent = session::Agent::connect(settings, disks, &unopened, options, &pipeline) => agent?,
    };
    let mut unreadable = Vec::new();
    let (run_id, commit) = loop {
        let outcome = work_until(&mut agent, &cancel).await;
        match outcome {
            Ok(committed) => break committed,
            // Giving up what may exist already would say something that is not known.
            Err(error) if agent.is_committing() => return Err(agent.unclear(error)),
            Err(error) => {
                agent.give_up(&error).await;
                match agent.leave_out(error) {
                    Ok(failed) => unreadable.push(failed),
                    Err(error) if error.is_interrupted() => return Err(error.leaving(NOTHING_KEPT)),
                    Err(error) => return Err(agent.named(error)),
                }
            }
        }
    };
    record(&agent, &unopened).await;
    Ok(BackupSummary {
        backup_id: commit.backup_id,
        run_id,
        failed_disks: [unopened, unreadable].concat(),
        written_disks: agent.take_written(),
        // The backup exists, whatever is told of it.
        details: serde_json::from_str(&commit.details).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the compression details that the server answered");
            Vec::new()
        }),
        seconds: begun.elapsed().as_secs_f64(),
        sent_bytes: pipeline.sent_bytes.load(Ordering::Relaxed),
        reread_extents: pipeline.reread_extents.load(Ordering::Relaxed),
        stages: pipeline.stages.totals(),
    })
}

/// Works until a backup is committed, or `cancel` ends that. A commit that is under way then is waited for.
async fn work_until(
    agent: &mut session::Agent<'_>,
    cancel: &Cancel,
) -> Result<(String, v1::CommitResponse), ClientError> {
    let committing = agent.committing();
    let mut work = std::pin::pin!(agent.work());
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        outcome = &mut work => return outcome,
    }
    if !committing.load(Ordering::Relaxed) {
        return Err(cancel.error());
    }
    tokio::time::timeout(COMMIT_TIMEOUT, work).await.unwrap_or_else(|_| Err(cancel.error()))
}

/// Names disks that could not be opened in the run's details, after the others are safe. Failing to do so
/// changes nothing about the backup, and the caller names them, too.
async fn record(agent: &session::Agent<'_>, unopened: &[FailedDisk]) {
    if unopened.is_empty() {
        return;
    }
    let recorded = tokio::time::timeout(RECORD_TIMEOUT, agent.record_failed(unopened)).await;
    match recorded {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "the failed disks could not be recorded in the run's details");
        }
        Err(_) => tracing::warn!("the failed disks could not be recorded in time in the run's details"),
    }
}

/// Records an attempt that ended before the server knew of it, because of `reason`, on these disks of the VM: a session that
/// is given up at once. Its run's details say why.
///
/// # Errors
/// The server's refusal, or a lost connection.
pub async fn record_attempt(
    connection: &Connection,
    options: &BackupOptions,
    disks: &[String],
    reason: &str,
) -> Result<(), ClientError> {
    session::record(connection, options, &options.run_id, disks.iter().map(String::as_str), reason).await
}

/// Options of a backup.
#[derive(Debug, Clone)]
pub struct BackupOptions {
    pub namespace: String,
    pub vm: String,
    pub job: String,
    /// ULID of a run to join; empty for a new run.
    pub run_id: String,
    /// Read and describe every extent, whatever the parent backup says of it.
    pub reread: bool,
    /// End a running session of the same VM first; for when its agent has died.
    pub take_over: bool,
    /// Go on when a disk is smaller than in the latest restore point, or gone.
    pub accept_change: bool,
    /// zstd level, 1 to 19.
    pub level: i32,
    /// Threads that compress; `None`: one per core.
    pub threads: Option<usize>,
    /// Limits the region bytes sent per second; several backups may share it.
    pub upload_limit: Arc<UploadLimit>,
    /// Number of connections that carry a disk's data.
    pub connections: Connections,
    /// Naming and protection of chunks: with a key in a namespace that is end-to-end encrypted, and in no other.
    pub cipher: Cipher,
    /// Longest outage to wait for, one before the first connection included.
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
            reread: false,
            take_over: false,
            accept_change: false,
            level: DEFAULT_LEVEL,
            threads: None,
            upload_limit: Arc::default(),
            connections: Connections::Auto,
            cipher: Cipher::Plain,
            retry_for: DEFAULT_RETRY_FOR,
        }
    }
}

/// Job of backups that name no job.
pub const DEFAULT_JOB: &str = "manual";

/// Default of the longest outage to wait for.
pub const DEFAULT_RETRY_FOR: Duration = Duration::from_secs(300);

/// The stages between a disk and the network, with their limits and counters.
pub(crate) struct Pipeline {
    pub(crate) limits: Limits,
    pub(crate) compressor: Compressor,
    pub(crate) cipher: Cipher,
    pub(crate) region_buffers: RegionBufferPool,
    pub(crate) upload_limit: Arc<UploadLimit>,
    /// Number of connections to carry a disk's data.
    pub(crate) connections: Connections,
    /// Number that did so last, when there were several: what the next stream begins with. 0 before that.
    pub(crate) connections_found: AtomicU32,
    pub(crate) stages: Arc<Stages>,
    pub(crate) progress: Arc<dyn Progress>,
    /// Region payload handed to the transport.
    pub(crate) sent_bytes: AtomicU64,
    /// True if every extent is to be read, whatever the parent says of it.
    pub(crate) reread_all: bool,
    /// Extents read although the parent might have said that they are unchanged.
    pub(crate) reread_extents: Arc<AtomicU64>,
    /// True if the server made the latest stream wait for its turn.
    pub(crate) has_waited: AtomicBool,
}

impl Pipeline {
    /// Starts the compressing threads.
    ///
    /// # Errors
    /// The errors of [`Compressor::new`].
    pub(crate) fn new(options: &BackupOptions, progress: Arc<dyn Progress>) -> Result<Self, ClientError> {
        let limits = Limits::for_threads(options.threads);
        let (region_buffers, stages) = (RegionBufferPool::default(), Arc::new(Stages::default()));
        let compressor = Compressor::new(
            limits.compress_threads,
            (options.level, options.cipher.clone()),
            Arc::clone(&region_buffers),
            Arc::clone(&stages),
        )?;
        let sent_bytes = AtomicU64::new(0);
        Ok(Self {
            limits,
            compressor,
            cipher: options.cipher.clone(),
            region_buffers,
            upload_limit: Arc::clone(&options.upload_limit),
            connections: options.connections,
            connections_found: AtomicU32::new(0),
            stages,
            progress,
            sent_bytes,
            reread_all: options.reread,
            reread_extents: Arc::default(),
            has_waited: AtomicBool::new(false),
        })
    }
}
