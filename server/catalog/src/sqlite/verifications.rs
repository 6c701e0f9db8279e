//! What verifying restore points found.

use holdfast_types::clock::Clock;
use holdfast_types::ids::BackupId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::audit;
use super::convert::OrCatalogError;
use crate::{AuditEntry, CatalogError, Result, VERIFICATIONS_PER_BACKUP_MAX, Verification, validate};

pub(super) fn record(tx: &Transaction<'_>, clock: &dyn Clock, verification: &Verification) -> Result<()> {
    let Verification { backup, at_ms, who, ok, detail } = verification;
    if super::backups::by_id(tx, *backup)?.is_none() {
        return Err(CatalogError::not_found("backup", backup));
    }
    let id = backup.to_bytes();
    tx.execute(
        "INSERT INTO verifications (backup_id, ordinal, at_ms, who, ok, detail) VALUES (?1, \
         (SELECT coalesce(max(ordinal), 0) + 1 FROM verifications WHERE backup_id = ?1), ?2, ?3, ?4, ?5)",
        params![id, at_ms, validate::clip(who), ok, validate::clip(detail)],
    )
    .or_error("write")?;
    tx.execute(
        "DELETE FROM verifications WHERE backup_id = ?1 AND ordinal <= \
         (SELECT max(ordinal) FROM verifications WHERE backup_id = ?1) - ?2",
        params![id, VERIFICATIONS_PER_BACKUP_MAX],
    )
    .or_error("write")?;
    let word = if *ok { "sound" } else { "DAMAGED" };
    let entry = AuditEntry {
        who: who.clone(),
        action: "backup.verify".to_owned(),
        object: backup.to_string(),
        detail: format!("{word}: {detail}"),
    };
    // A report of damage and one of soundness are two things, however often each is repeated.
    audit::add_repeated(tx, clock, entry, format!("{word} {backup}"))
}

pub(super) fn newest(connection: &Connection, backups: &[BackupId]) -> Result<Vec<Verification>> {
    let mut statement = connection
        .prepare_cached("SELECT * FROM verifications WHERE backup_id = ? ORDER BY ordinal DESC LIMIT 1")
        .or_error("read")?;
    let mut found = Vec::new();
    for backup in backups {
        let read = |row: &Row<'_>| {
            Ok(Verification {
                backup: *backup,
                at_ms: row.get("at_ms")?,
                who: row.get("who")?,
                ok: row.get("ok")?,
                detail: row.get("detail")?,
            })
        };
        found.extend(statement.query_row([backup.to_bytes()], read).optional().or_error("read")?);
    }
    Ok(found)
}
