//! Questions about compression details and what they add up to: for tables, charts and metrics.
//!
//! Nothing here changes anything.
//!
//! Invariants:
//! - **Sorting is by the numbers people see**: computed columns come from `holdfast_proto::details`, whichever
//!   database is behind the catalog. Rows without a number come last, in both directions; rows that compare
//!   equal stay in the order of [`Catalog::details`], oldest first.
//! - **An offset past the end is an empty page**, with the right total beside it.
//! - **Memory does not grow with history**: what an answer holds is a page, or what each VM, job and disk adds up to.
//! - Every list is bounded: a page by its limit, a series by its days and groups, a search by its length.

mod overviews;
mod runs;
mod sort;

use std::fmt;

use holdfast_proto::details::Totals;
use holdfast_types::ids::SessionId;

use crate::{DetailRow, Result};

pub use overviews::{
    BackupCost, ContainerTotals, DiskOverview, DiskQuery, JobOverview, LastRun, LatestBackup,
    NamespaceOverview, RepositoryOverview, VmOverview, VmQuery, VmSort, WindowTotals,
};
pub use runs::{Amounts, FindingRow, RunSums};
pub use sort::{DetailSort, NotAColumn, SortOrder, TotalsOrder, TotalsSort};

/// A row of compression details with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct DetailEntry {
    pub session: SessionId,
    /// The disk's place in its session.
    pub position: u32,
    pub row: DetailRow,
}

/// Groups that rows are added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TotalsBy {
    Run,
    Vm,
    Job,
    /// A disk of one VM.
    Disk,
    Namespace,
    Repository,
}

/// Rows of one day added up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayTotals {
    /// The UTC day the rows finished on, in days since 1970-01-01.
    pub day: i32,
    /// Namespace and name; empty where the kind of group has none.
    pub namespace: String,
    pub name: String,
    pub sums: Totals,
}

/// Bytes protected at a day's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedDay {
    /// As [`DayTotals::day`].
    pub day: i32,
    /// As in [`DayTotals`].
    pub namespace: String,
    pub name: String,
    pub protected_bytes: u64,
}

/// Rows in order.
pub trait SortedRows: Send + fmt::Debug {
    /// Returns up to `limit` more; `None`: that was all. Fewer, or none, do not mean the end.
    fn next(&mut self, limit: u32) -> Result<Option<Vec<DetailRow>>>;
}
