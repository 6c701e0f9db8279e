//! One row, and what the same disk was like before it.

use holdfast_types::ids::SessionId;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::convert::{OrCatalogError, count};
use super::{Place, SELECT, read};
use crate::{DetailEntry, DetailRow, Result};

pub(crate) const EARLIER: &str = "d.vm_id = ? AND d.disk = ? AND \
     (d.started_ms, d.run_id, d.session_id, d.position) < (?, ?, ?, ?)";

pub(crate) const LATEST_FIRST: &str =
    "ORDER BY d.started_ms DESC, d.run_id DESC, d.session_id DESC, d.position DESC";

pub(crate) fn one(connection: &Connection, session: SessionId, position: u32) -> Result<Option<DetailEntry>> {
    connection
        .prepare_cached(&format!("{SELECT} WHERE d.session_id = ? AND d.position = ?"))
        .and_then(|mut s| s.query_row(params![session.to_bytes(), position], read).optional())
        .map(|found| found.map(|(row, place)| place.entry(row)))
        .or_error("read")
}

/// As [`SELECT`], without looking up what has become of each restore point: a page asks for a dozen rows of each of its own.
pub(crate) const OF_THE_PAST: &str = "SELECT d.*, n.name AS namespace, j.name AS job, v.name AS vm, \
     'none' AS point, false AS locked, NULL AS deleted_ms, NULL AS deleted_by FROM details d \
     JOIN namespaces n ON n.id = d.namespace_id JOIN jobs j ON j.id = d.job_id JOIN vms v ON v.id = d.vm_id";

/// Up to `limit` rows of the same disk before this one, oldest first; none when the row is not there.
pub(crate) fn before(connection: &Connection, entry: &DetailEntry, limit: u32) -> Result<Vec<DetailRow>> {
    let session = entry.session.to_bytes();
    let key: Option<([u8; 16], [u8; 16], i64, String)> = connection
        .prepare_cached(
            "SELECT vm_id, run_id, started_ms, disk FROM details WHERE session_id = ? AND position = ?",
        )
        .and_then(|mut s| {
            s.query_row(params![session, entry.position], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .optional()
        })
        .or_error("read")?;
    let Some((vm, run, started_ms, disk)) = key else { return Ok(Vec::new()) };
    let mut rows: Vec<DetailRow> = connection
        .prepare_cached(&format!("{OF_THE_PAST} WHERE {EARLIER} {LATEST_FIRST} LIMIT ?"))
        .and_then(|mut s| {
            let values = params![vm, disk, started_ms, run, session, entry.position, limit];
            s.query_map(values, |row| Ok(read(row)?.0))?.collect()
        })
        .or_error("read")?;
    rows.reverse();
    Ok(rows)
}

/// The end of each sum of [`retried`].
const RETRIED_MAX: u64 = 1 << 60;

/// `new_bytes` and `post_lc` of the attempts on a disk before this place that made no restore point, since its last one.
pub(super) fn retried(tx: &Connection, vm: [u8; 16], disk: &str, place: &Place) -> Result<(u64, u64)> {
    let [started_ms, run, session, position] = place.values();
    let mut statement = tx
        .prepare_cached(&format!(
            "SELECT d.status = 'done' AS done, d.new_bytes, d.post_lc FROM details d WHERE {EARLIER} {LATEST_FIRST}"
        ))
        .or_error("read")?;
    let mut rows = statement.query(params![vm, disk, started_ms, run, session, position]).or_error("read")?;
    let (mut new_bytes, mut post_lc) = (0u64, 0u64);
    while let Some(row) = rows.next().or_error("read")? {
        if row.get::<_, bool>("done").or_error("read")? {
            break;
        }
        let sum =
            |sum: u64, column| count(row, column).map(|value| sum.saturating_add(value).min(RETRIED_MAX));
        new_bytes = sum(new_bytes, "new_bytes").or_error("read")?;
        post_lc = sum(post_lc, "post_lc").or_error("read")?;
    }
    Ok((new_bytes, post_lc))
}
