//! Sort keys of lists, named as the columns are.

use std::str::FromStr;

use holdfast_proto::details::{COLUMNS, ERROR_COLUMN, LATER_COLUMNS, names};

/// A column of compression details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DetailSort {
    Namespace,
    Job,
    Run,
    Vm,
    Disk,
    Backup,
    Status,
    Started,
    Finished,
    Seconds,
    VirtualBytes,
    Bytes,
    ReadBytes,
    UnchangedBytes,
    DupBytes,
    NewBytes,
    PostLc,
    MetaBytes,
    WireBytes,
    GlobalFactor,
    LocalFactor,
    TotalFactor,
    ReductionPct,
    Chunks,
    NewChunks,
    MbPerS,
    Error,
    RetriedPostLc,
    FirstFull,
    Level,
    Host,
    Agent,
    ReadingMs,
    CompressingMs,
    WaitingMs,
    Point,
    Locked,
    Deleted,
    DeletedBy,
}

impl DetailSort {
    /// Every column, in the order of a report.
    pub const ALL: [Self; COLUMNS.len() + 1 + LATER_COLUMNS.len()] = [
        Self::Namespace,
        Self::Job,
        Self::Run,
        Self::Vm,
        Self::Disk,
        Self::Backup,
        Self::Status,
        Self::Started,
        Self::Finished,
        Self::Seconds,
        Self::VirtualBytes,
        Self::Bytes,
        Self::ReadBytes,
        Self::UnchangedBytes,
        Self::DupBytes,
        Self::NewBytes,
        Self::PostLc,
        Self::MetaBytes,
        Self::WireBytes,
        Self::GlobalFactor,
        Self::LocalFactor,
        Self::TotalFactor,
        Self::ReductionPct,
        Self::Chunks,
        Self::NewChunks,
        Self::MbPerS,
        Self::Error,
        Self::RetriedPostLc,
        Self::FirstFull,
        Self::Level,
        Self::Host,
        Self::Agent,
        Self::ReadingMs,
        Self::CompressingMs,
        Self::WaitingMs,
        Self::Point,
        Self::Locked,
        Self::Deleted,
        Self::DeletedBy,
    ];

    /// The column's name in a report.
    pub fn column(self) -> &'static str {
        Self::ALL.iter().zip(names()).find(|(sort, _)| **sort == self).map_or(ERROR_COLUMN, |(_, name)| name)
    }
}

/// A list cannot be sorted by that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no column {name:?} to sort by; there are {columns}")]
pub struct NotAColumn {
    name: String,
    columns: String,
}

impl NotAColumn {
    pub(super) fn new<'a>(name: &str, columns: impl IntoIterator<Item = &'a str>) -> Self {
        let columns = columns.into_iter().collect::<Vec<_>>().join(", ");
        // The name as typed, cut to a length fit for a message.
        Self { name: name.chars().take(40).collect(), columns }
    }
}

impl FromStr for DetailSort {
    type Err = NotAColumn;

    fn from_str(text: &str) -> Result<Self, NotAColumn> {
        Self::ALL
            .into_iter()
            .find(|sort| sort.column() == text)
            .ok_or_else(|| NotAColumn::new(text, Self::ALL.map(Self::column)))
    }
}

/// Sort order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortOrder {
    pub by: DetailSort,
    pub descending: bool,
}

impl SortOrder {
    /// Order of reports: oldest first.
    pub const OLDEST_FIRST: Self = Self { by: DetailSort::Started, descending: false };
}

/// Sort keys of sums: the number of rows they are of, or a column that sums have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TotalsSort {
    Rows,
    Failed,
    /// Any column but those only a single row has: backup, status, error, and those that were added later.
    Column(DetailSort),
}

impl TotalsSort {
    /// Returns all sort keys of sums.
    pub fn all() -> impl Iterator<Item = Self> {
        let single = |sort: &DetailSort| {
            matches!(sort, DetailSort::Backup | DetailSort::Status | DetailSort::Error)
                || LATER_COLUMNS.contains(&sort.column())
        };
        let columns = DetailSort::ALL.into_iter().filter(move |sort| !single(sort)).map(Self::Column);
        [Self::Rows, Self::Failed].into_iter().chain(columns)
    }

    /// The column's name.
    pub fn column(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Failed => "failed",
            Self::Column(sort) => sort.column(),
        }
    }
}

impl FromStr for TotalsSort {
    type Err = NotAColumn;

    fn from_str(text: &str) -> Result<Self, NotAColumn> {
        Self::all()
            .find(|sort| sort.column() == text)
            .ok_or_else(|| NotAColumn::new(text, Self::all().map(Self::column)))
    }
}

/// Sort order of sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TotalsOrder {
    pub by: TotalsSort,
    pub descending: bool,
}

impl TotalsOrder {
    /// The largest first: what fills the repository.
    pub const WORST_FIRST: Self = Self { by: TotalsSort::Column(DetailSort::PostLc), descending: true };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_a_report() {
        assert_eq!(DetailSort::TotalFactor.column(), "bytes/post_lc");
        assert_eq!(DetailSort::MbPerS.column(), "mb_per_s");
        assert_eq!(DetailSort::Error.column(), "error");
        for (sort, name) in DetailSort::ALL.into_iter().zip(names()) {
            assert_eq!((name.parse(), sort.column()), (Ok(sort), name));
        }
        let error = "Bytes".parse::<DetailSort>().unwrap_err().to_string();
        assert!(error.contains("\"Bytes\"") && error.contains("wire_bytes, global_factor"), "{error}");
    }

    #[test]
    fn sums_have_no_backup_status_or_error() {
        assert_eq!("rows".parse(), Ok(TotalsSort::Rows));
        assert_eq!("-rows".parse::<TotalsSort>().ok(), None);
        assert_eq!("post_lc".parse(), Ok(TotalsSort::Column(DetailSort::PostLc)));
        for name in ["backup", "status", "error", "retried_post_lc", "level"] {
            assert!(!name.parse::<TotalsSort>().unwrap_err().columns.contains(name), "{name}");
        }
        for sort in TotalsSort::all() {
            assert_eq!(sort.column().parse(), Ok(sort));
        }
    }
}
