//! Damage by which nothing is lost any more, because every chunk of it has another sound copy; and the deletion of
//! containers.
//!
//! Containers that nothing refers to are deleted in this order: refused in memory, so that no one begins to count on them →
//! condemned in the catalog → gone, so that nothing is found in them → dropped from the index → unlinked → their rows
//! dropped. A crash before the catalog's first change leaves containers as they were; one after it leaves rows that say so,
//! and the next start finishes.

use holdfast_catalog::{CatalogError, ContainerRecord};
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId};
use holdfast_volume::{Volume, VolumeError};

use super::chunks::{ChunkStore, Use};
use super::damage::Findings;
use super::leftovers::Holds;
use super::{Domain, Leftover};
use crate::container::{ContainerName, OpenContainer, RecentDirectories};
use crate::error::EngineError;
use crate::generation;

impl ChunkStore {
    /// The containers by which something may be lost, by number.
    pub(crate) fn open_damage(&self) -> Vec<ContainerId> {
        self.damage.open()
    }

    /// The containers of which something is damaged and has other copies, by number.
    pub(crate) fn healed_damage(&self) -> Vec<ContainerId> {
        let open = self.damage.open();
        self.damage.containers().into_iter().filter(|id| open.binary_search(id).is_err()).collect()
    }

    /// Returns true if all that is known to be damaged in a container was found to have other copies.
    pub(crate) fn is_healed(&self, container: ContainerId) -> bool {
        !self.damage.findings(container).is_empty() && !self.damage.open().contains(&container)
    }

    /// (E5) Returns true if a damaged container may be reconstructed from other members of this group of parity.
    ///
    /// # Errors
    /// When the catalog cannot be asked.
    pub(crate) fn needs_parity(&self, group: ContainerId) -> Result<bool, EngineError> {
        for damaged in self.damage.open() {
            if self.catalog.parity_group_of(damaged)? == Some(group) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// (E5) Returns true if a damaged container may be reconstructed with this one. False for one with open damage
    /// itself: two of them would keep each other for ever.
    ///
    /// # Errors
    /// When the catalog cannot be asked.
    pub(crate) fn protects_others(&self, container: ContainerId) -> Result<bool, EngineError> {
        let open = self.damage.open();
        if open.is_empty() || open.contains(&container) {
            return Ok(false);
        }
        self.catalog.parity_group_of(container)?.map_or(Ok(false), |group| self.needs_parity(group))
    }

    /// (R4) Closes the damage of a container when every chunk of it is found elsewhere. Returns true if it was closed.
    ///
    /// # Errors
    /// When the index or the catalog fails; the next call tries again.
    pub(crate) fn close_healed(&self, container: ContainerId) -> Result<bool, EngineError> {
        let Some(record) = self.catalog.container(container)? else { return Ok(false) };
        // The contents of a container without a directory are not known, so they cannot be looked for.
        let Ok(open) = self.containers.get(container, record.class) else { return Ok(false) };
        self.close_by(&open)
    }

    /// (R4) As [`ChunkStore::close_healed`], by a directory that names all there was: of the container as it was, or, when
    /// it is damaged as a whole, as parity makes it again.
    ///
    /// # Errors
    /// As [`ChunkStore::close_healed`].
    pub(crate) fn close_by(&self, open: &OpenContainer) -> Result<bool, EngineError> {
        let container = open.id();
        let findings = self.damage.findings(container);
        // Regions found by walking have other numbers.
        let is_known = !open.is_salvaged() || findings.contains_key(&None);
        if findings.is_empty() || !is_known || !self.has_copies(open, open.class(), &findings)? {
            return Ok(false);
        }
        let _telling = self.telling.lock();
        if !self.damage.heal(container, &findings) {
            return Ok(false);
        }
        tracing::info!(%container, "everything damaged in the container has other copies");
        self.catalog.heal_damage(container)?;
        Ok(true)
    }

    /// (R8) Opens the damage of containers again that had a chunk which someone relies on and which was found nowhere: what made
    /// up for it is gone.
    pub(super) fn reopen_healed(&self, place: (&Domain, ContainerClass), fingerprint: &Fingerprint) {
        if self.damage.is_empty() {
            return;
        }
        let mut damaged = Vec::new();
        // A copy in a refused container counts, too; and one that cannot be looked up now proves nothing.
        if !matches!(self.search(place, fingerprint, &mut damaged, Use::Read), Ok(None)) {
            return;
        }
        for container in damaged.into_iter().map(|location| location.container) {
            let _telling = self.telling.lock();
            if !self.damage.reopen(container) {
                continue;
            }
            tracing::error!(%container, "what made up for damage of the container is gone");
            if let Err(error) = self.catalog.reopen_damage(container) {
                tracing::warn!(%container, %error, "cannot note in the catalog that damage is open again");
            }
        }
    }

    /// (N6) Forgets an agent's report of a region once each chunk of it has a copy that was not reported: backups need
    /// not send it any more. Both copies stay (N7).
    ///
    /// # Errors
    /// When the index or the catalog fails; the next call tries again.
    pub(crate) fn settle_report(&self, container: ContainerId, region: u16) -> Result<(), EngineError> {
        let forget = || self.reported.forget(|of, one| (of, one) == (container, region));
        let Some(record) = self.catalog.container(container)? else {
            // Reported while it was being deleted.
            forget();
            return Ok(());
        };
        let Ok(open) = self.containers.get(container, record.class) else { return Ok(()) };
        // (D1) Kept, or what was sent again might be deleted with what another session left.
        let mut holds = self.leftovers.holds();
        if !self.hold_copies(&open, record.class, &|one| one == region, &mut holds)? {
            holds.release();
            return Ok(());
        }
        self.catalog.forget_report(container, region)?;
        forget();
        Ok(())
    }

    /// Returns true if each chunk in the damaged regions is found in a sound place.
    fn has_copies(
        &self,
        open: &OpenContainer,
        class: ContainerClass,
        findings: &Findings,
    ) -> Result<bool, EngineError> {
        // (D1) Kept, or what heals might be deleted with what another session left.
        let mut holds = self.leftovers.holds();
        let damaged = |region: u16| findings.contains_key(&None) || findings.contains_key(&Some(region));
        let found = self.hold_copies(open, class, &damaged, &mut holds)?;
        if !found {
            holds.release();
        }
        Ok(found)
    }

    /// (D1) Looks up each chunk in the regions that are `asked` for, and holds what it finds. Returns true if all were
    /// found.
    ///
    /// # Errors
    /// When the index cannot be asked.
    pub(crate) fn hold_copies(
        &self,
        open: &OpenContainer,
        class: ContainerClass,
        asked: &dyn Fn(u16) -> bool,
        holds: &mut Holds,
    ) -> Result<bool, EngineError> {
        let domain = self.domain(open.namespace());
        let mut recent = RecentDirectories::default();
        for (fingerprint, region, _) in open.directory().iter() {
            if asked(region)
                && self.find_and_hold(&domain, class, &fingerprint, &mut recent, holds)?.is_none()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

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

    /// (D2) Carries out the catalog's answer to a condemnation: nothing is found in the containers any more,
    /// or they stay and count again.
    ///
    /// # Errors
    /// The answer's.
    pub(crate) fn condemned(
        &self,
        containers: &[Leftover],
        answer: Result<(), CatalogError>,
    ) -> Result<(), EngineError> {
        // When writing has stopped, the catalog's contents are unknown, and the next start may delete them.
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

    /// (D2) Finishes the deletions of containers that an earlier process condemned.
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
        generation::raise(volume, &self.catalog)?;
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
