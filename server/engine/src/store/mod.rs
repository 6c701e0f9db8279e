//! Finding and reading chunks and recipe nodes: fingerprint → index → container → region → checked bytes.
//!
//! The one place that decides whether a stored chunk counts. An index hit is only a candidate; it counts when
//! the container's directory holds the whole fingerprint and nothing is known to be damaged there. Damage
//! met on the way is remembered, so that the next backup stores the chunk again and older backups heal.

mod damage;
mod decoded;
mod nodes;

use std::sync::Arc;

use bytes::Bytes;
use holdfast_catalog::Catalog;
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId, Location, NamespaceId};

use crate::container::{ContainerCache, ContainerError, OpenContainer, RecentDirectories};
use crate::error::EngineError;
use crate::index::{Index, NamespaceKey};
use damage::DamageSet;
use decoded::DecodedRegions;

pub(crate) use nodes::NodeReader;

/// Decoded regions kept: 64 of 256 KiB. Recipe nodes of neighbouring extents share regions.
const DECODED_REGIONS_MAX: usize = 64;

/// A namespace's keys into the index. Data chunks and recipe nodes are domains of their own: a disk that
/// contains a copy of a recipe must not be answered with the recipe.
#[derive(Debug, Clone)]
pub(crate) struct Domain {
    pub(crate) namespace: NamespaceId,
    data: NamespaceKey,
    recipe: NamespaceKey,
}

impl Domain {
    pub(crate) fn key(&self, class: ContainerClass) -> &NamespaceKey {
        match class {
            ContainerClass::Data => &self.data,
            ContainerClass::Recipe => &self.recipe,
        }
    }
}

/// A chunk that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) location: Location,
    /// Plain bytes of the chunk.
    pub(crate) bytes: u32,
}

/// See the module's text.
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
        Domain {
            namespace,
            data: self.index.key_for(namespace, ContainerClass::Data),
            recipe: self.index.key_for(namespace, ContainerClass::Recipe),
        }
    }

    /// Whether anything is known to be damaged.
    pub(crate) fn has_damage(&self) -> bool {
        !self.damage.is_empty()
    }

    /// Finds a chunk; `recent` holds the containers this stream met last and answers for their neighbours.
    pub(crate) fn find(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
    ) -> Result<Option<Found>, EngineError> {
        if let Some((container, region, slot)) = recent.find(fingerprint)
            && !self.damage.contains(container.id(), region)
        {
            return Ok(found(container, region, slot));
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
        Ok(hit.and_then(|(container, location)| {
            let found = found(&container, location.region, location.slot);
            recent.push(container);
            found
        }))
    }

    /// The container when the candidate is what was looked for.
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

    /// The decoded, checked plain bytes of a region.
    pub(crate) fn read_region(
        &self,
        container: ContainerId,
        class: ContainerClass,
        region: u16,
    ) -> Result<Bytes, ContainerError> {
        if let Some(plain) = self.decoded.get(container, region) {
            return Ok(plain);
        }
        let open = self.containers.get(container, class)?;
        let plain: Bytes = open.read_region(region)?.decode_checked(&open)?;
        self.decoded.insert(container, region, plain.clone());
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
            let Location { container, region, slot } = found.location;
            match self.read_region(container, class, region) {
                Ok(plain) => {
                    let open = self.containers.get(container, class)?;
                    let chunk = open.directory().chunk(region, slot);
                    let range = chunk.map(|c| c.offset as usize..(c.offset + c.bytes) as usize);
                    let sound =
                        range.filter(|range| range.end <= plain.len()).map(|range| plain.slice(range));
                    if sound.is_some() {
                        return Ok(sound);
                    }
                    self.note_damage(container, Some(region), "a chunk lies outside its region");
                }
                Err(error) if error.is_damage() => {
                    self.note_damage(container, Some(region), &error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Remembers damage: the region (or the whole container) no longer counts.
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

fn found(container: &OpenContainer, region: u16, slot: u16) -> Option<Found> {
    let chunk = container.directory().chunk(region, slot)?;
    let location = Location { container: container.id(), region, slot };
    Some(Found { location, bytes: chunk.bytes })
}
