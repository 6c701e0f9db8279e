//! Bytes that a VM, a job or a namespace uses now, for its totals.

use holdfast_proto::api::{Time, UsedNow};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::convert::OrCatalogError;
use super::sums::RowRefs;
use crate::{AttributedBy, Result, TotalsBy};

/// Returns what the last round attributed to the group of a row; 0: none of its restore points were left. `None`: of other
/// groups, before the first round, and of what was first backed up since.
pub(super) fn now(connection: &Connection, by: TotalsBy, refs: &RowRefs) -> Result<Option<UsedNow>> {
    let (subject, column, id) = match by {
        TotalsBy::Vm => (AttributedBy::Vm, "vm_id", refs.vm),
        TotalsBy::Job => (AttributedBy::Job, "job_id", refs.job),
        TotalsBy::Namespace => (AttributedBy::Namespace, "namespace_id", refs.namespace),
        TotalsBy::Run | TotalsBy::Disk | TotalsBy::Repository => return Ok(None),
    };
    // The sums are those of the round's day.
    let sql = format!(
        "SELECT a.at_ms, a.complete, coalesce((SELECT d.attributed_bytes FROM attributed_days d \
         WHERE d.subject = ?1 AND d.subject_id = ?2 AND d.day = a.at_ms / 86400000), \
         CASE WHEN EXISTS (SELECT 1 FROM backups b WHERE b.{column} = ?2) THEN NULL ELSE 0 END) AS bytes \
         FROM attribution a"
    );
    let read = |row: &Row<'_>| -> rusqlite::Result<Option<UsedNow>> {
        let (at, is_complete) = (Time::new(row.get("at_ms")?), row.get("complete")?);
        let bytes: Option<i64> = row.get("bytes")?;
        Ok(bytes.map(|bytes| UsedNow { used_bytes: bytes.unsigned_abs(), at, is_complete }))
    };
    connection
        .prepare_cached(&sql)
        .and_then(|mut s| s.query_row(params![subject.text(), id], read).optional())
        .or_error("read")
        .map(Option::flatten)
}
