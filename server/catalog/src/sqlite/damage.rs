//! Damage of containers and their regions, and the order in which it was found and cleared.

use holdfast_types::clock::Clock;
use holdfast_types::ids::{ContainerId, Location};
use rusqlite::{Connection, Row, Transaction, params};

use super::containers::{by_id, container_id, number};
use super::convert::OrCatalogError;
use crate::{CatalogError, DamageChanges, DamageRecord, Result, validate};

pub(crate) fn mark(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    (id, region): (ContainerId, Option<u16>),
    reason: &str,
) -> Result<()> {
    if region.is_some_and(|region| region >> Location::PART_BITS != 0) {
        return Err(CatalogError::invalid(format!("container {id} cannot have a region {region:?}")));
    }
    let number = known_number(tx, id)?;
    if region.is_none() {
        tx.execute("UPDATE containers SET state = 'damaged' WHERE id = ? AND state = 'live'", [number])
            .or_error("write")?;
    }
    let found = tx
        .execute(
            "INSERT INTO damage (container_id, region, reason, found_ms) VALUES (?, ?, ?, ?) \
             ON CONFLICT DO NOTHING",
            params![number, stored_region(region), validate::clip(reason), clock.now_ms()],
        )
        .or_error("write")?;
    if found == 0 { Ok(()) } else { note_change(tx, number) }
}

/// `healed_ms`: when other copies were found of all that is known to be damaged of a container; `None`: there are none.
pub(crate) fn set_healed(tx: &Transaction<'_>, id: ContainerId, healed_ms: Option<i64>) -> Result<()> {
    let number = known_number(tx, id)?;
    let changed = tx
        .execute(
            "UPDATE damage SET healed_ms = ?1 WHERE container_id = ?2 AND (healed_ms IS NULL) = (?1 IS NOT NULL)",
            params![healed_ms, number],
        )
        .or_error("write")?;
    if changed == 0 { Ok(()) } else { note_change(tx, number) }
}

pub(crate) fn clear(tx: &Transaction<'_>, id: ContainerId, sound: &[Option<u16>]) -> Result<()> {
    let number = known_number(tx, id)?;
    let mut cleared = 0;
    for region in sound {
        cleared += tx
            .execute(
                "DELETE FROM damage WHERE container_id = ? AND region = ?",
                [number, stored_region(*region)],
            )
            .or_error("write")?;
    }
    if sound.contains(&None) {
        tx.execute("UPDATE containers SET state = 'live' WHERE id = ? AND state = 'damaged'", [number])
            .or_error("write")?;
    }
    if cleared == 0 { Ok(()) } else { note_change(tx, number) }
}

/// A region's number, as rows have it; -1: the container as a whole.
fn stored_region(region: Option<u16>) -> i64 {
    region.map_or(-1, i64::from)
}

/// Gives the container's damage the next number of a change.
fn note_change(tx: &Transaction<'_>, number: i64) -> Result<()> {
    tx.execute(
        "INSERT INTO damage_changes (container_id, change) \
         VALUES (?, (SELECT coalesce(max(change), 0) + 1 FROM damage_changes)) \
         ON CONFLICT (container_id) DO UPDATE SET change = excluded.change",
        [number],
    )
    .or_error("write")?;
    Ok(())
}

pub(crate) fn damaged(connection: &Connection) -> Result<Vec<DamageRecord>> {
    connection
        .prepare_cached("SELECT * FROM damage ORDER BY container_id, region")
        .and_then(|mut s| s.query_map([], read)?.collect())
        .or_error("read")
}

pub(crate) fn damage_changed_since(connection: &Connection, change: u64) -> Result<DamageChanges> {
    // A number above every change there can be asks for nothing.
    let change = i64::try_from(change).unwrap_or(i64::MAX);
    let last: i64 = connection
        .query_row("SELECT coalesce(max(change), 0) FROM damage_changes", [], |row| row.get(0))
        .or_error("read")?;
    let containers = connection
        .prepare_cached("SELECT container_id FROM damage_changes WHERE change > ? ORDER BY container_id")
        .and_then(|mut s| s.query_map([change], |row| container_id(row, "container_id"))?.collect())
        .or_error("read")?;
    let damage = connection
        .prepare_cached(
            "SELECT * FROM damage WHERE container_id IN (SELECT container_id FROM damage_changes WHERE change > ?) \
             ORDER BY container_id, region",
        )
        .and_then(|mut s| s.query_map([change], read)?.collect())
        .or_error("read")?;
    let last = u64::try_from(last)
        .map_err(|_| CatalogError::Corrupt { detail: format!("the last change of damage is {last}") })?;
    Ok(DamageChanges { containers, damage, last })
}

fn read(row: &Row<'_>) -> rusqlite::Result<DamageRecord> {
    let region: i64 = row.get("region")?;
    Ok(DamageRecord {
        container: container_id(row, "container_id")?,
        region: u16::try_from(region).ok(),
        reason: row.get("reason")?,
        found_ms: row.get("found_ms")?,
        healed: row.get::<_, Option<i64>>("healed_ms")?.is_some(),
    })
}

pub(crate) fn note_report(tx: &Transaction<'_>, id: ContainerId, region: u16) -> Result<()> {
    let number = known_number(tx, id)?;
    tx.execute("INSERT INTO reported_regions VALUES (?, ?) ON CONFLICT DO NOTHING", params![number, region])
        .or_error("write")?;
    Ok(())
}

pub(crate) fn forget_report(tx: &Transaction<'_>, id: ContainerId, region: u16) -> Result<()> {
    tx.execute(
        "DELETE FROM reported_regions WHERE container_id = ? AND region = ?",
        params![number(id)?, region],
    )
    .or_error("write")?;
    Ok(())
}

pub(crate) fn reported(connection: &Connection) -> Result<Vec<(ContainerId, u16)>> {
    connection
        .prepare_cached("SELECT * FROM reported_regions ORDER BY container_id, region")
        .and_then(|mut s| {
            s.query_map([], |row| Ok((container_id(row, "container_id")?, row.get("region")?)))?.collect()
        })
        .or_error("read")
}

fn known_number(tx: &Transaction<'_>, id: ContainerId) -> Result<i64> {
    by_id(tx, id)?.ok_or_else(|| CatalogError::not_found("container", id))?;
    number(id)
}
