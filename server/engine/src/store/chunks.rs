//! The chunk store: which stored chunk counts.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use holdfast_catalog::Catalog;
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::REGION_PLAIN_MAX_BYTES;
use holdfast_types::clock::Clock;
use holdfast_types::ids::{ContainerClass, ContainerId, Location, NamespaceId};
use parking_lot::Mutex;

use super::DecodedRegions;
use super::Domain;
use super::SalvageCache;
use super::damage::DamageSet;
use super::damage::Reported;
use super::damage::{Losses, OnLoss};
use super::leftovers::{Holds, Leftovers};
use super::reach::ReachMemory;
use super::{Repair, RepairProgress};
use crate::container::{ChunkRef, ContainerCache, OpenContainer, RecentDirectories};
use crate::error::EngineError;
use crate::health::Health;
use crate::index::Index;
use crate::parity::ParityCounters;

/// Decoded regions kept at least. Recipe nodes of neighbouring extents share regions.
const DECODED_REGIONS_MIN: usize = 4;

/// Repairs of the index that one look-up waits for: pages that go bad one after another must not hold it for ever.
const REPAIRS_WAITED_FOR_MAX: u32 = 3;

/// Purpose of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// A read now.
    Read,
    /// A reference: not to a container of which it is being decided whether it goes (D2).
    Keep,
    /// A query by an agent: found chunks need not be sent. As [`Use::Keep`], and not where an agent reported false data
    /// (N6).
    Have,
}

/// A chunk that is there. Holds its container open: for the moment, not to be kept.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) container: Arc<OpenContainer>,
    pub(crate) location: Location,
    /// Its fingerprint, and where it lies in its region's plain bytes.
    pub(crate) chunk: ChunkRef,
}

impl Found {
    /// (D1) Makes `holds` count on it. `false`: its container goes.
    pub(super) fn is_held(&self, holds: &mut Holds) -> bool {
        let Location { container, region, slot } = self.location;
        let number = self.container.directory().number_of(region, slot);
        // Found in this directory, so it has a number.
        number.is_some_and(|number| holds.hold(container, number))
    }
}

/// All stored chunks of the repository, of every namespace.
#[derive(Debug)]
pub(crate) struct ChunkStore {
    pub(crate) index: Index,
    pub(crate) containers: ContainerCache,
    pub(super) catalog: Arc<Catalog>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) damage: DamageSet,
    pub(super) reported: Reported,
    /// Held while the catalog is told of damage found or cleared, so that it ends up knowing what `damage` does.
    pub(super) telling: Mutex<()>,
    pub(super) losses: Losses,
    /// A container was passed by whose key is missing (K7).
    pub(super) met_passed_by: AtomicBool,
    /// Containers of the chunks of recent recipes.
    pub(crate) reach: ReachMemory,
    /// The repair of the index, when one is under way.
    pub(super) repair: Mutex<Option<Repair>>,
    pub(super) repair_progress: RepairProgress,
    /// Number of look-ups, for tests.
    #[cfg(test)]
    pub(crate) look_ups: std::sync::atomic::AtomicU64,
    pub(super) salvage: SalvageCache,
    pub(crate) parity: ParityCounters,
    /// Containers that failed sessions left, those being deleted, and holds.
    pub(crate) leftovers: Arc<Leftovers>,
    pub(super) decoded: DecodedRegions,
}

/// Parts that a [`ChunkStore`] is assembled from.
#[derive(Debug)]
pub(crate) struct StoreParts {
    pub(crate) index: Index,
    pub(crate) containers: ContainerCache,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    /// Action taken when containers are missing.
    pub(crate) on_loss: OnLoss,
    /// Shared with the index, which drops entries of containers that are gone.
    pub(crate) leftovers: Arc<Leftovers>,
    /// Memory for regions that are kept decoded.
    pub(crate) decoded_bytes: usize,
}

