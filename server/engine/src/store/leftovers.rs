//! Deletion of containers, and the holds that prevent it: of streams, and of sessions that ended without a restore
//! point.
//!
//! A chunk can be found by any session as soon as its container is sealed; one that found it was told not to send it. So
//! a stream that finds a chunk holds it first ([`Holds::hold`]): it enters the chunk into its own set and only then looks
//! whether the container [is refused](super::gone). A caller that condemns a container refuses it first and only then
//! reads every holder's set. Whatever the order, either the holder learns that its chunk does not count, or the container stays. (D1)
//!
//! Containers that failed sessions left are deleted when space is short, if no one found anything in them; only
//! containers sealed since the process started, and since the last round of reclaim, are known here. All others are
//! left to reclaim, which walks all recipes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_types::ids::{ContainerClass, ContainerId};
use parking_lot::Mutex;
use roaring::RoaringTreemap;

use super::chunk_set::ChunkSet;
use super::gone::Gone;

/// A container that no restore point refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) id: ContainerId,
    pub(crate) class: ContainerClass,
    pub(crate) stored_bytes: u64,
}

/// Chunks that one stream found; read when a container is condemned.
pub(super) type Held = Arc<Mutex<ChunkSet>>;

/// Holders of chunks, containers that failed sessions left, and containers being deleted.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Numbers below were handed out to earlier processes.
    first_own: AtomicU64,
    gone: Gone,
    /// Rounds that are moving containers to an archive.
    freezing: AtomicU64,
    /// Before a holder's set, which is before `gone`.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    left: BTreeMap<ContainerId, Leftover>,
    /// Chunks that streams of sessions in progress found, by the stream's number.
    holders: HashMap<u64, Held>,
    next_holder: u64,
    /// Containers in which streams found something whose sessions became restore points.
    kept: RoaringTreemap,
    /// While a round of reclaim is in progress: what streams found whose sessions may have become restore points since
    /// it began, which the round does not know.
    since_round: Option<ChunkSet>,
    /// Containers below are reclaim's, no matter which session left them: a round may have counted on a copy in them.
    reclaims_below: u64,
}

impl State {
    /// Returns true if each chunk of the container that anyone relies on is `spare`: found elsewhere, too.
    fn is_free(&self, id: ContainerId, spare: impl Fn(u32) -> bool) -> bool {
        self.holders.values().all(|held| held.lock().all_of(id, &spare))
            && self.since_round.as_ref().is_none_or(|found| found.all_of(id, &spare))
    }
}

impl Leftovers {
    /// Says which numbers belong to this process.
    pub(crate) fn begin_at(&self, first_own: u64) {
        self.first_own.store(first_own, Ordering::Relaxed);
    }

    /// Returns true if an earlier process handed the number out.
    pub(super) fn is_older(&self, id: ContainerId) -> bool {
        id.get() < self.first_own.load(Ordering::Relaxed)
    }

    /// The holds of a new stream: none.
    pub(crate) fn holds(self: &Arc<Self>) -> Holds {
        let mut state = self.state.lock();
        let number = state.next_holder;
        state.next_holder += 1;
        let chunks = Held::default();
        state.holders.insert(number, Arc::clone(&chunks));
        Holds { leftovers: Arc::clone(self), number, chunks, found_in: RoaringTreemap::new(), keep: true }
    }

    /// Takes note of the containers of a session that ended without a restore point. Nothing is written to them
    /// any more, and the catalog knows them.
    pub(crate) fn leave(&self, containers: impl IntoIterator<Item = Leftover>) {
        let mut state = self.state.lock();
        let below = state.reclaims_below;
        for container in containers.into_iter().filter(|one| one.id.get() >= below) {
            state.left.insert(container.id, container);
        }
    }

    /// (D1) Gives up every container that was left and that no one counts on: from now on no one may begin to. None while
    /// a round of reclaim is in progress, which may just have found a copy in one of them and none elsewhere.
    pub(crate) fn condemn(&self) -> Vec<Leftover> {
        let state = self.state.lock();
        if state.since_round.is_some() {
            return Vec::new();
        }
        let is_kept = |one: &&Leftover| state.kept.contains(one.id.get());
        let left = state.left.values().filter(|one| !is_kept(one));
        left.filter(|one| self.condemn_among(&state, one.id, |_| false)).copied().collect()
    }

