//! Containers added up. Reads all of them: one row for 32 MiB, three million for 100 TB.

use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId};
use rusqlite::{Connection, Row, params};

use crate::sqlite::containers::{class, container_id, state};
use crate::sqlite::convert::{OrCatalogError, count};
use crate::sqlite::select::Conditions;
use crate::{ContainerTotals, Result};

/// By class and state, added up as they are read: SQLite would sort all of them for it, on the disk (W17).
pub(crate) fn totals(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
) -> Result<Vec<ContainerTotals>> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let mut conditions = Conditions::default();
    conditions.in_namespaces("c.namespace_id", namespaces);
    let select = "SELECT c.class, c.state, c.stored_bytes, c.plain_bytes, c.chunk_count FROM containers c";
    let read = |row: &Row<'_>| -> rusqlite::Result<ContainerTotals> {
        Ok(ContainerTotals {
            class: class(row)?,
            state: state(row)?,
            count: 1,
            stored_bytes: count(row, "stored_bytes")?,
            plain_bytes: count(row, "plain_bytes")?,
            chunk_count: count(row, "chunk_count")?,
        })
    };
    let mut found: Vec<ContainerTotals> = Vec::new();
    conditions.each(connection, (select, ""), |row| {
        let one = read(row).or_error("read")?;
        match found.iter_mut().find(|sum| (sum.class, sum.state) == (one.class, one.state)) {
            Some(sum) => {
                sum.count += 1;
                sum.stored_bytes = sum.stored_bytes.saturating_add(one.stored_bytes);
                sum.plain_bytes = sum.plain_bytes.saturating_add(one.plain_bytes);
                sum.chunk_count = sum.chunk_count.saturating_add(one.chunk_count);
            }
            None => found.push(one),
        }
        Ok(())
    })?;
    found.sort_unstable_by_key(|sum| (sum.class, sum.state.text()));
    Ok(found)
}

/// The first of each of `max` equal parts of the list.
pub(crate) fn sample(
    connection: &Connection,
    class: ContainerClass,
    max: u32,
) -> Result<(Vec<ContainerId>, u64)> {
    let word = class.text();
    let total: i64 = connection
        .prepare_cached("SELECT count(*) FROM containers WHERE class = ? AND state = 'live'")
        .and_then(|mut s| s.query_row([word], |row| row.get(0)))
        .or_error("read")?;
    let ids = connection
        .prepare_cached(
            "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) - 1 AS n FROM containers \
             WHERE class = ?1 AND state = 'live') live WHERE ?2 > 0 AND (?2 >= ?3 OR n = 0 \
             OR n * ?2 / ?3 > (n - 1) * ?2 / ?3) ORDER BY id",
        )
        .and_then(|mut s| s.query_map(params![word, max, total], |row| container_id(row, "id"))?.collect())
        .or_error("read")?;
    Ok((ids, total.unsigned_abs()))
}
