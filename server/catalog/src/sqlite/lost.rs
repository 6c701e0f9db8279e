//! Lost ranges of restore points, by disk.

use holdfast_types::clock::Clock;
use holdfast_types::ids::{BackupId, NamespaceId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::convert::{OrCatalogError, bad_value, count, id, int};
use super::select::{Conditions, unindexed};
use super::{audit, backups};
use crate::{
    AuditEntry, ByteRange, CatalogError, DamageTotals, DamagedDisk, LISTED_RANGES_MAX, LostRanges, Result,
};

/// Record of one disk: position, bytes, ranges, the first of them as text.
type Kept = (i64, i64, i64, String);

pub(crate) fn doubt(tx: &Transaction<'_>, backup: BackupId) -> Result<()> {
    // Others of its VM took over the extents that one restore point lacks, and the next is made of the latest.
    let insert = "INSERT INTO in_doubt (backup_id) SELECT b.id FROM backups x JOIN backups b ON b.vm_id = x.vm_id \
         WHERE x.id = ? ON CONFLICT DO NOTHING";
    tx.execute(insert, [backup.to_bytes()]).map(drop).or_error("write")
}

/// Puts a new restore point in doubt where another of its VM is: its session may have taken something over from that.
pub(crate) fn inherit_doubt(tx: &Transaction<'_>, backup: BackupId) -> Result<()> {
    let insert = "INSERT INTO in_doubt (backup_id) SELECT x.id FROM backups x WHERE x.id = ? \
         AND EXISTS (SELECT 1 FROM in_doubt d JOIN backups b ON b.id = d.backup_id WHERE b.vm_id = x.vm_id) \
         ON CONFLICT DO NOTHING";
    tx.execute(insert, [backup.to_bytes()]).map(drop).or_error("write")
}

pub(crate) fn in_doubt(connection: &Connection, limit: u32) -> Result<Vec<BackupId>> {
    let mut statement = connection
        .prepare_cached("SELECT backup_id FROM in_doubt ORDER BY backup_id LIMIT ?")
        .or_error("read")?;
    let rows = statement.query_map([limit], |row| id(row, "backup_id")).or_error("read")?;
    rows.map(|id| id.map(BackupId::from_bytes).or_error("read")).collect()
}

pub(crate) fn may_lack(connection: &Connection, backup: BackupId) -> Result<bool> {
    let select = "SELECT EXISTS (SELECT 1 FROM in_doubt WHERE backup_id = ?1) \
         OR EXISTS (SELECT 1 FROM damaged_disks WHERE backup_id = ?1)";
    connection
        .prepare_cached(select)
        .and_then(|mut s| s.query_row([backup.to_bytes()], |row| row.get(0)))
        .or_error("read")
}

pub(crate) fn set(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    backup: BackupId,
    lost: &[LostRanges],
) -> Result<bool> {
    let Some(record) = backups::by_id(tx, backup)? else { return Ok(false) };
    let mut wanted: Vec<Kept> = Vec::with_capacity(lost.len());
    for one in lost {
        if one.listed.len() > LISTED_RANGES_MAX || one.bytes == 0 || one.ranges == 0 {
            return Err(CatalogError::invalid(format!(
                "lost ranges of backup {backup} do not add up: {one:?}"
            )));
        }
        let (bytes, ranges) = (int("lost bytes", one.bytes)?, int("lost ranges", one.ranges)?);
        wanted.push((i64::from(one.position), bytes, ranges, listed_text(&one.listed)));
    }
    wanted.sort();
    tx.execute("DELETE FROM in_doubt WHERE backup_id = ?", [backup.to_bytes()]).or_error("write")?;
    let known = of_backup(tx, backup)?;
    if known == wanted {
        return Ok(false);
    }
    // Ranges known before keep the time at which they were found.
    let found_ms: Option<i64> = tx
        .query_row(
            "SELECT min(found_ms) FROM damaged_disks WHERE backup_id = ?",
            [backup.to_bytes()],
            |row| row.get(0),
        )
        .or_error("read")?;
    tx.execute("DELETE FROM damaged_disks WHERE backup_id = ?", [backup.to_bytes()]).or_error("write")?;
    for (position, bytes, ranges, listed) in &wanted {
        tx.execute(
            "INSERT INTO damaged_disks (backup_id, position, found_ms, bytes, ranges, listed) \
             VALUES (?, ?, ?, ?, ?, ?)",
            params![
                backup.to_bytes(),
                position,
                found_ms.unwrap_or_else(|| clock.now_ms()),
                bytes,
                ranges,
                listed
            ],
        )
        .or_error("write")?;
    }
    let (action, what) = match (known.is_empty(), wanted.is_empty()) {
        (true, false) => {
            let bytes: i64 = wanted.iter().map(|(_, bytes, ..)| bytes).sum();
            ("backup.damaged", format!("{bytes} bytes of {} disks cannot be restored", wanted.len()))
        }
        (false, true) => ("backup.healed", "all of it can be restored again".to_owned()),
        _ => return Ok(true),
    };
    let entry = AuditEntry {
        who: "engine".to_owned(),
        action: action.to_owned(),
        object: backup.to_string(),
        detail: format!("VM {}: {what}", record.vm),
    };
    audit::add(tx, clock, &entry)?;
    Ok(true)
}

fn of_backup(connection: &Connection, backup: BackupId) -> Result<Vec<Kept>> {
    connection
        .prepare_cached(
            "SELECT position, bytes, ranges, listed FROM damaged_disks WHERE backup_id = ? ORDER BY position",
        )
        .and_then(|mut s| {
            s.query_map([backup.to_bytes()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
                .collect()
        })
        .or_error("read")
}

pub(crate) fn list(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
    after: Option<(BackupId, u32)>,
    limit: u32,
) -> Result<Vec<DamagedDisk>> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let mut conditions = Conditions::default();
    if let Some((backup, position)) = after {
        let values = [Value::Blob(backup.to_bytes().to_vec()), Value::Integer(i64::from(position))];
        conditions.push("(d.backup_id, d.position) > (?, ?)", values);
    }
    // Few disks are damaged: found by their own table, not by all restore points of a namespace.
    conditions.in_namespaces(&unindexed("b.namespace_id"), namespaces);
    let (found, _) = conditions.page(
        connection,
        (SELECT, "ORDER BY d.backup_id, d.position"),
        limit,
        |row| read(row).or_error("read"),
        |one: &DamagedDisk| size_of::<DamagedDisk>() + one.lost.listed.len() * size_of::<ByteRange>(),
    )?;
    Ok(found)
}

const SELECT: &str = "SELECT d.*, b.namespace_id, b.started_ms, n.name AS namespace, v.name AS vm, k.name AS disk \
     FROM damaged_disks d JOIN backups b ON b.id = d.backup_id \
     JOIN namespaces n ON n.id = b.namespace_id JOIN vms v ON v.id = b.vm_id \
     JOIN disks k ON k.backup_id = d.backup_id AND k.position = d.position";

fn read(row: &Row<'_>) -> rusqlite::Result<DamagedDisk> {
    let listed: String = row.get("listed")?;
    let position = count(row, "position")?;
    Ok(DamagedDisk {
        backup: BackupId::from_bytes(id(row, "backup_id")?),
        namespace: NamespaceId::from_bytes(id(row, "namespace_id")?),
        namespace_name: row.get("namespace")?,
        vm: row.get("vm")?,
        started_ms: row.get("started_ms")?,
        disk: row.get("disk")?,
        found_ms: row.get("found_ms")?,
        lost: LostRanges {
            position: u32::try_from(position).map_err(|error| bad_value("position", error))?,
            bytes: count(row, "bytes")?,
            ranges: count(row, "ranges")?,
            listed: parse_listed(&listed).ok_or_else(|| bad_value("listed", "no ranges"))?,
        },
    })
}

pub(crate) fn bytes_of(connection: &Connection, backups: &[BackupId]) -> Result<Vec<(BackupId, u64)>> {
    let mut statement = connection
        .prepare_cached(
            "SELECT sum(bytes) AS bytes FROM damaged_disks WHERE backup_id = ? HAVING count(*) > 0",
        )
        .or_error("read")?;
    let mut found = Vec::new();
    for backup in backups {
        let bytes = statement
            .query_row([backup.to_bytes()], |row| count(row, "bytes"))
            .optional()
            .or_error("read")?;
        found.extend(bytes.map(|bytes| (*backup, bytes)));
    }
    Ok(found)
}

pub(crate) fn totals(connection: &Connection, namespaces: Option<&[NamespaceId]>) -> Result<DamageTotals> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(DamageTotals::default());
    }
    let mut conditions = Conditions::default();
    conditions.in_namespaces(&unindexed("b.namespace_id"), namespaces);
    let (mut found, _) = conditions.page(
        connection,
        (
            "SELECT count(DISTINCT d.backup_id) AS restore_points, count(*) AS disks, coalesce(sum(d.bytes), 0) AS bytes \
             FROM damaged_disks d JOIN backups b ON b.id = d.backup_id",
            "",
        ),
        1,
        |row| {
            let read = |row: &Row<'_>| {
                Ok(DamageTotals {
                    restore_points: count(row, "restore_points")?,
                    disks: count(row, "disks")?,
                    bytes: count(row, "bytes")?,
                })
            };
            read(row).or_error("read")
        },
        |_: &DamageTotals| 0,
    )?;
    Ok(found.pop().unwrap_or_default())
}

fn listed_text(listed: &[ByteRange]) -> String {
    let words: Vec<String> = listed.iter().map(|range| format!("{}+{}", range.start, range.bytes)).collect();
    words.join(" ")
}

fn parse_listed(text: &str) -> Option<Vec<ByteRange>> {
    text.split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| {
            let (start, bytes) = word.split_once('+')?;
            Some(ByteRange { start: start.parse().ok()?, bytes: bytes.parse().ok()? })
        })
        .collect()
}
