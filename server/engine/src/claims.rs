//! Chunks on their way: a table of claims for each namespace.
//!
//! A stream that is told to send a chunk *claims* it. Others that ask for the chunk are told that it is pending, do not
//! send it, and name it with a promise. A claim lives from the question until the chunk is indexed: first the chunk is
//! *asked*, then it has *arrived*, which means verified (W1) and written to a container that is not sealed yet.
//!
//! (C1) The table says only whether to wait. That a chunk is there, nothing but a look-up in the index says, with a hold
//! on what is found: so an entry that is wrong costs a wait or a second copy, never data.
//!
//! (C3) An arrived claim lives exactly as long as the value that writes and seals its container ([`Arrivals`]): it is
//! gone after the container is indexed, after its seal failed or panicked, and after it was discarded. An asked claim
//! ends with its stream, however that ends.
//!
//! [`ClaimTable`] decides, [`StreamClaims`] is one stream's part of it, [`Arrivals`] is one container's.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::AGAIN_CHUNKS_MAX;
use holdfast_types::ids::{ContainerId, NamespaceId};
use parking_lot::{Condvar, Mutex};

/// The tables of all namespaces; one that no stream uses is dropped.
#[derive(Debug, Default)]
pub(crate) struct ClaimTables(Mutex<HashMap<NamespaceId, Weak<ClaimTable>>>);

impl ClaimTables {
    /// (A6) Enters a stream into the table of its namespace; `output` seals what the stream writes.
    pub(crate) fn enter(&self, namespace: NamespaceId, output: Weak<dyn Output>) -> Arc<StreamClaims> {
        let mut tables = self.0.lock();
        tables.retain(|_, table| table.strong_count() > 0);
        let known = tables.get(&namespace).and_then(Weak::upgrade);
        let table = known.unwrap_or_else(|| {
            let table = Arc::new(ClaimTable::default());
            tables.insert(namespace, Arc::downgrade(&table));
            table
        });
        drop(tables);
        Arc::new(StreamClaims::new(table, output))
    }

    /// Claims of all namespaces.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().values().filter_map(Weak::upgrade).map(|table| table.count().0).sum()
    }

    /// Claims of all namespaces that have arrived.
    #[cfg(test)]
    pub(crate) fn arrived(&self) -> usize {
        self.0.lock().values().filter_map(Weak::upgrade).map(|table| table.count().1).sum()
    }
}

/// (C3) Belongs to whatever writes and seals the container. Dropping it ends the claims: after the chunks are indexed,
/// or when they never will be.
#[derive(Debug)]
pub(crate) struct Arrivals {
    table: Arc<ClaimTable>,
    stream: u64,
    container: ContainerId,
    entered: Vec<Fingerprint>,
}

impl Arrivals {
    const fn new(table: Arc<ClaimTable>, stream: u64, container: ContainerId) -> Self {
        Self { table, stream, container, entered: Vec::new() }
    }

    /// A region with these chunks was written to the container.
    pub(crate) fn add(&mut self, fingerprints: &[Fingerprint]) {
        self.entered.extend(self.table.arrived(self.stream, self.container, fingerprints));
    }

    /// Returns true if another stream counts on one of them.
    pub(crate) fn are_awaited(&self) -> bool {
        self.table.is_awaited(self.stream, self.container, &self.entered)
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.table.conclude(self.stream, self.container, &self.entered);
    }
}

/// Memory a claim takes, about: in the table, and among what is asked or has arrived.
const CLAIM_BYTES: usize = 160;

/// One stream's claims. Dropping it ends its claims, but for those that wait for their seal.
#[derive(Debug)]
pub(crate) struct StreamClaims {
    table: Arc<ClaimTable>,
    number: u64,
    /// The version of the table that a wait looked at, and one; 0: it waits for nothing.
    waits_since: AtomicU64,
}

impl StreamClaims {
    fn new(table: Arc<ClaimTable>, output: Weak<dyn Output>) -> Self {
        let number = table.enter(output);
        Self { table, number, waits_since: AtomicU64::new(0) }
    }

