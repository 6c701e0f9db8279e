//! The chunk store: which stored chunk counts, and its checked bytes.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_catalog::Catalog;
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId, Location, NamespaceId};

use super::damage::DamageSet;
use super::decoded::DecodedRegions;
use super::domain::Domain;
use crate::container::{
    ChunkRef, ContainerCache, ContainerError, OpenContainer, RecentDirectories, StoredRegion,
};
use crate::error::EngineError;
use crate::index::Index;

/// Decoded regions kept: 64 of 256 KiB. Recipe nodes of neighbouring extents share regions.
const DECODED_REGIONS_MAX: usize = 64;

/// A chunk that is there. Holds its container open: for the moment, not to be kept.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) container: Arc<OpenContainer>,
    pub(crate) location: Location,
    /// Its fingerprint, and where it lies in its region's plain bytes.
    pub(crate) chunk: ChunkRef,
}

/// All stored chunks of the repository, of every namespace.
#[derive(Debug)]
pub(crate) struct ChunkStore {
    pub(crate) index: Index,
    pub(crate) containers: ContainerCache,
    catalog: Arc<dyn Catalog>,
    damage: DamageSet,
    decoded: DecodedRegions,
}

impl ChunkStore {
    pub(crate) fn new(
        index: Index,
        containers: ContainerCache,
        catalog: Arc<dyn Catalog>,
    ) -> Result<Self, EngineError> {
        let damage = DamageSet::load(&*catalog)?;
        let decoded = DecodedRegions::new(DECODED_REGIONS_MAX);
        Ok(Self { index, containers, catalog, damage, decoded })
    }

    /// The keys of a namespace.
    pub(crate) fn domain(&self, namespace: NamespaceId) -> Domain {
        Domain::of(&self.index, namespace)
    }

    /// Whether anything is known to be damaged.
    pub(crate) fn has_damage(&self) -> bool {
        !self.damage.is_empty()
    }

    /// Grows whenever more is known to be damaged: what was found before must then be looked at again.
    pub(crate) fn damage_generation(&self) -> u64 {
        self.damage.generation()
    }

    /// Whether what lies there is known to be damaged.
    pub(crate) fn is_damaged(&self, location: Location) -> bool {
        self.damage.contains(location.container, location.region)
    }

    /// Finds a chunk; `recent` holds the containers this stream met last and answers for their neighbours.
    pub(crate) fn find(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
    ) -> Result<Option<Found>, EngineError> {
        // (A7) What is known to be damaged is no answer, however recently it was one.
        if let Some((container, region, slot)) = recent.find(fingerprint)
            && !self.damage.contains(container.id(), region)
        {
            return found(Arc::clone(container), region, slot).map(Some);
        }
        let key = domain.key(class).of(fingerprint);
        let mut failure = None;
        let mut hit = None;
        let accept = |location: Location| match self.candidate(domain, class, fingerprint, location) {
            Ok(None) => false,
            Ok(Some(container)) => {
                hit = Some((container, location));
                true
            }
            Err(error) => {
                failure = Some(error);
                true
            }
        };
        self.index.get(&key, accept)?;
        if let Some(error) = failure {
            return Err(error);
        }
        let Some((container, location)) = hit else { return Ok(None) };
        recent.push(Arc::clone(&container));
        found(container, location.region, location.slot).map(Some)
    }

    /// The container when the candidate is what was looked for: (I3) the whole fingerprint is compared, and
    /// damaged places are rejected. (A6) So is the namespace.
    fn candidate(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        location: Location,
    ) -> Result<Option<Arc<OpenContainer>>, EngineError> {
        if self.damage.contains(location.container, location.region) {
            return Ok(None);
        }
        let container = match self.containers.get(location.container, class) {
            Ok(container) => container,
            Err(error) if error.is_damage() => {
                self.note_damage(location.container, None, &error.to_string());
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let matches = container.namespace() == domain.namespace
            && container
                .directory()
                .chunk(location.region, location.slot)
                .is_some_and(|chunk| chunk.fingerprint == *fingerprint);
        Ok(matches.then_some(container))
    }

    /// The decoded, checked plain bytes of a region of `container`.
    pub(crate) fn read_region(
        &self,
        container: &OpenContainer,
        region: u16,
    ) -> Result<Bytes, ContainerError> {
        match self.decoded.get(container.id(), region) {
            Some(plain) => Ok(plain),
            None => self.decode(container, &container.read_region(region)?),
        }
    }

    /// As [`ChunkStore::read_region`] with the stored bytes at hand.
    pub(crate) fn decode_region(
        &self,
        container: &OpenContainer,
        stored: &StoredRegion,
    ) -> Result<Bytes, ContainerError> {
        match self.decoded.get(container.id(), stored.region) {
            Some(plain) => Ok(plain),
            None => self.decode(container, stored),
        }
    }

    fn decode(&self, container: &OpenContainer, stored: &StoredRegion) -> Result<Bytes, ContainerError> {
        // (R2) Checked against every fingerprint before any of it is handed out.
        let plain = stored.decode_checked(container)?;
        self.decoded.insert(container.id(), stored.region, plain.clone());
        Ok(plain)
    }

    /// Reads one chunk, from another copy when one is damaged. `Ok(None)`: there is no sound copy.
    pub(crate) fn read_chunk(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
    ) -> Result<Option<Bytes>, EngineError> {
        while let Some(found) = self.find(domain, class, fingerprint, recent)? {
            let Location { container, region, .. } = found.location;
            let chunk = self.read_region(&found.container, region).and_then(|plain| {
                Ok(plain.slice(found.container.chunk_range(region, &found.chunk, plain.len())?))
            });
            match chunk {
                Ok(chunk) => return Ok(Some(chunk)),
                // (R4) Another copy is used when there is one.
                Err(error) if error.is_damage() => {
                    self.note_damage(container, Some(region), &error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// (R4) Remembers damage, in memory and in the catalog: the region (or the whole container) no longer
    /// counts.
    pub(crate) fn note_damage(&self, container: ContainerId, region: Option<u16>, reason: &str) {
        if !self.damage.insert(container, region) {
            return;
        }
        tracing::error!(%container, region, reason, "stored data is damaged");
        let noted = match region {
            Some(region) => self.catalog.mark_region_damaged(container, region, reason),
            None => self.catalog.mark_container_damaged(container, reason),
        };
        if let Err(error) = noted {
            // Remembered in memory at least; the damage is met again after a restart.
            tracing::warn!(%container, %error, "cannot note the damage in the catalog");
        }
        self.containers.remove(container);
    }
}

/// The chunk at a place that a look-up has just confirmed.
fn found(container: Arc<OpenContainer>, region: u16, slot: u16) -> Result<Found, EngineError> {
    let location = Location { container: container.id(), region, slot };
    let Some(chunk) = container.directory().chunk(region, slot) else {
        let name = container.name();
        return Err(EngineError::Internal(format!("{name} has no chunk {slot} in region {region}")));
    };
    Ok(Found { container, location, chunk })
}
