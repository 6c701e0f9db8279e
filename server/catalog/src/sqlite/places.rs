//! Tiers in which the data of restore points lies.

use holdfast_types::ids::BackupId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::convert::{OrCatalogError, count, id, int};
use crate::{BackupPlaces, Result};

pub(crate) fn record(tx: &Transaction<'_>, found: &[BackupPlaces]) -> Result<()> {
    tx.execute("DELETE FROM backup_places", []).or_error("write")?;
    let mut insert = tx
        .prepare_cached(
            "INSERT INTO backup_places (backup_id, at_ms, here_bytes, bucket_bytes, archive_bytes) \
             SELECT id, ?2, ?3, ?4, ?5 FROM backups WHERE id = ?1",
        )
        .or_error("write")?;
    for BackupPlaces { backup, at_ms, here_bytes, bucket_bytes, archive_bytes } in found {
        let bytes = |bytes: &u64| int("bytes by place", *bytes);
        let values = params![
            backup.to_bytes(),
            at_ms,
            bytes(here_bytes)?,
            bytes(bucket_bytes)?,
            bytes(archive_bytes)?
        ];
        insert.execute(values).or_error("write")?;
    }
    Ok(())
}

pub(crate) fn of(connection: &Connection, backups: &[BackupId]) -> Result<Vec<BackupPlaces>> {
    let mut find =
        connection.prepare_cached("SELECT * FROM backup_places WHERE backup_id = ?").or_error("read")?;
    let read = |row: &Row<'_>| {
        Ok(BackupPlaces {
            backup: BackupId::from_bytes(id(row, "backup_id")?),
            at_ms: row.get("at_ms")?,
            here_bytes: count(row, "here_bytes")?,
            bucket_bytes: count(row, "bucket_bytes")?,
            archive_bytes: count(row, "archive_bytes")?,
        })
    };
    let found = backups.iter().map(|id| find.query_row([id.to_bytes()], read).optional().or_error("read"));
    found.filter_map(Result::transpose).collect()
}
