//! The nouns that the command line administers, each once: requests and answers of the API, for the server's handlers, the command
//! line and, with the feature `schema`, the OpenAPI document. There the first lines of these doc comments are its descriptions.

mod agents;
mod backups;
mod details;
mod findings;
mod join;
mod namespaces;
mod points;
mod policies;
mod problem;
mod rules;
mod tasks;
mod thaw;
mod time;
mod verifications;

use serde::{Deserialize, Serialize};

pub use agents::{Agent, AgentReport, LATE_MS};
pub use backups::{Backup, BackupDisk, PointPlaces, RestoreCommand, Verify};
pub use details::{
    DaySpan, DaysRow, DetailBatch, DetailFigures, DetailRow, PointFate, RowStatus, Sums, Totals, TotalsRow,
    UsedNow,
};
pub use findings::{Figures, Finding, FindingKind};
pub use join::{Join, Joined};
pub use namespaces::{AgentsProved, Namespace, Quota, Usage};
pub use points::{
    ChangedPoints, ChosenPoint, DeletePoints, DeletedPoints, Freed, FreedQuestion, Hold, HoldPoints,
    LockPoints,
};
pub use policies::{
    Decision, Forget, Policy, PolicyRun, RunPart, RunPolicy, SetPolicy, SimulatePolicy, SimulatedDay,
    SimulatedPoint, Simulation,
};
pub use problem::Problem;
pub use rules::{KEEP_MAX, KEEP_WITHIN_DAYS_MAX, Rules, RulesError};
pub use tasks::{
    NotATaskKind, ReclaimOptions, StartTask, Task, TaskKind, TaskLine, TaskProgress, TaskStatus,
    VerifyOptions,
};
pub use thaw::{StartThaw, Thaw, ThawLine, ThawOffer};
pub use time::Time;
pub use verifications::{
    ConfirmedDigests, FalseChunk, FalseChunks, FalseDigest, RegionsSentAgain, VerificationReport,
};

/// Where the API begins.
pub const PREFIX: &str = "/api/v1";

/// The media type of an answer that is a [`Line`] after the other.
pub const LINES: &str = "application/x-ndjson";

/// A page of a list that is read page by page
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Keyset<T> {
    pub items: Vec<T>,
    /// `page_token` of the next page; null: this is the last page
    pub next_page_token: Option<String>,
}

/// A page of a list with offset paging
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Items<T> {
    pub items: Vec<T>,
    /// Number of items in the whole list
    pub total: u64,
    /// Number of items before the first of these
    pub offset: u64,
}

impl<T> Items<T> {
    /// A list that is short enough to be given whole.
    pub const fn whole(items: Vec<T>) -> Self {
        Self { total: items.len() as u64, items, offset: 0 }
    }
}

/// A line of an answer that is made while it is read
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Line<T> {
    Item(T),
    /// Why the answer ends here
    Problem(Problem),
}