    /// Number of containers concluded; to be read before look-ups of chunks that [`StreamClaims::ask`] is asked about.
    pub(crate) fn concluded(&self) -> u64 {
        self.table.concluded()
    }

    /// Answers for the agent about chunks that were not found; and whether to look again for those it claims now.
    /// `concluded`: see there.
    pub(crate) fn ask(
        &self,
        missing: &[Fingerprint],
        takes_pending: bool,
        (now_ms, concluded): (i64, u64),
    ) -> (Vec<Asked>, bool) {
        self.table.ask(self.number, missing, takes_pending, (now_ms, concluded))
    }

    /// Takes claims back that have not arrived.
    pub(crate) fn withdraw(&self, fingerprints: &[Fingerprint]) {
        self.table.withdraw(self.number, fingerprints);
    }

    /// State of promised chunks, for a stream that goes on.
    pub(crate) fn standing(&self, promised: &[Fingerprint]) -> Standing {
        self.table.standing(self.number, promised)
    }

    /// Ends the claims that have not arrived: the agent is not going to send them, or is gone.
    pub(crate) fn forget_asked(&self) {
        self.table.forget_asked(self.number);
    }

    /// Decides on promised chunks of a stream that finishes since `since_ms`.
    pub(crate) fn outlook(&self, promised: &[Fingerprint], since_ms: i64, now_ms: i64) -> Outlook {
        let outlook = self.table.outlook(self.number, promised, (since_ms, now_ms));
        let waits = outlook.awaited > 0;
        self.waits_since.store(if waits { outlook.version + 1 } else { 0 }, Ordering::Release);
        outlook
    }

    /// Ends the stream's wait.
    pub(crate) fn stop_waiting(&self) {
        self.waits_since.store(0, Ordering::Release);
    }

    /// Waits until what the last outlook saw has changed, up to `timeout`. `false`, at once: it waits for nothing.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let Some(version) = self.waits_since.load(Ordering::Acquire).checked_sub(1) else { return false };
        self.table.wait(version, timeout);
        true
    }

    /// The part of a container that the stream begins.
    pub(crate) fn arrivals(&self, container: ContainerId) -> Arrivals {
        Arrivals::new(Arc::clone(&self.table), self.number, container)
    }

    /// Memory its claims take, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.table.count_of(self.number) * CLAIM_BYTES) as u64
    }
}

impl Drop for StreamClaims {
    fn drop(&mut self) {
        self.table.leave(self.number);
    }
}

/// (C4) How long a chunk that was asked of a stream is waited for, and how long a stream that finishes waits for such
/// chunks in all. An agent asks a few seconds ahead of what it sends.
pub(crate) const WAITED_FOR_MS: i64 = 60_000;

/// Chunks asked of one stream that have not arrived, at most: 256 MiB ahead of what is sent. What is asked beyond is
/// not entered, so others may be told to send it as well.
pub(crate) const ASKED_MAX: usize = 1 << 14;

/// Output of a stream's containers. Sealing one takes no lock of its stream.
pub(crate) trait Output: fmt::Debug + Send + Sync {
    /// Begins to seal `container` if it is open still.
    fn seal(self: Arc<Self>, container: ContainerId);
}

/// The answer to a question for a chunk that the repository lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To be sent, and claimed by this question.
    Claimed,
    /// To be sent.
    Send,
    /// Another stream brings it.
    Pending,
}

/// Steps to be taken about promises.
#[derive(Debug, Default)]
pub(crate) struct Outlook {
    /// Chunks that no one brings: they are in the index by now or lost. The stream that asked claims them.
    pub(crate) unclaimed: Vec<Fingerprint>,
    /// Number of other chunks that are on their way.
    pub(crate) awaited: usize,
    /// Containers that hold them, to be sealed now.
    pub(crate) to_seal: Vec<(Arc<dyn Output>, ContainerId)>,
    /// Version of the table, to wait for the next change.
    version: u64,
}

/// State of promised chunks.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Chunks that no other stream brings: they are in the index by now, or lost.
    pub(crate) unclaimed: Vec<Fingerprint>,
    /// Containers in which half of the others have arrived, or as many as there are: as few as possible.
    pub(crate) fullest: Vec<(Arc<dyn Output>, ContainerId)>,
}

