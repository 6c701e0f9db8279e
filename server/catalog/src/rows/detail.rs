//! Compression details: one row for each disk of each session, failed ones too.

use holdfast_types::ids::{NamespaceId, RunId};

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RowStatus {
    /// With a restore point.
    Done,
    /// The default: a row only counts as a restore point when it says so.
    #[default]
    Failed,
    Aborted,
    /// Its lease ran out.
    Expired,
}

impl RowStatus {
    /// Every status, in the order reports name them.
    pub const ALL: [Self; 4] = [Self::Done, Self::Failed, Self::Aborted, Self::Expired];

    /// The word reports show and the catalog keeps.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
            Self::Expired => "expired",
        }
    }
}

/// What one disk cost in one run. `bytes = unchanged_bytes + dup_bytes + new_bytes`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DetailRow {
    /// Names.
    pub namespace: String,
    pub job: String,
    /// The run's ULID.
    pub run: String,
    pub vm: String,
    pub disk: String,
    /// The restore point's ULID; empty unless the status is done.
    pub backup: String,
    pub status: RowStatus,
    pub started_ms: i64,
    pub finished_ms: i64,
    /// The disk's size.
    pub virtual_bytes: u64,
    /// Without holes and zeros.
    pub bytes: u64,
    /// Read by the agent.
    pub read_bytes: u64,
    /// In extents the parent has.
    pub unchanged_bytes: u64,
    /// In chunks the repository had.
    pub dup_bytes: u64,
    /// In chunks it did not have.
    pub new_bytes: u64,
    /// Bytes of data containers written, everything included.
    pub post_lc: u64,
    /// Bytes of recipe containers written, everything included.
    pub meta_bytes: u64,
    /// Bytes of ingest messages received.
    pub wire_bytes: u64,
    pub chunks: u64,
    /// Of `chunks`, those the repository did not have.
    pub new_chunks: u64,
    /// Why it failed; empty when it did not.
    pub error: String,
    /// `new_bytes` and `post_lc` of the attempts that made no restore point since the disk's last one, where this row made
    /// one. The catalog finds them when it writes the row.
    pub retried_new_bytes: u64,
    pub retried_post_lc: u64,
}

/// Which compression details. Everything given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DetailFilter {
    /// `None`: all; an empty list: none.
    pub namespaces: Option<Vec<NamespaceId>>,
    pub job: Option<String>,
    pub vm: Option<String>,
    pub disk: Option<String>,
    pub run: Option<RunId>,
    /// Any of these; an empty list: none.
    pub statuses: Option<Vec<RowStatus>>,
    /// Part of the namespace's, job's, VM's or disk's name or of the error, in any case (of ASCII).
    pub search: Option<String>,
    /// Started at or after.
    pub since_ms: Option<i64>,
    /// Started before.
    pub until_ms: Option<i64>,
    /// Finished at or after.
    pub finished_since_ms: Option<i64>,
    /// Finished before.
    pub finished_until_ms: Option<i64>,
}
