//! What sessions left that ended without a restore point, and who else counts on it.
//!
//! A chunk can be found by any session as soon as its container is sealed. So a container of a session that failed may
//! be needed by another: one that found a chunk in it was told not to send that chunk. Who finds something holds the
//! container first ([`Holds::hold`]); a container is given up for deletion ([`Leftovers::condemn`]) only when no
//! session in progress holds it and none did that became a restore point. Both happen under one lock, so a hold
//! comes before (and the container stays) or after (and the answer does not count: the chunk is sent again). (D1)
//!
//! It knows containers sealed since the process started. What earlier processes left is for reclaim, which walks all
//! recipes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_types::ids::{ContainerClass, ContainerId};
use parking_lot::Mutex;
use roaring::RoaringTreemap;

/// A container that no restore point refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) id: ContainerId,
    pub(crate) class: ContainerClass,
    pub(crate) stored_bytes: u64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Numbers below were handed out to earlier processes.
    first_own: AtomicU64,
    /// Whether any container is gone: what most look-ups ask.
    any_gone: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    left: BTreeMap<ContainerId, Leftover>,
    /// What streams of sessions in progress found, by the stream's number.
    holds: HashMap<u64, RoaringTreemap>,
    next_holds: u64,
    /// What streams found whose sessions became restore points.
    kept: RoaringTreemap,
    /// Condemned or deleted. Numbers are never used again, so it only grows: a bit or two each.
    gone: RoaringTreemap,
}

impl Leftovers {
    /// Says which numbers belong to this process.
    pub(crate) fn begin_at(&self, first_own: u64) {
        self.first_own.store(first_own, Ordering::Relaxed);
    }

    /// Whether an earlier process handed the number out.
    pub(super) fn is_older(&self, id: ContainerId) -> bool {
        id.get() < self.first_own.load(Ordering::Relaxed)
    }

    /// The holds of a new stream: none.
    pub(crate) fn holds(self: &Arc<Self>) -> Holds {
        let mut state = self.state.lock();
        let number = state.next_holds;
        state.next_holds += 1;
        state.holds.insert(number, RoaringTreemap::new());
        Holds { leftovers: Arc::clone(self), number, found_in: RoaringTreemap::new(), keep: true }
    }

    /// Takes note of the containers of a session that ended without a restore point. Nothing is written to them
    /// any more, and the catalog knows them.
    pub(crate) fn leave(&self, containers: impl IntoIterator<Item = Leftover>) {
        let mut state = self.state.lock();
        for container in containers {
            state.left.insert(container.id, container);
        }
    }

    /// (D1) Gives up every container that no one counts on; from now on nothing is found in them.
    pub(crate) fn condemn(&self) -> Vec<Leftover> {
        let mut state = self.state.lock();
        let State { left, holds, kept, gone, .. } = &mut *state;
        let is_held = |id: &ContainerId| {
            kept.contains(id.get()) || holds.values().any(|found_in| found_in.contains(id.get()))
        };
        let unused: Vec<Leftover> = left.values().filter(|one| !is_held(&one.id)).copied().collect();
        for one in &unused {
            left.remove(&one.id);
            gone.insert(one.id.get());
        }
        if !unused.is_empty() {
            self.any_gone.store(true, Ordering::Release);
        }
        unused
    }

    /// Takes [`Leftovers::condemn`] back: the catalog did not take it, so the containers stay, and count again.
    pub(crate) fn take_back(&self, condemned: &[Leftover]) {
        let mut state = self.state.lock();
        for one in condemned {
            state.gone.remove(one.id.get());
            state.left.insert(one.id, *one);
        }
    }

    /// As after [`Leftovers::condemn`], for a container whose deletion an earlier process began.
    pub(crate) fn note_gone(&self, id: ContainerId) {
        self.state.lock().gone.insert(id.get());
        self.any_gone.store(true, Ordering::Release);
    }

    /// Whether the container was given up.
    pub(crate) fn is_gone(&self, id: ContainerId) -> bool {
        self.any_gone.load(Ordering::Acquire) && self.state.lock().gone.contains(id.get())
    }
}

/// The containers in which one stream found what it need not store again.
#[derive(Debug)]
pub(crate) struct Holds {
    leftovers: Arc<Leftovers>,
    number: u64,
    /// As in [`State`], so that most look-ups take no lock.
    found_in: RoaringTreemap,
    keep: bool,
}

impl Holds {
    /// Counts on a container from now on. `false`: it was given up, and what was found in it does not count.
    pub(crate) fn hold(&mut self, id: ContainerId) -> bool {
        if self.found_in.contains(id.get()) {
            return true;
        }
        let mut state = self.leftovers.state.lock();
        if state.gone.contains(id.get()) {
            return false;
        }
        state.holds.entry(self.number).or_default().insert(id.get());
        self.found_in.insert(id.get());
        true
    }

    /// The containers held.
    pub(crate) const fn containers(&self) -> &RoaringTreemap {
        &self.found_in
    }

    /// The session ended without a restore point: it counts on nothing any more.
    pub(crate) fn release(&mut self) {
        self.keep = false;
        self.leftovers.state.lock().holds.remove(&self.number);
    }
}

impl Drop for Holds {
    /// What was not [released](Holds::release) is kept: it may have become a restore point.
    fn drop(&mut self) {
        let mut state = self.leftovers.state.lock();
        state.holds.remove(&self.number);
        if self.keep {
            state.kept |= &self.found_in;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ContainerId {
        ContainerId::new(number).unwrap()
    }

    fn left(number: u64) -> Leftover {
        Leftover { id: id(number), class: ContainerClass::Data, stored_bytes: 1 }
    }

    #[test]
    fn what_no_one_counts_on_is_given_up_once() {
        let leftovers = Arc::new(Leftovers::default());
        leftovers.leave([left(1), left(2)]);
        assert!(!leftovers.is_gone(id(1)));
        assert_eq!(leftovers.condemn(), [left(1), left(2)]);
        assert!(leftovers.is_gone(id(1)) && leftovers.is_gone(id(2)) && !leftovers.is_gone(id(3)));
        assert_eq!(leftovers.condemn(), []);
        assert!(!leftovers.holds().hold(id(1)), "found too late");
    }

    #[test]
    fn claims_of_live_sessions_and_of_restore_points_hold() {
        let leftovers = Arc::new(Leftovers::default());
        let (mut live, mut failed, mut committed) = (leftovers.holds(), leftovers.holds(), leftovers.holds());
        // Held before their session ended.
        assert!(live.hold(id(1)) && failed.hold(id(2)) && committed.hold(id(3)));
        leftovers.leave([left(1), left(2), left(3)]);
        drop(committed);
        assert_eq!(leftovers.condemn(), []);
        failed.release();
        drop(failed);
        assert_eq!(leftovers.condemn(), [left(2)]);
        live.release();
        assert_eq!(leftovers.condemn(), [left(1)]);
    }
}
