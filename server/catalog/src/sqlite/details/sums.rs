//! Reading rows to add them up.

use holdfast_proto::details::Totals;
use rusqlite::{Connection, Row};

use super::super::convert::{OrCatalogError, bad_value};
use super::super::select::Conditions;
use crate::{DetailRow, Result, RowStatus, TotalsBy};

/// What a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowRefs {
    pub(crate) namespace: [u8; 16],
    pub(crate) job: [u8; 16],
    pub(crate) vm: [u8; 16],
    pub(crate) run: [u8; 16],
}

/// What makes two rows of one group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Group {
    All,
    Of([u8; 16]),
    Disk([u8; 16], Box<str>),
}

/// What a row belongs to, its disk (empty unless asked for) and its numbers; other texts are not read.
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
     d.post_lc, d.meta_bytes, d.wire_bytes, d.chunks, d.new_chunks";

/// How rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    AsTheyLie,
    /// Every row of a run before those of the next, in order of when the runs were begun, as their identifiers say.
    ByRun,
}

impl Reading {
    /// The index of runs is all but the order in which rows were written; few rows are sorted.
    pub(crate) const fn order(self, conditions: &Conditions) -> &'static str {
        match self {
            Self::AsTheyLie => "",
            Self::ByRun if conditions.led => "ORDER BY +d.run_id",
            Self::ByRun => "ORDER BY d.run_id",
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

/// The sums that triggers keep: of a VM's rows in a job, over all time.
pub(crate) mod kept {
    use std::collections::HashMap;

    use holdfast_proto::details::Totals;
    use rusqlite::{Connection, Transaction};
    use ulid::Ulid;

    use super::super::super::convert::{OrCatalogError, id, kept_sum};
    use super::super::super::schema;
    use super::super::super::select::Conditions;
    use super::{Reading, RowRefs};
    use crate::{DetailRow, Result, RowStatus};

    /// The end of a sum, as in the triggers.
    const SUM_MAX: i64 = 1 << 62;

    /// Makes the table anew, empty. It goes, damaged pages included.
    pub(crate) fn make_table(tx: &Transaction<'_>) -> Result<()> {
        tx.execute_batch("DROP TABLE IF EXISTS detail_sums")
            .and_then(|()| tx.execute_batch(schema::statements("detail_sums")))
            .or_error("write")
    }

    /// Makes all of them anew, of the rows that there are.
    pub(crate) fn add_up(tx: &Transaction<'_>) -> Result<()> {
        make_table(tx)?;
        tx.execute_batch(ADD_UP).or_error("write")
    }

    const ADD_UP: &str = "INSERT INTO detail_sums (job_id, vm_id, rows, failed, bytes, new_bytes, post_lc, meta_bytes, \
         wire_bytes) \
         SELECT job_id, vm_id, 1, status <> 'done', min(bytes, 1 << 62), min(new_bytes, 1 << 62), min(post_lc, 1 << 62), \
         min(meta_bytes, 1 << 62), min(wire_bytes, 1 << 62) FROM details WHERE true \
         ON CONFLICT (job_id, vm_id) DO UPDATE SET rows = rows + 1, failed = failed + excluded.failed, \
         bytes = min(bytes + excluded.bytes, 1 << 62), new_bytes = min(new_bytes + excluded.new_bytes, 1 << 62), \
         post_lc = min(post_lc + excluded.post_lc, 1 << 62), meta_bytes = min(meta_bytes + excluded.meta_bytes, 1 << 62), \
         wire_bytes = min(wire_bytes + excluded.wire_bytes, 1 << 62); \
         UPDATE jobs SET runs = (SELECT count(*) FROM runs r WHERE r.job_id = jobs.id)";

    pub(crate) struct Kept {
        pub(crate) job: [u8; 16],
        pub(crate) vm: [u8; 16],
        pub(crate) sums: Totals,
    }

    /// Conditions may be on `s`, the sums, and `j`, their jobs.
    pub(crate) fn each(
        connection: &Connection,
        conditions: Conditions,
        mut take: impl FnMut(Kept) -> Result<()>,
    ) -> Result<()> {
        let select = "SELECT s.* FROM detail_sums s JOIN jobs j ON j.id = s.job_id";
        conditions.each(connection, (select, ""), |row| {
            let id = |column: &str| -> rusqlite::Result<Option<[u8; 16]>> {
                Ok(row.get_ref(column)?.as_blob().ok().and_then(|id| id.try_into().ok()))
            };
            let read = || -> rusqlite::Result<Option<Kept>> {
                // One that is no identifier is of nothing.
                let (Some(job), Some(vm)) = (id("job_id")?, id("vm_id")?) else { return Ok(None) };
                let sums = Totals {
                    rows: kept_sum(row, "rows")?,
                    failed: kept_sum(row, "failed")?,
                    bytes: kept_sum(row, "bytes")?,
                    new_bytes: kept_sum(row, "new_bytes")?,
                    post_lc: kept_sum(row, "post_lc")?,
                    meta_bytes: kept_sum(row, "meta_bytes")?,
                    wire_bytes: kept_sum(row, "wire_bytes")?,
                    ..Totals::default()
                };
                Ok(Some(Kept { job, vm, sums }))
            };
            read().or_error("read")?.map_or(Ok(()), &mut take)
        })
    }

    /// Sums that are not what they should be, for the integrity check: the rows themselves are added up.
    pub(crate) fn problems(connection: &Connection) -> Result<Vec<String>> {
        let mut counted: HashMap<([u8; 16], [u8; 16]), [i64; 7]> = HashMap::new();
        super::each(connection, Conditions::default(), false, Reading::AsTheyLie, |summand| {
            let RowRefs { job, vm, .. } = summand.refs;
            let sums = counted.entry((job, vm)).or_default();
            for (sum, value) in sums.iter_mut().zip(columns(&summand.row)) {
                *sum = sum.saturating_add(i64::try_from(value).unwrap_or(i64::MAX)).min(SUM_MAX);
            }
            Ok(())
        })?;
        let mut wrong = Vec::new();
        // Not by way of jobs: sums of one that is not there are wrong, too.
        Conditions::default().each(connection, ("SELECT * FROM detail_sums", ""), |row| {
            let value = |index: usize| row.get_ref(index).or_error("check");
            // One that is no identifier has no rows.
            let key = |index: usize| -> Result<[u8; 16]> {
                Ok(value(index)?.as_blob().ok().and_then(|id| id.try_into().ok()).unwrap_or_default())
            };
            let (job, vm) = (key(0)?, key(1)?);
            let counted = counted.remove(&(job, vm)).unwrap_or_default();
            for (column, (name, sum)) in COLUMNS.iter().zip(counted).enumerate() {
                let kept = value(2 + column)?.as_i64().ok();
                // A sum that has met its end stays there, whatever goes.
                if (column == 0 && sum == 0) || (kept != Some(sum) && kept != Some(SUM_MAX)) {
                    wrong.push((job, vm, format!("{name} are {sum}, and not {kept:?}")));
                    break;
                }
            }
            Ok(())
        })?;
        wrong.extend(counted.into_keys().map(|(job, vm)| (job, vm, "there is no sum".to_owned())));
        let mut problems = Vec::new();
        let runs =
            "SELECT j.id, j.runs, (SELECT count(*) FROM runs r WHERE r.job_id = j.id) AS counted FROM jobs j";
        Conditions::default().each(connection, (runs, ""), |row| {
            let (kept, counted): (i64, i64) =
                (row.get("runs").or_error("check")?, row.get("counted").or_error("check")?);
            if kept != counted {
                let job = Ulid::from_bytes(id(row, "id").or_error("check")?);
                problems.push(format!("job {job} is on record with {kept} runs, but has {counted}"));
            }
            Ok(())
        })?;
        problems.extend(wrong.into_iter().map(|(job, vm, what)| {
            let (job, vm) = (Ulid::from_bytes(job), Ulid::from_bytes(vm));
            format!("the compression details of VM {vm} in job {job} add up differently: {what}")
        }));
        Ok(problems)
    }

    /// The columns of sums, in the table's order.
    const COLUMNS: [&str; 7] =
        ["rows", "failed", "bytes", "new_bytes", "post_lc", "meta_bytes", "wire_bytes"];

    /// Returns a row's share of each of [`COLUMNS`].
    fn columns(row: &DetailRow) -> [u64; 7] {
        let failed = u64::from(row.status != RowStatus::Done);
        [1, failed, row.bytes, row.new_bytes, row.post_lc, row.meta_bytes, row.wire_bytes]
    }

    /// Returns only the kept columns of `sums`.
    pub(crate) fn only(sums: &Totals) -> Totals {
        let mut kept = Totals::default();
        add(&mut kept, sums);
        kept
    }

    pub(crate) fn add(sum: &mut Totals, other: &Totals) {
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
pub(crate) fn mb_per_s(sums: &Totals) -> Option<f64> {
    use holdfast_proto::details::RowExt;
    let Totals { bytes, started_ms, finished_ms, .. } = *sums;
    DetailRow { bytes, started_ms, finished_ms, ..DetailRow::default() }.mb_per_s()
}
