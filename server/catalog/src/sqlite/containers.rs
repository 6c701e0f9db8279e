//! Containers and their numbers.

use std::ops::Range;

use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, RunId};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::convert::{OrCatalogError, bad_value, count, id, int};
use super::{commit_numbers, namespaces, usage};
use crate::{CatalogError, ContainerRecord, ContainerState, Result};

pub(crate) fn reserve(tx: &Transaction<'_>, numbers: u32) -> Result<Range<u64>> {
    let next: i64 =
        tx.query_row("SELECT next_container FROM repository", [], |row| row.get(0)).or_error("read")?;
    let end = next.saturating_add(i64::from(numbers));
    if end > 1 << ContainerId::BITS {
        return Err(CatalogError::invalid(format!("{numbers} container numbers are more than are left")));
    }
    tx.execute("UPDATE repository SET next_container = ?", [end]).or_error("write")?;
    let unsigned = |n: i64| {
        u64::try_from(n).map_err(|_| CatalogError::Corrupt { detail: format!("next_container is {n}") })
    };
    Ok(unsigned(next)?..unsigned(end)?)
}

pub(crate) fn settle(tx: &Transaction<'_>, below: u64) -> Result<()> {
    let below = int("settled containers", below)?;
    tx.execute("UPDATE settled SET below = ?1 WHERE below < ?1", [below]).or_error("write")?;
    Ok(())
}

pub(crate) fn settled(connection: &Connection) -> Result<u64> {
    connection.query_row("SELECT below FROM settled", [], |row| count(row, "below")).or_error("read")
}

/// Keeps a container whose backup is in progress.
pub(crate) fn note_sealed(tx: &Transaction<'_>, container: &ContainerRecord) -> Result<()> {
    if by_id(tx, container.id)?.is_some() {
        return Ok(());
    }
    tx.prepare_cached(
        "INSERT INTO sealed_containers (id, class, namespace_id, stored_bytes, plain_bytes, chunk_count, created_ms) \
         VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
    )
    .and_then(|mut s| {
        s.execute(params![
            number(container.id).unwrap_or(-1),
            container.class.text(),
            container.namespace.to_bytes(),
            i64::try_from(container.stored_bytes).unwrap_or(i64::MAX),
            i64::try_from(container.plain_bytes).unwrap_or(i64::MAX),
            i64::try_from(container.chunk_count).unwrap_or(i64::MAX),
            container.created_ms,
        ])
    })
    .or_error("write")?;
    Ok(())
}

/// Gives those their sessions left behind to no run.
pub(crate) fn adopt_sealed(tx: &Transaction<'_>) -> Result<u64> {
    count_sealed(tx)?;
    let adopted = tx
        .execute(
            "INSERT INTO containers (id, class, state, namespace_id, stored_bytes, plain_bytes, chunk_count, \
             created_ms) SELECT id, class, 'live', namespace_id, stored_bytes, plain_bytes, chunk_count, created_ms \
             FROM sealed_containers WHERE true ON CONFLICT (id) DO NOTHING",
            [],
        )
        .or_error("write")?;
    // (W8) As for any container that becomes known.
    tx.execute(
        "UPDATE repository SET next_container = (SELECT max(id) + 1 FROM sealed_containers) \
         WHERE next_container <= (SELECT max(id) FROM sealed_containers)",
        [],
    )
    .or_error("write")?;
    tx.execute("DELETE FROM sealed_containers", []).or_error("write")?;
    Ok(adopted as u64)
}

