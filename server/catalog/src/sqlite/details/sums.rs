//! Reading rows to add them up.

use holdfast_proto::details::Totals;
use rusqlite::{Connection, Row};

use super::super::convert::{OrCatalogError, bad_value};
use super::super::select::Conditions;
use crate::{DetailRow, Result, RowStatus, TotalsBy};

/// What a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sqlite) struct RowRefs {
    pub(in crate::sqlite) namespace: [u8; 16],
    pub(in crate::sqlite) job: [u8; 16],
    pub(in crate::sqlite) vm: [u8; 16],
    pub(in crate::sqlite) run: [u8; 16],
}

/// What makes two rows of one group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::sqlite) enum Group {
    All,
    Of([u8; 16]),
    Disk([u8; 16], Box<str>),
}

/// What a row belongs to, its disk (empty unless asked for) and its numbers; other texts are not read.
pub(in crate::sqlite) struct Summand<'a> {
    pub(in crate::sqlite) refs: RowRefs,
    pub(in crate::sqlite) disk: &'a str,
    pub(in crate::sqlite) row: DetailRow,
}

impl Summand<'_> {
    /// The group it belongs to.
    pub(in crate::sqlite) fn group(&self, by: TotalsBy) -> Group {
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
     d.post_lc, d.meta_bytes, d.wire_bytes, d.chunks, d.new_chunks";

/// How rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sqlite) enum Reading {
    AsTheyLie,
    /// Every row of a run before those of the next, in order of when the runs were begun, as their identifiers say.
    ByRun,
}

impl Reading {
    /// The index of runs is all but the order in which rows were written; few rows are sorted.
    pub(in crate::sqlite) const fn order(self, conditions: &Conditions) -> &'static str {
        match self {
            Self::AsTheyLie => "",
            Self::ByRun if conditions.led => "ORDER BY +d.run_id",
            Self::ByRun => "ORDER BY d.run_id",
        }
    }
}

/// Reads every row that matches.
pub(in crate::sqlite) fn each(
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
    conditions.each(connection, (&select, order), |row| take(&read(row).or_error("read")?))
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
            ..DetailRow::default()
        },
    })
}

/// The sums that triggers keep (migration 0024): of a VM's rows in a job, over all time.
pub(in crate::sqlite) mod kept {
    use std::collections::HashMap;

    use holdfast_proto::details::Totals;
    use rusqlite::Connection;
    use ulid::Ulid;

    use super::super::super::convert::{OrCatalogError, count, id};
    use super::super::super::select::Conditions;
    use super::{Reading, RowRefs};
    use crate::Result;
    use crate::wire::add_to;

    /// Makes all of them anew, of the rows that there are.
    pub(in crate::sqlite) const ADD_UP: &str = "DELETE FROM detail_sums; \
         INSERT INTO detail_sums (job_id, vm_id, rows, failed, bytes, new_bytes, post_lc, meta_bytes, wire_bytes) \
         SELECT job_id, vm_id, 1, status <> 'done', bytes, new_bytes, post_lc, meta_bytes, wire_bytes \
         FROM details WHERE true \
         ON CONFLICT (job_id, vm_id) DO UPDATE SET rows = rows + 1, failed = failed + excluded.failed, \
         bytes = min(bytes + excluded.bytes, 1 << 62), new_bytes = min(new_bytes + excluded.new_bytes, 1 << 62), \
         post_lc = min(post_lc + excluded.post_lc, 1 << 62), meta_bytes = min(meta_bytes + excluded.meta_bytes, 1 << 62), \
         wire_bytes = min(wire_bytes + excluded.wire_bytes, 1 << 62); \
         UPDATE jobs SET runs = (SELECT count(*) FROM runs r WHERE r.job_id = jobs.id)";

    pub(in crate::sqlite) struct Kept {
        pub(in crate::sqlite) job: [u8; 16],
        pub(in crate::sqlite) vm: [u8; 16],
        pub(in crate::sqlite) sums: Totals,
    }