/// One namespace's table: who brings which chunk, and how long that is believed.
#[derive(Debug, Default)]
pub(crate) struct ClaimTable {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    chunks: HashMap<Fingerprint, Claim>,
    streams: HashMap<u64, Stream>,
    next_stream: u64,
    /// Counts what a stream that waits must look at.
    version: u64,
    /// Containers whose chunks left the table: what was looked up in the index before may be there now.
    concluded: u64,
}

#[derive(Debug)]
struct Claim {
    stream: u64,
    asked_ms: i64,
    /// Container that the chunk was written to, once it has arrived.
    container: Option<ContainerId>,
    /// True if another stream counts on it.
    awaited: bool,
}

#[derive(Debug)]
struct Stream {
    /// Chunks that it was asked for and that have not arrived.
    asked: HashSet<Fingerprint>,
    /// Number of these that another stream relies on.
    awaited: usize,
    arrived: usize,
    output: Weak<dyn Output>,
}

impl State {
    /// Takes the chunk out of what is asked of its stream.
    fn no_longer_asked(streams: &mut HashMap<u64, Stream>, fingerprint: &Fingerprint, claim: &Claim) {
        let Some(stream) = streams.get_mut(&claim.stream) else { return };
        if stream.asked.remove(fingerprint) && claim.awaited {
            stream.awaited = stream.awaited.saturating_sub(1);
        }
    }

    /// Enters the chunk as asked of `stream`, even if it is in the table. Streams that relied on it still do. Returns
    /// false if there was no room.
    fn claim(&mut self, fingerprint: Fingerprint, stream: u64, now_ms: i64) -> bool {
        let old = self.chunks.get(&fingerprint);
        let awaited = old.is_some_and(|old| old.awaited);
        if let Some(old) = old {
            Self::no_longer_asked(&mut self.streams, &fingerprint, old);
        }
        let room = self.streams.get_mut(&stream).filter(|stream| stream.asked.len() < ASKED_MAX);
        let Some(own) = room else {
            self.chunks.remove(&fingerprint);
            return false;
        };
        own.asked.insert(fingerprint);
        own.awaited += usize::from(awaited);
        let claim = Claim { stream, asked_ms: now_ms, container: None, awaited };
        self.chunks.insert(fingerprint, claim);
        true
    }

    fn answer(&mut self, stream: u64, fingerprint: &Fingerprint, takes_pending: bool, now_ms: i64) -> Asked {
        match self.chunks.get_mut(fingerprint) {
            Some(claim) if claim.stream == stream => return Asked::Send,
            // (C4)
            Some(claim) if claim.is_believed(now_ms, now_ms) => {
                if !takes_pending {
                    return Asked::Send;
                }
                Self::await_claim(&mut self.streams, claim);
                return Asked::Pending;
            }
            _ => {}
        }
        if self.claim(*fingerprint, stream, now_ms) { Asked::Claimed } else { Asked::Send }
    }

    /// Takes note that another stream counts on a claim.
    fn await_claim(streams: &mut HashMap<u64, Stream>, claim: &mut Claim) {
        if !std::mem::replace(&mut claim.awaited, true)
            && claim.container.is_none()
            && let Some(stream) = streams.get_mut(&claim.stream)
        {
            stream.awaited += 1;
        }
    }
}