impl ChunkStore {
    pub(crate) fn new(parts: StoreParts) -> Result<Self, EngineError> {
        let StoreParts { index, containers, catalog, clock, health, on_loss, leftovers, decoded_bytes } =
            parts;
        let damage = DamageSet::load(&catalog, clock.monotonic_ms())?;
        let reported = Reported::load(&catalog)?;
        let decoded =
            DecodedRegions::new((decoded_bytes / REGION_PLAIN_MAX_BYTES as usize).max(DECODED_REGIONS_MIN));
        let losses = Losses::new(health, on_loss);
        Ok(Self {
            index,
            containers,
            catalog,
            clock,
            damage,
            reported,
            telling: Mutex::default(),
            losses,
            met_passed_by: AtomicBool::new(false),
            reach: ReachMemory::default(),
            repair: Mutex::default(),
            repair_progress: RepairProgress::default(),
            #[cfg(test)]
            look_ups: std::sync::atomic::AtomicU64::default(),
            salvage: SalvageCache::default(),
            parity: ParityCounters::default(),
            leftovers,
            decoded,
        })
    }

    /// The keys of a namespace.
    pub(crate) fn domain(&self, namespace: NamespaceId) -> Domain {
        Domain::of(&self.index, namespace)
    }

    /// Finds a chunk, as [`ChunkStore::look_up`], to count on it, for a backup, which can be sent it again: one that only
    /// a damaged page of the index knows is not found (I4), nor is one that agents reported (N6).
    pub(crate) fn find(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
    ) -> Result<Option<Found>, EngineError> {
        match self.look_up((domain, class), fingerprint, recent, Use::Have) {
            Err(EngineError::Index(error)) if error.bad_page().is_some() => Ok(None),
            done => done,
        }
    }

    /// Finds a chunk, as [`ChunkStore::look_up`], that someone relies on: what only a damaged page of the index
    /// knows is found once the page is rebuilt.
    pub(crate) fn find_to_read(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
    ) -> Result<Option<Found>, EngineError> {
        self.look_up_once_repaired((domain, class), fingerprint, recent, Use::Read)
    }

    fn look_up_once_repaired(
        &self,
        place: (&Domain, ContainerClass),
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
        purpose: Use,
    ) -> Result<Option<Found>, EngineError> {
        let mut repairs = 0;
        loop {
            match self.look_up(place, fingerprint, recent, purpose) {
                Err(EngineError::Index(error))
                    if error.bad_page().is_some() && repairs < REPAIRS_WAITED_FOR_MAX =>
                {
                    self.repair_index_now()?;
                    repairs += 1;
                }
                Ok(None) => {
                    self.reopen_healed(place, fingerprint);
                    return Ok(None);
                }
                done => return done,
            }
        }
    }

    /// Finds a chunk; `recent` holds the containers this stream met last and answers for their neighbours.
    fn look_up(
        &self,
        (domain, class): (&Domain, ContainerClass),
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
        purpose: Use,
    ) -> Result<Option<Found>, EngineError> {
        #[cfg(test)]
        self.look_ups.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // (A7) A place known to be damaged is no answer, however recently it was one.
        if let Some((container, region, slot)) = recent.find(fingerprint) {
            let id = container.id();
            if self.leftovers.is_gone(id) {
                recent.forget(id);
            } else if !self.damage.contains(id, region)
                && !self.is_out(id, purpose)
                && !self.is_doubted(domain, Location { container: id, region, slot }, purpose)
                && (purpose != Use::Read || !self.is_unreadable(container))
            {
                return found(Arc::clone(container), region, slot).map(Some);
            }
        }
        let mut damaged = Vec::new();
        let mut hit = self.search((domain, class), fingerprint, &mut damaged, purpose)?;
        // (R4) Only when there is no other copy is a damaged one looked at again.
        if hit.is_none() && damaged.into_iter().any(|location| self.is_sound_again(location)) {
            hit = self.search((domain, class), fingerprint, &mut Vec::new(), purpose)?;
        }
        let Some((container, location)) = hit else { return Ok(None) };
        recent.push(Arc::clone(&container));
        found(container, location.region, location.slot).map(Some)
    }

