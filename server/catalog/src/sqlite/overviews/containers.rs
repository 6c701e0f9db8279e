//! Containers added up. Reads all of them: one row for 32 MiB, three million for 100 TB.

use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId};
use rusqlite::{Connection, Row, params};

use crate::sqlite::containers::{class, class_word, container_id, state};
use crate::sqlite::convert::DAY_MS;
use crate::sqlite::convert::{OrCatalogError, count};
use crate::sqlite::select::Conditions;
use crate::{ContainerTotals, Result};

/// By class and state.
pub(crate) fn totals(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
) -> Result<Vec<ContainerTotals>> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let mut conditions = Conditions::default();
    conditions.in_namespaces("c.namespace_id", namespaces);
    let select = "SELECT c.class, c.state, count(*) AS count, sum(c.stored_bytes) AS stored_bytes, \
         sum(c.plain_bytes) AS plain_bytes, sum(c.chunk_count) AS chunk_count FROM containers c";
    let read = |row: &Row<'_>| {
        Ok(ContainerTotals {
            class: class(row)?,
            state: state(row)?,
            count: count(row, "count")?,
            stored_bytes: count(row, "stored_bytes")?,
            plain_bytes: count(row, "plain_bytes")?,
            chunk_count: count(row, "chunk_count")?,
        })
    };
    let mut found = Vec::new();
    conditions.each(connection, (select, "GROUP BY c.class, c.state ORDER BY c.class, c.state"), |row| {
        found.push(read(row).or_error("read")?);
        Ok(())
    })?;
    Ok(found)
}

/// Bytes by the day they were begun on. Days begin at midnight before 1970, too.
pub(crate) fn days(connection: &Connection) -> Result<Vec<(i32, u64)>> {
    let sql = format!(
        "SELECT created_ms / {DAY_MS} - (created_ms < 0 AND created_ms % {DAY_MS} <> 0) AS day, \
         sum(stored_bytes) AS bytes FROM containers GROUP BY 1 ORDER BY 1"
    );
    connection
        .prepare_cached(&sql)
        .and_then(|mut s| s.query_map([], |row| Ok((row.get("day")?, count(row, "bytes")?)))?.collect())
        .or_error("read")
}

/// The first of each of `max` equal parts of the list.
pub(crate) fn sample(
    connection: &Connection,
    class: ContainerClass,
    max: u32,
) -> Result<(Vec<ContainerId>, u64)> {
    let word = class_word(class);
    let total: i64 = connection
        .prepare_cached("SELECT count(*) FROM containers WHERE class = ? AND state = 'live'")
        .and_then(|mut s| s.query_row([word], |row| row.get(0)))
        .or_error("read")?;
    let ids = connection
        .prepare_cached(
            "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) - 1 AS n FROM containers \
             WHERE class = ?1 AND state = 'live') WHERE ?2 > 0 AND (?2 >= ?3 OR n = 0 \
             OR n * ?2 / ?3 > (n - 1) * ?2 / ?3) ORDER BY id",
        )
        .and_then(|mut s| s.query_map(params![word, max, total], |row| container_id(row, "id"))?.collect())
        .or_error("read")?;
    Ok((ids, total.unsigned_abs()))
}
