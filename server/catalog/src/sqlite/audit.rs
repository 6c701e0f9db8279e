//! The audit log, in the order it was written.

use holdfast_types::clock::Clock;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params};
use ulid::Ulid;

use super::convert::{OrCatalogError, id};
use super::select::Conditions;
use crate::backups::BACKUPS_PER_PAGE;
use crate::page::{self, List};
use crate::{AuditEntry, AuditRecord, BACKUPS_PER_PAGE_MAX, Page, PageRequest, Result, new_id, validate};

pub(super) const SELECT: &str = "SELECT * FROM audit";
pub(super) const ORDER: &str = "ORDER BY id DESC";

pub(super) fn add(connection: &Connection, clock: &dyn Clock, entry: &AuditEntry) -> Result<()> {
    let id = next_id(connection, clock)?.to_bytes();
    connection
        .prepare_cached(
            "INSERT INTO audit (id, at_ms, who, action, object, detail) VALUES (?, ?, ?, ?, ?, ?)",
        )
        .and_then(|mut s| {
            s.execute(params![
                id,
                clock.now_ms(),
                validate::clip(&entry.who),
                validate::clip(&entry.action),
                validate::clip(&entry.object),
                validate::clip(&entry.detail),
            ])
        })
        .or_error("write")?;
    Ok(())
}

/// A ULID of this moment, or the one after the last: entries of one millisecond, or after the clock was set
/// back, must not change places.
fn next_id(connection: &Connection, clock: &dyn Clock) -> Result<Ulid> {
    let fresh = new_id(clock)?;
    let last: Option<[u8; 16]> =
        connection.query_row("SELECT max(id) FROM audit", [], |row| row.get(0)).or_error("read")?;
    match last.map(Ulid::from_bytes) {
        Some(Ulid(last)) if last >= fresh.0 => Ok(Ulid(last.saturating_add(1))),
        _ => Ok(fresh),
    }
}

pub(super) fn list(connection: &Connection, page: PageRequest<'_>) -> Result<Page<AuditRecord>> {
    let mut conditions = Conditions::default();
    if let Some(key) = page::decode(List::Audit, &(), page.token)? {
        conditions.push("id < ?", [Value::Blob(key)]);
    }
    let limit = page.size_within(BACKUPS_PER_PAGE, BACKUPS_PER_PAGE_MAX);
    let (items, more) =
        conditions.page(connection, (SELECT, ORDER), limit, |row| read(row).or_error("read"), weight)?;
    let next = items.last().filter(|_| more).map(|last| page::encode(List::Audit, &(), &last.id.to_bytes()));
    Ok(Page { items, next })
}

/// Bytes of an entry in a message, roughly and rather more.
fn weight(record: &AuditRecord) -> usize {
    let AuditEntry { who, action, object, detail } = &record.entry;
    64 + who.len() + action.len() + object.len() + detail.len()
}

fn read(row: &Row<'_>) -> rusqlite::Result<AuditRecord> {
    Ok(AuditRecord {
        id: Ulid::from_bytes(id(row, "id")?),
        at_ms: row.get("at_ms")?,
        entry: AuditEntry {
            who: row.get("who")?,
            action: row.get("action")?,
            object: row.get("object")?,
            detail: row.get("detail")?,
        },
    })
}
