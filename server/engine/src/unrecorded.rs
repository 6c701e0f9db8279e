//! What a start found on the volume and could not enter into the catalog, because the catalog took no changes: mostly a
//! full disk after a kill.
//!
//! (S8) Reading needs none of it, so the server starts. Until all of it is entered no backup begins, no mark of a clean
//! stop is written and no container counts as settled: the catalog may not know numbers that are in use, nor the
//! newest restore point of a VM. The background work on restore points enters it ([`crate::points`]). A crash loses
//! only this note: the next start finds the same on the volume.

use std::sync::Arc;

use holdfast_catalog::CatalogError;
use parking_lot::Mutex;

use crate::error::EngineError;
use crate::recovery::Files;

/// What is left to enter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rest {
    /// Containers that were noted while their backups were in progress (W12) have not become those of no run.
    pub(crate) sealed: bool,
    /// Restore points that have a point and no row.
    pub(crate) points: u64,
    /// Container files without a row.
    pub(crate) files: Arc<Files>,
    /// What the catalog said first.
    pub(crate) reason: Option<String>,
}

impl Rest {
    /// Takes note that the catalog takes no changes.
    ///
    /// # Errors
    /// The error itself, when it says anything else.
    pub(crate) fn refused(&mut self, error: CatalogError) -> Result<(), EngineError> {
        if !error.refuses_changes() {
            return Err(error.into());
        }
        self.reason.get_or_insert_with(|| error.to_string());
        Ok(())
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Unrecorded(Mutex<Option<Rest>>);

impl Unrecorded {
    /// After a start; nothing is left when `rest` has no reason.
    pub(crate) fn new(rest: Rest) -> Self {
        if let Some(reason) = &rest.reason {
            tracing::error!(
                reason,
                restore_points = rest.points,
                containers = rest.files.len(),
                "the catalog does not take what this start found on the volume; reading goes on, and no backup \
                 begins until it does: free some space on the catalog's file system"
            );
        }
        Self(Mutex::new(Some(rest).filter(|rest| rest.reason.is_some())))
    }

    /// What is left.
    pub(crate) fn rest(&self) -> Option<Rest> {
        self.0.lock().clone()
    }

    /// All of it is in the catalog.
    pub(crate) fn clear(&self) {
        *self.0.lock() = None;
    }

    /// Why nothing may be written that relies on the catalog knowing all; for operators.
    pub(crate) fn reason(&self) -> Option<String> {
        let Rest { points, files, reason, .. } = self.rest()?;
        Some(format!(
            "the catalog has not taken what the last start found on the volume ({points} restore points, {} \
             containers): {}. It is tried again every few minutes; backups begin once it has succeeded",
            files.len(),
            reason.unwrap_or_default()
        ))
    }

    /// Fails while something is left.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        self.reason().map_or(Ok(()), |reason| Err(EngineError::Full(reason)))
    }
}
