//! Between SQLite's values and errors and ours. SQLite's integers are signed: a count that does not fit is
//! refused, and one that is negative where it cannot be is damage.

use rusqlite::types::{Type, ValueRef};
use rusqlite::{ErrorCode, Row, ffi};

use crate::{CatalogError, Result};

/// Turns SQLite's errors into ours.
pub(crate) trait OrCatalogError<T> {
    /// `action` completes "cannot … the catalog".
    fn or_error(self, action: &'static str) -> Result<T>;
}

impl<T> OrCatalogError<T> for rusqlite::Result<T> {
    fn or_error(self, action: &'static str) -> Result<T> {
        self.map_err(|error| classify(action, error))
    }
}

fn classify(action: &'static str, error: rusqlite::Error) -> CatalogError {
    use rusqlite::Error as E;
    match &error {
        // No room for the index of its log, a file beside the database.
        E::SqliteFailure(failure, _) if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
            CatalogError::Full
        }
        E::SqliteFailure(failure, _) => match failure.code {
            // The last one: too many others were opening or closing the log at this moment.
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
                CatalogError::Busy
            }
            ErrorCode::DiskFull => CatalogError::Full,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                CatalogError::Corrupt { detail: error.to_string() }
            }
            // The checks before every write name what is wrong; this is the net below them.
            ErrorCode::ConstraintViolation => {
                CatalogError::invalid(format!("the catalog refuses this: {error}"))
            }
            _ => CatalogError::io(action, error),
        },
        // The schema says what each column holds, strictly: anything else has been written by damage.
        E::FromSqlConversionFailure(..) | E::IntegralValueOutOfRange(..) | E::InvalidColumnType(..) => {
            CatalogError::Corrupt { detail: error.to_string() }
        }
        _ => CatalogError::io(action, error),
    }
}

/// A count for SQLite.
pub(crate) fn int(what: &str, value: u64) -> Result<i64> {
    i64::try_from(value)
        .map_err(|_| CatalogError::invalid(format!("{what} is {value}, more than can be kept")))
}

/// A count from SQLite.
pub(crate) fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|cause| bad_value(column, cause))
}

/// A sum that is kept, at least 0. The daily look corrects one that is wrong; it must keep no page from being shown.
pub(crate) fn kept_sum(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(sum) => sum.max(0).unsigned_abs(),
        _ => 0,
    })
}

/// The 16 bytes of an identifier.
pub(crate) fn id(row: &Row<'_>, column: &str) -> rusqlite::Result<[u8; 16]> {
    row.get(column)
}

/// A word that a column cannot hold.
pub(crate) fn bad_value(
    column: &str,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> rusqlite::Error {
    let cause = format!("{column}: {}", cause.into());
    // The column's number is unknown here; its name is in the cause.
    rusqlite::Error::FromSqlConversionFailure(0, Type::Null, cause.into())
}

/// Milliseconds of a day.
pub(crate) const DAY_MS: i64 = 86_400_000;

/// The UTC day of a time, in days since 1970-01-01.
pub fn day_of(time_ms: i64) -> i32 {
    let day = time_ms.div_euclid(DAY_MS);
    i32::try_from(day).unwrap_or(if day < 0 { i32::MIN } else { i32::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_begin_at_midnight() {
        assert_eq!([-1, 0, DAY_MS - 1, DAY_MS].map(day_of), [-1, 0, 0, 1]);
        assert_eq!([i64::MIN, i64::MAX].map(day_of), [i32::MIN, i32::MAX]);
    }
}