impl ClaimTable {
    /// All claims, and those of them that have arrived.
    #[cfg(test)]
    fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        let arrived = state.chunks.values().filter(|claim| claim.container.is_some()).count();
        (state.chunks.len(), arrived)
    }

    fn enter(&self, output: Weak<dyn Output>) -> u64 {
        let mut state = self.state.lock();
        let number = state.next_stream;
        state.next_stream += 1;
        let stream = Stream { asked: HashSet::new(), awaited: 0, arrived: 0, output };
        state.streams.insert(number, stream);
        number
    }

    fn leave(&self, stream: u64) {
        self.forget_asked(stream);
        self.state.lock().streams.remove(&stream);
    }

    /// Counts containers that left the table.
    fn concluded(&self) -> u64 {
        self.state.lock().concluded
    }

    /// Answers for `stream` about chunks that it did not find in the index since [`concluded`](ClaimTable::concluded)
    /// was asked; and whether it must look again for those it claimed, because others may have been indexed meanwhile.
    fn ask(
        &self,
        stream: u64,
        missing: &[Fingerprint],
        takes_pending: bool,
        (now_ms, concluded): (i64, u64),
    ) -> (Vec<Asked>, bool) {
        let mut state = self.state.lock();
        let mut answers = Vec::with_capacity(missing.len());
        for fingerprint in missing {
            answers.push(state.answer(stream, fingerprint, takes_pending, now_ms));
        }
        (answers, state.concluded != concluded)
    }

    /// Takes asked claims back; the chunks were found after all.
    fn withdraw(&self, stream: u64, fingerprints: &[Fingerprint]) {
        let mut state = self.state.lock();
        let mut was_awaited = false;
        for fingerprint in fingerprints {
            let State { chunks, streams, .. } = &mut *state;
            if let Entry::Occupied(entry) = chunks.entry(*fingerprint)
                && entry.get().stream == stream
                && entry.get().container.is_none()
            {
                let claim = entry.remove();
                State::no_longer_asked(streams, fingerprint, &claim);
                was_awaited |= claim.awaited;
            }
        }
        // Once for all of them: each stream that waits looks at everything it waits for.
        if was_awaited {
            self.note_change(&mut state);
        }
    }

    /// Ends all claims of a stream that have not arrived.
    fn forget_asked(&self, stream: u64) {
        let mut state = self.state.lock();
        let State { chunks, streams, .. } = &mut *state;
        let Some(own) = streams.get_mut(&stream) else { return };
        own.awaited = 0;
        let asked = std::mem::take(&mut own.asked);
        for fingerprint in &asked {
            chunks.remove(fingerprint);
        }
        if !asked.is_empty() {
            self.note_change(&mut state);
        }
    }

    /// Decides on promised chunks, for a stream that finishes since `since_ms`.
    fn outlook(&self, stream: u64, promised: &[Fingerprint], (since_ms, now_ms): (i64, i64)) -> Outlook {
        let mut state = self.state.lock();
        let mut outlook = Outlook { version: state.version, ..Outlook::default() };
        let mut arrived = HashSet::new();
        let mut behind = HashSet::new();
        for fingerprint in promised {
            let State { chunks, streams, .. } = &mut *state;
            match chunks.get_mut(fingerprint) {
                Some(claim) if claim.stream == stream && claim.container.is_none() => {
                    outlook.unclaimed.push(*fingerprint);
                }
                Some(claim) if claim.is_believed(since_ms, now_ms) => {
                    State::await_claim(streams, claim);
                    outlook.awaited += 1;
                    match claim.container {
                        Some(container) => arrived.insert((claim.stream, container)),
                        None => behind.insert(claim.stream),
                    };
                }
                // (C2, C4) Broken, unless the index has it: this stream brings it.
                _ if outlook.unclaimed.len() < AGAIN_CHUNKS_MAX => {
                    state.claim(*fingerprint, stream, now_ms);
                    outlook.unclaimed.push(*fingerprint);
                }
                _ => {}
            }
        }
        // (C5) One seal for all that is awaited of a stream: containers must not get small.
        for (other, container) in arrived.into_iter().filter(|(other, _)| !behind.contains(other)) {
            let output = state.streams.get(&other).and_then(|stream| stream.output.upgrade());
            outlook.to_seal.extend(output.map(|output| (output, container)));
        }
        outlook
    }

    /// State of promised chunks, for `stream`, which goes on: it waits for none of them and claims none.
    fn standing(&self, stream: u64, promised: &[Fingerprint]) -> Standing {
        let state = self.state.lock();
        let mut standing = Standing::default();
        let mut arrived: HashMap<(u64, ContainerId), usize> = HashMap::new();
        let mut claimed = 0_usize;
        for fingerprint in promised {
            match state.chunks.get(fingerprint).filter(|claim| claim.stream != stream) {
                Some(claim) => {
                    claimed += 1;
                    if let Some(container) = claim.container {
                        *arrived.entry((claim.stream, container)).or_default() += 1;
                    }
                }
                None => standing.unclaimed.push(*fingerprint),
            }
        }
        let mut containers: Vec<_> = arrived.into_iter().collect();
        containers.sort_unstable_by_key(|(place, count)| (Reverse(*count), *place));
        let mut left = claimed / 2;
        for ((other, container), count) in containers {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(count);
            let output = state.streams.get(&other).and_then(|stream| stream.output.upgrade());
            standing.fullest.extend(output.map(|output| (output, container)));
        }
        standing
    }

    /// Waits until something changed since `version`, up to `timeout`.
    fn wait(&self, version: u64, timeout: Duration) {
        let mut state = self.state.lock();
        if state.version == version {
            let _ = self.changed.wait_for(&mut state, timeout);
        }
    }

    /// Chunks asked of a stream, and those in its containers that are not indexed yet.
    fn count_of(&self, stream: u64) -> usize {
        self.state.lock().streams.get(&stream).map_or(0, |stream| stream.asked.len() + stream.arrived)
    }

    /// A region was written to `container`; returns the chunks of it that are entered.
    fn arrived(&self, stream: u64, container: ContainerId, fingerprints: &[Fingerprint]) -> Vec<Fingerprint> {
        let mut state = self.state.lock();
        let State { chunks, streams, .. } = &mut *state;
        let was_awaited = streams.get(&stream).is_some_and(|stream| stream.awaited > 0);
        let mut entered = Vec::with_capacity(fingerprints.len());
        for fingerprint in fingerprints {
            let awaited = match chunks.get(fingerprint) {
                Some(claim) if claim.container.is_some() => continue,
                Some(claim) => {
                    State::no_longer_asked(streams, fingerprint, claim);
                    claim.awaited
                }
                None => false,
            };
            let claim = Claim { stream, asked_ms: 0, container: Some(container), awaited };
            chunks.insert(*fingerprint, claim);
            entered.push(*fingerprint);
        }
        let Some(own) = streams.get_mut(&stream) else { return entered };
        own.arrived += entered.len();
        if was_awaited && own.awaited == 0 {
            self.note_change(&mut state);
        }
        entered
    }

    /// The container's chunks are indexed, or will never be.
    fn conclude(&self, stream: u64, container: ContainerId, entered: &[Fingerprint]) {
        let mut state = self.state.lock();
        let State { chunks, streams, .. } = &mut *state;
        for fingerprint in entered {
            if chunks.get(fingerprint).is_some_and(|claim| claim.is_in(stream, container)) {
                chunks.remove(fingerprint);
            }
        }
        if let Some(own) = streams.get_mut(&stream) {
            own.arrived = own.arrived.saturating_sub(entered.len());
        }
        state.concluded += 1;
        self.note_change(&mut state);
    }

    /// Returns true if another stream counts on one of these chunks.
    fn is_awaited(&self, stream: u64, container: ContainerId, entered: &[Fingerprint]) -> bool {
        let state = self.state.lock();
        let mut claims = entered.iter().filter_map(|fingerprint| state.chunks.get(fingerprint));
        claims.any(|claim| claim.is_in(stream, container) && claim.awaited)
    }

    fn note_change(&self, state: &mut State) {
        state.version += 1;
        self.changed.notify_all();
    }
}

impl Claim {
    /// Returns true if it is waited for, by a stream that waits since `since_ms`. What has arrived always is: its container is
    /// sealed, or discarded, and either ends the claim.
    fn is_believed(&self, since_ms: i64, now_ms: i64) -> bool {
        let is_late = |since: i64| now_ms.saturating_sub(since) >= WAITED_FOR_MS;
        self.container.is_some() || !(is_late(self.asked_ms) || is_late(since_ms))
    }

    fn is_in(&self, stream: u64, container: ContainerId) -> bool {
        self.stream == stream && self.container == Some(container)
    }
}

#[cfg(test)]
mod tests;
