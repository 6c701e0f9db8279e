//! Repairs the index where pages of it cannot be read: from the directories of all containers, a piece a step.
//!
//! Reads of stored data wait for it, or do it themselves. Backups do not: what they cannot look up they are sent again,
//! at most the some two hundred chunks of each bad page.

use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_catalog::ContainerState;
use holdfast_types::ids::{ContainerClass, ContainerId, Location};
use holdfast_volume::VolumeError;
use roaring::RoaringTreemap;

use super::chunks::ChunkStore;
use super::{Repair, RepairProgress};
use crate::container::{ContainerError, OpenContainer};
use crate::error::EngineError;
use crate::index::BadPages;
use crate::jobs::Budget;

/// Containers between two looks at the budget: 64 directories of 168 KiB.
const PIECE_CONTAINERS: usize = 64;

/// Bytes read of each: its directory.
const CONTAINER_BYTES: u64 = 168 << 10;

impl ChunkStore {
    /// Progress of the repair, in containers: done, and all; `None` when none is needed.
    pub(crate) fn repair_progress(&self) -> Option<(u64, u64)> {
        let RepairProgress { done, total } = &self.repair_progress;
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (!self.index.is_whole()).then(|| (load(done).min(load(total)), load(total)))
    }

    /// Goes on with the repair of the index, if it needs one. Returns true if it is whole.
    ///
    /// # Errors
    /// When containers cannot be read now, or the index cannot be written; the next step tries again.
    pub(crate) fn repair_index(&self, budget: &Budget) -> Result<bool, EngineError> {
        let mut slot = self.repair.lock();
        if self.index.is_whole() {
            *slot = None;
            return Ok(true);
        }
        if self.index.is_stopped() {
            return Err(EngineError::Unavailable);
        }
        let repair = match &mut *slot {
            Some(repair) => repair,
            none => {
                let bad = self.index.survey()?;
                if bad.is_empty() {
                    return Ok(self.index.is_whole());
                }
                let left = self.index.container_numbers();
                tracing::warn!(
                    pages = bad.values().map(|pages| pages.len()).sum::<usize>(),
                    containers = left.len(),
                    "rebuilding pages of the index from containers"
                );
                none.insert(Repair { bad, done: RoaringTreemap::new(), left })
            }
        };
        if !self.scan(repair, budget)? {
            return Ok(false);
        }
        let Some(repair) = slot.take() else { return Ok(false) };
        self.index.drop_bad_pages(&repair.bad)?;
        tracing::info!("the index is rebuilt where it was damaged");
        Ok(self.index.is_whole())
    }

    /// Does all of the repair that is left, for someone who waits for it.
    pub(super) fn repair_index_now(&self) -> Result<(), EngineError> {
        while !self.repair_index(&Budget::unlimited())? {}
        Ok(())
    }

    /// Scans containers. Returns true if all were scanned, those included that appeared meanwhile.
    fn scan(&self, repair: &mut Repair, budget: &Budget) -> Result<bool, EngineError> {
        loop {
            let piece: Vec<u64> = repair.left.iter().take(PIECE_CONTAINERS).collect();
            if piece.is_empty() {
                repair.left = self.index.container_numbers() - &repair.done;
                if repair.left.is_empty() {
                    return Ok(true);
                }
                continue;
            }
            for &number in &piece {
                if let Some(id) = ContainerId::new(number) {
                    self.patch_container(&repair.bad, id)?;
                }
                repair.left.remove(number);
                repair.done.insert(number);
            }
            self.repair_progress.store(repair);
            budget.charge(piece.len() as u64, piece.len() as u64 * CONTAINER_BYTES);
            if budget.is_spent() {
                return Ok(false);
            }
        }
    }

    fn patch_container(&self, bad: &BadPages, id: ContainerId) -> Result<(), EngineError> {
        let record = self.catalog.container(id)?;
        if record.as_ref().is_some_and(|record| record.state == ContainerState::Condemned) {
            return Ok(());
        }
        let opened = match &record {
            Some(record) => self.containers.open(id, record.class),
            None => self.open_of_any_class(id),
        };
        match opened {
            Ok(open) => {
                let domain = self.domain(open.namespace());
                let key = domain.key(open.class());
                let place = |region, slot| Location { container: id, region, slot };
                let entries = open.directory().iter();
                let entries = entries.map(|(name, region, slot)| (key.of(&name), place(region, slot)));
                self.index.patch(bad, entries)?;
                Ok(())
            }
            Err(error) if error.is_damage() => {
                // It enters the index when it proves sound.
                self.index.forget_container(id);
                self.note_failure(id, None, &error);
                Ok(())
            }
            Err(error) if error.is_unreadable_now() => {
                // (K7, S12) As above: a start that can read it reads its directory.
                self.index.forget_container(id);
                self.note_passed_by(id, &error);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a container of a backup in progress, which the catalog does not know yet.
    fn open_of_any_class(&self, id: ContainerId) -> Result<OpenContainer, ContainerError> {
        match self.containers.open(id, ContainerClass::Data) {
            Err(ContainerError::Volume(VolumeError::NotFound { .. })) => {
                self.containers.open(id, ContainerClass::Recipe)
            }
            opened => opened,
        }
    }
}
