//! Locks between processes. Rows of leases that have ended are removed by the next that is acquired.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use ulid::Ulid;

use super::convert::{OrCatalogError, id};
use crate::{CatalogError, LeaseRecord, Result};

pub(super) fn acquire(tx: &Transaction<'_>, now_ms: i64, lease: &LeaseRecord) -> Result<Option<LeaseRecord>> {
    if let Some(held) = by_name(tx, now_ms, &lease.name)?.filter(|held| held.owner != lease.owner) {
        return Ok(Some(held));
    }
    tx.execute("DELETE FROM leases WHERE until_ms <= ?", [now_ms]).or_error("write")?;
    tx.execute(
        "INSERT INTO leases (name, owner, until_ms) VALUES (?, ?, ?) \
         ON CONFLICT (name) DO UPDATE SET until_ms = excluded.until_ms",
        params![lease.name, lease.owner.to_bytes(), lease.until_ms],
    )
    .or_error("write")?;
    Ok(None)
}

pub(super) fn renew(tx: &Transaction<'_>, now_ms: i64, lease: &LeaseRecord) -> Result<()> {
    let changed = tx
        .execute(
            "UPDATE leases SET until_ms = ? WHERE name = ? AND owner = ? AND until_ms > ?",
            params![lease.until_ms, lease.name, lease.owner.to_bytes(), now_ms],
        )
        .or_error("write")?;
    if changed == 0 {
        return Err(CatalogError::not_found("lease", format!("{:?} of owner {}", lease.name, lease.owner)));
    }
    Ok(())
}

pub(super) fn release(tx: &Transaction<'_>, name: &str, owner: Ulid) -> Result<()> {
    tx.execute("DELETE FROM leases WHERE name = ? AND owner = ?", params![name, owner.to_bytes()])
        .or_error("write")?;
    Ok(())
}

pub(super) fn by_name(connection: &Connection, now_ms: i64, name: &str) -> Result<Option<LeaseRecord>> {
    let read = |row: &Row<'_>| {
        Ok(LeaseRecord {
            name: row.get("name")?,
            owner: Ulid::from_bytes(id(row, "owner")?),
            until_ms: row.get("until_ms")?,
        })
    };
    connection
        .prepare_cached("SELECT * FROM leases WHERE name = ? AND until_ms > ?")
        .and_then(|mut s| s.query_row(params![name, now_ms], read).optional())
        .or_error("read")
}

pub(super) fn delete_all(tx: &Transaction<'_>) -> Result<()> {
    tx.execute("DELETE FROM leases", []).or_error("write")?;
    Ok(())
}
