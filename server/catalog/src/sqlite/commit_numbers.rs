//! Commit numbers: counted over the repository, rising within a VM.

use rusqlite::{Connection, Row, Transaction};

use super::convert::{OrCatalogError, count, int};
use crate::{CommitState, Result};

pub(crate) fn state(connection: &Connection) -> Result<CommitState> {
    let read = |row: &Row<'_>| {
        Ok(CommitState {
            last: count(row, "last_commit")?,
            points_written: row.get("points_written")?,
            next_container: count(row, "next_container")?,
            generation: count(row, "generation")?,
        })
    };
    connection
        .query_row("SELECT last_commit, points_written, next_container, generation FROM repository", [], read)
        .or_error("read")
}

pub(crate) fn set_written(tx: &Transaction<'_>, written: bool) -> Result<()> {
    tx.execute("UPDATE repository SET points_written = ?", [written]).or_error("write")?;
    Ok(())
}

/// (G10) Something is going to be deleted.
pub(crate) fn raise_generation(tx: &Transaction<'_>) -> Result<()> {
    tx.execute("UPDATE repository SET generation = generation + 1", []).or_error("write")?;
    Ok(())
}

pub(crate) fn note_generation(tx: &Transaction<'_>, generation: u64) -> Result<()> {
    let generation = int("generation", generation)?;
    tx.execute("UPDATE repository SET generation = ?1 WHERE generation < ?1", [generation])
        .or_error("write")?;
    Ok(())
}

pub(crate) fn last_commit(connection: &Connection) -> Result<u64> {
    connection
        .query_row("SELECT last_commit FROM repository", [], |row| count(row, "last_commit"))
        .or_error("read")
}

/// Remembers that a commit number is used.
pub(crate) fn note_number(tx: &Transaction<'_>, number: u64) -> Result<()> {
    let number = int("commit number", number)?;
    tx.prepare_cached("UPDATE repository SET last_commit = ?1 WHERE last_commit < ?1")
        .and_then(|mut s| s.execute([number]))
        .or_error("write")?;
    Ok(())
}

/// The highest commit number of a VM; 0: it has no backup.
pub(crate) fn latest_of_vm(connection: &Connection, vm: [u8; 16]) -> Result<u64> {
    connection
        .prepare_cached("SELECT coalesce(max(ordinal), 0) AS ordinal FROM backups WHERE vm_id = ?")
        .and_then(|mut s| s.query_row([vm], |row| count(row, "ordinal")))
        .or_error("read")
}
