//! Deleting containers that nothing refers to: refused in memory, so that no one begins to count on them → condemned in
//! the catalog → gone, so that nothing is found in them → dropped from the index → unlinked → their rows dropped. A crash before the catalog's first change leaves
//! containers as they were; one after it leaves rows that say so, and the next start finishes.

use holdfast_catalog::{CatalogError, ContainerRecord};
use holdfast_types::ids::{ContainerClass, ContainerId};
use holdfast_volume::{Volume, VolumeError};

use super::Leftover;
use super::chunks::ChunkStore;
use crate::container::ContainerName;
use crate::error::EngineError;
use crate::generation;

impl ChunkStore {
    /// (D2) Deletes containers that [were given up](super::Leftovers::condemn).
    ///
    /// # Errors
    /// The catalog's: when it took no change, the containers stay and count again. The volume's; what is left is deleted
    /// by the next start.
    pub(crate) fn delete(&self, volume: &dyn Volume, containers: &[Leftover]) -> Result<(), EngineError> {
        let ids: Vec<ContainerId> = containers.iter().map(|one| one.id).collect();
        assert!(ids.iter().all(|id| self.leftovers.is_refused(*id)), "{ids:?} are deleted, but may be held");
        self.condemned(containers, self.catalog.condemn_containers(&ids))?;
        self.unlink_gone(volume, containers)
    }

    /// (D2) What follows from what the catalog answered to a condemnation: nothing is found in the containers any more,
    /// or they stay and count again.
    ///
    /// # Errors
    /// The answer's.
    pub(crate) fn condemned(
        &self,
        containers: &[Leftover],
        answer: Result<(), CatalogError>,
    ) -> Result<(), EngineError> {
        // When writing has stopped it is unknown what the catalog says, and the next start may delete them.
        if let Err(error) = &answer
            && !error.stops_writes()
        {
            self.leftovers.take_back(containers);
        } else {
            for one in containers {
                self.leftovers.note_gone(one.id);
            }
        }
        Ok(answer?)
    }

    /// (D2) The rest of a deletion, once the catalog has condemned the containers: index, files, rows.
    ///
    /// # Errors
    /// The volume's and the catalog's; what is left is deleted by the next start.
    pub(crate) fn unlink_gone(
        &self,
        volume: &dyn Volume,
        containers: &[Leftover],
    ) -> Result<(), EngineError> {
        assert!(containers.iter().all(|one| self.leftovers.is_gone(one.id)), "unlinked, but may be found");
        let names: Vec<_> = containers.iter().map(|one| (one.id, one.class)).collect();
        self.unlink(volume, &names)
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
        // (G10) Before: a catalog from before the condemnation would take these for lost.
        generation::raise(volume, &*self.catalog)?;
        for &(id, class) in containers {
            self.index.forget_container(id);
            self.forget_damaged(id);
            match volume.remove(&ContainerName { id, class }.blob()) {
                Ok(()) | Err(VolumeError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ids: Vec<ContainerId> = containers.iter().map(|(id, _)| *id).collect();
        Ok(self.catalog.remove_condemned(&ids)?)
    }
}