    /// As [`ChunkStore::find`], for a stream that will refer to what is found instead of storing it again.
    pub(crate) fn find_and_hold(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
        holds: &mut Holds,
    ) -> Result<Option<Found>, EngineError> {
        // Again when it was given up in between: then another copy counts, or none.
        while let Some(found) = self.find(domain, class, fingerprint, recent)? {
            if found.is_held(holds) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// As [`ChunkStore::find_and_hold`], in another container than `but`.
    pub(crate) fn find_elsewhere_and_hold(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        but: ContainerId,
        holds: &mut Holds,
    ) -> Result<Option<Found>, EngineError> {
        let wanted = |id| id != but && !self.leftovers.is_refused(id);
        let found = self.find_where(domain, class, fingerprint, &wanted)?;
        Ok(found.filter(|found| found.is_held(holds)))
    }

    /// As [`ChunkStore::find_and_hold`], of what someone relies on: see [`ChunkStore::find_to_read`].
    pub(crate) fn find_to_keep(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
        holds: &mut Holds,
    ) -> Result<Option<Found>, EngineError> {
        self.keep((domain, class), fingerprint, recent, holds, Use::Keep)
    }

    /// As [`ChunkStore::find_to_keep`], but not what agents reported (N6).
    pub(crate) fn find_undoubted(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
        holds: &mut Holds,
    ) -> Result<Option<Found>, EngineError> {
        self.keep((domain, class), fingerprint, recent, holds, Use::Have)
    }

    fn keep(
        &self,
        place: (&Domain, ContainerClass),
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
        holds: &mut Holds,
        purpose: Use,
    ) -> Result<Option<Found>, EngineError> {
        while let Some(found) = self.look_up_once_repaired(place, fingerprint, recent, purpose)? {
            if found.is_held(holds) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// (N6) Returns true if the chunk should be sent again although it is there.
    fn is_doubted(&self, domain: &Domain, at: Location, purpose: Use) -> bool {
        purpose == Use::Have && self.reported.contains(domain.namespace, at)
    }

    /// Returns true if it is in an archive and was not thawed: another copy is read where there is one.
    fn is_unreadable(&self, container: &OpenContainer) -> bool {
        self.leftovers.is_cold(container.id()) && container.cold().is_some_and(|place| !place.is_readable)
    }

    /// (D2) Returns true if no chunk of the container is an answer.
    fn is_out(&self, id: ContainerId, purpose: Use) -> bool {
        match purpose {
            Use::Read => self.leftovers.is_gone(id),
            Use::Keep | Use::Have => self.leftovers.is_refused(id),
        }
    }

    /// Asks the index; `damaged` gets the candidates that do not count because of known damage.
    pub(super) fn search(
        &self,
        place: (&Domain, ContainerClass),
        fingerprint: &Fingerprint,
        damaged: &mut Vec<Location>,
        purpose: Use,
    ) -> Result<Option<(Arc<OpenContainer>, Location)>, EngineError> {
        loop {
            let changes = self.leftovers.changes();
            damaged.clear();
            let mut met_out = false;
            let hit = self.search_once(place, fingerprint, damaged, purpose, &mut met_out)?;
            // (G7) A container went while the index was asked, which may not have known the copy at first: it does now.
            if hit.is_some() || !met_out || self.leftovers.changes() == changes {
                return Ok(hit);
            }
        }
    }

    /// As [`ChunkStore::search`], once. `met_out` is set when a candidate was rejected because its container is
    /// [out](ChunkStore::is_out).
    fn search_once(
        &self,
        (domain, class): (&Domain, ContainerClass),
        fingerprint: &Fingerprint,
        damaged: &mut Vec<Location>,
        purpose: Use,
        met_out: &mut bool,
    ) -> Result<Option<(Arc<OpenContainer>, Location)>, EngineError> {
        let key = domain.key(class).of(fingerprint);
        let mut failure = None;
        let mut hit = None;
        let (mut cold, mut archived) = (None, None);
        let accept = |location: Location| {
            if self.is_out(location.container, purpose) {
                *met_out = true;
                return false;
            }
            if self.is_damaged(location) {
                damaged.push(location);
                return false;
            }
            if self.is_doubted(domain, location, purpose) {
                return false;
            }
            match self.candidate(domain, class, fingerprint, location) {
                Ok(None) => {
                    *met_out |= self.is_out(location.container, purpose);
                    false
                }
                Ok(Some(container)) if purpose == Use::Read && self.is_unreadable(&container) => {
                    cold.get_or_insert((container, location));
                    false
                }
                Ok(Some(container)) => {
                    hit = Some((container, location));
                    true
                }
                // Not even its directory can be read: then no one can count on it.
                Err(error @ EngineError::Archived(_)) => {
                    archived = Some(error).filter(|_| purpose == Use::Read);
                    false
                }
                Err(error) => {
                    failure = Some(error);
                    true
                }
            }
        };
        self.index.get(&key, accept)?;
        match (failure, hit.or(cold), archived) {
            (Some(error), _, _) | (None, None, Some(error)) => Err(error),
            (None, hit, _) => Ok(hit),
        }
    }

    /// A damaged container that once held a chunk, and what is wrong with it; `None` when the index knows of none.
    pub(crate) fn known_loss(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
    ) -> Result<Option<(ContainerId, String)>, EngineError> {
        let mut damaged = Vec::new();
        self.search((domain, class), fingerprint, &mut damaged, Use::Read)?;
        Ok(damaged.into_iter().find_map(|Location { container, region, .. }| {
            let findings = self.damage.findings(container);
            let reason = findings.get(&None).or_else(|| findings.get(&Some(region)))?;
            Some((container, reason.clone()))
        }))
    }

    /// As [`ChunkStore::find_to_read`], only copies in containers that `wanted` says yes to.
    pub(crate) fn find_where(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        wanted: &dyn Fn(ContainerId) -> bool,
    ) -> Result<Option<Found>, EngineError> {
        let key = domain.key(class).of(fingerprint);
        let mut failure = None;
        let mut hit = None;
        let accept = |location: Location| {
            let id = location.container;
            if !wanted(id) || self.leftovers.is_gone(id) || self.is_damaged(location) {
                return false;
            }
            match self.candidate(domain, class, fingerprint, location) {
                Ok(found) => hit = found.map(|container| (container, location)),
                Err(error) => failure = Some(error),
            }
            hit.is_some() || failure.is_some()
        };
        self.index.get(&key, accept)?;
        if let Some(error) = failure {
            return Err(error);
        }
        hit.map(|(container, location)| found(container, location.region, location.slot)).transpose()
    }

    /// Places known to be damaged that the index names for a chunk. That it was there is no more than likely: what is
    /// damaged cannot be asked.
    pub(crate) fn damaged_places(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
    ) -> Result<Vec<Location>, EngineError> {
        let mut damaged = Vec::new();
        self.search((domain, class), fingerprint, &mut damaged, Use::Read)?;
        Ok(damaged)
    }

    /// The container when the candidate is what was looked for: (I3) the whole fingerprint is compared, and
    /// damaged places are rejected. (A6) So is the namespace.
    pub(super) fn candidate(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        location: Location,
    ) -> Result<Option<Arc<OpenContainer>>, EngineError> {
        let container = match self.containers.get(location.container, class) {
            Ok(container) => container,
            Err(error) if error.is_damage() => {
                self.note_failure(location.container, None, &error);
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        // (G7) Opened just before it was deleted: as long as it is open, its room is not free.
        if self.leftovers.is_gone(location.container) {
            self.containers.remove(location.container);
            return Ok(None);
        }
        let matches = container.namespace() == domain.namespace
            && container
                .directory()
                .chunk(location.region, location.slot)
                .is_some_and(|chunk| chunk.fingerprint == *fingerprint);
        Ok(matches.then_some(container))
    }
}

/// The chunk at a place that a look-up has just confirmed.
pub(super) fn found(container: Arc<OpenContainer>, region: u16, slot: u16) -> Result<Found, EngineError> {
    let location = Location { container: container.id(), region, slot };
    let Some(chunk) = container.directory().chunk(region, slot) else {
        let name = container.name();
        return Err(EngineError::Internal(format!("{name} has no chunk {slot} in region {region}")));
    };
    Ok(Found { container, location, chunk })
}
