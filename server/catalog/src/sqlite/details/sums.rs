//! Reading rows to add them up.

use holdfast_proto::details::{self, Totals};
use rusqlite::{Connection, Row};

use super::super::convert::{OrCatalogError, bad_value};
use super::super::select::{Conditions, unindexed};
use crate::{DetailRow, Result, RowStatus, TotalsBy};

/// Ids of the objects that a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowRefs {
    pub(crate) namespace: [u8; 16],
    pub(crate) job: [u8; 16],
    pub(crate) vm: [u8; 16],
    pub(crate) run: [u8; 16],
}

/// Group of a row: rows of equal groups are added up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Group {
    All,
    Of([u8; 16]),
    Disk([u8; 16], Box<str>),
}

/// References of a row, its disk (empty unless asked for) and its numbers; other texts are not read.
pub(crate) struct Summand<'a> {
    pub(crate) refs: RowRefs,
    pub(crate) disk: &'a str,
    pub(crate) row: DetailRow,
}

impl Summand<'_> {
    /// The group it belongs to.
    pub(crate) fn group(&self, by: TotalsBy) -> Group {
        match by {
            TotalsBy::Run => Group::Of(self.refs.run),
            TotalsBy::Vm => Group::Of(self.refs.vm),
            TotalsBy::Job => Group::Of(self.refs.job),
            TotalsBy::Disk => Group::Disk(self.refs.vm, self.disk.into()),
            TotalsBy::Namespace => Group::Of(self.refs.namespace),
            TotalsBy::Repository => Group::All,
        }
    }
}

const COUNTS: &str = "d.virtual_bytes, d.bytes, d.read_bytes, d.unchanged_bytes, d.dup_bytes, d.new_bytes, \
     d.post_lc, d.meta_bytes, d.wire_bytes, d.chunks, d.new_chunks, d.retried_new_bytes, d.retried_post_lc";

/// Order in which rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    AsTheyLie,
    /// Every row of a run before those of the next, in order of when the runs were begun, as their identifiers say.
    ByRun,
}

impl Reading {
    /// The index of runs is all but the order in which rows were written; few rows are sorted.
    pub(crate) fn order(self, conditions: &Conditions) -> String {
        match self {
            Self::AsTheyLie => String::new(),
            Self::ByRun if conditions.led => format!("ORDER BY {}", unindexed("d.run_id")),
            Self::ByRun => "ORDER BY d.run_id".to_owned(),
        }
    }
}

/// Reads every row that matches.
pub(crate) fn each(
    connection: &Connection,
    conditions: Conditions,
    with_disk: bool,
    reading: Reading,
    mut take: impl FnMut(&Summand<'_>) -> Result<()>,
) -> Result<()> {
    let disk = if with_disk { "d.disk" } else { "''" };
    let select = format!(
        "SELECT d.namespace_id, d.job_id, d.vm_id, d.run_id, d.status = 'done', d.started_ms, d.finished_ms, \
         {disk}, {COUNTS} FROM details d"
    );
    let order = reading.order(&conditions);
    conditions.each(connection, (&select, &order), |row| take(&read(row).or_error("read")?))
}

fn read<'a>(row: &'a Row<'_>) -> rusqlite::Result<Summand<'a>> {
    let count = |index: usize| -> rusqlite::Result<u64> {
        let value: i64 = row.get(index)?;
        u64::try_from(value).map_err(|cause| bad_value("a count", cause))
    };
    let done: bool = row.get(4)?;
    let status = if done { RowStatus::Done } else { RowStatus::Failed };
    Ok(Summand {
        refs: RowRefs { namespace: row.get(0)?, job: row.get(1)?, vm: row.get(2)?, run: row.get(3)? },
        disk: row.get_ref(7)?.as_str()?,
        row: DetailRow {
            status,
            started_ms: row.get(5)?,
            finished_ms: row.get(6)?,
            virtual_bytes: count(8)?,
            bytes: count(9)?,
            read_bytes: count(10)?,
            unchanged_bytes: count(11)?,
            dup_bytes: count(12)?,
            new_bytes: count(13)?,
            post_lc: count(14)?,
            meta_bytes: count(15)?,
            wire_bytes: count(16)?,
            chunks: count(17)?,
            new_chunks: count(18)?,
            retried_new_bytes: count(19)?,
            retried_post_lc: count(20)?,
            ..DetailRow::default()
        },
    })
}

/// Protected megabytes a second from the first start to the last finish, as a row's are counted.
pub(crate) fn mb_per_s(sums: &Totals) -> Option<f64> {
    details::mb_per_s(sums.bytes, sums.started_ms, sums.finished_ms)
}
