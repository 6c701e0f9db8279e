//! Logins in browsers and verifications of restore points.

use holdfast_types::clock::Clock;
use holdfast_types::ids::{BackupId, TokenId};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::audit;
use super::convert::{OrCatalogError, id};
use crate::web::{VERIFICATIONS_PER_BACKUP_MAX, WEB_SESSIONS_PER_TOKEN_MAX};
use crate::{AuditEntry, CatalogError, Result, Verification, WebSession, laws};

pub(super) fn create(tx: &Transaction<'_>, session: &WebSession) -> Result<()> {
    if super::tokens::by_id(tx, session.token)?.is_none() {
        return Err(CatalogError::not_found("token", session.token));
    }
    let known: bool = tx
        .query_row("SELECT EXISTS (SELECT 1 FROM web_sessions WHERE id_hash = ?)", [session.id_hash], |row| {
            row.get(0)
        })
        .or_error("read")?;
    if known {
        return Err(CatalogError::exists("web session", "of this cookie"));
    }
    // Room for one more.
    tx.execute(
        "DELETE FROM web_sessions WHERE id_hash IN (SELECT id_hash FROM web_sessions WHERE token_id = ? \
         ORDER BY created_ms DESC, id_hash DESC LIMIT -1 OFFSET ?)",
        params![session.token.to_bytes(), WEB_SESSIONS_PER_TOKEN_MAX - 1],
    )
    .or_error("write")?;
    tx.execute(
        "INSERT INTO web_sessions (id_hash, token_id, csrf, created_ms, expires_ms) VALUES (?, ?, ?, ?, ?)",
        params![
            session.id_hash,
            session.token.to_bytes(),
            session.csrf,
            session.created_ms,
            session.expires_ms
        ],
    )
    .or_error("write")?;
    Ok(())
}

pub(super) fn by_hash(
    connection: &Connection,
    now_ms: i64,
    id_hash: &[u8; 32],
) -> Result<Option<WebSession>> {
    let read = |row: &Row<'_>| {
        Ok(WebSession {
            id_hash: row.get("id_hash")?,
            token: TokenId::from_bytes(id(row, "token_id")?),
            csrf: row.get("csrf")?,
            created_ms: row.get("created_ms")?,
            expires_ms: row.get("expires_ms")?,
        })
    };
    connection
        .prepare_cached("SELECT * FROM web_sessions WHERE id_hash = ? AND expires_ms > ?")
        .and_then(|mut s| s.query_row(params![id_hash, now_ms], read).optional())
        .or_error("read")
}

pub(super) fn extend(tx: &Transaction<'_>, now_ms: i64, id_hash: &[u8; 32], expires_ms: i64) -> Result<()> {
    let changed = tx
        .execute(
            "UPDATE web_sessions SET expires_ms = ?1 WHERE id_hash = ?2 AND expires_ms > ?3 AND ?1 > created_ms",
            params![expires_ms, id_hash, now_ms],
        )
        .or_error("write")?;
    if changed == 0 {
        return Err(CatalogError::not_found("web session", "of this cookie"));
    }
    Ok(())
}

pub(super) fn delete(tx: &Transaction<'_>, id_hash: &[u8; 32]) -> Result<()> {
    tx.execute("DELETE FROM web_sessions WHERE id_hash = ?", [id_hash]).or_error("write")?;
    Ok(())
}

pub(super) fn delete_of_token(tx: &Transaction<'_>, token: TokenId) -> Result<()> {
    tx.execute("DELETE FROM web_sessions WHERE token_id = ?", [token.to_bytes()]).or_error("write")?;
    Ok(())
}

pub(super) fn has_ended(connection: &Connection, now_ms: i64) -> Result<bool> {
    connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM web_sessions WHERE expires_ms <= ?)")
        .and_then(|mut s| s.query_row([now_ms], |row| row.get(0)))
        .or_error("read")
}

pub(super) fn prune(tx: &Transaction<'_>, now_ms: i64) -> Result<u64> {
    let gone = tx.execute("DELETE FROM web_sessions WHERE expires_ms <= ?", [now_ms]).or_error("write")?;
    Ok(u64::try_from(gone).unwrap_or(u64::MAX))
}

pub(super) fn verified(tx: &Transaction<'_>, clock: &dyn Clock, verification: &Verification) -> Result<()> {
    let Verification { backup, at_ms, who, ok, detail } = verification;
    if super::backups::by_id(tx, *backup)?.is_none() {
        return Err(CatalogError::not_found("backup", backup));
    }
    let id = backup.to_bytes();
    tx.execute(
        "INSERT INTO verifications (backup_id, ordinal, at_ms, who, ok, detail) VALUES (?1, \
         (SELECT coalesce(max(ordinal), 0) + 1 FROM verifications WHERE backup_id = ?1), ?2, ?3, ?4, ?5)",
        params![id, at_ms, laws::clip(who), ok, laws::clip(detail)],
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
    audit::add(tx, clock, &entry)
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
