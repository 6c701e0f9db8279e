//! A VM's runs, and what was found of each by comparing it with those before.

use std::collections::HashMap;

use holdfast_types::ids::{RunId, SessionId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::super::convert::{OrCatalogError, count, id};
use super::filter;
use super::history::LATEST_FIRST;
use crate::{Amounts, DetailFilter, FINDINGS_LISTED_MAX, FindingRow, Result, RunSums};

/// Rows read of a VM at most, some milliseconds' worth: of one with more than 32 disks fewer runs are compared.
const ROWS_MAX: u32 = 4096;

/// Rows up to one, latest first. A disk is a first one when the run had no restore point to build on, as after all of them were
/// deleted, and when none before has it.
pub(crate) const RUNS: &str = "SELECT d.session_id, d.started_ms, d.finished_ms, d.bytes, d.read_bytes, d.dup_bytes, \
     d.new_bytes + d.retried_new_bytes AS new_bytes, d.post_lc + d.retried_post_lc AS stored_bytes, \
     d.retried_post_lc, d.retried_new_bytes, (d.first_full OR NOT EXISTS (SELECT 1 FROM details e \
     WHERE e.vm_id = d.vm_id AND e.disk = d.disk AND e.status = 'done' \
     AND (e.started_ms, e.run_id, e.session_id, e.position) < \
     (d.started_ms, d.run_id, d.session_id, d.position))) AS first FROM details d";

pub(crate) const UP_TO: &str = "d.vm_id = ? AND d.status = 'done' AND \
     (d.started_ms, d.run_id, d.session_id, d.position) <= (?, ?, ?, ?)";

/// Up to `limit` runs of the VM that `session` backed up, that one last; none when it made no restore point.
pub(crate) fn runs(connection: &Connection, session: SessionId, limit: u32) -> Result<Vec<RunSums>> {
    let last: Option<([u8; 16], i64, [u8; 16], u32)> = connection
        .prepare_cached(
            "SELECT d.vm_id, d.started_ms, d.run_id, d.position FROM details d WHERE d.session_id = ? \
             AND d.status = 'done' ORDER BY d.started_ms DESC, d.position DESC LIMIT 1",
        )
        .and_then(|mut s| {
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
            s.query_row([session.to_bytes()], read).optional()
        })
        .or_error("read")?;
    let Some((vm, started_ms, run, position)) = last else { return Ok(Vec::new()) };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut statement = connection
        .prepare_cached(&format!("{RUNS} WHERE {UP_TO} {LATEST_FIRST} LIMIT ?"))
        .or_error("read")?;
    let mut rows = statement
        .query(params![vm, started_ms, run, session.to_bytes(), position, ROWS_MAX])
        .or_error("read")?;
    let (mut runs, mut places): (Vec<RunSums>, _) = (Vec::new(), HashMap::<[u8; 16], usize>::new());
    while let Some(row) = rows.next().or_error("read")? {
        let of: [u8; 16] = id(row, "session_id").or_error("read")?;
        let place = *places.entry(of).or_insert(runs.len());
        if place == limit {
            break;
        }
        if place == runs.len() {
            runs.push(RunSums { started_ms: i64::MAX, ..RunSums::default() });
        }
        if let Some(run) = runs.get_mut(place) {
            add(run, row).or_error("read")?;
        }
    }
    runs.reverse();
    Ok(runs)
}

fn add(run: &mut RunSums, row: &Row<'_>) -> rusqlite::Result<()> {
    run.started_ms = run.started_ms.min(row.get("started_ms")?);
    run.finished_ms = run.finished_ms.max(row.get("finished_ms")?);
    let amounts = Amounts {
        bytes: count(row, "bytes")?,
        read_bytes: count(row, "read_bytes")?,
        // What attempts before it stored it found there, and it was new all the same.
        dup_bytes: count(row, "dup_bytes")?.saturating_sub(count(row, "retried_new_bytes")?),
        new_bytes: count(row, "new_bytes")?,
        stored_bytes: count(row, "stored_bytes")?,
        retried_bytes: count(row, "retried_post_lc")?,
    };
    let sum = if row.get("first")? { &mut run.first } else { &mut run.known };
    sum.add(&amounts);
    Ok(())
}

/// Keeps what was found of a session, with the disk that brought most.
pub(crate) fn record(tx: &Transaction<'_>, session: SessionId, found: &str) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO findings (session_id, position, finished_ms, found) \
         SELECT session_id, position, finished_ms, ?2 FROM details WHERE session_id = ?1 \
         ORDER BY new_bytes + retried_new_bytes DESC, position LIMIT 1 \
         ON CONFLICT (session_id) DO UPDATE SET position = excluded.position, finished_ms = excluded.finished_ms, \
         found = excluded.found",
    )
    .and_then(|mut s| s.execute(params![session.to_bytes(), found]))
    .or_error("write")?;
    Ok(())
}

