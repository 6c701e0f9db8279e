//! The clock that locks are compared with.

use holdfast_types::clock::Clock;
use rusqlite::{Connection, Transaction};

use super::convert::OrCatalogError;
use crate::{LOCK_CLOCK_CATCH_UP, Result};

/// `None`: it was never advanced.
pub(crate) fn shows(connection: &Connection) -> Result<Option<i64>> {
    connection
        .prepare_cached("SELECT now_ms FROM lock_clock")
        .and_then(|mut s| s.query_row([], |row| row.get(0)))
        .or_error("read")
}

/// (L4) What it shows after `elapsed_ms` on the monotonic clock.
pub(crate) fn advanced(shown_ms: Option<i64>, time_of_day_ms: i64, elapsed_ms: i64) -> i64 {
    let Some(shown_ms) = shown_ms else { return time_of_day_ms };
    let at_most_ms = shown_ms.saturating_add(elapsed_ms.max(0).saturating_mul(LOCK_CLOCK_CATCH_UP));
    time_of_day_ms.min(at_most_ms).max(shown_ms)
}

/// Advances it by what has passed since `asked_ms`.
pub(crate) fn advance(tx: &Transaction<'_>, clock: &dyn Clock, elapsed_ms: i64) -> Result<i64> {
    let now_ms = advanced(shows(tx)?, clock.now_ms(), elapsed_ms);
    raise(tx, now_ms)?;
    Ok(now_ms)
}

/// Makes the clock show at least `now_ms` from now on: another copy of the catalog had shown that.
pub(crate) fn raise(tx: &Transaction<'_>, now_ms: i64) -> Result<()> {
    tx.prepare_cached("UPDATE lock_clock SET now_ms = ?1 WHERE now_ms IS NULL OR now_ms < ?1")
        .and_then(|mut s| s.execute([now_ms]))
        .or_error("write")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_time_of_day_and_never_jumps() {
        assert_eq!(advanced(None, 1000, 0), 1000, "the first time");
        assert_eq!(advanced(Some(1000), 1500, 500), 1500, "in step");
        assert_eq!(
            advanced(Some(1000), 9_000_000, 500),
            2000,
            "the time of day jumped, or the server stood still"
        );
        assert_eq!(advanced(Some(1000), 10, 500), 1000, "set back");
        assert_eq!(advanced(Some(1000), 1200, 500), 1200, "never past the time of day");
        assert_eq!(advanced(Some(1000), 9000, -5), 1000);
        assert_eq!(advanced(Some(i64::MAX), i64::MAX, i64::MAX), i64::MAX);
    }
}
