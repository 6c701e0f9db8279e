//! Backing up a VM: one session, one ingest stream per disk, one commit.
//!
//! Where to start reading: [`run`], then `session` (start to commit), `stream` (one disk), `scan` (read, hash,
//! compare, cut), `packer` (ask and pack), `compress`. After a lost connection the agent connects again and
//! reopens the stream, and the server says which extents it has; after a lost session (the server restarted)
//! it starts a new one, and deduplication makes that cheap. Only `Commit` makes a backup exist: an agent that
//! ends before leaves nothing visible.

mod compress;
mod known;
mod lease;
mod limits;
mod message_builder;
mod options;
mod packer;
mod parent;
mod pipeline;
mod scan;
mod session;
mod stream;
mod upload_limit;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use holdfast_proto::v1;

use self::pipeline::Pipeline;
use crate::cancel::Cancel;
use crate::connect::Settings;
use crate::error::ClientError;
use crate::progress::Progress;
use crate::source::Source;
use crate::stages::StageTotal;

pub use self::options::{BackupOptions, DEFAULT_JOB, DEFAULT_RETRY_FOR};

/// A committed backup, and what it took.
#[derive(Debug, Clone)]
pub struct BackupSummary {
    pub backup_id: String,
    pub run_id: String,
    /// Compression details, one row per disk.
    pub details: Vec<v1::DetailRow>,
    /// From the first call to the last.
    pub seconds: f64,
    /// Region payload sent, including what was sent again after a loss.
    pub sent_bytes: u64,
    pub stages: BTreeMap<&'static str, StageTotal>,
}

/// Backs up `disks` as one restore point. They are read in turn.
///
/// # Errors
/// Any [`ClientError`]; the session is then aborted, and no restore point exists. [`ClientError::Interrupted`]
/// when `cancel` ended it.
pub async fn run(
    settings: &Settings,
    disks: &[Arc<dyn Source>],
    options: &BackupOptions,
    progress: Arc<dyn Progress>,
    cancel: Cancel,
) -> Result<BackupSummary, ClientError> {
    let begun = Instant::now();
    let pipeline = Pipeline::new(options, progress)?;
    let mut agent = session::Agent::connect(settings, disks, options, &pipeline).await?;
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
            sent_bytes: pipeline.sent_bytes.load(Ordering::Relaxed),
            stages: pipeline.stages.totals(),
        }),
        Err(error) => {
            agent.give_up(&error).await;
            Err(agent.named(error))
        }
    }
}
