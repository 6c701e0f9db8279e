//! Choosing among compression details: one row for each disk of each session, failed ones too.

use holdfast_proto::api::RowStatus;
use holdfast_types::ids::{NamespaceId, RunId};

/// Filter of compression details. Everything given must hold.
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
    /// Only rows whose restore point still exists.
    pub existing: bool,
}
