//! Compression details: what each disk cost in each run.

use serde::{Deserialize, Serialize};

use super::tasks::words;
use super::{Time, time};

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

words! {
    /// What has become of a run's restore point
    #[derive(Default)]
    PointFate[4] {
        /// It is there, with all disks of the VM.
        Exists = "exists",
        /// It is there, without disks that could not be read.
        Partial = "partial",
        Deleted = "deleted",
        /// The run created none.
        #[default]
        None = "none",
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
    /// What has become of the restore point
    pub point: PointFate,
    /// Whether the restore point is locked or held now
    pub locked: bool,
    /// When it was deleted; empty: it was not, or the time is not known
    #[serde(rename = "deleted", with = "time::unix_ms")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub deleted_ms: i64,
    /// Who deleted it, a token or a task, and why
    pub deleted_by: String,
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

/// Rows of compression details added up. Failed rows count too: what they wrote is in the repository until it is reclaimed. In
/// the factors they count once a restore point came of it
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(as = RowSums))]
pub struct Totals {
    /// Rows: one per run and disk
    pub rows: u64,
    /// Rows whose status is not done
    pub failed: u64,
    /// When the first of them began
    #[serde(rename = "started", with = "time::unix_ms")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub started_ms: i64,
    /// When the last of them finished
    #[serde(rename = "finished", with = "time::unix_ms")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub finished_ms: i64,
    pub virtual_bytes: u64,
    pub bytes: u64,
    pub read_bytes: u64,
    pub unchanged_bytes: u64,
    pub dup_bytes: u64,
    pub new_bytes: u64,
    pub post_lc: u64,
    pub meta_bytes: u64,
    pub wire_bytes: u64,
    pub chunks: u64,
    pub new_chunks: u64,
    /// bytes of the rows that are done
    pub done_bytes: u64,
    /// Their new_bytes, with those of the attempts before them that created no restore point
    pub done_new_bytes: u64,
    /// Their post_lc, with that of these attempts
    pub done_post_lc: u64,
}

/// Rows added up, with what follows from the sums
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Sums {
    #[serde(flatten)]
    pub totals: Totals,
    /// bytes / new_bytes of the rows that are done and of the failed attempts before them; null: nothing was new
    pub global_factor: Option<f64>,
    /// new_bytes / post_lc of the same rows; null: nothing was stored
    pub local_factor: Option<f64>,
    /// The total factor: done_bytes / done_post_lc; null: nothing was stored
    #[serde(rename = "bytes/post_lc")]
    pub total_factor: Option<f64>,
    /// 100 × (1 − done_post_lc / done_bytes)
    pub reduction_pct: Option<f64>,
}

/// The sums of a group of rows. Names that do not define the group are empty
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TotalsRow {
    pub namespace: String,
    pub job: String,
    pub vm: String,
    pub disk: String,
    pub run: String,
    /// Distinct VMs of the rows
    pub vms: u64,
    /// Distinct runs of the rows
    pub runs: u64,
    #[serde(flatten)]
    pub sums: Sums,
    /// Total factors of its latest runs, at most 12, oldest first; null: the run stored nothing
    pub trend: Vec<Option<f64>>,
    /// What the VM, job or namespace takes now, whatever rows were asked for; null: of other groups, before the first reclaim,
    /// and of what was first backed up since
    pub used: Option<UsedNow>,
}

/// Bytes that a VM, job or namespace takes, as the last reclaim counted them: without what was written or deleted since
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UsedNow {
    /// Its part of all that is stored: what several VMs share is divided among them
    pub used_bytes: u64,
    /// When it was counted
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub at: Time,
    /// Whether every recipe could be followed; else it is at least so much
    pub is_complete: bool,
}

words! {
    /// Span of time that rows are added up over
    DaySpan[2] {
        Day = "day",
        /// From Monday on.
        Week = "week",
    }
}

/// The rows that finished on a day, or in a week, added up
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DaysRow {
    pub span: DaySpan,
    /// The day, or the week's Monday, in UTC
    #[cfg_attr(feature = "schema", schema(example = "2026-11-23"))]
    pub day: String,
    /// Empty for the repository
    pub namespace: String,
    /// The job or the VM; empty for the repository
    pub name: String,
    #[serde(flatten)]
    pub sums: Sums,
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
