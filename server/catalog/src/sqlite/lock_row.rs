//! The columns of `backups` that keep a restore point.

use rusqlite::Row;

use crate::{LegalHold, RetentionLock};

/// What a row of `backups` says of it.
pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<RetentionLock> {
    let reason: Option<String> = row.get("hold_reason")?;
    let hold = match reason {
        Some(reason) => Some(LegalHold {
            reason,
            who: row.get::<_, Option<String>>("hold_who")?.unwrap_or_default(),
            since_ms: row.get::<_, Option<i64>>("hold_since_ms")?.unwrap_or_default(),
        }),
        None => None,
    };
    Ok(RetentionLock { until_ms: row.get("locked_until_ms")?, hold })
}
