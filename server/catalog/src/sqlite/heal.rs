//! Finds problems in the database, and makes good what follows from rows that are sound.
//!
//! A flipped bit hides rows: from a look-up by an index, or from everything. What is only in an index is made anew from the
//! table. Rows that a table lost stay lost, but for those of restore points: their points are on the volume.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::connection::{self, open_reader};
use super::convert::OrCatalogError;
use super::details::kept;
use super::{BUSY_TIMEOUT, backups, usage};
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

const INCOMPLETE_WORDS: &str = " restore points lack a row of their disks, or it contradicts itself";

/// Tables whose rows a point brings back.
const OF_POINTS: [&str; 2] = ["backups", "disks"];

/// Tables of which an index that is wrong may be made anew of the rows, whichever of the two is wrong: history, and what the
/// references of the database check as well.
const TOLD: [&str; 4] = ["details", "audit", "containers", "task_log"];

/// The only index with the order of restore points: if a row is wrong, nothing else says so.
const OF_ORDER: &str = "sqlite_autoindex_backups_3";

/// Tables whose rows are about a restore point, and nothing without it.
pub(crate) const OF_BACKUPS: [&str; 6] =
    ["disks", "verifications", "damaged_disks", "attributed_backups", "backup_places", "in_doubt"];

/// Problems in the database, its references and the rows of restore points.
pub(crate) fn problems(connection: &Connection) -> Result<Vec<String>> {
    let mut problems = connection::problems(connection, INTEGRITY_PROBLEMS_MAX)?;
    let incomplete: i64 = connection
        .query_row(&format!("SELECT count(*) FROM ({INCOMPLETE})"), [], |row| row.get(0))
        .or_error("check")?;
    if incomplete > 0 {
        problems
            .push(format!("{incomplete} restore points lack a row of their disks, or it contradicts itself"));
    }
    // The database accepts a column of another name, and text that is not UTF-8.
    if let Err(error) = backups::read_each(connection) {
        problems.push(format!("a restore point cannot be read: {error}"));
    }
    Ok(problems)
}

/// Runs `problems` on a connection of its own, as long as `go_on` says so.
pub(crate) fn look(
    path: &Path,
    mut go_on: GoOn,
    problems: fn(&Connection) -> Result<Vec<String>>,
) -> Result<Option<Vec<String>>> {
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

/// Lists sums that are wrong.
pub(crate) fn sum_problems(connection: &Connection) -> Result<Vec<String>> {
    let mut problems = usage::problems(connection)?;
    problems.extend(kept::problems(connection)?);
    Ok(problems)
}

/// Makes all sums anew, of the rows that there are.
pub(crate) fn add_up(tx: &Transaction<'_>) -> Result<()> {
    usage::add_up(tx)?;
    kept::add_up(tx)
}

/// Implements [`Catalog::heal`](crate::Catalog::heal).
pub(crate) fn heal(writer: &mut Connection) -> Result<Vec<String>> {
    // The sort for an index may take hundreds of megabytes.
    let temporary =
        |writer: &Connection, store| writer.pragma_update(None, "temp_store", store).or_error("write");
    temporary(writer, "FILE")?;
    let healed = heal_in(writer);
    temporary(writer, "MEMORY")?;
    healed
}

fn heal_in(writer: &mut Connection) -> Result<Vec<String>> {
    let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate).or_error("write")?;
    // (W18) Before its problems count: what is in it follows from others. SQLite drops no table with a page it cannot read.
    kept::make_table(&tx)?;
    let found = problems(&tx)?;
    let objects = found.iter().map(|problem| object(&tx, problem)).collect::<Result<Vec<_>>>()?;
    if !may_heal(&objects) {
        return Ok(found);
    }
    tx.execute_batch("REINDEX").or_error("write")?;
    for table in OF_BACKUPS {
        let sql = format!("DELETE FROM {table} WHERE backup_id NOT IN (SELECT id FROM backups)");
        tx.execute(&sql, []).or_error("write")?;
    }
    tx.execute(&format!("DELETE FROM backups WHERE id IN ({INCOMPLETE})"), []).or_error("write")?;
    add_up(&tx)?;
    let problems = problems(&tx)?;
    if problems.is_empty() {
        tx.commit().or_error("write")?;
    }
    Ok(problems)
}

/// The object of a problem: a table, and the index of it that is wrong, if it is one.
type Object = Option<(String, Option<String>)>;

fn object(connection: &Connection, problem: &str) -> Result<Object> {
    let word = |after: &str| {
        let (_, rest) = problem.split_once(after)?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned)
    };
    if problem.ends_with(INCOMPLETE_WORDS) {
        return Ok(Some(("disks".to_owned(), None)));
    }
    let (name, root) = (word(" index ").or_else(|| word("a row of ")), word("Tree "));
    connection
        .query_row(
            "SELECT tbl_name, CASE type WHEN 'index' THEN name END FROM sqlite_schema WHERE name = ?1 OR rootpage = ?2",
            (name, root.and_then(|root| root.parse::<i64>().ok())),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()
        .or_error("check")
}

/// Returns true if everything wrong follows from other rows, or is in points. One row that is wrong differs from every
/// index that has it; one index that is wrong, from its table alone.
fn may_heal(objects: &[Object]) -> bool {
    let of_backups: BTreeSet<&str> = objects
        .iter()
        .flatten()
        .filter(|(table, _)| table == "backups")
        .filter_map(|(_, index)| index.as_deref())
        .collect();
    let is_known = |object: &Object| {
        object.as_ref().is_some_and(|(table, index)| {
            let table = table.as_str();
            OF_POINTS.contains(&table)
                || OF_BACKUPS.contains(&table)
                || (index.is_some() && TOLD.contains(&table))
        })
    };
    objects.iter().all(is_known) && of_backups.len() <= 1 && !of_backups.contains(OF_ORDER)
}
