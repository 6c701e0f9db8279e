//! Rounds of reclaim, what deleting would free, and whose the bytes are.

use std::sync::Arc;

use holdfast_types::ids::BackupId;

use super::Engine;
use crate::catalog_check;
use crate::error::EngineError;
use crate::reclaim::{self, Attribution, Control as ReclaimControl, Freed, ReclaimOptions, ReclaimReport};

impl Engine {
    /// What deleting these restore points together would free. Walks the recipes of all restore points of their
    /// namespaces, so it takes as long as a mark does; nothing is changed.
    ///
    /// # Errors
    /// [`EngineError::NotFound`]; [`EngineError::Stopped`]; what cannot be read now.
    pub fn freed_by_deleting(
        &self,
        backups: &[BackupId],
        control: &ReclaimControl,
    ) -> Result<Freed, EngineError> {
        self.core.check_unlocked()?;
        reclaim::freed_by_deleting(&self.core, backups, control)
    }

    /// Whose the live bytes of data containers are. Walks all recipes, and keeps the answer in the catalog.
    ///
    /// # Errors
    /// [`EngineError::Stopped`]; what cannot be read now.
    pub fn attribute(&self, control: &ReclaimControl) -> Result<Attribution, EngineError> {
        self.core.check_unlocked()?;
        reclaim::attribution::attribute(&self.core, control)
    }

    /// Where the data of each restore point lies. Walks all recipes, and keeps the answer in the catalog.
    ///
    /// # Errors
    /// [`EngineError::Stopped`]; what cannot be read now.
    pub fn note_places(&self, control: &ReclaimControl) -> Result<(), EngineError> {
        self.core.check_unlocked()?;
        reclaim::places::note(&self.core, control)
    }

    /// All data lies here, so there is nothing to tell of where it does.
    ///
    /// # Errors
    /// The catalog's.
    pub fn forget_places(&self) -> Result<(), EngineError> {
        Ok(self.core.catalog.record_places(&[])?)
    }

    /// Runs a round of reclaim to its end: frees what no restore point needs, beside everything else. With
    /// [`dry_run`](ReclaimOptions::dry_run) it only says what it would free. `control` watches, slows down and stops it;
    /// what was done until then stays done, and the next round goes on with what is left.
    ///
    /// # Errors
    /// [`EngineError::RoundInProgress`], [`EngineError::NotReclaimable`], [`EngineError::Stopped`]; what cannot be read
    /// or written.
    pub fn reclaim(
        &self,
        options: &ReclaimOptions,
        control: &Arc<ReclaimControl>,
    ) -> Result<ReclaimReport, EngineError> {
        self.core.check_unlocked()?;
        let _turn = self.rounds.begin(control)?;
        // (S9) Once in a process, and whenever something was found to be lost.
        if self.core.catalog_trusted_for().is_none() {
            let steering = Arc::clone(control);
            let go_on = Box::new(move || !steering.is_stopped());
            if !catalog_check::run(&self.core, &self.sessions, go_on)? {
                return Err(EngineError::Stopped);
            }
        }
        reclaim::run(&self.core, &self.sessions, options, control)
    }
}
