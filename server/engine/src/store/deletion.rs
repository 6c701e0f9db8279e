//! Deleting containers that nothing refers to: given up in memory, so that nothing is found in them → condemned in the
//! catalog → dropped from the index → unlinked → their rows dropped. A crash before the catalog's first change leaves
//! containers as they were; one after it leaves rows that say so, and the next start finishes.

use holdfast_catalog::ContainerRecord;
use holdfast_types::ids::{ContainerClass, ContainerId};
use holdfast_volume::{Volume, VolumeError};

use super::Leftover;
use super::chunks::ChunkStore;
use crate::container::ContainerName;
use crate::error::EngineError;

impl ChunkStore {
    /// (D2) Deletes containers that [were given up](super::Leftovers::condemn).
    ///
    /// # Errors
    /// The catalog's: when it took no change, the containers stay and count again. The volume's; what is left is deleted
    /// by the next start.
    pub(crate) fn delete(&self, volume: &dyn Volume, containers: &[Leftover]) -> Result<(), EngineError> {
        let ids: Vec<ContainerId> = containers.iter().map(|one| one.id).collect();
        assert!(ids.iter().all(|id| self.leftovers.is_gone(*id)), "{ids:?} are deleted, but may be found");
        if let Err(error) = self.catalog.condemn_containers(&ids) {
            // Otherwise it is unknown what the catalog says, and the next start may delete them.
            if !error.stops_writes() {
                self.keep(containers);
            }
            return Err(error.into());
        }
        let names: Vec<_> = containers.iter().map(|one| (one.id, one.class)).collect();
        self.unlink(volume, &names)
    }

    /// They count again. A merge of the index may have dropped their entries meanwhile, so the next start reads their
    /// directories.
    fn keep(&self, containers: &[Leftover]) {
        for one in containers {
            self.index.forget_container(one.id);
        }
        self.leftovers.take_back(containers);
    }

    /// (D2) Finishes what an earlier process condemned.
    ///
    /// # Errors
    /// As [`ChunkStore::delete`]; nothing is found in these containers all the same.
    pub(crate) fn finish_deletions(&self, volume: &dyn Volume) -> Result<usize, EngineError> {
        let condemned: Vec<_> = self
            .catalog
            .condemned_containers()?
            .iter()
            .map(|ContainerRecord { id, class, .. }| (*id, *class))
            .collect();
        for (id, _) in &condemned {
            self.leftovers.note_gone(*id);
        }
        self.unlink(volume, &condemned)?;
        Ok(condemned.len())
    }

    fn unlink(
        &self,
        volume: &dyn Volume,
        containers: &[(ContainerId, ContainerClass)],
    ) -> Result<(), EngineError> {
        if containers.is_empty() {
            return Ok(());
        }
        for &(id, class) in containers {
            self.index.forget_container(id);
            self.containers.remove(id);
            match volume.remove(&ContainerName { id, class }.blob()) {
                Ok(()) | Err(VolumeError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ids: Vec<ContainerId> = containers.iter().map(|(id, _)| *id).collect();
        Ok(self.catalog.remove_condemned(&ids)?)
    }
}
