//! The audit log, in the order it was written.

use holdfast_types::clock::Clock;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use ulid::Ulid;

use super::convert::{OrCatalogError, count, id};
use super::select::Conditions;
use crate::limits::BACKUPS_PER_PAGE;
use crate::page::{self, List};
use crate::{
    AUDIT_KEYS_PER_ACTOR_MAX, AUDIT_WINDOW_MS, AuditEntry, AuditRecord, AuditRepeat, BACKUPS_PER_PAGE_MAX,
    Page, PageRequest, Result, new_id, validate,
};

pub(crate) const SELECT: &str = "SELECT * FROM audit";
pub(crate) const ORDER: &str = "ORDER BY id DESC";

/// The key that an actor's further keys share, and what their entry is about. No other key is empty.
const SHARED_KEY: &str = "";
const SHARED_OBJECT: &str = "several";

/// Changes of tokens, owners, quotas and policies, and deletions: recorded on the volume soon, for no restore point
/// tells of them.
const ACCESS_ACTIONS: &str = "'token.create', 'token.revoke', 'token.enable', 'vm.owner', 'namespace.quota', \
     'server.recover', 'backup.delete', 'policy.set', 'policy.remove', 'vm.remove', 'vm.rename', 'job.rename'";

/// The id of the last entry, and whether one of these is after `after`.
pub(crate) fn access_changed_since(connection: &Connection, after: u128) -> Result<(u128, bool)> {
    let last = connection
        .prepare_cached("SELECT id FROM audit ORDER BY id DESC LIMIT 1")
        .and_then(|mut s| s.query_row([], |row| id(row, "id")).optional())
        .or_error("read")?;
    let sql = format!("SELECT 1 FROM audit WHERE id > ? AND action IN ({ACCESS_ACTIONS})");
    let changed =
        connection.prepare_cached(&sql).and_then(|mut s| s.exists([after.to_be_bytes()])).or_error("read")?;
    Ok((last.map_or(0, u128::from_be_bytes), changed))
}

pub(crate) fn add(connection: &Connection, clock: &dyn Clock, entry: &AuditEntry) -> Result<()> {
    let at_ms = clock.now_ms();
    insert(connection, clock, entry, None, (1, at_ms, at_ms))
}

/// (A13) Adds one event now that counts with others of its key.
pub(crate) fn add_repeated(
    connection: &Connection,
    clock: &dyn Clock,
    entry: AuditEntry,
    key: String,
) -> Result<()> {
    repeat(connection, clock, &AuditRepeat::once(entry, key, clock.now_ms()))
}

/// (A13) See [`Catalog::audit_repeats`](crate::Catalog::audit_repeats).
pub(crate) fn repeat(connection: &Connection, clock: &dyn Clock, repeat: &AuditRepeat) -> Result<()> {
    let AuditRepeat { entry, key, count, first_ms, last_ms } = repeat;
    let known = in_window(connection, entry, *last_ms)?;
    let key = validate::clip(key);
    let counts = (*count, *first_ms, *last_ms);
    if let Some((row, _)) = known.iter().find(|(_, of)| of == key) {
        return count_in(connection, *row, entry, counts);
    }
    if known.len() < AUDIT_KEYS_PER_ACTOR_MAX {
        return insert(connection, clock, entry, Some(key), counts);
    }
    let detail = format!("the latest of several: {}, {}", entry.object, entry.detail);
    let entry = AuditEntry { object: SHARED_OBJECT.to_owned(), detail, ..entry.clone() };
    match known.iter().find(|(_, of)| of == SHARED_KEY) {
        Some((row, _)) => count_in(connection, *row, &entry, counts),
        None => insert(connection, clock, &entry, Some(SHARED_KEY), counts),
    }
}

/// Entries of this actor and action that still count, with their keys: at most one more than
/// [`AUDIT_KEYS_PER_ACTOR_MAX`].
fn in_window(connection: &Connection, entry: &AuditEntry, now_ms: i64) -> Result<Vec<([u8; 16], String)>> {
    let since_ms = now_ms.saturating_sub(AUDIT_WINDOW_MS);
    connection
        .prepare_cached(IN_WINDOW)
        .and_then(|mut s| {
            let values = params![validate::clip(&entry.action), validate::clip(&entry.who), since_ms, now_ms];
            s.query_map(values, |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
        .or_error("read")
}

pub(crate) const IN_WINDOW: &str = "SELECT id, repeat_key FROM audit WHERE action = ? AND who = ? AND at_ms > ? \
     AND at_ms <= ? AND repeat_key IS NOT NULL ORDER BY at_ms DESC";

fn count_in(
    connection: &Connection,
    row: [u8; 16],
    entry: &AuditEntry,
    (count, _, last_ms): (u64, i64, i64),
) -> Result<()> {
    connection
        .prepare_cached(
            "UPDATE audit SET count = count + ?1, last_ms = CASE WHEN coalesce(last_ms, at_ms) < ?2 THEN ?2 \
             ELSE coalesce(last_ms, at_ms) END, object = ?3, detail = ?4 WHERE id = ?5",
        )
        .and_then(|mut s| {
            s.execute(params![
                kept_count(count),
                last_ms,
                validate::clip(&entry.object),
                validate::clip(&entry.detail),
                row
            ])
        })
        .or_error("write")?;
    Ok(())
}

/// A count as it is kept: 2³² events of one kind in ten minutes are more than any server answers, and a million such
/// counts do not overflow their column.
fn kept_count(count: u64) -> i64 {
    i64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn insert(
    connection: &Connection,
    clock: &dyn Clock,
    entry: &AuditEntry,
    key: Option<&str>,
    (count, first_ms, last_ms): (u64, i64, i64),
) -> Result<()> {
    let id = next_id(connection, clock)?.to_bytes();
    connection
        .prepare_cached(
            "INSERT INTO audit (id, at_ms, who, action, object, detail, count, last_ms, repeat_key) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .and_then(|mut s| {
            s.execute(params![
                id,
                first_ms,
                validate::clip(&entry.who),
                validate::clip(&entry.action),
                validate::clip(&entry.object),
                validate::clip(&entry.detail),
                kept_count(count),
                (last_ms != first_ms).then_some(last_ms),
                key,
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

pub(crate) fn list(connection: &Connection, page: PageRequest<'_>) -> Result<Page<AuditRecord>> {
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
    let at_ms = row.get("at_ms")?;
    Ok(AuditRecord {
        id: Ulid::from_bytes(id(row, "id")?),
        at_ms,
        count: count(row, "count")?,
        last_ms: row.get::<_, Option<i64>>("last_ms")?.unwrap_or(at_ms),
        entry: AuditEntry {
            who: row.get("who")?,
            action: row.get("action")?,
            object: row.get("object")?,
            detail: row.get("detail")?,
        },
    })
}
