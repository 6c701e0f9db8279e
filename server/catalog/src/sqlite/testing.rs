//! Failures of the database, for tests of this and of other crates.

use rusqlite::ffi;

use super::SqliteCatalog;
use super::convert::OrCatalogError;
use crate::{CatalogError, Result};

/// What SQLite answers within a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedFailure {
    /// A failed fsync.
    Io,
    Full,
    Busy,
}

impl SqliteCatalog {
    /// Whether every change is answered as if another process held the catalog for too long.
    pub fn answer_busy(&self, busy: bool) {
        self.busy.store(busy, std::sync::atomic::Ordering::Release);
    }

    /// Begins a change that fails in this way, and returns what its caller is told.
    #[expect(clippy::expect_used, reason = "a change that only returns an error cannot succeed")]
    pub fn fail_a_change(&self, failure: InjectedFailure) -> CatalogError {
        let code = match failure {
            InjectedFailure::Io => ffi::SQLITE_IOERR_FSYNC,
            InjectedFailure::Full => ffi::SQLITE_FULL,
            InjectedFailure::Busy => ffi::SQLITE_BUSY,
        };
        let answer = || rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        self.write(|_| -> Result<()> { Err(answer()).or_error("write") }).expect_err("it fails")
    }
}

impl SqliteCatalog {
    /// Makes every later change fail as on a file system that takes no writes, or lets them succeed again.
    #[expect(clippy::expect_used, reason = "a setting of a connection, which writes nothing")]
    pub fn refuse_changes(&self, refuse: bool) {
        self.writer.lock().pragma_update(None, "query_only", refuse).expect("the setting is known");
    }
}
