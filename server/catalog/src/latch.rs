//! The latch that stops changes: a catalog asks it before each, and reports each that failed.

use std::fmt;
use std::sync::OnceLock;

use crate::CatalogError;

/// Remembers that changes have stopped. One latch serves everything that writes to a repository, so that a
/// failure met by any call is known to all of them, and is shared by the catalog and its owner.
pub trait Latch: Send + Sync + fmt::Debug {
    /// Why the catalog takes no more changes; `None` while it takes them. Once given, a reason stays.
    fn reason(&self) -> Option<String>;
    /// Takes note of a change or a checkpoint that failed. When the error [stops
    /// writes](CatalogError::stops_writes), `reason` gives it from now on. Called while no other change can
    /// begin.
    fn change_failed(&self, error: &CatalogError);
}

/// The latch of a catalog that is used without an engine, such as by the `token` commands.
#[derive(Debug, Default)]
pub struct OwnLatch(OnceLock<String>);

impl Latch for OwnLatch {
    fn reason(&self) -> Option<String> {
        self.0.get().cloned()
    }

    fn change_failed(&self, error: &CatalogError) {
        if error.stops_writes() {
            // The first reason is kept.
            let _ = self.0.set(error.to_string());
        }
    }
}
