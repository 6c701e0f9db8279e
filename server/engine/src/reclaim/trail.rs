//! Fast look-up of chunks: those that were stored together are referred to together.
//!
//! A [`Trail`] is what one extent (or one page) has met so far. The next chunk is looked for right behind the one found
//! before in the same container, which costs one comparison of 32 bytes; then in the containers of the trail; then in
//! the index. A trail begins empty, so which copy of a chunk it finds depends on nothing but the extent and the index:
//! the first chunk of an extent is always the copy that look-ups prefer.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId, Location, NamespaceId};

use super::live::Scope;
use crate::container::{ContainerError, OpenContainer, RecentDirectories};
use crate::core::Core;
use crate::error::EngineError;
use crate::store::Domain;

/// Containers of a trail at most. An extent that changed on many days lies in one container for each of these days.
const LEADS_MAX: usize = 16;

/// Chunks looked at behind the last one: where a few changed, those after them follow.
const AHEAD: u32 = 4;

/// Decoded regions a worker keeps: of each of thirty days the one that has the nodes of neighbouring extents. They are 12 MiB.
const REGIONS_MAX: usize = 48;

/// A container of a trail, and what the walk keeps of it.
#[derive(Debug)]
pub(super) struct Lead<P> {
    pub(super) container: Arc<OpenContainer>,
    /// The number behind the chunk found last.
    next: u32,
    /// Set if its answers count without a check. A container that is damaged, or may be gone soon, is asked about each
    /// chunk.
    leads: bool,
    pub(super) kept: P,
}

/// Containers in which the chunks of one extent or page were found so far.
#[derive(Debug)]
pub(super) struct Trail<P> {
    class: ContainerClass,
    /// The one that answered last in front.
    leads: Vec<Lead<P>>,
}

impl<P> Trail<P> {
    pub(super) const fn new(class: ContainerClass) -> Self {
        Self { class, leads: Vec::new() }
    }

    /// Forgets all containers; hands each to `leave`.
    pub(super) fn clear(&mut self, leave: impl FnMut(Lead<P>)) {
        self.leads.drain(..).for_each(leave);
    }

    /// Finds a chunk: its container, which `enter` is asked about when it is new to the trail and which `leave` gets
    /// when it makes room for another, and its number there.
    pub(super) fn find(
        &mut self,
        finder: &Finder<'_>,
        fingerprint: &Fingerprint,
        enter: impl FnOnce(&Arc<OpenContainer>) -> P,
        leave: impl FnOnce(Lead<P>),
    ) -> Result<Option<(&mut Lead<P>, u32)>, EngineError> {
        if let Some((place, number)) = self.follow(fingerprint) {
            if let Some(front) = self.leads.get_mut(..=place) {
                front.rotate_right(1);
            }
            return Ok(self.answer(number));
        }
        let Some((container, number)) = finder.look_up(self.class, fingerprint)? else { return Ok(None) };
        let known = self.leads.iter().position(|lead| lead.container.id() == container.id());
        let lead = match known {
            Some(place) => self.leads.remove(place),
            None => {
                let leads = finder.may_lead(container.id());
                Lead { kept: enter(&container), container, next: 0, leads }
            }
        };
        if self.leads.len() >= LEADS_MAX
            && let Some(oldest) = self.leads.pop()
        {
            leave(oldest);
        }
        self.leads.insert(0, lead);
        Ok(self.answer(number))
    }

    fn answer(&mut self, number: u32) -> Option<(&mut Lead<P>, u32)> {
        let lead = self.leads.first_mut()?;
        lead.next = number.saturating_add(1);
        Some((lead, number))
    }

    /// Place in the trail, and number, of a chunk that one of its containers has.
    fn follow(&self, fingerprint: &Fingerprint) -> Option<(usize, u32)> {
        let leads = || self.leads.iter().enumerate().filter(|(_, lead)| lead.leads);
        let ahead = leads().find_map(|(place, lead)| {
            let directory = lead.container.directory();
            let mut near = lead.next..lead.next.saturating_add(AHEAD);
            near.find(|number| directory.fingerprint(*number) == Some(fingerprint)).map(|n| (place, n))
        });
        ahead.or_else(|| {
            leads().find_map(|(place, lead)| {
                lead.container.directory().number_by_name(fingerprint).map(|number| (place, number))
            })
        })
    }
}