/// Adds those that are not known yet to what their namespaces take.
fn count_sealed(tx: &Transaction<'_>) -> Result<()> {
    let taken: Vec<([u8; 16], i64)> = tx
        .prepare(
            "SELECT namespace_id, sum(stored_bytes) FROM sealed_containers \
             WHERE id NOT IN (SELECT id FROM containers) GROUP BY namespace_id",
        )
        .and_then(|mut s| s.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .or_error("read")?;
    taken.into_iter().try_for_each(|(namespace, bytes)| {
        usage::change(tx, NamespaceId::from_bytes(namespace), "stored_bytes", bytes)
    })
}

pub(crate) fn sealed(connection: &Connection) -> Result<u64> {
    connection
        .query_row("SELECT count(*) AS sealed FROM sealed_containers", [], |row| count(row, "sealed"))
        .or_error("read")
}

/// Adds a container found on the volume.
pub(crate) fn adopt(tx: &Transaction<'_>, container: &ContainerRecord) -> Result<()> {
    if namespaces::by_id(tx, container.namespace)?.is_none() {
        return Err(CatalogError::not_found("namespace", container.namespace));
    }
    let run_is_known = match container.run {
        Some(run) => super::backups::run(tx, run)?.is_some(),
        None => false,
    };
    let run = container.run.filter(|_| run_is_known);
    add(tx, &ContainerRecord { run, ..container.clone() })
}

/// Adds a container, or gives one that was adopted before to the run that wrote it.
pub(crate) fn add(tx: &Transaction<'_>, container: &ContainerRecord) -> Result<()> {
    if let Some(known) = by_id(tx, container.id)? {
        return take_over(tx, &known, container);
    }
    let number = number(container.id)?;
    let stored_bytes = int("stored_bytes", container.stored_bytes)?;
    let plain_bytes = int("plain_bytes", container.plain_bytes)?;
    let chunk_count = int("chunk_count", container.chunk_count)?;
    tx.prepare_cached(
        "INSERT INTO containers (id, class, state, namespace_id, run_id, stored_bytes, plain_bytes, \
         chunk_count, created_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .and_then(|mut s| {
        s.execute(params![
            number,
            container.class.text(),
            container.state.text(),
            container.namespace.to_bytes(),
            container.run.map(RunId::to_bytes),
            stored_bytes,
            plain_bytes,
            chunk_count,
            container.created_ms,
        ])
    })
    .or_error("write")?;
    usage::change(tx, container.namespace, "stored_bytes", stored_bytes)?;
    tx.prepare_cached("DELETE FROM sealed_containers WHERE id = ?")
        .and_then(|mut s| s.execute([number]))
        .or_error("write")?;
    // A catalog restored from an older copy must not hand out the numbers of containers written since.
    tx.prepare_cached("UPDATE repository SET next_container = ?1 + 1 WHERE next_container <= ?1")
        .and_then(|mut s| s.execute([number]))
        .or_error("write")?;
    Ok(())
}

fn take_over(tx: &Transaction<'_>, known: &ContainerRecord, told: &ContainerRecord) -> Result<()> {
    // When it was made and its state may have been learned differently; what it is may not.
    let comparable =
        ContainerRecord { created_ms: known.created_ms, state: known.state, run: known.run, ..told.clone() };
    if comparable != *known || (known.run.is_some() && told.run.is_some() && known.run != told.run) {
        return Err(CatalogError::invalid(format!(
            "container {} is known as {known:?}, but told to be {told:?}",
            told.id
        )));
    }
    if let (None, Some(run)) = (known.run, told.run) {
        tx.execute(
            "UPDATE containers SET run_id = ? WHERE id = ?",
            params![run.to_bytes(), number(told.id)?],
        )
        .or_error("write")?;
    }
    Ok(())
}

/// Implements [`Catalog::left_of_run`](crate::Catalog::left_of_run).
pub(crate) fn left_of_run(connection: &Connection, run: RunId) -> Result<u64> {
    let left: i64 = connection
        .prepare_cached(
            "SELECT coalesce((SELECT sum(stored_bytes) FROM containers WHERE run_id = ?1 AND state <> 'condemned'), 0) \
             - coalesce((SELECT sum(post_lc + meta_bytes) FROM details WHERE run_id = ?1 AND backup_id IN \
             (SELECT id FROM backups)), 0)",
        )
        .and_then(|mut s| s.query_row([run.to_bytes()], |row| row.get(0)))
        .or_error("read")?;
    Ok(u64::try_from(left).unwrap_or(0))
}

