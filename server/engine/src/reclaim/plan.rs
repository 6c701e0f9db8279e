//! The order in which live chunks are written again, and the pieces they are written in.
//!
//! A region of which everything is live, which is not small, and whose chunks are read together, goes over as it is. So
//! does one that agents sealed, of which anything is live: no one here can take it apart (N4). The others are taken apart,
//! and their chunks joined into full regions. Without a [`ReadOrder`] the order is that of the victims: the order in which
//! one disk was read when they were written.
//!
//! [`batches`] chooses the victims that are copied together. What is written anew is written in the order in which restores
//! of the newest restore points read it: disk by disk, each chunk where it is read first. So the small containers of many
//! days, each of which has a little of every part of its disk, become regions that one read brings whole; and what only
//! older restore points need is behind them, together, so that it goes together when these go. That order is worth
//! something, never necessary: what cannot be walked, or would take too long, stays in the order in which it was written.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_proto::fingerprint::FingerprintHasher;
use holdfast_proto::limits::REGION_PLAIN_MAX_BYTES;
use holdfast_proto::region::Codec;
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, VmId};

use super::control::{Control, Pacer};
use super::live::{LiveMap, SlotSet};
use super::roots::{Root, Roots};
use crate::container::{ContainerError, OpenContainer};
use crate::core::Core;
use crate::error::EngineError;
use crate::recipe::TreeReader;
use crate::store::{Domain, Found, NodeReader};

/// Plain bytes below which a region is joined with others, live or not: a quarter of a full one. A disk in which
/// little changes is sent in small regions, and each costs a read of its own.
const WHOLE_MIN_BYTES: u32 = REGION_PLAIN_MAX_BYTES / 4;

/// Chunks of other regions that may be read between those of one, which are then still read together.
const SLACK: u32 = 8;

/// A container that is to go, and what of it has to stay.
#[derive(Debug, Clone)]
pub(crate) struct Victim {
    pub(crate) container: Arc<OpenContainer>,
    pub(crate) live: SlotSet,
}

impl Victim {
    /// Chunks of a region that are live.
    pub(super) fn live_in(&self, region: u16) -> u32 {
        let directory = self.container.directory();
        let count = directory.region(region).map_or(0, |record| record.chunk_count);
        let numbers = (0..count).filter_map(|slot| directory.number_of(region, slot));
        u32::try_from(numbers.filter(|number| self.live.contains(*number)).count()).unwrap_or(u32::MAX)
    }
}

/// (N4) Slots of a container that stay when `live` is needed: regions that agents sealed stay or go as a whole. `None`:
/// exactly `live`.
pub(super) fn stays_with(container: &OpenContainer, live: &SlotSet) -> Option<SlotSet> {
    let directory = container.directory();
    if !directory.is_sealed() || live.is_empty() || live.is_full() {
        return None;
    }
    let mut stays = live.clone();
    let mut first = 0u32;
    for (record, _) in directory.regions_with_ends() {
        let numbers = first..first + u32::from(record.chunk_count);
        first = numbers.end;
        if numbers.clone().any(|number| live.contains(number)) {
            for number in numbers {
                stays.insert(number);
            }
        }
    }
    Some(stays)
}

/// Chunks that are written next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// All of a region.
    Region { victim: usize, region: u16 },
    /// One chunk.
    Chunk { victim: usize, region: u16, slot: u16 },
}

impl Piece {
    /// Its victim's place in the list, and its region.
    pub(super) const fn place(self) -> (usize, u16) {
        match self {
            Self::Region { victim, region } | Self::Chunk { victim, region, .. } => (victim, region),
        }
    }
}

/// Order in which a restore reads the live chunks of the victims.
#[derive(Debug, Default)]
pub(crate) struct ReadOrder {
    /// Ranks by victim and chunk number; `u32::MAX`: not read by it.
    ranks: Vec<Vec<u32>>,
    next: u32,
}

impl ReadOrder {
    /// Creates an order in which nothing is read yet.
    pub(crate) fn new(victims: &[Victim]) -> Self {
        let ranks = victims.iter().map(|victim| vec![u32::MAX; victim.live.chunks() as usize]).collect();
        Self { ranks, next: 0 }
    }