/// Looks chunks up for one worker, in one namespace.
#[derive(Debug)]
pub(super) struct Finder<'a> {
    core: &'a Core,
    scope: &'a Scope,
    domain: Domain,
}

impl<'a> Finder<'a> {
    pub(super) fn new(core: &'a Core, scope: &'a Scope, namespace: NamespaceId) -> Self {
        Self { core, scope, domain: core.store.domain(namespace) }
    }

    /// The copy that look-ups prefer. (A7) What is known to be damaged is no answer.
    fn look_up(
        &self,
        class: ContainerClass,
        fingerprint: &Fingerprint,
    ) -> Result<Option<(Arc<OpenContainer>, u32)>, EngineError> {
        let mut recent = RecentDirectories::default();
        let found = self.core.store.find_to_read(&self.domain, class, fingerprint, &mut recent)?;
        let Some(mut found) = found else { return Ok(None) };
        if !self.is_settled(found.container.id()) {
            // A copy that may still go is no reason for another copy to go.
            let wanted = |id| self.is_settled(id);
            let other = self.core.store.find_where(&self.domain, class, fingerprint, &wanted)?;
            found = other.unwrap_or(found);
        }
        let Location { region, slot, .. } = found.location;
        let number = found.container.directory().number_of(region, slot).ok_or_else(|| {
            let name = found.container.name();
            EngineError::Internal(format!("{name} has no chunk {slot} in region {region}"))
        })?;
        Ok(Some((found.container, number)))
    }

    /// Returns true if the round can rely on a container: it cannot be given up, is not being deleted, (T10) and is not
    /// in an archive: where another copy can be read, that is the one which stays.
    fn is_settled(&self, id: ContainerId) -> bool {
        self.scope.is_settled(id) && !self.core.store.leftovers.is_refused(id)
    }

    /// Returns true if a container's directory may answer without a check whether the answer counts.
    fn may_lead(&self, id: ContainerId) -> bool {
        let store = &self.core.store;
        self.is_settled(id) && (!store.has_damage() || store.known_damage(id).is_empty())
    }

    /// Namespace whose chunks are looked up.
    pub(super) const fn namespace(&self) -> NamespaceId {
        self.domain.namespace
    }

    /// The damaged places that are said to hold a chunk which is nowhere else.
    pub(super) fn damaged_places(
        &self,
        class: ContainerClass,
        fingerprint: &Fingerprint,
    ) -> Result<Vec<Location>, EngineError> {
        self.core.store.damaged_places(&self.domain, class, fingerprint)
    }

    /// A node's bytes out of another copy, or out of what is left of a damaged container. `None`: it is lost.
    pub(super) fn read_anywhere(&self, fingerprint: &Fingerprint) -> Result<Option<Bytes>, EngineError> {
        let mut recent = RecentDirectories::default();
        self.core.store.read_chunk(&self.domain, ContainerClass::Recipe, fingerprint, &mut recent)
    }
}

/// The regions of recipe nodes that a worker read last.
#[derive(Debug, Default)]
pub(super) struct NodeRegions(Vec<(ContainerId, u16, Bytes)>);

impl NodeRegions {
    /// The bytes of node `number`, and how many were read for it.
    pub(super) fn read(
        &mut self,
        container: &OpenContainer,
        number: u32,
    ) -> Result<(Bytes, u64), ContainerError> {
        let directory = container.directory();
        let place = directory.place_of(number);
        let found = place.and_then(|(region, slot)| Some((region, directory.chunk(region, slot)?)));
        let Some((region, chunk)) = found else {
            let (container, count) = (container.name().clone(), directory.region_count());
            return Err(ContainerError::NoSuchRegion { container, region: u16::MAX, count });
        };
        let known = self.0.iter().position(|(id, of, _)| (*id, *of) == (container.id(), region));
        let (plain, read) = match known.map(|place| self.0.remove(place)) {
            Some((.., plain)) => (plain, 0),
            None => {
                let stored = container.read_region(region)?;
                (stored.decode_checked(container)?, stored.payload.len() as u64)
            }
        };
        let range = container.chunk_range(region, &chunk, plain.len())?;
        let node = plain.slice(range);
        self.0.truncate(REGIONS_MAX - 1);
        self.0.insert(0, (container.id(), region, plain));
        Ok((node, read))
    }
}