pub(crate) fn condemn_all(tx: &Transaction<'_>, ids: &[ContainerId]) -> Result<()> {
    if !ids.is_empty() {
        commit_numbers::raise_generation(tx)?;
    }
    ids.iter().try_for_each(|id| condemn(tx, *id))
}

fn condemn(tx: &Transaction<'_>, id: ContainerId) -> Result<()> {
    tx.prepare_cached("UPDATE containers SET state = 'condemned' WHERE id = ?")
        .and_then(|mut s| s.execute([number(id).unwrap_or(-1)]))
        .or_error("write")?;
    Ok(())
}

pub(crate) fn condemned(connection: &Connection) -> Result<Vec<ContainerRecord>> {
    connection
        .prepare_cached("SELECT * FROM containers WHERE state = 'condemned' ORDER BY id")
        .and_then(|mut s| s.query_map([], read)?.collect())
        .or_error("read")
}

/// Removes a condemned container's row, and its damage with it.
pub(crate) fn remove_condemned(tx: &Transaction<'_>, id: ContainerId) -> Result<()> {
    let Some(known) = by_id(tx, id)? else { return Ok(()) };
    if known.state != ContainerState::Condemned {
        let state = known.state;
        return Err(CatalogError::invalid(format!(
            "container {id} cannot be forgotten: it is {state:?}, not condemned"
        )));
    }
    tx.prepare_cached("DELETE FROM containers WHERE id = ?")
        .and_then(|mut s| s.execute([number(id).unwrap_or(-1)]))
        .or_error("write")?;
    usage::change(tx, known.namespace, "stored_bytes", -int("stored_bytes", known.stored_bytes)?)
}

pub(crate) fn by_id(connection: &Connection, id: ContainerId) -> Result<Option<ContainerRecord>> {
    connection
        .prepare_cached("SELECT * FROM containers WHERE id = ?")
        .and_then(|mut s| s.query_row([number(id).unwrap_or(-1)], read).optional())
        .or_error("read")
}

pub(crate) fn list(
    connection: &Connection,
    after: Option<ContainerId>,
    limit: u32,
) -> Result<Vec<ContainerRecord>> {
    let after = after.map_or(Ok(-1), number)?;
    connection
        .prepare_cached("SELECT * FROM containers WHERE id > ? ORDER BY id LIMIT ?")
        .and_then(|mut s| s.query_map(params![after, limit], read)?.collect())
        .or_error("read")
}

pub(crate) fn number(id: ContainerId) -> Result<i64> {
    int("container number", id.get())
}

pub(crate) fn container_id(row: &Row<'_>, column: &str) -> rusqlite::Result<ContainerId> {
    let number = count(row, column)?;
    ContainerId::new(number).ok_or_else(|| bad_value(column, format!("{number} is no container number")))
}

pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<ContainerRecord> {
    let run: Option<[u8; 16]> = row.get("run_id")?;
    Ok(ContainerRecord {
        id: container_id(row, "id")?,
        class: class(row)?,
        namespace: NamespaceId::from_bytes(id(row, "namespace_id")?),
        stored_bytes: count(row, "stored_bytes")?,
        plain_bytes: count(row, "plain_bytes")?,
        chunk_count: count(row, "chunk_count")?,
        created_ms: row.get("created_ms")?,
        run: run.map(RunId::from_bytes),
        state: state(row)?,
    })
}

pub(crate) fn class(row: &Row<'_>) -> rusqlite::Result<ContainerClass> {
    match row.get_ref("class")?.as_str()? {
        "data" => Ok(ContainerClass::Data),
        "recipe" => Ok(ContainerClass::Recipe),
        other => Err(bad_value("class", other)),
    }
}

pub(crate) fn state(row: &Row<'_>) -> rusqlite::Result<ContainerState> {
    match row.get_ref("state")?.as_str()? {
        "live" => Ok(ContainerState::Live),
        "damaged" => Ok(ContainerState::Damaged),
        "condemned" => Ok(ContainerState::Condemned),
        other => Err(bad_value("state", other)),
    }
}
