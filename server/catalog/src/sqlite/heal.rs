//! What is wrong with the database, and making good what follows from rows that are sound.
//!
//! A flipped bit hides rows: from a look-up by an index, or from everything. What is only in an index is made anew from the
//! table. Rows that a table lost stay lost, but for those of restore points: their points are on the volume.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, TransactionBehavior};

use super::connection::{self, open_reader};
use super::convert::OrCatalogError;
use super::{BUSY_TIMEOUT, quotas};
use crate::{CatalogError, GoOn, INTEGRITY_PROBLEMS_MAX, Result};

/// Steps of the database between two questions whether to go on: some milliseconds.
const STEPS: i32 = 100_000;

/// Restore points whose disks and details contradict each other: one lacks a row, or has another name or size.
const INCOMPLETE: &str = "SELECT b.id FROM backups b \
     WHERE (SELECT count(*) FROM disks k WHERE k.backup_id = b.id) \
         <> (SELECT count(*) FROM details d WHERE d.session_id = b.session_id) \
     OR EXISTS (SELECT 1 FROM disks k CROSS JOIN repository r \
         LEFT JOIN details d ON d.session_id = b.session_id AND d.position = k.position \
         WHERE k.backup_id = b.id AND (d.disk IS NOT k.name OR d.virtual_bytes IS NOT k.size_bytes \
             OR k.extent_count <> (k.size_bytes + r.chunker_extent_bytes - 1) / r.chunker_extent_bytes))";

/// Tables whose rows a point brings back, and the column that says of which restore point.
const OF_POINTS: [(&str, &str); 2] = [("backups", "id"), ("disks", "backup_id")];

/// Tables in which a row that differs from its entry in an index means no more than what it tells: history, and what the
/// references of the database check as well.
const TOLD: [&str; 4] = ["details", "audit", "containers", "task_log"];

/// Tables whose rows are about a restore point, and nothing without it.
const OF_BACKUPS: [&str; 5] =
    ["disks", "verifications", "damaged_disks", "attributed_backups", "backup_places"];

/// What is wrong with the database, its references and the rows of restore points.
pub(super) fn problems(connection: &Connection) -> Result<Vec<String>> {
    let mut problems = connection::problems(connection, INTEGRITY_PROBLEMS_MAX)?;
    let incomplete: i64 = connection
        .query_row(&format!("SELECT count(*) FROM ({INCOMPLETE})"), [], |row| row.get(0))
        .or_error("check")?;
    if incomplete > 0 {
        problems
            .push(format!("{incomplete} restore points lack a row of their disks, or it contradicts itself"));
    }
    Ok(problems)
}

/// As [`problems`], on a connection of its own, as long as `go_on` says so.
pub(super) fn look(path: &Path, mut go_on: GoOn) -> Result<Option<Vec<String>>> {
    if !go_on() {
        return Ok(None);
    }
    let mut connection = open_reader(path, BUSY_TIMEOUT)?;
    let stopped = Arc::new(AtomicBool::new(false));
    let is_stopped = Arc::clone(&stopped);
    let ask = move || {
        let stop = !go_on();
        is_stopped.fetch_or(stop, Ordering::Relaxed);
        stop
    };
    connection.progress_handler(STEPS, Some(ask)).or_error("check")?;
    let found = connection.unchecked_transaction().or_error("check").and_then(|snapshot| problems(&snapshot));
    if stopped.load(Ordering::Relaxed) {
        return Ok(None);
    }
    match found {
        Err(CatalogError::Corrupt { detail }) => Ok(Some(vec![detail])),
        found => found.map(Some),
    }
}

/// See [`Upkeep::heal`](crate::Upkeep::heal).
pub(super) fn heal(writer: &mut Connection) -> Result<Vec<String>> {
    let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate).or_error("write")?;
    let Differing { lost, doubtful } = differing(&tx)?;
    if !lost.is_empty() {
        return Ok(lost);
    }
    tx.execute_batch("REINDEX").or_error("write")?;
    for table in OF_BACKUPS {
        let sql = format!("DELETE FROM {table} WHERE backup_id NOT IN (SELECT id FROM backups)");
        tx.execute(&sql, []).or_error("write")?;
    }
    tx.execute(&format!("DELETE FROM backups WHERE id IN ({INCOMPLETE})"), []).or_error("write")?;
    for id in doubtful {
        tx.execute("DELETE FROM backups WHERE id = ?", [id]).or_error("write")?;
    }
    tx.execute_batch(quotas::ADD_UP).or_error("write")?;
    let problems = problems(&tx)?;
    if problems.is_empty() {
        tx.commit().or_error("write")?;
    }
    Ok(problems)
}

/// In what tables and their indexes differ.
#[derive(Default)]
struct Differing {
    /// What no point tells of.
    lost: Vec<String>,
    /// Restore points of which a row may be the one that is wrong.
    doubtful: Vec<Vec<u8>>,
}

fn differing(connection: &Connection) -> Result<Differing> {
    let indexes: Vec<(String, String, String)> = connection
        .prepare(
            "SELECT s.name, s.tbl_name, (SELECT group_concat('\"' || name || '\"') FROM pragma_index_xinfo(s.name) \
             WHERE name IS NOT NULL) FROM sqlite_schema s WHERE s.type = 'index' \
             AND coalesce(s.sql NOT LIKE '% WHERE %', true) ORDER BY s.name",
        )
        .and_then(|mut s| s.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect())
        .or_error("check")?;
    let count = |from: &str| -> Result<i64> {
        connection.query_row(&format!("SELECT count(*) FROM {from}"), [], |row| row.get(0)).or_error("check")
    };
    let mut found = Differing::default();
    for (index, table, columns) in indexes {
        let (rows, entries) =
            (format!("\"{table}\" NOT INDEXED"), format!("\"{table}\" INDEXED BY \"{index}\""));
        let there = count(&rows)?;
        // An index that cannot be read is made anew.
        let Ok(known) = count(&entries) else { continue };
        let other = format!("SELECT {columns} FROM {rows} EXCEPT SELECT {columns} FROM {entries}");
        if let Some((_, backup)) = OF_POINTS.iter().find(|(of, _)| *of == table) {
            let ids = connection
                .prepare(&format!("SELECT DISTINCT {backup} FROM ({other})"))
                .and_then(|mut s| s.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<_>>>());
            found.doubtful.extend(ids.or_error("check")?);
        } else if known > there || (!TOLD.contains(&table.as_str()) && count(&format!("({other})"))? > 0) {
            found.lost.push(format!("rows of {table} are lost or changed"));
        }
    }
    Ok(found)
}
