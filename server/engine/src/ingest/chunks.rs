//! The chunks one stream may refer to: its own, those it found in the repository, and those it was promised.

use std::collections::{HashMap, HashSet};

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, Location};
use roaring::RoaringTreemap;

use super::promises::{Promises, wrong_length};
use crate::container::{Directory, RecentDirectories};
use crate::error::EngineError;
use crate::store::{ChunkStore, Domain, Holds};

/// Chunks found in the repository that a stream remembers, so that naming them in an extent costs no second
/// look-up. 2¹⁷ entries of about 64 bytes are 8 MiB.
const FOUND_MAX: usize = 1 << 17;

/// Chunks sent but not yet named by an extent at most. An honest agent has a few hundred.
const UNNAMED_MAX: usize = 1 << 17;

/// Chunks that one stream may refer to: its own, those found in the repository, and those promised to it.
#[derive(Debug)]
pub(super) struct StreamChunks {
    domain: Domain,
    /// Chunks of this stream that are not in the index yet, with their lengths.
    own: HashMap<Fingerprint, u32>,
    /// Chunks of this stream that no extent has named yet: the first to name one pays for it.
    unnamed: HashMap<Fingerprint, u32>,
    found: HashMap<Fingerprint, FoundChunk>,
    recent: RecentDirectories,
    /// Containers in which chunks were found.
    holds: Holds,
    /// Chunks that extents name and that were not there when they did.
    promises: Promises,
    /// Set if the agent can be asked for chunks again, so that promises may be made to it.
    takes_pending: bool,
}

/// A chunk found in the repository.
#[derive(Debug, Clone, Copy)]
struct FoundChunk {
    location: Location,
    bytes: u32,
}

/// Availability of a chunk to the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Availability {
    /// The chunk is there, with this length.
    Here(u32),
    /// The repository lacks it.
    Missing,
    /// The chunk was there, and was found damaged while the stream was open.
    Lost,
}

/// Purpose of a look-up.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    /// A query: the chunk is sent if it is not found.
    Ask,
    /// An extent names it: it was sent, or found before.
    Name,
    /// It was received, and is stored unless it is there.
    Store,
}

impl StreamChunks {
    pub(super) fn new(domain: Domain, holds: Holds) -> Self {
        Self {
            domain,
            own: HashMap::new(),
            unnamed: HashMap::new(),
            found: HashMap::new(),
            recent: RecentDirectories::default(),
            holds,
            promises: Promises::default(),
            takes_pending: false,
        }
    }

    /// Notes that a new agent's stream sends from now on, and if it takes pending chunks. Chunks that were asked of an
    /// earlier one are asked once more.
    pub(super) fn reopened(&mut self, takes_pending: bool) {
        self.takes_pending = takes_pending;
        self.promises.forget_asked();
    }

    pub(super) const fn takes_pending(&self) -> bool {
        self.takes_pending
    }

    /// Takes note of the chunks of a region that the agent sent: each is in it once. Returns the number and bytes of those that were
    /// promised, which this stream has brought itself now.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when one is in the region twice, too many wait for an extent to name them, or one has another
    /// length than the extent that names it says.
    pub(super) fn sent(
        &mut self,
        fingerprints: &[Fingerprint],
        lengths: &[u32],
    ) -> Result<(u64, u64), EngineError> {
        if fingerprints.contains(&Fingerprint::ZERO) {
            return Err(EngineError::Invalid(
                "the region names a chunk with the fingerprint reserved for zeros".into(),
            ));
        }
        let mut names = HashSet::with_capacity(fingerprints.len());
        // (I5) Copies in one region serve no one, and each would be a place to look at, for all who ask for the chunk.
        if let Some(twice) = fingerprints.iter().find(|fingerprint| !names.insert(**fingerprint)) {
            let message = format!("the region has chunk {twice} twice; send each chunk once");
            return Err(EngineError::Invalid(message));
        }
        if self.unnamed.len() > UNNAMED_MAX {
            let message = format!("more than {UNNAMED_MAX} chunks were sent that no extent names");
            return Err(EngineError::Invalid(message));
        }
        let mut kept = (0, 0);
        for (fingerprint, &length) in fingerprints.iter().zip(lengths) {
            self.own.insert(*fingerprint, length);
            if self.promises.settle(fingerprint, length)? {
                kept = (kept.0 + 1, kept.1 + u64::from(length));
            } else {
                self.unnamed.insert(*fingerprint, length);
            }
        }
        Ok(kept)
    }

