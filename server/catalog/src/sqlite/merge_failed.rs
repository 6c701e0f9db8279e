//! Keeps the compression details of attempts that made no restore point from growing without bound: beyond
//! [`FAILED_ROWS_PER_VM_MAX`] of a VM the oldest are added up, into one row for each job. The sums over a VM, a job and
//! the repository stay what they were, to the byte; what is lost is which old attempt cost what.

use rusqlite::{Row, Transaction, params};

use super::convert::{OrCatalogError, int};
use super::details::kept;
use crate::{FAILED_ROWS_PER_VM_MAX, Result};

/// The columns that are added up, in the order of [`Merged::sums`].
const COLUMNS: [&str; 9] = [
    "unchanged_bytes",
    "dup_bytes",
    "new_bytes",
    "read_bytes",
    "post_lc",
    "meta_bytes",
    "wire_bytes",
    "chunks",
    "new_chunks",
];

/// A sum is cut off here, so that `bytes`, which is three of them, fits its column.
const SUM_MAX: u64 = 1 << 60;

/// Disk name of a row of several attempts.
const DISK: &str = "earlier attempts";

/// One row that is to be merged.
struct Old {
    session: [u8; 16],
    position: u32,
    run: [u8; 16],
    job: [u8; 16],
    finished_ms: i64,
    rows: u64,
    sums: [u64; COLUMNS.len()],
}

/// Merges the oldest half of a VM's rows when there are too many: so it is done once in hundreds of attempts.
pub(crate) fn bound(tx: &Transaction<'_>, vm: [u8; 16]) -> Result<()> {
    let count: u32 = tx
        .prepare_cached("SELECT count(*) FROM details WHERE vm_id = ? AND status <> 'done'")
        .and_then(|mut s| s.query_row([vm], |row| row.get(0)))
        .or_error("read")?;
    if count <= FAILED_ROWS_PER_VM_MAX {
        return Ok(());
    }
    let old = oldest(tx, vm, count - FAILED_ROWS_PER_VM_MAX / 2)?;
    let mut jobs: Vec<[u8; 16]> = old.iter().map(|row| row.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    kept::follow(tx, "d.vm_id = ? AND d.status <> 'done'", &[vm], || {
        for job in jobs {
            let of_job: Vec<&Old> = old.iter().filter(|row| row.job == job).collect();
            if let [kept, merged @ ..] = of_job.as_slice()
                && !merged.is_empty()
            {
                merge(tx, kept, merged)?;
            }
        }
        Ok(())
    })
}

fn oldest(tx: &Transaction<'_>, vm: [u8; 16], limit: u32) -> Result<Vec<Old>> {
    let sums = COLUMNS.map(|column| format!("d.{column}")).join(", ");
    let sql = format!(
        "SELECT d.session_id, d.position, d.run_id, d.job_id, d.finished_ms, coalesce(m.rows, 1), {sums} \
         FROM details d LEFT JOIN merged_details m ON m.session_id = d.session_id AND m.position = d.position \
         WHERE d.vm_id = ? AND d.status <> 'done' ORDER BY d.started_ms, d.session_id, d.position LIMIT ?"
    );
    let read = |row: &Row<'_>| -> rusqlite::Result<Old> {
        let number = |column: usize| row.get::<_, i64>(column).map(|value| value.max(0).unsigned_abs());
        let mut sums = [0; COLUMNS.len()];
        for (place, sum) in sums.iter_mut().enumerate() {
            *sum = number(6 + place)?;
        }
        Ok(Old {
            session: row.get(0)?,
            position: row.get(1)?,
            run: row.get(2)?,
            job: row.get(3)?,
            finished_ms: row.get(4)?,
            rows: number(5)?,
            sums,
        })
    };
    tx.prepare_cached(&sql)
        .and_then(|mut s| s.query_map(params![vm, limit], read)?.collect())
        .or_error("read")
}

/// Adds `merged` to `kept`, all of one job, and removes them.
fn merge(tx: &Transaction<'_>, kept: &Old, merged: &[&Old]) -> Result<()> {
    let (mut sums, mut rows, mut finished_ms) = (kept.sums, kept.rows, kept.finished_ms);
    for old in merged {
        rows = rows.saturating_add(old.rows);
        finished_ms = finished_ms.max(old.finished_ms);
        for (sum, value) in sums.iter_mut().zip(old.sums) {
            *sum = sum.saturating_add(value).min(SUM_MAX);
        }
    }
    for old in merged {
        remove(tx, old, kept.run)?;
    }
    let assignments = COLUMNS.map(|column| format!("{column} = ?")).join(", ");
    let [unchanged, dup, new, ..] = sums;
    let error = format!("{rows} disks of earlier attempts that made no restore point, added up");
    let mut values: Vec<rusqlite::types::Value> = Vec::new();
    for (column, sum) in COLUMNS.iter().zip(sums) {
        values.push(int(column, sum)?.into());
    }
    values.push(int("bytes", unchanged + dup + new)?.into());
    values.push(finished_ms.into());
    values.push(DISK.to_owned().into());
    values.push(error.into());
    values.push(kept.session.to_vec().into());
    values.push(i64::from(kept.position).into());
    tx.prepare_cached(&format!(
        "UPDATE details SET {assignments}, bytes = ?, virtual_bytes = 0, finished_ms = ?, status = 'failed', \
         disk = ?, error = ? WHERE session_id = ? AND position = ?"
    ))
    .and_then(|mut s| s.execute(rusqlite::params_from_iter(values)))
    .or_error("write")?;
    tx.execute(
        "INSERT INTO merged_details (session_id, position, rows) VALUES (?, ?, ?) \
         ON CONFLICT (session_id, position) DO UPDATE SET rows = excluded.rows",
        params![kept.session, kept.position, int("rows", rows)?],
    )
    .or_error("write")?;
    tx.execute(
        "UPDATE runs SET finished_ms = ?1 WHERE id = ?2 AND finished_ms < ?1",
        params![finished_ms, kept.run],
    )
    .or_error("write")?;
    Ok(())
}

/// Removes a row; its run goes with it when nothing else is of that run, and its containers then are of `run`.
fn remove(tx: &Transaction<'_>, old: &Old, run: [u8; 16]) -> Result<()> {
    for table in ["details", "merged_details"] {
        tx.prepare_cached(&format!("DELETE FROM {table} WHERE session_id = ? AND position = ?"))
            .and_then(|mut s| s.execute(params![old.session, old.position]))
            .or_error("write")?;
    }
    let is_used: bool = tx
        .prepare_cached(
            "SELECT ?1 = ?2 OR EXISTS (SELECT 1 FROM details WHERE run_id = ?1) \
             OR EXISTS (SELECT 1 FROM backups WHERE run_id = ?1)",
        )
        .and_then(|mut s| s.query_row(params![old.run, run], |row| row.get(0)))
        .or_error("read")?;
    if !is_used {
        tx.prepare_cached("UPDATE containers SET run_id = ? WHERE run_id = ?")
            .and_then(|mut s| s.execute(params![run, old.run]))
            .or_error("write")?;
        tx.prepare_cached("DELETE FROM runs WHERE id = ?")
            .and_then(|mut s| s.execute([old.run]))
            .or_error("write")?;
        kept::count_runs(tx, old.job, -1)?;
    }
    Ok(())
}
