//! Containers that were compressed anew, and at which level.

use holdfast_types::ids::ContainerId;
use rusqlite::{Connection, Transaction, params};

use super::containers::{number, read};
use super::convert::OrCatalogError;
use crate::{ContainerRecord, Result};

/// One that is not known is skipped.
pub(crate) fn note(tx: &Transaction<'_>, id: ContainerId, level: i32) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO squeezed (container_id, level) SELECT id, ?2 FROM containers WHERE id = ?1 \
         ON CONFLICT (container_id) DO UPDATE SET level = excluded.level WHERE squeezed.level < excluded.level",
    )
    .and_then(|mut s| s.execute(params![number(id).unwrap_or(-1), level]))
    .or_error("write")?;
    Ok(())
}

pub(crate) fn squeezable(
    connection: &Connection,
    level: i32,
    made_before_ms: i64,
    after: Option<ContainerId>,
    limit: u32,
) -> Result<Vec<ContainerRecord>> {
    let after = after.map_or(Ok(-1), number)?;
    connection
        .prepare_cached(
            "SELECT * FROM containers c WHERE id > ?1 AND class = 'data' AND state = 'live' \
             AND created_ms < ?2 AND NOT EXISTS \
             (SELECT 1 FROM squeezed s WHERE s.container_id = c.id AND s.level >= ?3) ORDER BY id LIMIT ?4",
        )
        .and_then(|mut s| s.query_map(params![after, made_before_ms, level, limit], read)?.collect())
        .or_error("read")
}
