//! Taking note of damage, and looking at it again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_types::ids::{ContainerClass, ContainerId, Location, NamespaceId};
use roaring::RoaringTreemap;

use super::chunks::ChunkStore;
use super::damage::Found;
use crate::container::{ContainerError, OpenContainer};
use crate::error::EngineError;

impl ChunkStore {
    /// Returns true if any damage is known, healed or not.
    pub(crate) fn has_damage(&self) -> bool {
        !self.damage.is_empty()
    }

    /// Returns true if chunks of a namespace may be lost by known damage. Reads memory only.
    pub(crate) fn has_open_damage(&self, namespace: NamespaceId) -> bool {
        self.damage.is_open_in(namespace)
    }

    /// Grows whenever more is known to be damaged in a namespace: what was found before must then be looked at again.
    pub(crate) fn damage_generation(&self, namespace: NamespaceId) -> u64 {
        self.damage.generation(namespace)
    }

    /// Containers of a namespace in which damage was found after `generation`, whether something is lost by it or not.
    pub(crate) fn damaged_since(&self, namespace: NamespaceId, generation: u64) -> Vec<ContainerId> {
        self.damage.found_since(namespace, generation)
    }

    /// Returns true if a chunk found there still counts.
    pub(crate) fn is_there(&self, location: Location) -> bool {
        !self.is_damaged(location) && !self.leftovers.is_gone(location.container)
    }

    /// Returns true if that place is known to be damaged.
    pub(crate) fn is_damaged(&self, location: Location) -> bool {
        self.damage.contains(location.container, location.region)
    }

    /// The containers something is known about, by number.
    pub(crate) fn damaged_containers(&self) -> Vec<ContainerId> {
        self.damage.containers()
    }

    /// Known damage of a container: regions (`None`: all of it), each with the reason.
    pub(crate) fn known_damage(&self, container: ContainerId) -> Vec<(Option<u16>, String)> {
        self.damage.findings(container).into_iter().collect()
    }

    /// Reason for which writing has stopped, when more containers are missing than are believed to be lost.
    pub(crate) fn absence(&self) -> Option<&str> {
        self.losses.reason()
    }

    /// (R4) Takes note of a failure that [is damage](ContainerError::is_damage): of `region`, or of the container.
    pub(crate) fn note_failure(&self, container: ContainerId, region: Option<u16>, error: &ContainerError) {
        if error.is_absence() {
            self.note_absence(container, error);
        } else {
            self.note_damage(container, error.region().or(region), &error.to_string());
        }
    }

    /// (R4) Remembers damage, in memory and in the catalog: the region (or the whole container) does not count
    /// until it proves sound.
    pub(crate) fn note_damage(&self, container: ContainerId, region: Option<u16>, reason: &str) {
        if !self.observe(container, region, reason) {
            return;
        }
        tracing::error!(%container, region, reason, "stored data is damaged");
        let _telling = self.telling.lock();
        self.record(container, region, reason);
    }

    /// (N6) Remembers what an agent says of a region that agents sealed: in the catalog, and then in memory.
    ///
    /// # Errors
    /// The catalog's; then it is not remembered.
    pub(crate) fn note_report(
        &self,
        namespace: NamespaceId,
        container: ContainerId,
        region: u16,
    ) -> Result<(), EngineError> {
        self.catalog.note_report(container, region)?;
        self.reported.insert(namespace, container, region);
        Ok(())
    }

    /// (N6) The regions that agents reported, by container.
    pub(crate) fn reported(&self) -> BTreeSet<(ContainerId, u16)> {
        self.reported.all()
    }

    /// (N6) The regions of a container that agents reported.
    pub(crate) fn reported_in(&self, open: &OpenContainer) -> BTreeSet<u16> {
        let all = self.reported.of(open.namespace());
        all.iter().filter(|(container, _)| *container == open.id()).map(|(_, region)| *region).collect()
    }