    /// Conditions may be on `s`, the sums, and `j`, their jobs.
    pub(in crate::sqlite) fn each(
        connection: &Connection,
        conditions: Conditions,
        mut take: impl FnMut(Kept) -> Result<()>,
    ) -> Result<()> {
        let select = "SELECT s.* FROM detail_sums s JOIN jobs j ON j.id = s.job_id";
        conditions.each(connection, (select, ""), |row| {
            let read = || -> rusqlite::Result<Kept> {
                let sums = Totals {
                    rows: count(row, "rows")?,
                    failed: count(row, "failed")?,
                    bytes: count(row, "bytes")?,
                    new_bytes: count(row, "new_bytes")?,
                    post_lc: count(row, "post_lc")?,
                    meta_bytes: count(row, "meta_bytes")?,
                    wire_bytes: count(row, "wire_bytes")?,
                    ..Totals::default()
                };
                Ok(Kept { job: id(row, "job_id")?, vm: id(row, "vm_id")?, sums })
            };
            take(read().or_error("read")?)
        })
    }

    /// Sums that are not what they should be, for the integrity check: the rows themselves are added up.
    pub(in crate::sqlite) fn problems(connection: &Connection) -> Result<Vec<String>> {
        let mut counted: HashMap<([u8; 16], [u8; 16]), Totals> = HashMap::new();
        super::each(connection, Conditions::default(), false, Reading::AsTheyLie, |summand| {
            let RowRefs { job, vm, .. } = summand.refs;
            add_to(counted.entry((job, vm)).or_default(), &summand.row);
            Ok(())
        })?;
        let mut wrong = Vec::new();
        each(connection, Conditions::default(), |Kept { job, vm, sums }| {
            let counted = counted.remove(&(job, vm)).unwrap_or_default();
            // A sum ends at 2^62, long before one in memory.
            if sums != only(&counted) && sums.bytes < 1 << 62 {
                wrong.push((job, vm, sums.rows, counted.rows));
            }
            Ok(())
        })?;
        wrong.extend(counted.into_iter().map(|((job, vm), sums)| (job, vm, 0, sums.rows)));
        let runs =
            "SELECT j.id, j.runs, (SELECT count(*) FROM runs r WHERE r.job_id = j.id) AS counted FROM jobs j";
        let mut problems = Vec::new();
        Conditions::default().each(connection, (runs, ""), |row| {
            let (kept, counted) =
                (count(row, "runs").or_error("check")?, count(row, "counted").or_error("check")?);
            if kept != counted {
                let job = Ulid::from_bytes(id(row, "id").or_error("check")?);
                problems.push(format!("job {job} is on record with {kept} runs, but has {counted}"));
            }
            Ok(())
        })?;
        problems.extend(wrong.into_iter().map(|(job, vm, kept, counted)| {
            let (job, vm) = (Ulid::from_bytes(job), Ulid::from_bytes(vm));
            format!("sums of {kept} rows are kept for VM {vm} in job {job}, but its {counted} rows add up differently")
        }));
        Ok(problems)
    }

    /// What is kept of `sums`.
    pub(in crate::sqlite) fn only(sums: &Totals) -> Totals {
        let mut kept = Totals::default();
        add(&mut kept, sums);
        kept
    }

    pub(in crate::sqlite) fn add(sum: &mut Totals, other: &Totals) {
        let add = |sum: &mut u64, value: u64| *sum = sum.saturating_add(value);
        add(&mut sum.rows, other.rows);
        add(&mut sum.failed, other.failed);
        add(&mut sum.bytes, other.bytes);
        add(&mut sum.new_bytes, other.new_bytes);
        add(&mut sum.post_lc, other.post_lc);
        add(&mut sum.meta_bytes, other.meta_bytes);
        add(&mut sum.wire_bytes, other.wire_bytes);
    }
}

/// Protected megabytes a second from the first start to the last finish, as a row's are counted.
pub(in crate::sqlite) fn mb_per_s(sums: &Totals) -> Option<f64> {
    use holdfast_proto::details::RowExt;
    let Totals { bytes, started_ms, finished_ms, .. } = *sums;
    DetailRow { bytes, started_ms, finished_ms, ..DetailRow::default() }.mb_per_s()
}