    /// Chunks of a sealed container are in the index now, and are looked up there.
    pub(super) fn sealed(&mut self, directory: &Directory) {
        for (fingerprint, _, _) in directory.iter() {
            self.own.remove(&fingerprint);
        }
    }

    /// Returns true if the agent need not send the chunk.
    pub(super) fn has(&mut self, store: &ChunkStore, fingerprint: &Fingerprint) -> Result<bool, EngineError> {
        Ok(matches!(self.look_up(store, fingerprint, Purpose::Ask)?, Availability::Here(_)))
    }

    /// (N5) Returns true if any of these chunks has a sound copy in a container that other streams can see.
    pub(super) fn has_any_stored(
        &mut self,
        store: &ChunkStore,
        fingerprints: &[Fingerprint],
    ) -> Result<bool, EngineError> {
        for fingerprint in fingerprints {
            // A chunk that is found only in a damaged page of the index is there (I4).
            let found = self.look_up_stored(store, fingerprint, Purpose::Store)?;
            if matches!(found, Availability::Here(_)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// (W4) Checks that extent `extent` may name the chunk with that length. Returns true if the chunk is new: brought
    /// by this stream, and named for the first time. (C2) If the agent can be asked again, a missing chunk is accepted
    /// with a promise, which must be kept before the stream is finished.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when the repository lacks the chunk or has it with another length,
    /// [`EngineError::FoundDamaged`] when it was there and is known to be damaged now.
    pub(super) fn name(
        &mut self,
        store: &ChunkStore,
        fingerprint: &Fingerprint,
        (bytes, extent): (u32, u64),
    ) -> Result<bool, EngineError> {
        if self.promises.check(fingerprint, bytes)? {
            return Ok(false);
        }
        let sent = self.unnamed.remove(fingerprint);
        let availability = match sent {
            // In a region of this stream, which was or will be verified and sealed before the stream ends.
            Some(length) if !store.has_open_damage(self.domain.namespace) => Availability::Here(length),
            // (A7) Its container may be sealed and found damaged already.
            Some(_) => match self.look_up(store, fingerprint, Purpose::Name)? {
                Availability::Missing => Availability::Lost,
                other => other,
            },
            None => self.look_up(store, fingerprint, Purpose::Name)?,
        };
        match availability {
            Availability::Here(length) if length == bytes => Ok(sent.is_some()),
            Availability::Here(length) => Err(wrong_length(fingerprint, length, bytes)),
            Availability::Missing | Availability::Lost if self.takes_pending => {
                self.promises.make(*fingerprint, bytes, extent)?;
                Ok(false)
            }
            Availability::Missing => Err(EngineError::Invalid(format!(
                "chunk {fingerprint} was never uploaded and is not in the repository"
            ))),
            Availability::Lost => Err(EngineError::FoundDamaged(format!(
                "chunk {fingerprint} was found damaged while this backup ran; start the backup again, and it is sent again"
            ))),
        }
    }

    /// (C2) Settles those of the promised chunks that are there now. Only a look-up does, which holds what it finds.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when one has another length than the extent that names it says.
    pub(super) fn settle(&mut self, store: &ChunkStore, promised: &[Fingerprint]) -> Result<(), EngineError> {
        for fingerprint in promised {
            if let Availability::Here(length) = self.look_up(store, fingerprint, Purpose::Name)? {
                self.promises.settle(fingerprint, length)?;
            }
        }
        Ok(())
    }

    /// (C7) Settles what is there of a region that was not taken. Where that is something the agent was asked for, it may be
    /// asked for the rest once more: each time there is less of it.
    ///
    /// # Errors
    /// As [`StreamChunks::settle`].
    pub(super) fn not_taken(&mut self, store: &ChunkStore, sent: &[Fingerprint]) -> Result<(), EngineError> {
        let asked: Vec<Fingerprint> =
            sent.iter().copied().filter(|fingerprint| self.promises.is_open(fingerprint)).collect();
        self.settle(store, &asked)?;
        if asked.iter().any(|fingerprint| !self.promises.is_open(fingerprint)) {
            self.promises.were_sent(sent);
        }
        Ok(())
    }

    pub(super) const fn promises(&self) -> &Promises {
        &self.promises
    }

    pub(super) const fn promises_mut(&mut self) -> &mut Promises {
        &mut self.promises
    }

    fn look_up(
        &mut self,
        store: &ChunkStore,
        fingerprint: &Fingerprint,
        purpose: Purpose,
    ) -> Result<Availability, EngineError> {
        match self.own.get(fingerprint) {
            Some(&length) => Ok(Availability::Here(length)),
            None => self.look_up_stored(store, fingerprint, purpose),
        }
    }

    fn look_up_stored(
        &mut self,
        store: &ChunkStore,
        fingerprint: &Fingerprint,
        purpose: Purpose,
    ) -> Result<Availability, EngineError> {
        let before = self.found.get(fingerprint).copied();
        // (A7) Remembered only as long as nothing is known to be damaged there, and (D2) the container is there.
        let counts = |at: Location| {
            // (N6) A chunk that an extent names is there, whatever an agent reports of it.
            let is_named = matches!(purpose, Purpose::Name);
            store.is_there(at) && (is_named || !store.is_reported(self.domain.namespace, at))
        };
        if let Some(chunk) = before.filter(|chunk| counts(chunk.location)) {
            return Ok(Availability::Here(chunk.bytes));
        }
        let (class, recent, holds) = (ContainerClass::Data, &mut self.recent, &mut self.holds);
        let found = match purpose {
            Purpose::Ask => store.find_and_hold(&self.domain, class, fingerprint, recent, holds)?,
            Purpose::Name => store.find_to_keep(&self.domain, class, fingerprint, recent, holds)?,
            Purpose::Store => store.find_undoubted(&self.domain, class, fingerprint, recent, holds)?,
        };
        let Some(found) = found else {
            return Ok(if before.is_some() { Availability::Lost } else { Availability::Missing });
        };
        if self.found.len() >= FOUND_MAX {
            self.found.clear();
        }
        let chunk = FoundChunk { location: found.location, bytes: found.chunk.bytes };
        self.found.insert(*fingerprint, chunk);
        Ok(Availability::Here(chunk.bytes))
    }

    /// Containers in which chunks were found.
    pub(super) const fn found_in(&self) -> &RoaringTreemap {
        self.holds.containers()
    }

    /// The session ended without a restore point.
    pub(super) fn release(&mut self) {
        self.holds.release();
    }

    /// Memory it takes, about. A chunk of its own is also in the directory of the container being written.
    pub(super) fn memory_bytes(&self) -> u64 {
        const OWN_BYTES: usize = 48 + 40;
        const UNNAMED_BYTES: usize = 48;
        const FOUND_BYTES: usize = 72;
        let bytes = self.own.capacity() * OWN_BYTES
            + self.unnamed.capacity() * UNNAMED_BYTES
            + self.found.capacity() * FOUND_BYTES;
        bytes as u64 + self.promises.memory_bytes() + self.holds.memory_bytes()
    }

    /// Forgets found chunks, which can be looked up again.
    pub(super) fn forget_found(&mut self) {
        self.found = HashMap::new();
    }

    /// Lets go of what only an open stream needs; [`StreamChunks::found_in`] stays.
    pub(super) fn finish(&mut self) {
        self.own = HashMap::new();
        self.unnamed = HashMap::new();
        self.found = HashMap::new();
        self.promises = Promises::default();
        self.recent = RecentDirectories::default();
    }
}

/// The fingerprints of a list as it comes over the wire; `what` names the list in errors.
pub(super) fn split_fingerprints(list: &[u8], what: &str) -> Result<Vec<Fingerprint>, EngineError> {
    let Some(fingerprints) = Fingerprint::split_list(list) else {
        let bytes = list.len();
        return Err(EngineError::Invalid(format!(
            "{what} has a fingerprint list of {bytes} bytes, no multiple of 32"
        )));
    };
    Ok(fingerprints.collect())
}
