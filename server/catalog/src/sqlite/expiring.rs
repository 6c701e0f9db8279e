//! Records of tokens that end by themselves, such as logins in browsers.

use holdfast_types::ids::TokenId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::convert::{OrCatalogError, id};
use crate::{CatalogError, EXPIRING_PER_TOKEN_MAX, ExpiringRecord, Result};

pub(crate) fn create(tx: &Transaction<'_>, record: &ExpiringRecord) -> Result<()> {
    if super::tokens::by_id(tx, record.token)?.is_none() {
        return Err(CatalogError::not_found("token", record.token));
    }
    let known: bool = tx
        .query_row(
            "SELECT EXISTS (SELECT 1 FROM expiring_records WHERE id_hash = ?)",
            [record.id_hash],
            |row| row.get(0),
        )
        .or_error("read")?;
    if known {
        return Err(CatalogError::exists("expiring record", "of this hash"));
    }
    // Room for one more.
    tx.execute(
        "DELETE FROM expiring_records WHERE id_hash IN (SELECT id_hash FROM expiring_records WHERE token_id = ? \
         ORDER BY created_ms DESC, id_hash DESC LIMIT ? OFFSET ?)",
        params![record.token.to_bytes(), i64::MAX, EXPIRING_PER_TOKEN_MAX - 1],
    )
    .or_error("write")?;
    tx.execute(
        "INSERT INTO expiring_records (id_hash, token_id, payload, created_ms, expires_ms) VALUES (?, ?, ?, ?, ?)",
        params![
            record.id_hash,
            record.token.to_bytes(),
            record.payload,
            record.created_ms,
            record.expires_ms
        ],
    )
    .or_error("write")?;
    Ok(())
}

pub(crate) fn by_hash(
    connection: &Connection,
    now_ms: i64,
    id_hash: &[u8; 32],
) -> Result<Option<ExpiringRecord>> {
    let read = |row: &Row<'_>| {
        Ok(ExpiringRecord {
            id_hash: row.get("id_hash")?,
            token: TokenId::from_bytes(id(row, "token_id")?),
            payload: row.get("payload")?,
            created_ms: row.get("created_ms")?,
            expires_ms: row.get("expires_ms")?,
        })
    };
    connection
        .prepare_cached("SELECT * FROM expiring_records WHERE id_hash = ? AND expires_ms > ?")
        .and_then(|mut s| s.query_row(params![id_hash, now_ms], read).optional())
        .or_error("read")
}

pub(crate) fn extend(tx: &Transaction<'_>, now_ms: i64, id_hash: &[u8; 32], expires_ms: i64) -> Result<()> {
    let changed = tx
        .execute(
            "UPDATE expiring_records SET expires_ms = ?1 WHERE id_hash = ?2 AND expires_ms > ?3 AND ?1 > created_ms",
            params![expires_ms, id_hash, now_ms],
        )
        .or_error("write")?;
    if changed == 0 {
        return Err(CatalogError::not_found("expiring record", "of this hash"));
    }
    Ok(())
}

pub(crate) fn delete(tx: &Transaction<'_>, id_hash: &[u8; 32]) -> Result<()> {
    tx.execute("DELETE FROM expiring_records WHERE id_hash = ?", [id_hash]).or_error("write")?;
    Ok(())
}

pub(crate) fn delete_of_token(tx: &Transaction<'_>, token: TokenId) -> Result<()> {
    tx.execute("DELETE FROM expiring_records WHERE token_id = ?", [token.to_bytes()]).or_error("write")?;
    Ok(())
}

pub(crate) fn has_ended(connection: &Connection, now_ms: i64) -> Result<bool> {
    connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM expiring_records WHERE expires_ms <= ?)")
        .and_then(|mut s| s.query_row([now_ms], |row| row.get(0)))
        .or_error("read")
}

pub(crate) fn prune(tx: &Transaction<'_>, now_ms: i64) -> Result<u64> {
    let gone =
        tx.execute("DELETE FROM expiring_records WHERE expires_ms <= ?", [now_ms]).or_error("write")?;
    Ok(u64::try_from(gone).unwrap_or(u64::MAX))
}

pub(crate) fn delete_all(tx: &Transaction<'_>) -> Result<()> {
    tx.execute("DELETE FROM expiring_records", []).or_error("write")?;
    Ok(())
}
