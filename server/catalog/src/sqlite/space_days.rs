//! Space used, day by day.

use rusqlite::{Connection, Row, Transaction, params};

use super::convert::{OrCatalogError, count, int};
use crate::{Result, SpaceDay};

pub(crate) fn record(tx: &Transaction<'_>, found: &SpaceDay) -> Result<()> {
    let bytes = |bytes| int("bytes of a day", bytes);
    tx.execute(
        "INSERT INTO space_days \
         (day, data_bytes, recipe_bytes, parity_bytes, condemned_bytes, bucket_bytes, archive_bytes) \
         VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (day) DO UPDATE SET data_bytes = excluded.data_bytes, \
         recipe_bytes = excluded.recipe_bytes, parity_bytes = excluded.parity_bytes, \
         condemned_bytes = excluded.condemned_bytes, bucket_bytes = excluded.bucket_bytes, \
         archive_bytes = excluded.archive_bytes",
        params![
            found.day,
            bytes(found.data_bytes)?,
            bytes(found.recipe_bytes)?,
            bytes(found.parity_bytes)?,
            bytes(found.condemned_bytes)?,
            bytes(found.bucket_bytes)?,
            bytes(found.archive_bytes)?,
        ],
    )
    .map(drop)
    .or_error("write")
}

pub(crate) fn between(connection: &Connection, first: i32, last: i32) -> Result<Vec<SpaceDay>> {
    let read = |row: &Row<'_>| {
        Ok(SpaceDay {
            day: row.get("day")?,
            data_bytes: count(row, "data_bytes")?,
            recipe_bytes: count(row, "recipe_bytes")?,
            parity_bytes: count(row, "parity_bytes")?,
            condemned_bytes: count(row, "condemned_bytes")?,
            bucket_bytes: count(row, "bucket_bytes")?,
            archive_bytes: count(row, "archive_bytes")?,
        })
    };
    connection
        .prepare_cached("SELECT * FROM space_days WHERE day >= ? AND day <= ? ORDER BY day")
        .and_then(|mut s| s.query_map([first, last], read)?.collect())
        .or_error("read")
}
