//! Access tokens. Revoked ones stay: the audit log names them.

use holdfast_types::ids::{NamespaceId, TokenId};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::convert::{OrCatalogError, bad_value, id};
use super::namespaces;
use crate::token::{Role, TokenRecord, TokenSpec};
use crate::{CatalogError, Result, TOKEN_TOUCH_INTERVAL_MS};

pub(crate) fn create(
    tx: &Transaction<'_>,
    now_ms: i64,
    spec: &TokenSpec,
    secret_hash: &[u8; 32],
    join_until_ms: Option<i64>,
) -> Result<TokenRecord> {
    if by_id(tx, spec.id)?.is_some() {
        return Err(CatalogError::exists("token", spec.id));
    }
    // A code that no agent redeemed gives its name back.
    tx.execute(
        "UPDATE tokens SET revoked_ms = ? \
         WHERE name = ? AND revoked_ms IS NULL AND join_until_ms IS NOT NULL AND joined_ms IS NULL",
        params![now_ms, spec.name],
    )
    .or_error("write")?;
    let taken: bool = tx
        .query_row(
            "SELECT EXISTS (SELECT 1 FROM tokens WHERE name = ? AND revoked_ms IS NULL)",
            [&spec.name],
            |row| row.get(0),
        )
        .or_error("read")?;
    if taken {
        return Err(CatalogError::exists(
            "token",
            format!("{:?} (revoke it first, or choose another name)", spec.name),
        ));
    }
    tx.execute(
        "INSERT INTO tokens (id, name, role, secret_hash, created_ms, expires_ms, owner, join_until_ms) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            spec.id.to_bytes(),
            spec.name,
            spec.role.as_str(),
            secret_hash,
            now_ms,
            spec.expires_ms,
            spec.owner,
            join_until_ms
        ],
    )
    .or_error("write")?;
    for namespace in &spec.namespaces {
        if namespaces::by_id(tx, *namespace)?.is_none() {
            return Err(CatalogError::not_found("namespace", namespace));
        }
        tx.execute(
            "INSERT INTO token_namespaces (token_id, namespace_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
            params![spec.id.to_bytes(), namespace.to_bytes()],
        )
        .or_error("write")?;
    }
    for (position, pattern) in (0u32..).zip(&spec.vm_patterns) {
        tx.execute(
            "INSERT INTO token_vm_patterns (token_id, position, pattern) VALUES (?, ?, ?)",
            params![spec.id.to_bytes(), position, pattern],
        )
        .or_error("write")?;
    }
    let (record, _) = by_id(tx, spec.id)?.ok_or_else(|| CatalogError::not_found("token", spec.id))?;
    Ok(record)
}

pub(crate) fn by_id(connection: &Connection, id: TokenId) -> Result<Option<(TokenRecord, [u8; 32])>> {
    let found = connection
        .prepare_cached("SELECT * FROM tokens WHERE id = ?")
        .and_then(|mut s| {
            s.query_row([id.to_bytes()], |row| Ok((read(row)?, row.get("secret_hash")?))).optional()
        })
        .or_error("read")?;
    let Some((record, hash)) = found else { return Ok(None) };
    Ok(Some((with_scope(connection, record)?, hash)))
}

/// The token that redeeming a join code gives, and whether it was redeemed before: by the same agent, then. `None`: the code is
/// none, is not valid any more, or another agent redeemed it.
pub(crate) fn joinable(
    connection: &Connection,
    now_ms: i64,
    (id, code_hash, token_hash): (TokenId, &[u8; 32], &[u8; 32]),
) -> Result<Option<(TokenRecord, bool)>> {
    let Some((token, kept)) = by_id(connection, id)? else { return Ok(None) };
    let joined = token.joined_ms.is_some();
    let shown = if joined { token_hash } else { code_hash };
    // The comparison of two `blake3::Hash` is constant-time.
    let matches = blake3::Hash::from_bytes(*shown) == blake3::Hash::from_bytes(kept);
    Ok((matches && token.may_join(now_ms)).then_some((token, joined)))
}

/// Spends the code and puts the token in its place.
pub(crate) fn join(tx: &Transaction<'_>, now_ms: i64, id: TokenId, token_hash: &[u8; 32]) -> Result<()> {
    tx.execute(
        "UPDATE tokens SET secret_hash = ?, joined_ms = ? WHERE id = ?",
        params![token_hash, now_ms, id.to_bytes()],
    )
    .or_error("write")?;
    Ok(())
}

pub(crate) fn all(connection: &Connection) -> Result<Vec<TokenRecord>> {
    let records: Vec<TokenRecord> = connection
        .prepare_cached("SELECT * FROM tokens ORDER BY created_ms, id")
        .and_then(|mut s| s.query_map([], read)?.collect())
        .or_error("read")?;
    records.into_iter().map(|record| with_scope(connection, record)).collect()
}

