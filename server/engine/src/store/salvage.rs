//! Chunks out of containers that are known to be damaged as a whole: for restores that find them nowhere else.
//!
//! (A7) Chunks found here are never an answer to a backup: the next one stores them again.

use std::sync::Arc;

use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId, Location};

use super::Domain;
use super::chunks::{ChunkStore, Found, Use, found};
use super::damage::LOOK_AGAIN_MS;
use super::{KEPT_MAX, Kept, Left, WHOLE_MAX};
use crate::container::{OpenContainer, Owner, salvage};
use crate::error::EngineError;
use crate::parity;

/// Damaged containers asked about one chunk at most, of those that the index does not cover. Reading one takes up to a
/// second, so what is found of all of them stays in memory.
const ASKED_MAX: usize = KEPT_MAX / 2;

impl ChunkStore {
    /// Finds a chunk, as [`ChunkStore::find`], in damaged containers, for reading only.
    pub(crate) fn find_salvaged(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Found>, EngineError> {
        let (indexed, by_index) = self.find_indexed(domain, class, fingerprint)?;
        if indexed.is_some() {
            return Ok(indexed);
        }
        let damaged = self.damage.lost_as_a_whole(domain.namespace, class);
        // (I2) The chunks of a container that the index covers were found by their entries.
        let unknown = damaged.into_iter().rev().filter(|id| !by_index || !self.index.is_covered(*id));
        for container in unknown.take(ASKED_MAX) {
            let Some((open, _)) = self.salvaged(container)? else { continue };
            // (A6) Only of the namespace that asks.
            if open.namespace() != domain.namespace || open.class() != class {
                continue;
            }
            if let Some((region, slot)) = open.directory().locate(fingerprint)
                && self.is_readable(&open, region)?
            {
                let location = Location { container, region, slot };
                return found(open, location.region, location.slot).map(Some);
            }
        }
        Ok(None)
    }

    /// A chunk of a damaged place that the index knows, when parity can make its container again, or it is found in what
    /// is left of it. The flag says whether the index could tell.
    fn find_indexed(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
    ) -> Result<(Option<Found>, bool), EngineError> {
        let mut damaged = Vec::new();
        let by_index = match self.search((domain, class), fingerprint, &mut damaged, Use::Read) {
            Err(EngineError::Index(error)) if error.bad_page().is_some() => false,
            done => done.map(|_| true)?,
        };
        for location in damaged {
            let container = location.container;
            if !self.is_lost_as_a_whole(container) && self.catalog.parity_group_of(container)?.is_none() {
                continue;
            }
            // (A6) The index has the keys of the namespace that asks; its directory has the whole name (I3).
            if let Some((open, _)) = self.salvaged(container)?
                && open.namespace() == domain.namespace
                && open.class() == class
                && let Some((region, slot)) = open.directory().locate(fingerprint)
                && self.is_readable(&open, region)?
            {
                return found(open, region, slot).map(|found| (Some(found), by_index));
            }
        }
        Ok((None, by_index))
    }

    /// Returns true if a container is damaged as a whole.
    pub(crate) fn is_lost_as_a_whole(&self, container: ContainerId) -> bool {
        self.damage.findings(container).contains_key(&None)
    }

    /// Returns true if a region of a salvaged container can be read: where its directory is whole, it names lost
    /// regions, too.
    fn is_readable(&self, open: &Arc<OpenContainer>, region: u16) -> Result<bool, EngineError> {
        let known = self.salvage.read_last.lock().clone();
        if let Some((known, of, readable)) = known
            && Arc::ptr_eq(&known, open)
            && of == region
        {
            return Ok(readable);
        }
        let readable = match self.read_region(open, region) {
            Ok(_) => true,
            Err(error) if error.is_damage() => false,
            Err(error) => return Err(error.into()),
        };
        *self.salvage.read_last.lock() = Some((Arc::clone(open), region, readable));
        Ok(readable)
    }

    /// Reconstructs a container from the others of its group of parity; the flag is set if its directory names
    /// everything that was in it. `None`: it is in no group, or nothing can be reconstructed.
    ///
    /// # Errors
    /// When the catalog or the volume cannot be asked.
    pub(crate) fn made_again(
        &self,
        record: &ContainerRecord,
    ) -> Result<Option<(OpenContainer, bool)>, EngineError> {
        // (E3) A deleted container stays deleted.
        if record.state == ContainerState::Condemned || self.leftovers.is_gone(record.id) {
            return Ok(None);
        }
        let container = record.id;
        let Some(number) = self.catalog.parity_group_of(container)? else { return Ok(None) };
        let (volume, repository) = (self.containers.volume(), self.containers.repository());
        match parity::reconstruct(volume, repository, number, owner_of(record), record.stored_bytes) {
            Ok(Some(made)) => Ok(Some(made)),
            Ok(None) => {
                tracing::warn!(%container, %number, "too much of a group of parity is lost to make a container again");
                Ok(None)
            }
            // (R4) The next attempt may make it.
            Err(error) if error.is_no_verdict() => Err(error),
            Err(error) => {
                tracing::warn!(%container, %number, %error, "the parity of a damaged container cannot be used");
                Ok(None)
            }
        }
    }

    /// Salvages the readable parts of a damaged container; read again after a while.
    pub(crate) fn salvaged(&self, container: ContainerId) -> Result<Left, EngineError> {
        let now_ms = self.clock.now_ms();
        // Held while a container is read: all who need it wait for one reading.
        let mut kept = self.salvage.kept.lock();
        if let Some(place) = kept.iter().position(|entry| entry.container == container)
            && let Some(entry) = kept.remove(place)
            && (0..LOOK_AGAIN_MS).contains(&now_ms.saturating_sub(entry.looked_ms))
        {
            let found = entry.found.clone();
            kept.push_front(entry);
            return Ok(found);
        }
        let (found, in_memory) = self.read_salvage(container)?;
        if in_memory {
            let mut others = WHOLE_MAX - 1;
            kept.retain(|entry| {
                let stays = !entry.in_memory || others > 0;
                others -= usize::from(entry.in_memory && stays);
                stays
            });
        }
        kept.push_front(Kept { container, found: found.clone(), looked_ms: now_ms, in_memory });
        kept.truncate(KEPT_MAX);
        Ok(found)
    }

    /// The flag says whether all of it is in memory.
    fn read_salvage(&self, container: ContainerId) -> Result<(Left, bool), EngineError> {
        // The owner is known only to the catalog, when the header cannot be read.
        let Some(record) = self.catalog.container(container)? else { return Ok((None, false)) };
        if record.state == ContainerState::Condemned {
            return Ok((None, false));
        }
        if let Some((open, complete)) = self.made_again(&record)? {
            self.parity.read();
            tracing::warn!(%container, complete, "reading a damaged container as parity makes it again");
            return Ok((Some((Arc::new(open), complete)), true));
        }
        match salvage(self.containers.volume(), self.containers.repository(), owner_of(&record)) {
            Ok(salvaged) => {
                let regions = salvaged.open.directory().region_count();
                tracing::warn!(%container, regions, complete = salvaged.complete, "reading what is left of a damaged container");
                Ok((Some((Arc::new(salvaged.open), salvaged.complete)), false))
            }
            Err(error) => match EngineError::from(error) {
                error if error.is_no_verdict() => Err(error),
                error => {
                    tracing::warn!(%container, %error, "nothing can be read of a damaged container");
                    Ok((None, false))
                }
            },
        }
    }
}

const fn owner_of(record: &ContainerRecord) -> Owner {
    let ContainerRecord { id, class, namespace, created_ms, .. } = *record;
    Owner { id, class, namespace, created_ms }
}
