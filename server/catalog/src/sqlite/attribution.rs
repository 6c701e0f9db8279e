//! Whose the live bytes are.

use holdfast_types::ids::{BackupId, NamespaceId};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::convert::{OrCatalogError, count, id, int};
use super::details::sorted::SortRoom;
use super::select::Conditions;
use crate::{
    ATTRIBUTED_GROUPS_MAX, AttributedBy, AttributedGroup, AttributionRecord, AttributionState,
    BackupShareRecord, Result,
};

pub(crate) fn record(tx: &Transaction<'_>, found: &AttributionRecord) -> Result<()> {
    tx.execute_batch(
        "DELETE FROM attributed_backups; DELETE FROM attributed_vms; DELETE FROM attributed_jobs; \
         DELETE FROM attribution;",
    )
    .or_error("write")?;
    tx.execute(
        "INSERT INTO attribution (only_row, at_ms, live_bytes, complete) VALUES (1, ?, ?, ?)",
        params![found.at_ms, int("the sum of live bytes", found.live_bytes)?, found.is_complete],
    )
    .or_error("write")?;
    let mut insert = tx
        .prepare_cached(
            "INSERT INTO attributed_backups (backup_id, exclusive_bytes, attributed_bytes) \
             SELECT id, ?2, ?3 FROM backups WHERE id = ?1",
        )
        .or_error("write")?;
    for BackupShareRecord { backup, exclusive_bytes, attributed_bytes } in &found.backups {
        let (exclusive, attributed) =
            (int("exclusive bytes", *exclusive_bytes)?, int("attributed bytes", *attributed_bytes)?);
        insert.execute(params![backup.to_bytes(), exclusive, attributed]).or_error("write")?;
    }
    let mut insert = tx
        .prepare_cached(
            "INSERT INTO attributed_vms (vm_id, exclusive_bytes) SELECT id, ?2 FROM vms WHERE id = ?1",
        )
        .or_error("write")?;
    for (vm, bytes) in &found.vms {
        insert.execute(params![vm.to_bytes(), int("exclusive bytes", *bytes)?]).or_error("write")?;
    }
    let mut insert = tx
        .prepare_cached(
            "INSERT INTO attributed_jobs (job_id, exclusive_bytes) \
             SELECT id, ?3 FROM jobs WHERE name = ?2 AND namespace_id = ?1",
        )
        .or_error("write")?;
    for (namespace, job, bytes) in &found.jobs {
        let values = params![namespace.to_bytes(), job, int("exclusive bytes", *bytes)?];
        insert.execute(values).or_error("write")?;
    }
    Ok(())
}

pub(crate) fn state(connection: &Connection) -> Result<Option<AttributionState>> {
    let read = |row: &Row<'_>| {
        Ok(AttributionState {
            at_ms: row.get("at_ms")?,
            live_bytes: count(row, "live_bytes")?,
            is_complete: row.get("complete")?,
        })
    };
    connection.query_row("SELECT * FROM attribution", [], read).optional().or_error("read")
}

pub(crate) fn shares(connection: &Connection, backups: &[BackupId]) -> Result<Vec<BackupShareRecord>> {
    let mut find =
        connection.prepare_cached("SELECT * FROM attributed_backups WHERE backup_id = ?").or_error("read")?;
    let read = |row: &Row<'_>| {
        Ok(BackupShareRecord {
            backup: BackupId::from_bytes(id(row, "backup_id")?),
            exclusive_bytes: count(row, "exclusive_bytes")?,
            attributed_bytes: count(row, "attributed_bytes")?,
        })
    };
    let found = backups.iter().map(|id| find.query_row([id.to_bytes()], read).optional().or_error("read"));
    found.filter_map(Result::transpose).collect()
}

pub(crate) fn groups(
    connection: &Connection,
    by: AttributedBy,
    namespaces: Option<&[NamespaceId]>,
    limit: u32,
    room: &SortRoom,
) -> Result<Vec<AttributedGroup>> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    // (W17) No index has them in the order of groups.
    let rows = connection
        .prepare_cached("SELECT count(*) AS rows FROM attributed_backups")
        .and_then(|mut s| s.query_row([], |row| count(row, "rows")))
        .or_error("read")?;
    room.expect(rows)?;
    let mut conditions = Conditions::default();
    conditions.in_namespaces("b.namespace_id", namespaces);
    let (name, joins, exclusive, group) = match by {
        AttributedBy::Namespace => ("n.name", "", "sum(a.attributed_bytes)", "b.namespace_id"),
        AttributedBy::Vm => (
            "v.name",
            "CROSS JOIN vms v ON v.id = b.vm_id LEFT JOIN attributed_vms e ON e.vm_id = b.vm_id",
            "coalesce(max(e.exclusive_bytes), 0)",
            "b.vm_id",
        ),
        AttributedBy::Job => (
            "j.name",
            "CROSS JOIN jobs j ON j.id = b.job_id LEFT JOIN attributed_jobs e ON e.job_id = b.job_id",
            "coalesce(max(e.exclusive_bytes), 0)",
            "b.job_id",
        ),
    };
    let select = format!(
        "SELECT b.namespace_id, n.name AS namespace, {name} AS name, count(*) AS backups, \
         {exclusive} AS exclusive_bytes, sum(a.attributed_bytes) AS attributed_bytes \
         FROM attributed_backups a CROSS JOIN backups b ON b.id = a.backup_id \
         CROSS JOIN namespaces n ON n.id = b.namespace_id {joins}"
    );
    let limit = limit.min(ATTRIBUTED_GROUPS_MAX);
    let order = format!("GROUP BY {group} ORDER BY attributed_bytes DESC, namespace, name LIMIT {limit}");
    let mut found = Vec::new();
    conditions.each(connection, (&select, &order), |row| {
        found.push(read_group(row).or_error("read")?);
        Ok(())
    })?;
    Ok(found)
}

fn read_group(row: &Row<'_>) -> rusqlite::Result<AttributedGroup> {
    Ok(AttributedGroup {
        namespace: NamespaceId::from_bytes(id(row, "namespace_id")?),
        namespace_name: row.get("namespace")?,
        name: row.get("name")?,
        backups: count(row, "backups")?,
        exclusive_bytes: count(row, "exclusive_bytes")?,
        attributed_bytes: count(row, "attributed_bytes")?,
    })
}
