//! Compression details: what each disk cost in each run.

use serde::{Deserialize, Serialize};

use super::tasks::words;
use super::time;

words! {
    /// How a run of a disk ended
    #[derive(Default)]
    RowStatus[4] {
        /// With a restore point.
        Done = "done",
        /// The default: a row counts as a restore point only when it says so.
        #[default]
        Failed = "failed",
        Aborted = "aborted",
        /// Its lease ran out.
        Expired = "expired",
    }
}

/// The cost of one disk in one run
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DetailRow {
    pub namespace: String,
    pub job: String,
    pub run: String,
    pub vm: String,
    pub disk: String,
    /// Empty: the run created no restore point
    pub backup: String,
    pub status: RowStatus,
    #[serde(rename = "started", with = "time::unix_ms")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub started_ms: i64,
    #[serde(rename = "finished", with = "time::unix_ms")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub finished_ms: i64,
    /// The disk's size
    pub virtual_bytes: u64,
    /// Without holes and zeros: unchanged_bytes + dup_bytes + new_bytes
    pub bytes: u64,
    /// Bytes the agent read
    pub read_bytes: u64,
    /// In extents that are identical to the parent backup
    pub unchanged_bytes: u64,
    /// In chunks that were already in the repository
    pub dup_bytes: u64,
    /// In chunks that were not yet in the repository
    pub new_bytes: u64,
    /// Bytes added to data containers, including headers and directories
    pub post_lc: u64,
    /// Bytes added to recipe containers
    pub meta_bytes: u64,
    /// Received over the network
    pub wire_bytes: u64,
    pub chunks: u64,
    pub new_chunks: u64,
    /// Why it failed
    pub error: String,
    /// new_bytes of the attempts that created no restore point since the disk's last one, where this one did. Not a column of
    /// the report: its factors count it
    pub retried_new_bytes: u64,
    /// post_lc of these attempts
    pub retried_post_lc: u64,
    /// Whether the VM had no restore point with the disk that the run could build on: everything was read and compared
    pub first_full: bool,
    /// The agent's compression level; 0: not known
    pub level: u32,
    /// The agent's machine, as it calls itself
    pub host: String,
    /// The agent's version; empty: not known
    pub agent: String,
    /// Milliseconds that the agent's threads spent reading the disk, all of them added up
    pub reading_ms: u64,
    /// The same, compressing and encrypting
    pub compressing_ms: u64,
    /// The same, waiting for the server to take data
    pub waiting_ms: u64,
}

/// Columns of `holdfast report` that follow from the others
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DetailFigures {
    pub seconds: f64,
    /// bytes / new_bytes, with those of the attempts that retried_post_lc counts; null: nothing was new
    pub global_factor: Option<f64>,
    /// new_bytes / post_lc, with those of these attempts
    pub local_factor: Option<f64>,
    /// The total factor: bytes / (post_lc + retried_post_lc)
    #[serde(rename = "bytes/post_lc")]
    pub total_factor: Option<f64>,
    /// 100 × (1 − (post_lc + retried_post_lc) / bytes)
    pub reduction_pct: Option<f64>,
    /// Protected megabytes (10⁶ bytes) per second
    pub mb_per_s: Option<f64>,
}

/// A part of all rows that match
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DetailBatch {
    /// Oldest first
    pub rows: Vec<DetailRow>,
    /// IDs of restore points of these rows with a disk that was smaller than before, or gone, which their backups accepted
    pub accepted_changes: Vec<String>,
}
