//! Which victims are copied together, and in which order their chunks are written.
//!
//! What is written anew is written in the order in which restores of the newest restore points read it: disk by disk,
//! each chunk where it is read first. So the small containers of many days, each of which has a little of every part of
//! its disk, become regions that one read brings whole; and what only older restore points need is behind them,
//! together, so that it goes together when these go. That order is worth something, never necessary: what cannot be
//! walked, or would take too long, stays in the order in which it was written.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, VmId};

use super::control::{Control, Pacer};
use super::live::SlotSet;
use super::plan::{ReadOrder, Victim};
use super::roots::Root;
use crate::core::Core;
use crate::error::EngineError;
use crate::recipe::TreeReader;
use crate::store::NodeReader;

/// Victims copied together at most: each has its directory in memory (168 KiB of a full one) and a file open.
const BATCH_CONTAINERS: usize = 128;

/// Live chunks copied together at most: 48 bytes each to find them in recipes, with what the plan takes 64 MiB in all.
const BATCH_CHUNKS: u64 = 1 << 20;

/// References followed for each chunk that is copied, when an order is looked for. To copy a chunk takes some 50 µs, to
/// follow a reference a tenth of one: looking takes no longer than half of the copying.
const REFERENCES_PER_CHUNK: u64 = 256;

/// And at least.
const REFERENCES_MIN: u64 = 1 << 20;

/// A container that a round has chosen to empty.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    pub(crate) id: ContainerId,
    pub(crate) class: ContainerClass,
    pub(crate) namespace: NamespaceId,
    /// Whose disk was written to it, when that is known.
    pub(crate) vm: Option<VmId>,
    pub(crate) live: SlotSet,
}

/// Victims that are copied together: of one namespace and class, and where that is known of one VM.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) chosen: Vec<Chosen>,
}

/// Groups what was chosen. Within a group, containers that were written one after the other stay together.
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
    /// What says nothing of a container.
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

    /// In which order the newest of these restore points read the victims; `None` where there is no use in it. `roots`
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

/// Fingerprints are hashes already.
#[derive(Debug, Default)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    fn write_usize(&mut self, _: usize) {}
}

/// Where a live chunk is: victim and number.
type Places = HashMap<Fingerprint, (u32, u32), BuildHasherDefault<FirstBytes>>;

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
