//! One namespace's table: who brings which chunk, and how long that is believed.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::AGAIN_CHUNKS_MAX;
use holdfast_types::ids::ContainerId;
use parking_lot::{Condvar, Mutex};

/// (C4) How long a chunk that was asked of a stream is waited for, and how long a stream that finishes waits for such
/// chunks in all. An agent asks a few seconds ahead of what it sends.
pub(crate) const WAITED_FOR_MS: i64 = 60_000;

/// Chunks asked of one stream that have not arrived, at most: 256 MiB ahead of what is sent. What is asked beyond is
/// not entered, so others may be told to send it as well.
pub(crate) const ASKED_MAX: usize = 1 << 14;

/// Where a stream's containers are written. Sealing one takes no lock of its stream.
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

/// What is to be done about promises.
#[derive(Debug, Default)]
pub(crate) struct Outlook {
    /// No one brings these: they are in the index by now or lost. The stream that asked claims them.
    pub(crate) unclaimed: Vec<Fingerprint>,
    /// How many others are on their way.
    pub(crate) awaited: usize,
    /// Containers that hold them, to be sealed now.
    pub(crate) to_seal: Vec<(Arc<dyn Output>, ContainerId)>,
    /// Of the table, to wait for the next change.
    pub(super) version: u64,
}

/// Where promised chunks are.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// No other stream brings these: they are in the index by now, or lost.
    pub(crate) unclaimed: Vec<Fingerprint>,
    /// Containers in which half of the others have arrived, or as many as there are: as few as possible.
    pub(crate) fullest: Vec<(Arc<dyn Output>, ContainerId)>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ClaimTable {
    pub(super) state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
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
    /// Where it was written, once it has arrived.
    container: Option<ContainerId>,
    /// Whether another stream counts on it.
    awaited: bool,
}

#[derive(Debug)]
struct Stream {
    /// What was asked of it and has not arrived.
    asked: HashSet<Fingerprint>,
    /// How many of these another stream counts on.
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

    /// Enters the chunk as asked of `stream`, whatever the table said; whether there was room. Who counted on it does so
    /// still.
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
    pub(super) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        let arrived = state.chunks.values().filter(|claim| claim.container.is_some()).count();
        (state.chunks.len(), arrived)
    }

    pub(super) fn enter(&self, output: Weak<dyn Output>) -> u64 {
        let mut state = self.state.lock();
        let number = state.next_stream;
        state.next_stream += 1;
        let stream = Stream { asked: HashSet::new(), awaited: 0, arrived: 0, output };
        state.streams.insert(number, stream);
        number
    }

    pub(super) fn leave(&self, stream: u64) {
        self.forget_asked(stream);
        self.state.lock().streams.remove(&stream);
    }

    /// Counts containers that left the table.
    pub(super) fn concluded(&self) -> u64 {
        self.state.lock().concluded
    }

    /// What `stream` is told of chunks that it did not find in the index since [`concluded`](ClaimTable::concluded)
    /// was asked; and whether it must look again for those it claimed, because others may have been indexed meanwhile.
    pub(super) fn ask(
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
    pub(super) fn withdraw(&self, stream: u64, fingerprints: &[Fingerprint]) {
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
    pub(super) fn forget_asked(&self, stream: u64) {
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

    /// What to do about promised chunks, for a stream that finishes since `since_ms`.
    pub(super) fn outlook(
        &self,
        stream: u64,
        promised: &[Fingerprint],
        (since_ms, now_ms): (i64, i64),
    ) -> Outlook {
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

    /// Where promised chunks are, for `stream`, which goes on: it waits for none of them and claims none.
    pub(super) fn standing(&self, stream: u64, promised: &[Fingerprint]) -> Standing {
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
    pub(super) fn wait(&self, version: u64, timeout: Duration) {
        let mut state = self.state.lock();
        if state.version == version {
            let _ = self.changed.wait_for(&mut state, timeout);
        }
    }

    /// Chunks asked of a stream, and those in its containers that are not indexed yet.
    pub(super) fn count_of(&self, stream: u64) -> usize {
        self.state.lock().streams.get(&stream).map_or(0, |stream| stream.asked.len() + stream.arrived)
    }

    /// A region was written to `container`; returns the chunks of it that are entered.
    pub(super) fn arrived(
        &self,
        stream: u64,
        container: ContainerId,
        fingerprints: &[Fingerprint],
    ) -> Vec<Fingerprint> {
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
    pub(super) fn conclude(&self, stream: u64, container: ContainerId, entered: &[Fingerprint]) {
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

    /// Whether another stream counts on one of these chunks.
    pub(super) fn is_awaited(&self, stream: u64, container: ContainerId, entered: &[Fingerprint]) -> bool {
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
    /// Whether it is waited for, by a stream that waits since `since_ms`. What has arrived always is: its container is
    /// sealed, or discarded, and either ends the claim.
    fn is_believed(&self, since_ms: i64, now_ms: i64) -> bool {
        let is_late = |since: i64| now_ms.saturating_sub(since) >= WAITED_FOR_MS;
        self.container.is_some() || !(is_late(self.asked_ms) || is_late(since_ms))
    }

    fn is_in(&self, stream: u64, container: ContainerId) -> bool {
        self.stream == stream && self.container == Some(container)
    }
}