    /// (N6) Returns whether agents reported something in one of these containers; `None`: in any of the namespace.
    pub(crate) fn reported_within(
        &self,
        namespace: NamespaceId,
        containers: Option<&RoaringTreemap>,
    ) -> bool {
        let is_within = |id: ContainerId| containers.is_none_or(|containers| containers.contains(id.get()));
        self.reported.of(namespace).into_iter().any(|(container, _)| is_within(container))
    }

    /// Number of regions of a namespace that agents reported.
    pub(crate) fn reported_count(&self, namespace: NamespaceId) -> usize {
        self.reported.count(namespace)
    }

    /// (N6) Returns true if an agent reported that place.
    pub(crate) fn is_reported(&self, namespace: NamespaceId, at: Location) -> bool {
        self.reported.contains(namespace, at)
    }

    /// As [`ChunkStore::note_damage`] of a container of which nothing can be had; in memory only when there are too
    /// many of them.
    fn note_absence(&self, container: ContainerId, error: &ContainerError) {
        let reason = &error.to_string();
        // Deleted, by this process or by an earlier one: the index may name it for a while. A file that is there and
        // cannot be read was not deleted: it may only not have its row yet.
        let is_missing = error.is_missing();
        if self.leftovers.is_gone(container)
            || (is_missing
                && self.leftovers.is_older(container)
                && matches!(self.catalog.container(container), Ok(None)))
        {
            self.leftovers.note_gone(container);
            self.containers.remove(container);
            return;
        }
        // The index may name containers that were deleted; these are not missing.
        let is_expected = match self.catalog.container(container) {
            Ok(record) => record.is_some_and(|record| record.state != ContainerState::Condemned),
            Err(error) => {
                tracing::warn!(%container, %error, "cannot ask the catalog about a missing container");
                false
            }
        };
        if !self.observe(container, None, reason) || !is_expected {
            return;
        }
        tracing::error!(%container, reason, "a container is missing or unreadable");
        if self.losses.is_believed(container, || self.container_count()) {
            let _telling = self.telling.lock();
            self.record(container, None, reason);
        }
    }

    /// Records damage. Returns true if it is news.
    fn observe(&self, container: ContainerId, region: Option<u16>, reason: &str) -> bool {
        let now_ms = self.clock.monotonic_ms();
        let (namespace, class) = self.owner_of(container).unzip();
        let news = self.damage.insert(container, Found { region, reason, namespace, class, now_ms });
        // Opened afresh the next time, even if it was known: what was read from it may be spoilt.
        self.containers.remove(container);
        // (G7) Looked at only now: a deletion forgets the damage after the container is gone.
        if self.leftovers.is_gone(container) {
            self.forget_damaged(container);
            return false;
        }
        news
    }

    /// Namespace and class of a container; `None` when they cannot be determined, so that its damage concerns everyone.
    fn owner_of(&self, container: ContainerId) -> Option<(NamespaceId, ContainerClass)> {
        let record = self.catalog.container(container).ok().flatten()?;
        Some((record.namespace, record.class))
    }

    /// (K7, S12) Takes note that what cannot be read now was passed by: it is neither damaged nor looked at, and the next
    /// start, which may have its key, has to meet it again.
    pub(crate) fn note_passed_by(&self, container: ContainerId, error: &ContainerError) {
        tracing::error!(%container, %error, "skipped a container: it cannot be read now");
        self.met_passed_by.store(true, Ordering::Release);
    }

    /// (K7) Returns true if a container was passed by.
    pub(crate) fn met_passed_by(&self) -> bool {
        self.met_passed_by.load(Ordering::Acquire)
    }

    fn record(&self, container: ContainerId, region: Option<u16>, reason: &str) {
        let noted = match region {
            Some(region) => self.catalog.mark_region_damaged(container, region, reason),
            None => self.catalog.mark_container_damaged(container, reason),
        };
        if let Err(error) = noted {
            // Remembered in memory at least; the damage is met again after a restart.
            tracing::warn!(%container, %error, "cannot note the damage in the catalog");
        }
    }

    /// Number of containers in the catalog; 0 when it cannot be read.
    fn container_count(&self) -> u64 {
        let totals = self.catalog.container_totals(None);
        totals.map_or(0, |totals| totals.iter().map(|total| total.count).sum())
    }

