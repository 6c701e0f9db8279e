//! Groups of containers that parity protects.

use holdfast_types::ids::ContainerId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::containers::{by_id, container_id, number, read};
use super::convert::{OrCatalogError, count, int};
use crate::{CatalogError, ContainerRecord, ContainerState, ParityGroup, ParityTotals, Result};

pub(crate) fn without(
    connection: &Connection,
    after: Option<ContainerId>,
    before_ms: i64,
    limit: u32,
) -> Result<Vec<ContainerRecord>> {
    let after = after.map_or(Ok(-1), number)?;
    connection
        .prepare_cached(
            "SELECT c.* FROM containers c WHERE c.id > ? AND c.state = 'live' AND c.created_ms < ? AND NOT EXISTS \
             (SELECT 1 FROM parity_members m WHERE m.container_id = c.id) ORDER BY c.id LIMIT ?",
        )
        .and_then(|mut s| s.query_map(params![after, before_ms, limit], read)?.collect())
        .or_error("read")
}

pub(crate) fn add(tx: &Transaction<'_>, group: &ParityGroup) -> Result<()> {
    if has(tx, group.number)? {
        return Err(CatalogError::exists("parity group", group.number));
    }
    tx.execute(
        "INSERT INTO parity_groups (number, members, stored_bytes, created_ms) VALUES (?, ?, ?, ?)",
        params![
            number(group.number)?,
            int("containers", group.members.len() as u64)?,
            int("stored_bytes", group.stored_bytes)?,
            group.created_ms
        ],
    )
    .or_error("write")?;
    for member in &group.members {
        let known = by_id(tx, *member)?.filter(|known| known.state != ContainerState::Condemned);
        if known.is_none() || of(tx, *member)?.is_some() {
            return Err(CatalogError::invalid(format!(
                "container {member} cannot be in parity group {}: it is not there, or in another",
                group.number
            )));
        }
        tx.execute(
            "INSERT INTO parity_members (container_id, number) VALUES (?, ?)",
            params![number(*member)?, number(group.number)?],
        )
        .or_error("write")?;
    }
    Ok(())
}

pub(crate) fn of(connection: &Connection, container: ContainerId) -> Result<Option<ContainerId>> {
    connection
        .prepare_cached("SELECT number FROM parity_members WHERE container_id = ?")
        .and_then(|mut s| {
            s.query_row([number(container).unwrap_or(-1)], |row| container_id(row, "number")).optional()
        })
        .or_error("read")
}

pub(crate) fn has(connection: &Connection, group: ContainerId) -> Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM parity_groups WHERE number = ?")
        .and_then(|mut s| s.exists([number(group).unwrap_or(-1)]))
        .or_error("read")
}

pub(crate) fn groups(
    connection: &Connection,
    after: Option<ContainerId>,
    limit: u32,
) -> Result<Vec<(ContainerId, bool)>> {
    let after = after.map_or(Ok(-1), number)?;
    connection
        .prepare_cached(
            "SELECT g.number, g.damaged FROM parity_groups g WHERE g.number > ? AND g.members = (SELECT count(*) FROM \
             parity_members m JOIN containers c ON c.id = m.container_id WHERE m.number = g.number \
             AND c.state <> 'condemned') ORDER BY g.number LIMIT ?",
        )
        .and_then(|mut s| {
            let group = |row: &Row<'_>| Ok((container_id(row, "number")?, row.get("damaged")?));
            s.query_map(params![after, limit], group)?.collect()
        })
        .or_error("read")
}

pub(crate) fn members(connection: &Connection, group: ContainerId) -> Result<Vec<ContainerRecord>> {
    connection
        .prepare_cached(
            "SELECT c.* FROM parity_members m JOIN containers c ON c.id = m.container_id WHERE m.number = ? \
             ORDER BY c.id",
        )
        .and_then(|mut s| s.query_map([number(group).unwrap_or(-1)], read)?.collect())
        .or_error("read")
}

pub(crate) fn mark(tx: &Transaction<'_>, group: ContainerId, damaged: bool) -> Result<()> {
    tx.execute("UPDATE parity_groups SET damaged = ? WHERE number = ?", params![damaged, number(group)?])
        .or_error("write")?;
    Ok(())
}

pub(crate) fn damaged(connection: &Connection, limit: u32) -> Result<Vec<ContainerId>> {
    connection
        .prepare_cached("SELECT number FROM parity_groups WHERE damaged = 1 ORDER BY number LIMIT ?")
        .and_then(|mut s| s.query_map([limit], |row| container_id(row, "number"))?.collect())
        .or_error("read")
}

pub(crate) fn broken(connection: &Connection, limit: u32) -> Result<Vec<ContainerId>> {
    connection
        .prepare_cached(
            "SELECT g.number FROM parity_groups g WHERE g.members > (SELECT count(*) FROM parity_members m \
             JOIN containers c ON c.id = m.container_id WHERE m.number = g.number AND c.state <> 'condemned') \
             ORDER BY g.number LIMIT ?",
        )
        .and_then(|mut s| s.query_map([limit], |row| container_id(row, "number"))?.collect())
        .or_error("read")
}

pub(crate) fn remove(tx: &Transaction<'_>, group: ContainerId) -> Result<()> {
    tx.execute("DELETE FROM parity_groups WHERE number = ?", [number(group)?]).or_error("write")?;
    Ok(())
}

pub(crate) fn totals(connection: &Connection) -> Result<ParityTotals> {
    connection
        .query_row(
            "SELECT count(*) AS groups_, coalesce(sum(stored_bytes), 0) AS stored, coalesce(sum(damaged), 0) AS bad, \
             (SELECT count(*) FROM parity_members) AS members FROM parity_groups",
            [],
            |row| {
                Ok(ParityTotals {
                    groups: count(row, "groups_")?,
                    stored_bytes: count(row, "stored")?,
                    containers: count(row, "members")?,
                    damaged: count(row, "bad")?,
                })
            },
        )
        .or_error("read")
}