/// The token only; what was kept for it is deleted beside this.
pub(crate) fn revoke(tx: &Transaction<'_>, now_ms: i64, id: TokenId) -> Result<()> {
    by_id(tx, id)?.ok_or_else(|| CatalogError::not_found("token", id))?;
    tx.execute(
        "UPDATE tokens SET revoked_ms = ? WHERE id = ? AND revoked_ms IS NULL",
        params![now_ms, id.to_bytes()],
    )
    .or_error("write")?;
    Ok(())
}

/// Every token that is not revoked; returns how many were usable before. Codes to join end: one may have been redeemed since.
pub(crate) fn disable_all(tx: &Transaction<'_>, now_ms: i64) -> Result<u64> {
    tx.execute(
        "UPDATE tokens SET revoked_ms = ? WHERE revoked_ms IS NULL AND join_until_ms IS NOT NULL AND joined_ms IS NULL",
        [now_ms],
    )
    .or_error("write")?;
    let changed = tx
        .execute(
            "UPDATE tokens SET disabled_ms = ? WHERE revoked_ms IS NULL AND disabled_ms IS NULL",
            [now_ms],
        )
        .or_error("write")?;
    Ok(u64::try_from(changed).unwrap_or(u64::MAX))
}

pub(crate) fn enable(tx: &Transaction<'_>, id: TokenId) -> Result<()> {
    let (token, _) = by_id(tx, id)?.ok_or_else(|| CatalogError::not_found("token", id))?;
    if token.revoked_ms.is_some() {
        return Err(CatalogError::invalid(format!(
            "token {:?} ({id}) has been revoked, for good; create another one",
            token.name
        )));
    }
    tx.execute("UPDATE tokens SET disabled_ms = NULL WHERE id = ?", [id.to_bytes()]).or_error("write")?;
    Ok(())
}

pub(crate) fn is_touch_due(connection: &Connection, now_ms: i64, id: TokenId) -> Result<bool> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT last_used_ms FROM tokens WHERE id = ?")
        .and_then(|mut s| s.query_row([id.to_bytes()], |row| row.get(0)).optional())
        .or_error("read")?
        .ok_or_else(|| CatalogError::not_found("token", id))?;
    // A clock that was set back must not stop the writing for good.
    Ok(last.is_none_or(|last| now_ms.abs_diff(last) >= TOKEN_TOUCH_INTERVAL_MS.unsigned_abs()))
}

pub(crate) fn touch(tx: &Transaction<'_>, now_ms: i64, id: TokenId) -> Result<()> {
    if is_touch_due(tx, now_ms, id)? {
        tx.prepare_cached("UPDATE tokens SET last_used_ms = ? WHERE id = ?")
            .and_then(|mut s| s.execute(params![now_ms, id.to_bytes()]))
            .or_error("write")?;
    }
    Ok(())
}

/// Reads everything but the scope.
fn read(row: &Row<'_>) -> rusqlite::Result<TokenRecord> {
    let role: Role = row.get_ref("role")?.as_str()?.parse().map_err(|cause| bad_value("role", cause))?;
    Ok(TokenRecord {
        id: TokenId::from_bytes(id(row, "id")?),
        name: row.get("name")?,
        role,
        namespaces: Vec::new(),
        owner: row.get("owner")?,
        vm_patterns: Vec::new(),
        created_ms: row.get("created_ms")?,
        expires_ms: row.get("expires_ms")?,
        revoked_ms: row.get("revoked_ms")?,
        disabled_ms: row.get("disabled_ms")?,
        last_used_ms: row.get("last_used_ms")?,
        join_until_ms: row.get("join_until_ms")?,
        joined_ms: row.get("joined_ms")?,
    })
}

fn with_scope(connection: &Connection, mut record: TokenRecord) -> Result<TokenRecord> {
    record.namespaces = connection
        .prepare_cached("SELECT namespace_id FROM token_namespaces WHERE token_id = ? ORDER BY namespace_id")
        .and_then(|mut s| {
            let read = |row: &Row<'_>| Ok(NamespaceId::from_bytes(id(row, "namespace_id")?));
            s.query_map([record.id.to_bytes()], read)?.collect()
        })
        .or_error("read")?;
    record.vm_patterns = connection
        .prepare_cached("SELECT pattern FROM token_vm_patterns WHERE token_id = ? ORDER BY position")
        .and_then(|mut s| s.query_map([record.id.to_bytes()], |row| row.get("pattern"))?.collect())
        .or_error("read")?;
    Ok(record)
}
