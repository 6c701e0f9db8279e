//! The repository's own row, and namespaces.

use holdfast_proto::KeyId;
use holdfast_proto::limits::NAME_MAX_BYTES;
use holdfast_types::clock::Clock;
use holdfast_types::ids::{NamespaceId, RepositoryId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::convert::{OrCatalogError, id};
use super::usage;
use crate::{CatalogError, ChunkerParams, NamespaceRecord, RepositoryRecord, Result, new_id};

pub(crate) fn repository(connection: &Connection) -> Result<RepositoryRecord> {
    let read = |row: &Row<'_>| {
        Ok(RepositoryRecord {
            id: RepositoryId::from_bytes(id(row, "id")?),
            created_ms: row.get("created_ms")?,
            format_version: row.get("format_version")?,
            chunker: ChunkerParams {
                algorithm: row.get("chunker_algorithm")?,
                min_bytes: row.get("chunker_min_bytes")?,
                avg_bytes: row.get("chunker_avg_bytes")?,
                max_bytes: row.get("chunker_max_bytes")?,
                extent_bytes: row.get("chunker_extent_bytes")?,
                region_bytes: row.get("chunker_region_bytes")?,
            },
        })
    };
    connection
        .query_row("SELECT * FROM repository", [], read)
        .optional()
        .or_error("read")?
        .ok_or_else(|| CatalogError::Corrupt { detail: "the repository's own row is missing".to_owned() })
}

pub(crate) fn ensure(connection: &Connection, clock: &dyn Clock, name: &str) -> Result<NamespaceRecord> {
    if let Some(found) = by_name(connection, name)? {
        return Ok(found);
    }
    make(connection, clock, name, None)
}

/// A new namespace, of which agents encrypt the content with that key.
pub(crate) fn create_sealed(
    connection: &Connection,
    clock: &dyn Clock,
    name: &str,
    key_id: KeyId,
) -> Result<NamespaceRecord> {
    if by_name(connection, name)?.is_some() {
        return Err(CatalogError::exists("namespace", name));
    }
    make(connection, clock, name, Some(key_id))
}

fn make(
    connection: &Connection,
    clock: &dyn Clock,
    name: &str,
    key_id: Option<KeyId>,
) -> Result<NamespaceRecord> {
    let (id, created_ms) = (NamespaceId(new_id(clock)?), clock.now_ms());
    let record = NamespaceRecord { id, name: name.to_owned(), created_ms, key_id };
    insert(connection, &record)?;
    Ok(record)
}

fn insert(connection: &Connection, record: &NamespaceRecord) -> Result<()> {
    connection
        .execute(
            "INSERT INTO namespaces (id, name, created_ms, key_id) VALUES (?, ?, ?, ?)",
            params![record.id.to_bytes(), record.name, record.created_ms, record.key_id.map(KeyId::to_bytes)],
        )
        .or_error("write")?;
    usage::begin(connection, record.id)
}

/// The namespace of `wanted`'s id, or `wanted` itself, created. Where another has its name, the id is added to it. One that
/// was made without knowing of its key gets it (N2), and one without its name that, unless another has it.
pub(crate) fn restore(connection: &Connection, wanted: &NamespaceRecord) -> Result<NamespaceRecord> {
    if let Some(mut found) = by_id(connection, wanted.id)? {
        if let (None, Some(key_id)) = (found.key_id, wanted.key_id) {
            connection
                .execute(
                    "UPDATE namespaces SET key_id = ? WHERE id = ?",
                    params![key_id.to_bytes(), wanted.id.to_bytes()],
                )
                .or_error("write")?;
            found.key_id = Some(key_id);
        }
        if found.is_unnamed() && by_name(connection, &wanted.name)?.is_none() {
            connection
                .execute(
                    "UPDATE namespaces SET name = ? WHERE id = ?",
                    params![wanted.name, wanted.id.to_bytes()],
                )
                .or_error("write")?;
            found.name.clone_from(&wanted.name);
        }
        return Ok(found);
    }
    let mut record = wanted.clone();
    if by_name(connection, &record.name)?.is_some() {
        let id = record.id.to_string();
        let room = NAME_MAX_BYTES.saturating_sub(id.len() + 1);
        let kept = record.name.get(..record.name.floor_char_boundary(room)).unwrap_or_default().trim_end();
        record.name = format!("{kept}-{id}");
    }
    insert(connection, &record)?;
    Ok(record)
}

pub(crate) fn by_id(connection: &Connection, id: NamespaceId) -> Result<Option<NamespaceRecord>> {
    connection
        .prepare_cached("SELECT * FROM namespaces WHERE id = ?")
        .and_then(|mut s| s.query_row([id.to_bytes()], read).optional())
        .or_error("read")
}

pub(crate) fn by_name(connection: &Connection, name: &str) -> Result<Option<NamespaceRecord>> {
    connection
        .prepare_cached("SELECT * FROM namespaces WHERE name = ?")
        .and_then(|mut s| s.query_row([name], read).optional())
        .or_error("read")
}

pub(crate) fn all(connection: &Connection) -> Result<Vec<NamespaceRecord>> {
    connection
        .prepare_cached("SELECT * FROM namespaces ORDER BY name")
        .and_then(|mut s| s.query_map([], read)?.collect())
        .or_error("read")
}

/// Reads a namespace from a row that has all columns of the table.
pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<NamespaceRecord> {
    Ok(NamespaceRecord {
        id: NamespaceId::from_bytes(id(row, "id")?),
        name: row.get("name")?,
        created_ms: row.get("created_ms")?,
        key_id: key_id(row, "key_id")?,
    })
}

pub(crate) fn key_id(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<KeyId>> {
    Ok(row.get::<_, Option<[u8; 8]>>(column)?.map(KeyId::from_bytes))
}