    /// A chunk is read next; the first time counts.
    pub(crate) fn reads(&mut self, victim: usize, number: u32) {
        let rank = self.ranks.get_mut(victim).and_then(|ranks| ranks.get_mut(number as usize));
        if let Some(rank) = rank.filter(|rank| **rank == u32::MAX) {
            *rank = self.next;
            self.next = self.next.saturating_add(1);
        }
    }

    /// Chunks that are read.
    pub(crate) const fn len(&self) -> u32 {
        self.next
    }

    fn ranks(&self, victim: usize, numbers: &Range<u32>) -> &[u32] {
        let ranks = self.ranks.get(victim);
        let ranks = ranks.and_then(|ranks| ranks.get(numbers.start as usize..numbers.end as usize));
        ranks.unwrap_or_default()
    }

    /// Rank of a region whose chunks are read together: the middle half of them within about as many reads as it has
    /// chunks, or none at all. `None`: they are not. So a few that the disk also has elsewhere do not matter. A region
    /// of a small run, with a little of every part of its disk, is not read together.
    fn rank_of_region(&self, victim: usize, numbers: &Range<u32>) -> Option<u32> {
        let mut sorted = self.ranks(victim, numbers).to_vec();
        sorted.sort_unstable();
        let quartile = |number| sorted.get(sorted.len() * number / 4).or(sorted.last()).copied();
        let (first, middle, last) = (quartile(1)?, quartile(2)?, quartile(3)?);
        (last - first <= numbers.end - numbers.start + SLACK).then_some(middle)
    }
}

/// All live chunks of the victims, each once.
pub(super) fn plan(victims: &[Victim], order: Option<&ReadOrder>) -> Vec<Piece> {
    let mut ranked = Vec::new();
    for (number, victim) in victims.iter().enumerate() {
        pieces_of(number, victim, order, &mut ranked);
    }
    if order.is_some() {
        // Stable, so what the restore does not read comes last, in the order in which it was written: it goes when the
        // older restore points go, and then all at once.
        ranked.sort_by_key(|(rank, _)| *rank);
    }
    ranked.into_iter().map(|(_, piece)| piece).collect()
}

fn pieces_of(victim: usize, of: &Victim, order: Option<&ReadOrder>, ranked: &mut Vec<(u32, Piece)>) {
    let mut first = 0u32;
    for (region, (record, _)) in (0u16..).zip(of.container.directory().regions_with_ends()) {
        let numbers = first..first + u32::from(record.chunk_count);
        first = numbers.end;
        let is_whole =
            record.plain_bytes >= WHOLE_MIN_BYTES && numbers.clone().all(|number| of.live.contains(number));
        let rank = match order {
            Some(order) => order.rank_of_region(victim, &numbers),
            None => Some(0),
        };
        if record.codec == Codec::Sealed {
            let live = || numbers.clone().any(|number| of.live.contains(number));
            let first_read = || order.and_then(|order| order.ranks(victim, &numbers).iter().min().copied());
            if live() {
                let rank = rank.or_else(first_read).unwrap_or(0);
                ranked.push((rank, Piece::Region { victim, region }));
            }
            continue;
        }
        if let Some(rank) = rank.filter(|_| is_whole) {
            ranked.push((rank, Piece::Region { victim, region }));
            continue;
        }
        for (slot, number) in (0u16..).zip(numbers) {
            if of.live.contains(number) {
                let rank =
                    order.and_then(|order| order.ranks(victim, &(number..number + 1)).first().copied());
                ranked.push((rank.unwrap_or(0), Piece::Chunk { victim, region, slot }));
            }
        }
    }
}

/// The chunks of it that stay beside what is `live`; `None`: nothing more does. Of a copy outside of the window it is not known whether
/// it is live: then this one stays.
///
/// # Errors
/// When copies cannot be asked for.
pub(super) fn with_contested(
    core: &Core,
    open: &OpenContainer,
    live: &SlotSet,
    map: &LiveMap,
) -> Result<Option<SlotSet>, EngineError> {
    let directory = open.directory();
    if !directory.is_sealed() || live.is_full() {
        return Ok(None);
    }
    let domain = core.store.domain(open.namespace());
    let mut stays = live.clone();
    let mut first = 0u32;
    for (region, (record, _)) in (0u16..).zip(directory.regions_with_ends()) {
        let mut numbers = first..first + u32::from(record.chunk_count);
        first = numbers.end;
        // (N4)
        let is_live = numbers.clone().any(|number| live.contains(number));
        if !is_live && is_contested(core, (open, region), &domain, map)? {
            numbers.all(|number| stays.insert(number));
        }
    }
    Ok((stays.live() > live.live()).then_some(stays))
}

