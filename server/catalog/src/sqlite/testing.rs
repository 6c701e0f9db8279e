//! Failures of the database, for tests of this and of other crates.

use rusqlite::ffi;

use super::Catalog;
use super::convert::OrCatalogError;
use crate::{CatalogError, Result};

/// SQLite's answer within a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedFailure {
    /// A failed fsync.
    Io,
    Full,
    Busy,
}

impl InjectedFailure {
    fn sqlite(self) -> rusqlite::Error {
        let code = match self {
            Self::Io => ffi::SQLITE_IOERR_FSYNC,
            Self::Full => ffi::SQLITE_FULL,
            Self::Busy => ffi::SQLITE_BUSY,
        };
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    /// Returns the error that a caller gets.
    #[expect(clippy::expect_used, reason = "what is an error stays one")]
    pub(crate) fn answer(self) -> CatalogError {
        Err::<(), _>(self.sqlite()).or_error("write").expect_err("an error")
    }
}

impl Catalog {
    /// Answers every change as if another process held the catalog for too long, while `busy`.
    pub fn answer_busy(&self, busy: bool) {
        self.answer(busy.then_some(InjectedFailure::Busy));
    }

    /// Answers every change as if the catalog's file system had no room, while `full`.
    pub fn answer_full(&self, full: bool) {
        self.answer(full.then_some(InjectedFailure::Full));
    }

    fn answer(&self, failure: Option<InjectedFailure>) {
        *self.injected.lock() = failure;
    }

    /// Lets the database grow by `pages` pages of 4 KiB and no further: changes that fit go on working.
    ///
    /// # Panics
    /// When the database cannot be asked.
    #[expect(clippy::expect_used, reason = "settings of a connection, which write nothing")]
    pub fn limit_growth(&self, pages: u32) {
        let writer = self.writer.lock();
        let now: i64 =
            writer.pragma_query_value(None, "page_count", |row| row.get(0)).expect("it can be asked");
        let limit = now.saturating_add(i64::from(pages));
        writer
            .pragma_update_and_check(None, "max_page_count", limit, |_| Ok(()))
            .expect("the setting is known");
    }

    /// Begins a change that fails in this way, and returns what its caller is told.
    #[expect(clippy::expect_used, reason = "a change that only returns an error cannot succeed")]
    pub fn fail_a_change(&self, failure: InjectedFailure) -> CatalogError {
        self.write(|_| -> Result<()> { Err(failure.sqlite()).or_error("write") }).expect_err("it fails")
    }
}

impl Catalog {
    /// Makes every later change fail as on a file system that takes no writes, or lets them succeed again.
    #[expect(clippy::expect_used, reason = "a setting of a connection, which writes nothing")]
    pub fn refuse_changes(&self, refuse: bool) {
        self.writer.lock().pragma_update(None, "query_only", refuse).expect("the setting is known");
    }
}
