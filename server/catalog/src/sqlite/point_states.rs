//! Revisions of points: the one a restore point has on the volume, and the one it should have.

use holdfast_types::ids::BackupId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::convert::{OrCatalogError, id};
use crate::{PointState, Result};

fn read(row: &Row<'_>) -> rusqlite::Result<PointState> {
    Ok(PointState {
        backup: BackupId::from_bytes(id(row, "id")?),
        revision: row.get("point_revision")?,
        wanted: row.get("point_wanted")?,
    })
}

pub(crate) fn of(connection: &Connection, id: BackupId) -> Result<Option<PointState>> {
    connection
        .prepare_cached("SELECT id, point_revision, point_wanted FROM backups WHERE id = ?")
        .and_then(|mut s| s.query_row([id.to_bytes()], read).optional())
        .or_error("read")
}

pub(crate) fn list(connection: &Connection, after: Option<BackupId>, limit: u32) -> Result<Vec<PointState>> {
    connection
        .prepare_cached(
            "SELECT id, point_revision, point_wanted FROM backups WHERE id > ? ORDER BY id LIMIT ?",
        )
        .and_then(|mut s| s.query_map(params![key(after), limit], read)?.collect())
        .or_error("read")
}

pub(crate) fn stale(connection: &Connection, after: Option<BackupId>, limit: u32) -> Result<Vec<BackupId>> {
    connection
        .prepare_cached(
            "SELECT id FROM backups WHERE point_wanted > point_revision AND id > ? ORDER BY id LIMIT ?",
        )
        .and_then(|mut s| {
            s.query_map(params![key(after), limit], |row| Ok(BackupId::from_bytes(id(row, "id")?)))?.collect()
        })
        .or_error("read")
}

/// Below every key without `after`: no backup's identifier is shorter than 16 bytes.
fn key(after: Option<BackupId>) -> Vec<u8> {
    after.map_or_else(Vec::new, |id| id.to_bytes().to_vec())
}

/// (L5) The row says more than its point from now on; the next revision will be above `above`.
pub(crate) fn mark_stale(tx: &Transaction<'_>, id: BackupId, above: u32) -> Result<()> {
    let Some(PointState { revision, wanted, .. }) = of(tx, id)? else { return Ok(()) };
    let wanted = wanted.max(revision).max(above).saturating_add(1);
    tx.prepare_cached("UPDATE backups SET point_wanted = ? WHERE id = ?")
        .and_then(|mut s| s.execute(params![wanted, id.to_bytes()]))
        .or_error("write")?;
    Ok(())
}

/// As [`mark_stale`], for all restore points of which `column` is `value`.
pub(crate) fn mark_all_stale(tx: &Transaction<'_>, column: &str, value: [u8; 16]) -> Result<()> {
    tx.prepare_cached(&format!(
        "UPDATE backups SET point_wanted = 1 + CASE WHEN point_wanted < point_revision THEN point_revision \
         ELSE point_wanted END WHERE {column} = ?"
    ))
    .and_then(|mut s| s.execute([value]))
    .or_error("write")?;
    Ok(())
}

pub(crate) fn note_sealed(tx: &Transaction<'_>, id: BackupId, revision: u32) -> Result<()> {
    tx.prepare_cached(
        "UPDATE backups SET point_revision = ?1, \
         point_wanted = CASE WHEN point_wanted < ?1 THEN ?1 ELSE point_wanted END WHERE id = ?2",
    )
    .and_then(|mut s| s.execute(params![revision, id.to_bytes()]))
    .or_error("write")?;
    Ok(())
}

/// Sets the first revision of a row that is made of a point.
pub(crate) fn set(tx: &Transaction<'_>, id: BackupId, revision: u32) -> Result<()> {
    tx.prepare_cached("UPDATE backups SET point_revision = ?1, point_wanted = ?1 WHERE id = ?2")
        .and_then(|mut s| s.execute(params![revision.max(1), id.to_bytes()]))
        .or_error("write")?;
    Ok(())
}