    /// Opens a container afresh and compares its length with the catalog's.
    ///
    /// # Errors
    /// Error of the container as a whole.
    pub(crate) fn open_afresh(&self, record: &ContainerRecord) -> Result<Arc<OpenContainer>, ContainerError> {
        // A cached container may be older than the damage, or than the repair.
        self.containers.remove(record.id);
        let open = self.containers.get(record.id, record.class)?;
        open.check_length(record.stored_bytes)?;
        Ok(open)
    }

    /// Returns true if a place known to be damaged proves sound; looks at most once in a while.
    pub(super) fn is_sound_again(&self, location: Location) -> bool {
        let container = location.container;
        if self.damage.is_due(container, self.clock.monotonic_ms())
            && let Err(error) = self.look_again(container)
        {
            tracing::warn!(%container, %error, "cannot look at a damaged container again");
        }
        !self.is_damaged(location)
    }

    /// (R4) Checks the known damage of a container again and forgets places that prove sound: the container when its
    /// length, header, footer and directory are right, a region when its payload decodes to its fingerprints.
    ///
    /// # Errors
    /// When catalog or index cannot be asked or written; the next look tries again.
    pub(crate) fn look_again(&self, container: ContainerId) -> Result<(), EngineError> {
        let known = self.damage.findings(container);
        if known.is_empty() {
            return Ok(());
        }
        let Some(record) = self.catalog.container(container)? else { return Ok(()) };
        let Ok(open) = self.open_afresh(&record) else { return Ok(()) };
        // The directory of a container in the bucket is here: that proves nothing of the rest (T14).
        let is_readable = open.is_at_hand() || open.read_region(0).is_ok();
        let is_sound =
            |region: &Option<u16>| region.map_or(is_readable, |region| region_is_sound(&open, region));
        let sound: Vec<Option<u16>> = known.into_keys().filter(is_sound).collect();
        if sound.is_empty() {
            return Ok(());
        }
        // It may have been left out of the index while it could not be read.
        if !self.index.is_covered(container) {
            self.index_container(&open)?;
        }
        tracing::info!(%container, ?sound, "what was damaged is sound again");
        let _telling = self.telling.lock();
        self.damage.clear(container, &sound);
        self.losses.is_back(container);
        // In one transaction, and nothing but this: no crash forgets what else is known (R4).
        Ok(self.catalog.clear_damage(container, &sound)?)
    }

    /// Forgets the damage of a container that was condemned.
    pub(crate) fn forget_damaged(&self, container: ContainerId) {
        let findings: Vec<Option<u16>> = self.damage.findings(container).into_keys().collect();
        self.damage.clear(container, &findings);
        self.reported.forget(|of, _| of == container);
        self.containers.remove(container);
        self.losses.is_back(container);
    }

    /// Makes the index know the chunks of a container.
    pub(crate) fn index_container(&self, open: &OpenContainer) -> Result<(), EngineError> {
        let domain = self.domain(open.namespace());
        let key = domain.key(open.class());
        let container = open.id();
        let entries = open
            .directory()
            .iter()
            .map(|(fingerprint, region, slot)| (key.of(&fingerprint), Location { container, region, slot }));
        Ok(self.index.insert_container(container, entries)?)
    }
}

/// Reads a region. Returns true if its chunks match their fingerprints, or if it is sealed for them.
pub(crate) fn region_is_sound(open: &OpenContainer, region: u16) -> bool {
    open.read_region(region).is_ok_and(|stored| stored.checked(open).is_ok())
}

/// (E9) Findings of a scan by which data is lost. A region that still decodes to its fingerprints has lost nothing: its
/// header is needed only where there is no directory.
pub(crate) fn lost(open: &OpenContainer, found: Vec<ContainerError>) -> Vec<ContainerError> {
    let is_lost = |error: &ContainerError| {
        !error.is_damage() || error.region().is_none_or(|region| !region_is_sound(open, region))
    };
    found.into_iter().filter(is_lost).collect()
}
