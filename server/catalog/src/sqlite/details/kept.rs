//! Compression details of each VM in each job added up, over all time. They are statistics: a sum that is wrong keeps nothing
//! from going on (W18).

use std::collections::HashMap;

use holdfast_proto::details::Totals;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params, params_from_iter};
use ulid::Ulid;

use super::super::attempt_refs::AttemptRefs;
use super::super::convert::{OrCatalogError, id, kept_sum};
use super::super::schema;
use super::super::select::Conditions;
use super::sums::{self, Reading, RowRefs};
use crate::{DetailRow, Result};

/// The columns of sums.
const COLUMNS: [&str; 10] = [
    "rows",
    "failed",
    "bytes",
    "new_bytes",
    "post_lc",
    "meta_bytes",
    "wire_bytes",
    "done_bytes",
    "done_new_bytes",
    "done_post_lc",
];

/// Number of columns that count rows, and have no end.
const COUNTS: usize = 2;

/// The end of a sum of bytes, since a disk may claim a pebibyte. A sum that has met it stays there.
const SUM_MAX: i64 = 1 << 62;

type Sums = [i64; COLUMNS.len()];

/// Job and VM.
type Key = ([u8; 16], [u8; 16]);

/// Counts a new row. (W18) In the transaction that writes it.
pub(crate) fn count(tx: &Transaction<'_>, refs: &AttemptRefs, row: &DetailRow) -> Result<()> {
    let mut sums = Sums::default();
    add_row(&mut sums, row);
    add_sums(tx, (refs.job, refs.vm), sums)
}

/// Runs `change`, which removes or changes rows of `details d` that match `condition`, before and after. (W18) Their sums
/// change in the same transaction.
pub(crate) fn follow(
    tx: &Transaction<'_>,
    condition: &str,
    values: &[[u8; 16]],
    change: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let rows = || {
        let mut rows = Conditions::default();
        rows.push(condition, values.iter().map(|id| Value::Blob(id.to_vec())));
        counted(tx, rows)
    };
    let before = rows()?;
    change()?;
    for (key, sums) in before {
        write(tx, key, sums, |column, sum, by| {
            let has_ended = column >= COUNTS && sum >= SUM_MAX;
            if has_ended { sum } else { sum.saturating_sub(by) }
        })?;
    }
    rows()?.into_iter().try_for_each(|(key, sums)| add_sums(tx, key, sums))
}

fn add_sums(tx: &Transaction<'_>, key: Key, sums: Sums) -> Result<()> {
    write(tx, key, sums, |column, sum, by| end(column, sum.saturating_add(by)))
}

fn end(column: usize, sum: i64) -> i64 {
    if column < COUNTS { sum } else { sum.min(SUM_MAX) }
}

/// Changes each sum of a job and VM by what `change` makes of the column, the sum and `by`; those of no rows go.
fn write(
    tx: &Transaction<'_>,
    (job, vm): Key,
    by: Sums,
    change: impl Fn(usize, i64, i64) -> i64,
) -> Result<()> {
    let columns = COLUMNS.join(", ");
    let read = |row: &Row<'_>| {
        let mut sums = Sums::default();
        for (sum, column) in sums.iter_mut().zip(COLUMNS) {
            *sum = i64::try_from(kept_sum(row, column)?).unwrap_or(i64::MAX);
        }
        Ok(sums)
    };
    let mut sums = tx
        .prepare_cached(&format!("SELECT {columns} FROM detail_sums WHERE job_id = ? AND vm_id = ?"))
        .and_then(|mut s| s.query_row([job, vm], read).optional())
        .or_error("read")?
        .unwrap_or_default();
    for (column, (sum, by)) in sums.iter_mut().zip(by).enumerate() {
        *sum = change(column, *sum, by);
    }
    if sums[0] <= 0 {
        tx.prepare_cached("DELETE FROM detail_sums WHERE job_id = ? AND vm_id = ?")
            .and_then(|mut s| s.execute([job, vm]))
            .or_error("write")?;
        return Ok(());
    }
    let set = COLUMNS.map(|column| format!("{column} = excluded.{column}")).join(", ");
    tx.prepare_cached(&format!(
        "INSERT INTO detail_sums (job_id, vm_id, {columns}) VALUES (?, ?{}) \
         ON CONFLICT (job_id, vm_id) DO UPDATE SET {set}",
        ", ?".repeat(COLUMNS.len())
    ))
    .and_then(|mut s| {
        let ids = [job, vm].map(|id| Value::Blob(id.to_vec()));
        s.execute(params_from_iter(ids.into_iter().chain(sums.map(Value::Integer))))
    })
    .or_error("write")?;
    Ok(())
}

/// Changes the number of a job's runs.
pub(crate) fn count_runs(tx: &Transaction<'_>, job: [u8; 16], by: i64) -> Result<()> {
    tx.prepare_cached("UPDATE jobs SET runs = runs + ? WHERE id = ?")
        .and_then(|mut s| s.execute(params![by, job]))
        .or_error("write")?;
    Ok(())
}

/// Makes the table anew, empty. It goes, damaged pages included.
pub(crate) fn make_table(tx: &Transaction<'_>) -> Result<()> {
    tx.execute_batch("DROP TABLE IF EXISTS detail_sums")
        .and_then(|()| tx.execute_batch(schema::statements("detail_sums")))
        .or_error("write")
}

/// Makes all of them anew, of the rows that there are.
pub(crate) fn add_up(tx: &Transaction<'_>) -> Result<()> {
    make_table(tx)?;
    for (key, sums) in counted(tx, Conditions::default())? {
        add_sums(tx, key, sums)?;
    }
    tx.execute("UPDATE jobs SET runs = (SELECT count(*) FROM runs r WHERE r.job_id = jobs.id)", [])
        .or_error("write")?;
    Ok(())
}

/// The sums of rows that match.
fn counted(connection: &Connection, rows: Conditions) -> Result<HashMap<Key, Sums>> {
    let mut counted = HashMap::<Key, Sums>::new();
    sums::each(connection, rows, false, Reading::AsTheyLie, |summand| {
        let RowRefs { job, vm, .. } = summand.refs;
        add_row(counted.entry((job, vm)).or_default(), &summand.row);
        Ok(())
    })?;
    Ok(counted)
}

fn add_row(sums: &mut Sums, row: &DetailRow) {
    let mut one = Totals::default();
    one.add(row);
    let columns = [
        one.rows,
        one.failed,
        one.bytes,
        one.new_bytes,
        one.post_lc,
        one.meta_bytes,
        one.wire_bytes,
        one.done_bytes,
        one.done_new_bytes,
        one.done_post_lc,
    ];
    for (column, (sum, value)) in sums.iter_mut().zip(columns).enumerate() {
        *sum = end(column, sum.saturating_add(i64::try_from(value).unwrap_or(i64::MAX)));
    }
}

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
                done_bytes: kept_sum(row, "done_bytes")?,
                done_new_bytes: kept_sum(row, "done_new_bytes")?,
                done_post_lc: kept_sum(row, "done_post_lc")?,
                ..Totals::default()
            };
            Ok(Some(Kept { job, vm, sums }))
        };
        read().or_error("read")?.map_or(Ok(()), &mut take)
    })
}

/// Sums that are not what they should be, for the integrity check: the rows themselves are added up.
pub(crate) fn problems(connection: &Connection) -> Result<Vec<String>> {
    let mut counted = counted(connection, Conditions::default())?;
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
    add(&mut sum.done_bytes, other.done_bytes);
    add(&mut sum.done_new_bytes, other.done_new_bytes);
    add(&mut sum.done_post_lc, other.done_post_lc);
}