pub(crate) fn remove(tx: &Transaction<'_>, session: SessionId) -> Result<()> {
    tx.prepare_cached("DELETE FROM findings WHERE session_id = ?")
        .and_then(|mut s| s.execute([session.to_bytes()]))
        .or_error("write")
        .map(drop)
}

/// Returns the finding of one row, as it was recorded.
pub(crate) fn of_row(connection: &Connection, session: SessionId, position: u32) -> Result<Option<String>> {
    connection
        .prepare_cached("SELECT found FROM findings WHERE session_id = ? AND position = ?")
        .and_then(|mut s| s.query_row(params![session.to_bytes(), position], found_of).optional())
        .or_error("read")
}

/// (W18) A text that is damaged is one that cannot be parsed, and keeps no other from being read.
fn found_of(row: &Row<'_>) -> rusqlite::Result<String> {
    Ok(String::from_utf8_lossy(row.get_ref("found")?.as_bytes()?).into_owned())
}

/// Few are found: they lead, and their rows are looked up.
pub(crate) const SELECT: &str = "SELECT f.found, n.name AS namespace, j.name AS job, v.name AS vm, d.run_id, \
     EXISTS (SELECT 1 FROM details e WHERE e.vm_id = d.vm_id AND e.status = 'done' AND e.started_ms > d.started_ms \
     AND e.session_id <> d.session_id) AS is_over \
     FROM findings f JOIN details d ON d.session_id = f.session_id AND d.position = f.position \
     JOIN namespaces n ON n.id = d.namespace_id JOIN jobs j ON j.id = d.job_id JOIN vms v ON v.id = d.vm_id";

/// The latest of what was found of rows that match, the latest first.
pub(crate) fn list(connection: &Connection, asked: &DetailFilter) -> Result<Vec<FindingRow>> {
    let Some(mut conditions) = filter::in_order(connection, asked)? else { return Ok(Vec::new()) };
    // What began since then ended since then.
    for (time_ms, comparison) in
        [(asked.since_ms, ">="), (asked.finished_since_ms, ">="), (asked.finished_until_ms, "<")]
    {
        if let Some(time_ms) = time_ms {
            conditions.push(&format!("f.finished_ms {comparison} ?"), [Value::Integer(time_ms)]);
        }
    }
    let mut found = Vec::new();
    let order = format!("ORDER BY f.finished_ms DESC LIMIT {FINDINGS_LISTED_MAX}");
    conditions.each(connection, (SELECT, &order), |row| {
        found.push(read(row).or_error("read")?);
        Ok(())
    })?;
    Ok(found)
}

fn read(row: &Row<'_>) -> rusqlite::Result<FindingRow> {
    Ok(FindingRow {
        namespace: row.get("namespace")?,
        job: row.get("job")?,
        vm: row.get("vm")?,
        run: RunId::from_bytes(id(row, "run_id")?),
        found: found_of(row)?,
        is_over: row.get("is_over")?,
    })
}