fn is_contested(
    core: &Core,
    (open, region): (&OpenContainer, u16),
    domain: &Domain,
    map: &LiveMap,
) -> Result<bool, EngineError> {
    let names = open.directory().region_chunks(region).map_or(&[][..], |(names, _)| names);
    let mut own: Option<Bytes> = None;
    for name in names {
        for copy in core.store.copies(domain, name)? {
            let (id, of) = (copy.location.container, copy.location.region);
            if (id, of) == (open.id(), region) || !is_needed(map, &copy) {
                continue;
            }
            let payload = match own.take().map_or_else(|| read(open, region), |own| Ok(Some(own))) {
                Ok(Some(payload)) => own.insert(payload),
                // Nothing of it is left to stay.
                Ok(None) => return Ok(false),
                Err(error) => {
                    tracing::warn!(%error, "a container stays: it cannot be compared with another copy now");
                    return Ok(true);
                }
            };
            if !core.store.has_payload(&copy, payload) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// `None`: it is not what was written. What only cannot be read may be read again.
fn read(open: &OpenContainer, region: u16) -> Result<Option<Bytes>, ContainerError> {
    match open.read_region(region) {
        Ok(stored) => Ok(Some(stored.payload)),
        Err(error @ ContainerError::Unreadable { .. }) => Err(error),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_needed(map: &LiveMap, copy: &Found) -> bool {
    let number = copy.container.directory().number_of(copy.location.region, copy.location.slot);
    let Some(live) = map.get(copy.location.container) else { return true };
    number.is_some_and(|number| live.contains(number))
}

/// The namespaces that roots need something of whose agents seal what they send.
///
/// # Errors
/// The catalog's.
pub(super) fn sealed_namespaces(core: &Core, roots: &Roots) -> Result<BTreeSet<NamespaceId>, EngineError> {
    let all: BTreeSet<NamespaceId> = roots.iter().map(|root| root.namespace).collect();
    let mut sealed = BTreeSet::new();
    for id in all {
        let record = core.catalog.namespace(id)?;
        sealed.extend(record.filter(|record| record.key_id.is_some()).map(|record| record.id));
    }
    Ok(sealed)
}

/// Victims copied together at most: each has its directory in memory (168 KiB of a full one) and a file open.
const BATCH_CONTAINERS: usize = 128;

/// Live chunks copied together at most: 48 bytes each to find them in recipes, with what the plan takes 64 MiB in all.
const BATCH_CHUNKS: u64 = 1 << 20;

/// References followed for each chunk that is copied, when an order is looked for. To copy a chunk takes some 50 µs, to
/// follow a reference a tenth of one: looking takes no longer than half of the copying.
const REFERENCES_PER_CHUNK: u64 = 256;

/// Minimum number of references followed.
const REFERENCES_MIN: u64 = 1 << 20;

/// A container that a round has chosen to empty.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    pub(crate) id: ContainerId,
    pub(crate) class: ContainerClass,
    pub(crate) namespace: NamespaceId,
    /// VM whose disk was written to it, when that is known.
    pub(crate) vm: Option<VmId>,
    pub(crate) live: SlotSet,
}

/// Victims that are copied together: of one namespace and class, and where that is known of one VM.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) chosen: Vec<Chosen>,
}

/// Groups the chosen containers. Within a group, containers that were written one after the other stay together.
pub(crate) fn batches(mut chosen: Vec<Chosen>) -> Vec<Batch> {
    let group = |one: &Chosen| (one.namespace, one.class == ContainerClass::Recipe, one.vm);
    chosen.sort_by_key(|one| (group(one), one.id));
    let mut batches: Vec<Batch> = Vec::new();
    let mut chunks = 0;
    for one in chosen {
        let live = u64::from(one.live.live());
        match batches.last_mut() {
            Some(Batch { chosen })
                if chosen.last().is_some_and(|last| group(last) == group(&one))
                    && chosen.len() < BATCH_CONTAINERS
                    && chunks + live <= BATCH_CHUNKS =>
            {
                chunks += live;
                chosen.push(one);
            }
            _ => {
                chunks = live;
                batches.push(Batch { chosen: vec![one] });
            }
        }
    }
    batches
}

impl Batch {
    /// Opens its containers. One that is damaged is noted and left out.
    ///
    /// # Errors
    /// Errors that tell nothing of a container's soundness.
    pub(crate) fn open(&self, core: &Core) -> Result<Vec<Victim>, EngineError> {
        let mut victims = Vec::with_capacity(self.chosen.len());
        for one in &self.chosen {
            match core.store.containers.get(one.id, one.class) {
                Ok(container) => victims.push(Victim { container, live: one.live.clone() }),
                Err(error) if error.is_damage() => core.store.note_failure(one.id, None, &error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(victims)
    }

    /// Order in which the newest of these restore points read the victims; `None` where there is no use in it. `roots`
    /// has those of a disk one after the other, the oldest first.
    ///
    /// # Errors
    /// [`EngineError::Stopped`]; the index's. What is damaged only shortens the order.
    pub(crate) fn read_order<'a>(
        &self,
        core: &Core,
        victims: &[Victim],
        roots: impl Iterator<Item = &'a Root>,
        control: &Control,
    ) -> Result<Option<ReadOrder>, EngineError> {
        let Some(first) = self.chosen.first().filter(|one| one.class == ContainerClass::Data) else {
            return Ok(None);
        };
        let concerned =
            |root: &&Root| root.namespace == first.namespace && first.vm.is_none_or(|vm| vm == root.vm);
        let mut newest: Vec<&Root> = Vec::new();
        for root in roots.filter(concerned) {
            match newest.last_mut() {
                Some(last) if (last.vm, &last.disk) == (root.vm, &root.disk) => *last = root,
                _ => newest.push(root),
            }
        }
        let mut walk = Walk::new(core, victims);
        let mut pacer = control.pacer();
        for root in newest {
            match walk.follow(root, &mut pacer) {
                Ok(true) => {}
                Ok(false) => break,
                Err(EngineError::Damaged(_) | EngineError::Unsupported(_)) => {}
                Err(error) => return Err(error),
            }
        }
        control.add_references(walk.followed);
        Ok((walk.order.len() > 0).then_some(walk.order))
    }
}

/// Place of a live chunk: victim and number.
type Places = HashMap<Fingerprint, (u32, u32), BuildHasherDefault<FingerprintHasher>>;

struct Walk<'a> {
    core: &'a Core,
    places: Places,
    order: ReadOrder,
    followed: u64,
    may_follow: u64,
}

impl<'a> Walk<'a> {
    fn new(core: &'a Core, victims: &[Victim]) -> Self {
        let live: u64 = victims.iter().map(|victim| u64::from(victim.live.live())).sum();
        let mut places = Places::default();
        for (victim, of) in (0u32..).zip(victims) {
            for (number, (fingerprint, _, _)) in (0u32..).zip(of.container.directory().iter()) {
                if of.live.contains(number) {
                    places.insert(fingerprint, (victim, number));
                }
            }
        }
        let may_follow = REFERENCES_MIN.max(live.saturating_mul(REFERENCES_PER_CHUNK));
        Self { core, places, order: ReadOrder::new(victims), followed: 0, may_follow }
    }

    /// Follows a recipe from the disk's start; `false`: it is not worth going on.
    fn follow(&mut self, root: &Root, pacer: &mut Pacer<'_>) -> Result<bool, EngineError> {
        let store = &self.core.store;
        let source = NodeReader::new(Arc::clone(store), store.domain(root.namespace));
        let tree = TreeReader::open(source, root.fingerprint, root.size_bytes)?;
        let mut index = tree.zero_until(0);
        while index < tree.extent_count() {
            if let Some(extent) = tree.extent(index)? {
                for piece in extent.pieces() {
                    if let Some(&(victim, number)) = self.places.get(&piece.fingerprint) {
                        self.order.reads(victim as usize, number);
                    }
                }
                self.followed += extent.pieces().len() as u64;
            }
            pacer.charge(0, 0)?;
            let all_found = self.order.len() as usize == self.places.len();
            if all_found || self.followed >= self.may_follow {
                return Ok(false);
            }
            index = tree.zero_until(index + 1);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
