//! Restore points that are being deleted. They are moved out of `backups` into a table of their own, so that nothing
//! that looks for restore points finds them, and the sums over `backups` are right.

use holdfast_types::clock::Clock;
use holdfast_types::ids::{BackupId, NamespaceId};
use rusqlite::{Connection, Row, Transaction, params};

use super::convert::{OrCatalogError, id};
use super::{audit, backups, commit_numbers, lock_clock, locks, namespaces, usage};
use crate::limits::DELETED_BY_MAX_BYTES;
use crate::{AuditEntry, BackupRecord, CatalogError, DeletionRecord, NamespaceRecord, Result};

/// (L1) Nothing is changed before all of them were found to be free. `deleted_ms`: `None` where no one knows when it was.
pub(crate) fn begin(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    ids: &[BackupId],
    deleted_ms: Option<i64>,
    (who, reason): (&str, &str),
) -> Result<Vec<DeletionRecord>> {
    let lock_time_ms = lock_clock::shows(tx)?;
    let mut begun = Vec::new();
    for &id in ids {
        let Some(backup) = backups::by_id(tx, id)? else {
            if is_begun(tx, id)? {
                continue;
            }
            return Err(CatalogError::not_found("restore point", id));
        };
        // (L2) In the transaction that deletes.
        locks::refuse_locked(&backup, lock_time_ms)?;
        tx.prepare_cached(
            "INSERT INTO deletions (id, namespace_id, vm, point_revision, stale, begun_ms) SELECT id, namespace_id, ?, \
             point_revision, point_wanted > point_revision, ? FROM backups WHERE id = ?",
        )
        .and_then(|mut s| s.execute(params![backup.vm, clock.now_ms(), id.to_bytes()]))
        .or_error("write")?;
        delete(tx, &backup)?;
        note(tx, id, deleted_ms, (who, reason))?;
        let entry = AuditEntry {
            who: who.to_owned(),
            action: "backup.delete".to_owned(),
            object: id.to_string(),
            detail: format!(
                "VM {:?} in namespace {:?}, job {:?}, run {}: {reason}",
                backup.vm, backup.namespace_name, backup.job, backup.run
            ),
        };
        audit::add(tx, clock, &entry)?;
        begun.extend(one(tx, id)?);
    }
    if !begun.is_empty() {
        commit_numbers::raise_generation(tx)?;
    }
    Ok(begun)
}

fn delete(tx: &Transaction<'_>, backup: &BackupRecord) -> Result<()> {
    usage::change(tx, backup.namespace, "restore_points", -1)?;
    usage::of_vm(tx, backup.namespace, backup.vm_id.to_bytes(), || {
        tx.prepare_cached("DELETE FROM backups WHERE id = ?")
            .and_then(|mut s| s.execute([backup.id.to_bytes()]))
            .or_error("write")
            .map(drop)
    })
}

/// Keeps when a restore point was deleted, by whom and why, beside the compression details that outlive it.
fn note(
    tx: &Transaction<'_>,
    id: BackupId,
    deleted_ms: Option<i64>,
    (who, reason): (&str, &str),
) -> Result<()> {
    let by = if reason.is_empty() { who.to_owned() } else { format!("{who}: {reason}") };
    let by = by.get(..by.floor_char_boundary(DELETED_BY_MAX_BYTES)).unwrap_or_default();
    tx.prepare_cached(
        "INSERT INTO deleted_backups (id, deleted_ms, deleted_by) VALUES (?, ?, ?) \
         ON CONFLICT (id) DO UPDATE SET deleted_ms = excluded.deleted_ms, deleted_by = excluded.deleted_by",
    )
    .and_then(|mut s| s.execute(params![id.to_bytes(), deleted_ms, by]))
    .or_error("write")?;
    Ok(())
}

pub(crate) fn is_begun(connection: &Connection, id: BackupId) -> Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM deletions WHERE id = ?")
        .and_then(|mut s| s.exists([id.to_bytes()]))
        .or_error("read")
}

const SELECT: &str = "SELECT d.*, n.name AS namespace, n.created_ms AS namespace_created_ms, \
     n.key_id AS namespace_key_id FROM deletions d \
     JOIN namespaces n ON n.id = d.namespace_id";

fn one(connection: &Connection, id: BackupId) -> Result<Vec<DeletionRecord>> {
    connection
        .prepare_cached(&format!("{SELECT} WHERE d.id = ?"))
        .and_then(|mut s| s.query_map([id.to_bytes()], read)?.collect())
        .or_error("read")
}

pub(crate) fn list(
    connection: &Connection,
    after: Option<BackupId>,
    limit: u32,
) -> Result<Vec<DeletionRecord>> {
    // Below every key: no backup's identifier is shorter than 16 bytes.
    let after = after.map_or_else(Vec::new, |id| id.to_bytes().to_vec());
    connection
        .prepare_cached(&format!("{SELECT} WHERE d.id > ? ORDER BY d.id LIMIT ?"))
        .and_then(|mut s| s.query_map(params![after, limit], read)?.collect())
        .or_error("read")
}

fn read(row: &Row<'_>) -> rusqlite::Result<DeletionRecord> {
    Ok(DeletionRecord {
        backup: BackupId::from_bytes(id(row, "id")?),
        namespace: NamespaceRecord {
            id: NamespaceId::from_bytes(id(row, "namespace_id")?),
            name: row.get("namespace")?,
            created_ms: row.get("namespace_created_ms")?,
            key_id: namespaces::key_id(row, "namespace_key_id")?,
        },
        vm: row.get("vm")?,
        revision: row.get("point_revision")?,
        stale: row.get("stale")?,
        begun_ms: row.get("begun_ms")?,
    })
}

pub(crate) fn finish(tx: &Transaction<'_>, ids: &[BackupId]) -> Result<()> {
    let mut delete = tx.prepare_cached("DELETE FROM deletions WHERE id = ?").or_error("write")?;
    for id in ids {
        delete.execute([id.to_bytes()]).or_error("write")?;
    }
    Ok(())
}