    /// (D1) As [`Leftovers::condemn`] for any container, when each chunk of it that anyone counts on is `spare`. `false`:
    /// it stays, or goes already.
    pub(crate) fn condemn_one(&self, id: ContainerId, spare: impl Fn(u32) -> bool) -> bool {
        self.condemn_among(&self.state.lock(), id, spare)
    }

    /// (T10) Rounds that move containers to an archive say so before they list what is used: backups hold what they count on
    /// from then on, whatever their parents say.
    pub(crate) fn begin_freezing(&self) {
        self.freezing.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end_freezing(&self) {
        self.freezing.fetch_sub(1, Ordering::AcqRel);
    }

    /// (T10) As [`Leftovers::condemn_one`] of a container that is to lie in an archive: from now on no one begins to count on
    /// what is in it. `false`: someone does.
    pub(crate) fn freeze(&self, id: ContainerId) -> bool {
        let state = self.state.lock();
        if !state.is_free(id, |_| false) {
            return false;
        }
        self.gone.freeze(id);
        // As when it is condemned: a hold from before is seen now, and a later one sees that it is cold.
        let is_free = state.is_free(id, |_| false);
        if !is_free {
            self.gone.keep_warm(id);
        }
        is_free
    }

    /// Notes that the container is not in an archive after all.
    pub(crate) fn keep_warm(&self, id: ContainerId) {
        self.gone.keep_warm(id);
    }

    /// An earlier process moved it to an archive.
    pub(crate) fn note_cold(&self, id: ContainerId) {
        self.gone.freeze(id);
    }

    pub(crate) fn is_cold(&self, id: ContainerId) -> bool {
        self.gone.is_cold(id)
    }

    /// Returns true if one of these containers is cold, or will be before a backup that relies on it without looking is
    /// committed; `None`: any container.
    pub(crate) fn may_be_cold(&self, containers: Option<&RoaringTreemap>) -> bool {
        self.freezing.load(Ordering::Acquire) > 0
            || containers.map_or_else(|| self.gone.has_cold(), |containers| self.gone.has_cold_of(containers))
    }

    /// Returns true if [`Leftovers::condemn_one`] would succeed now.
    pub(crate) fn is_free(&self, id: ContainerId, spare: impl Fn(u32) -> bool) -> bool {
        self.state.lock().is_free(id, spare)
    }

    fn condemn_among(&self, state: &State, id: ContainerId, spare: impl Fn(u32) -> bool) -> bool {
        // Before anything is refused: a container that stays is mostly told so without anyone noticing.
        if !state.is_free(id, &spare) || !self.gone.refuse(id) {
            return false;
        }
        // After it is refused: a hold from before is seen now, and a later one sees that it is refused.
        let is_free = state.is_free(id, &spare);
        if !is_free {
            self.gone.take_back(id);
        }
        is_free
    }

    /// The chunks of a container that anyone counts on, and the sets of the streams that do. Of a container that is refused
    /// there will be no more.
    pub(super) fn held_in(&self, id: ContainerId) -> BTreeMap<u32, Vec<Held>> {
        let state = self.state.lock();
        let mut all: BTreeMap<u32, Vec<Held>> = BTreeMap::new();
        for held in state.holders.values() {
            for number in held.lock().of(id) {
                all.entry(number).or_default().push(Arc::clone(held));
            }
        }
        for number in state.since_round.iter().flat_map(|found| found.of(id)) {
            all.entry(number).or_default();
        }
        all
    }

    /// (D1) Each holder of one of these sets counts on chunk `number` of a container, too. `false`: the container goes.
    pub(super) fn hold_for(&self, holders: &[Held], id: ContainerId, number: u32) -> bool {
        let mut state = self.state.lock();
        // Also of those that have ended since, or will: restore points may come of them.
        state.kept.insert(id.get());
        if let Some(found) = &mut state.since_round {
            found.insert(id, number);
        }
        for held in holders {
            held.lock().insert(id, number);
        }
        // Entered before the look.
        !self.gone.is_refused(id)
    }

    /// As [`Leftovers::condemn_one`], even when a session counts on it: the caller [moves](super::ChunkStore::move_holds) the holds.
    /// `false`: someone else decides about it, or it is gone.
    pub(crate) fn condemn_unasked(&self, id: ContainerId) -> bool {
        self.gone.refuse(id)
    }

    /// The catalog did not take it: they stay, and count again.
    pub(crate) fn take_back(&self, condemned: &[Leftover]) {
        for one in condemned {
            self.gone.take_back(one.id);
        }
    }

    /// The catalog knows that it goes: from now on nothing is found in it.
    pub(crate) fn note_gone(&self, id: ContainerId) {
        self.gone.insert(id);
        self.state.lock().left.remove(&id);
    }

    /// Returns true if nothing is found in the container any more.
    pub(crate) fn is_gone(&self, id: ContainerId) -> bool {
        self.gone.contains(id)
    }

    /// Returns true if no one may begin to rely on the container: it is gone, or that is being decided.
    pub(crate) fn is_refused(&self, id: ContainerId) -> bool {
        self.gone.is_refused(id)
    }

    /// Returns true if one of these containers is gone.
    pub(crate) fn has_gone(&self, containers: &RoaringTreemap) -> bool {
        self.gone.has_any_of(containers)
    }

    /// Grows whenever another container is refused or gone, or counts again.
    pub(crate) fn changes(&self) -> u64 {
        self.gone.changes()
    }

    /// (G1) A round of reclaim begins: what is found from now on is kept until it ends, also of sessions that end before it
    /// does. `false`: there is one already.
    pub(crate) fn begin_round(&self) -> bool {
        let mut state = self.state.lock();
        let begins = state.since_round.is_none();
        state.since_round.get_or_insert_default();
        begins
    }

    /// The round has ended; it may have relied on a copy in any container numbered below `below`.
    pub(crate) fn end_round(&self, below: u64) {
        let mut state = self.state.lock();
        state.since_round = None;
        state.reclaims_below = state.reclaims_below.max(below);
        state.left.retain(|id, _| id.get() >= below);
    }
}

/// The chunks that one stream found and need not store again.
#[derive(Debug)]
pub(crate) struct Holds {
    leftovers: Arc<Leftovers>,
    number: u64,
    chunks: Held,
    /// The containers they are in.
    found_in: RoaringTreemap,
    keep: bool,
}

impl Holds {
    /// Counts on chunk `number` of a container from now on. `false`: the container goes, and what was found in it does
    /// not count.
    pub(crate) fn hold(&mut self, id: ContainerId, number: u32) -> bool {
        let mut chunks = self.chunks.lock();
        // (D1) Entered before the look; condemning refuses first and looks at the holds afterwards.
        let is_news = chunks.insert(id, number);
        if self.leftovers.gone.is_refused(id) {
            // The container of an earlier answer may yet stay.
            if is_news {
                chunks.remove(id, number);
            }
            return false;
        }
        drop(chunks);
        self.found_in.insert(id.get());
        true
    }

    /// Memory it takes, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.chunks.lock().memory_bytes()
    }

    /// The containers of what is held.
    pub(crate) const fn containers(&self) -> &RoaringTreemap {
        &self.found_in
    }

    /// The session ended without a restore point: it counts on nothing any more.
    pub(crate) fn release(&mut self) {
        self.keep = false;
        self.leftovers.state.lock().holders.remove(&self.number);
    }
}

impl Drop for Holds {
    /// Chunks that were not [released](Holds::release) are kept: they may be part of a restore point by now.
    fn drop(&mut self) {
        let mut state = self.leftovers.state.lock();
        state.holders.remove(&self.number);
        if self.keep {
            state.kept |= &self.found_in;
            if let Some(found) = &mut state.since_round {
                found.extend(&self.chunks.lock());
            }
        }
    }
}

#[cfg(test)]
mod tests;
