//! What to back up and how.

use std::time::Duration;

use holdfast_proto::region::DEFAULT_LEVEL;

use crate::connect::connections::Connections;
use crate::end_to_end::Cipher;

/// What to back up and how.
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
    /// Region bytes to send per second.
    pub limit_upload: Option<u64>,
    /// How many connections carry a disk's data.
    pub connections: Connections,
    /// How chunks are named and protected: with a key in a namespace that is end-to-end encrypted, and in no other.
    pub cipher: Cipher,
    /// How long an outage may last, one before the first connection included.
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
            limit_upload: None,
            connections: Connections::Auto,
            cipher: Cipher::Plain,
            retry_for: DEFAULT_RETRY_FOR,
        }
    }
}

/// Job of backups that name no job.
pub const DEFAULT_JOB: &str = "manual";

/// How long an outage may last by default.
pub const DEFAULT_RETRY_FOR: Duration = Duration::from_secs(300);
