//! State of one disk of a session: chunks received, containers, recipe, counters.
//!
//! It belongs to the session and survives the connection: a stream opened again goes on where the last
//! accepted message left off.

use std::borrow::Cow;
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::QUERY_FINGERPRINTS_MAX;
use holdfast_proto::region::Codec;
use holdfast_proto::v1;
use holdfast_types::ids::{ContainerId, NamespaceId};
use roaring::RoaringTreemap;
use v1::ingest_response::Kind as Response;

use super::append::VerifyQueue;
use super::append::{ContainerAppender, SealedSummary};
use super::chunks::{StreamChunks, split_fingerprints};
use super::parent::{ParentDisk, Placing};
use super::progress::Counters;
use super::progress::Position;
use super::proof::Proofs;
use super::recipe_writer::RecipeWriter;
use crate::claims::{Asked, StreamClaims};
use crate::container::UnverifiedRegion;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::ExtentNode;
use crate::memory::MemoryShare;
use crate::quota::SessionCharge;
use crate::store::{ChunkStore, Domain, Holds, Reach};

/// State of one disk of a session.
#[derive(Debug)]
pub(super) struct DiskState {
    pub(super) size_bytes: u64,
    /// Set if its agent must seal regions, which no one else may do (N2).
    sealed: bool,
    pub(super) recipe: RecipeWriter,
    pub(super) counters: Counters,
    pub(super) finished: Option<Finished>,
    data: ContainerAppender,
    chunks: StreamChunks,
    claims: Arc<StreamClaims>,
    /// The stream's generation that was handled last.
    generation: u64,
    /// Since when the agent waits for the answer to Finish, on the clock that never jumps.
    finishing: Option<i64>,
    verify: VerifyQueue,
    namespace: NamespaceId,
    proofs: Proofs,
    memory: MemoryShare,
    damage_seen: u64,
    /// Damage found later was not known when the first extent was accepted.
    sound_since: u64,
    /// The least certain placing of the extents taken over unchanged.
    placing: Placing,
    acked: (u64, u64),
    failed: Option<Cow<'static, str>>,
    /// Holds on copies found at the commit that replace those found earlier.
    held_also: Vec<Holds>,
}

/// A finished stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finished {
    pub(super) root: Fingerprint,
    pub(super) at_ms: i64,
}

impl DiskState {
    pub(super) fn new(
        core: &Arc<Core>,
        domain: &Domain,
        (size_bytes, sealed): (u64, bool),
        charge: &Arc<SessionCharge>,
    ) -> Self {
        let (data, claims) = ContainerAppender::of_chunks(core, domain, charge);
        Self {
            size_bytes,
            sealed,
            recipe: RecipeWriter::new(core, domain, size_bytes, charge),
            counters: Counters::default(),
            finished: None,
            data,
            claims,
            generation: 0,
            finishing: None,
            chunks: StreamChunks::new(domain.clone(), core.store.leftovers.holds()),
            verify: VerifyQueue::new(Arc::clone(&core.verify_pool), charge.tenant()),
            namespace: domain.namespace,
            proofs: Proofs::new(core, charge.tenant()),
            memory: core.session_memory.share(),
            damage_seen: core.store.damage_generation(domain.namespace),
            sound_since: core.store.damage_generation(domain.namespace),
            placing: Placing::Looked,
            acked: (0, 0),
            failed: None,
            held_also: Vec::new(),
        }
    }

    /// Returns the chunks that the agent must send.
    pub(super) fn query(&mut self, core: &Core, query: &v1::Query) -> Result<v1::Need, EngineError> {
        // (R3) Bounded before anything is allocated for the answer.
        let fingerprints = split_fingerprints(&query.fingerprints, "the query")?;
        if fingerprints.len() > QUERY_FINGERPRINTS_MAX {
            let count = fingerprints.len();
            return Err(EngineError::Invalid(format!(
                "the query names {count} chunks; the limit is {QUERY_FINGERPRINTS_MAX}"
            )));
        }
        self.settle_damage(&core.store)?;
        let (needed, pending) = self.lacking(core, &fingerprints)?;
        let bitmap = bitmap(&needed, fingerprints.len());
        let pending =
            if pending.is_empty() { Vec::new() } else { self::bitmap(&pending, fingerprints.len()) };
        Ok(v1::Need { sequence: query.sequence, bitmap: bitmap.into(), pending: pending.into() })
    }

    /// The places of the chunks that the agent must send, and of those that another stream brings.
    fn lacking(
        &mut self,
        core: &Core,
        fingerprints: &[Fingerprint],
    ) -> Result<(Vec<usize>, Vec<usize>), EngineError> {
        let concluded = self.claims.concluded();
        let mut places = Vec::new();
        let mut missing = Vec::new();
        for (place, fingerprint) in fingerprints.iter().enumerate() {
            if !self.chunks.has(&core.store, fingerprint)? {
                places.push(place);
                missing.push(*fingerprint);
            }
        }
        let at = (core.clock.monotonic_ms(), concluded);
        let takes_pending = self.chunks.takes_pending() && self.chunks.promises().have_room();
        let (answers, look_again) = self.claims.ask(&missing, takes_pending, at);
        let (mut needed, mut pending, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for ((place, fingerprint), asked) in places.into_iter().zip(&missing).zip(answers) {
            match asked {
                Asked::Pending => pending.push(place),
                // Indexed between the look-up and the question.
                Asked::Claimed if look_again && self.chunks.has(&core.store, fingerprint)? => {
                    found.push(*fingerprint);
                }
                Asked::Claimed | Asked::Send => needed.push(place),
            }
        }
        self.claims.withdraw(&found);
        Ok((needed, pending))
    }

    /// Takes a region; its chunks may be named from now on, and count once it is verified.
    pub(super) fn region(&mut self, core: &Core, region: v1::Region) -> Result<(), EngineError> {
        let codec = Codec::try_from(region.codec)?;
        check_kind(codec, self.sealed)?;
        let fingerprints = split_fingerprints(&region.fingerprints, "the region")?;
        // (N5) Missing chunks of it are asked for again.
        if self.sealed && self.chunks.has_any_stored(&core.store, &fingerprints)? {
            self.chunks.not_taken(&core.store, &fingerprints)?;
            return self.store_verified(false);
        }
        let (chunks, bytes) = self.chunks.sent(&fingerprints, &region.lengths)?;
        self.counters.brought(chunks, bytes)?;
        self.proofs.submitted();
        // (W1) Only what comes out of this queue is stored.
        self.verify.submit(UnverifiedRegion {
            codec,
            plain_bytes: region.plain_bytes,
            fingerprints,
            lengths: region.lengths,
            payload: region.payload,
        });
        self.store_verified(false)
    }

    /// Appends verified regions to the container; all of them when `wait` is set.
    pub(super) fn store_verified(&mut self, wait: bool) -> Result<(), EngineError> {
        while let Some(outcome) = self.verify.next(wait) {
            let (region, plain) = outcome?;
            self.data.append(&region)?;
            // (W11)
            if let Some(plain) = plain {
                self.proofs.verified(&region, &plain)?;
            }
        }
        self.proofs.settle(wait)?;
        self.forget_sealed(false)
    }

    /// Chunks of sealed containers are in the index now.
    fn forget_sealed(&mut self, wait: bool) -> Result<(), EngineError> {
        for directory in self.data.take_sealed(wait)? {
            self.chunks.sealed(&directory);
        }
        Ok(())
    }

    /// (A7) When more is known to be damaged than before, a sealed container of this stream may be among it:
    /// then its chunks are looked up like any others.
    pub(super) fn settle_damage(&mut self, store: &ChunkStore) -> Result<(), EngineError> {
        let generation = store.damage_generation(self.namespace);
        if self.damage_seen != generation {
            self.forget_sealed(true)?;
            self.damage_seen = generation;
        }
        Ok(())
    }

    /// Accounts for a chunk that an extent names; fails when the repository lacks it.
    pub(super) fn name_chunk(
        &mut self,
        core: &Core,
        fingerprint: &Fingerprint,
        (bytes, extent): (u32, u64),
    ) -> Result<(), EngineError> {
        let new = self.chunks.name(&core.store, fingerprint, (bytes, extent))?;
        self.counters.chunk(new, bytes, self.size_bytes)
    }

    /// (W11) Takes note of what the agent says an extent hashes to.
    pub(super) fn claim_digest(
        &mut self,
        index: u64,
        digest: Fingerprint,
        node: ExtentNode,
    ) -> Result<(), EngineError> {
        // Keyed: only agents can prove it.
        if self.sealed {
            self.proofs.not_provable();
            return Ok(());
        }
        if self.proofs.is_full() {
            self.store_verified(true)?;
        }
        self.proofs.claim(index, digest, node)
    }

    /// Begins to finish the stream. `None`: it waits for what other streams bring; [`DiskState::go_on`] has the answer
    /// later.
    pub(super) fn finish(
        &mut self,
        core: &Core,
        finish: &v1::FinishStream,
    ) -> Result<Option<Response>, EngineError> {
        if self.finished.is_some() {
            return Ok(Some(self.said_finished()));
        }
        self.counters.read(finish, self.size_bytes)?;
        self.store_verified(true)?;
        // (C4) Chunks that have not arrived by now will not be sent by the agent. So no stream depends on one that is
        // itself waiting.
        self.claims.forget_asked();
        let promised = self.chunks.promises().all();
        self.chunks.settle(&core.store, &promised)?;
        self.chunks.promises().check_asked()?;
        self.finishing.get_or_insert_with(|| core.clock.monotonic_ms());
        self.go_on(core)
    }

    /// Returns true while the agent waits for the answer to Finish.
    pub(super) const fn is_finishing(&self) -> bool {
        self.finishing.is_some()
    }

    /// The answer to Finish once there is one. Waits for no other stream.
    pub(super) fn go_on(&mut self, core: &Core) -> Result<Option<Response>, EngineError> {
        let Some(since_ms) = self.finishing else { return Ok(None) };
        self.settle_damage(&core.store)?;
        while !self.chunks.promises().is_empty() {
            let promised = self.chunks.promises().all();
            let outlook = self.claims.outlook(&promised, since_ms, core.clock.monotonic_ms());
            if let Some(again) = self.again(core, &outlook.unclaimed)? {
                self.finishing = None;
                self.claims.stop_waiting();
                return Ok(Some(Response::Again(again)));
            }
            if outlook.awaited > 0 {
                // (C5) Others may wait for this one.
                self.data.seal_open();
                for (output, container) in outlook.to_seal {
                    output.seal(container);
                }
                return Ok(None);
            }
        }
        self.claims.stop_waiting();
        self.conclude(core)?;
        self.finishing = None;
        Ok(Some(self.said_finished()))
    }

    /// (C2) Asks the agent for promised chunks that no stream brings, that this stream has claimed, and that are not in
    /// the index.
    fn again(&mut self, core: &Core, unclaimed: &[Fingerprint]) -> Result<Option<v1::Again>, EngineError> {
        self.chunks.settle(&core.store, unclaimed)?;
        let (lost, found): (Vec<_>, Vec<_>) =
            unclaimed.iter().copied().partition(|fingerprint| self.chunks.promises().is_open(fingerprint));
        self.claims.withdraw(&found);
        let Some(first) = lost.first() else { return Ok(None) };
        if !self.chunks.takes_pending() {
            return Err(EngineError::FoundDamaged(format!(
                "chunk {first} was expected from another backup and did not come; start the backup again, and it is sent"
            )));
        }
        Ok(Some(self.chunks.promises_mut().ask_again(&lost)))
    }

    /// (W5) Every region is verified, every promise kept; seals and indexes every container, data and recipe.
    fn conclude(&mut self, core: &Core) -> Result<(), EngineError> {
        let root = self.recipe.finish()?;
        self.data.seal_open();
        self.recipe.seal()?;
        self.forget_sealed(true)?;
        self.recipe.wait_sealed()?;
        self.chunks.finish();
        self.proofs.finish();
        self.finished = Some(Finished { root, at_ms: core.clock.now_ms() });
        Ok(())
    }

    fn said_finished(&self) -> Response {
        Response::Finished(v1::StreamFinished { stored_bytes: self.data.sealed_bytes() })
    }

    /// Called before anything else that a stream of this generation does.
    pub(super) fn opened_by(&mut self, generation: u64, takes_pending: bool) {
        if self.generation != generation {
            self.generation = generation;
            self.finishing = None;
            self.claims.stop_waiting();
            // (C3) A question of the older stream may have been answered after the newer one ended its claims.
            self.claims.forget_asked();
            self.chunks.reopened(takes_pending);
        }
    }

    #[cfg(test)]
    pub(super) fn promised(&self) -> usize {
        self.chunks.promises().all().len()
    }

    /// Settles what it can when promises have grown, so that they take memory only for what is on its way. (C5) When that
    /// is too much, begins to seal the containers that have most of it.
    pub(super) fn settle_promises(&mut self, core: &Core) -> Result<(), EngineError> {
        if !self.chunks.promises().are_many() {
            return Ok(());
        }
        let promised = self.chunks.promises().all();
        let standing = self.claims.standing(&promised);
        self.chunks.settle(&core.store, &standing.unclaimed)?;
        if self.chunks.promises().are_to_be_sealed() {
            for (output, container) in standing.fullest {
                output.seal(container);
            }
        }
        self.chunks.promises_mut().were_settled();
        Ok(())
    }

    /// Waits for what is being sealed and discards what is not; for a session that ends without a backup.
    /// Containers whose seal fails are given up one by one: the others count.
    pub(super) fn abandon(&mut self) {
        self.discard_open();
        for outcome in [self.forget_sealed(true), self.recipe.wait_sealed()] {
            if let Err(error) = outcome {
                tracing::warn!(%error, "a container of an ended session was not sealed");
            }
        }
    }

    /// Counts on nothing stored any more: the session ended without a restore point, and that is recorded.
    pub(super) fn release(&mut self) {
        self.chunks.release();
        self.recipe.release();
        self.held_also.iter_mut().for_each(Holds::release);
    }

    /// Accounts for the memory it takes by now. (A10)
    ///
    /// # Errors
    /// [`EngineError::Limit`] when all backups in progress together would take more than they may.
    pub(super) fn account_memory(&mut self, parent: Option<&ParentDisk>) -> Result<(), EngineError> {
        if self.memory.set(self.memory_bytes(parent)).is_ok() {
            return Ok(());
        }
        self.chunks.forget_found();
        self.memory.set(self.memory_bytes(parent)).map_err(|exhausted| {
            let (wanted, limit) = (exhausted.wanted_bytes >> 10, exhausted.limit_bytes >> 10);
            EngineError::Limit(format!(
                "the backups in progress use up the {limit} KiB of memory the server has for them, and this one needs {wanted} KiB; try again when one of them is done, or give the server more memory"
            ))
        })
    }

    fn memory_bytes(&self, parent: Option<&ParentDisk>) -> u64 {
        let held = parent.map_or(0, ParentDisk::memory_bytes);
        self.chunks.memory_bytes() + self.recipe.memory_bytes() + self.claims.memory_bytes() + held
    }

    /// Discards containers that will not be sealed: after a failure the session cannot be committed.
    pub(super) fn discard_open(&mut self) {
        self.claims.forget_asked();
        self.data.discard_open();
        self.recipe.discard_open();
    }

    /// After a failure: gives back room and memory now, not when the lease runs out.
    pub(super) fn fail(&mut self, parent: Option<&ParentDisk>) {
        self.discard_open();
        self.verify.clear();
        self.proofs.finish();
        self.chunks.finish();
        self.recipe.clear(self.size_bytes);
        // Less than before.
        let _ = self.memory.set(self.memory_bytes(parent));
    }

    /// The disk's chunks on their way, for what must not wait for the stream.
    pub(super) const fn claims(&self) -> &Arc<StreamClaims> {
        &self.claims
    }

    /// Returns the progress to report to the agent; `None` if there was none.
    pub(super) fn ack(&mut self) -> Option<v1::Ack> {
        let progress = (self.recipe.accepted(), self.data.sealed_bytes());
        let (extents, bytes) = std::mem::replace(&mut self.acked, progress);
        assert!(extents <= progress.0 && bytes <= progress.1, "progress never goes back");
        let (extents_accepted, durable_bytes) = progress;
        ((extents, bytes) != progress).then_some(v1::Ack { extents_accepted, durable_bytes })
    }

    /// Reason for which the stream cannot go on; `None`: it can.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    pub(super) fn set_failure(&mut self, failure: Option<Cow<'static, str>>) {
        self.failed = failure;
    }

    /// Sealed containers that hold chunks of the disk.
    pub(super) fn sealed_data(&self) -> &[SealedSummary] {
        self.data.sealed()
    }

    /// (D1) Containers of its own, finished or not.
    pub(super) fn created(&self) -> impl Iterator<Item = ContainerId> {
        self.data.created().into_iter().chain(self.recipe.created())
    }

    /// Counts on more until the session ends.
    pub(super) fn hold_also(&mut self, holds: Holds) {
        self.held_also.push(holds);
    }

    /// Containers this disk refers to, or is going to: its own, and those in which something was found.
    pub(super) fn relies_on(&self) -> RoaringTreemap {
        let mut containers = self.recipe.relies_on();
        containers |= self.chunks.found_in();
        containers.extend(self.data.created().into_iter().map(ContainerId::get));
        containers
    }

    /// The generation of damage that was known before any extent was accepted.
    pub(super) const fn sound_since(&self) -> u64 {
        self.sound_since
    }

    /// Takes note of an extent taken over unchanged, and of how its parent knows where what it refers to lies.
    pub(super) fn took_over(&mut self, placing: Placing) {
        self.placing = self.placing.max(placing);
    }

    /// Containers of everything that the disk refers to, and as of when these were sound; `None` when not known.
    pub(super) fn reach(&self, parent: Option<&ParentDisk>) -> Option<Reach> {
        let mut containers = self.relies_on();
        let mut sound_as_of = self.sound_since;
        if self.counters.unchanged_bytes > 0 {
            let (placed, as_of) = parent?.placed(self.placing)?;
            containers |= placed;
            // (R7) Extents taken over by the parent's reach have not been checked since that was made.
            sound_as_of = sound_as_of.min(as_of.unwrap_or(sound_as_of));
        }
        Some(Reach { containers: Arc::new(containers), sound_as_of })
    }

    pub(super) fn position(&self) -> Position {
        let counters = &self.counters;
        Position {
            extents: self.recipe.accepted(),
            unchanged_bytes: counters.unchanged_bytes,
            dup_bytes: counters.dup_bytes,
            new_bytes: counters.new_bytes,
            wire_bytes: counters.wire_bytes,
            stored_bytes: self.data.sealed_bytes() + self.recipe.sealed_bytes(),
            finished: self.finished.is_some(),
        }
    }
}

/// (N2) Refuses plain regions in a namespace that is end-to-end encrypted, by whatever mistake of an agent; and sealed
/// ones in any other, where no one would have the key.
fn check_kind(codec: Codec, sealed: bool) -> Result<(), EngineError> {
    match (codec, sealed) {
        (Codec::Sealed, true) | (Codec::Stored | Codec::Zstd, false) => Ok(()),
        (_, true) => Err(EngineError::Invalid(
            "the namespace is end-to-end encrypted, and the agent sent a region that is not sealed"
                .to_owned(),
        )),
        (Codec::Sealed, false) => Err(EngineError::Invalid(
            "the namespace is not end-to-end encrypted, and the agent sent a region that is sealed"
                .to_owned(),
        )),
    }
}

/// Bit i, least significant first, is set for each place i of `count`.
fn bitmap(places: &[usize], count: usize) -> Vec<u8> {
    let mut bitmap = vec![0u8; count.div_ceil(8)];
    for place in places {
        if let Some(bits) = bitmap.get_mut(place / 8) {
            *bits |= 1 << (place % 8);
        }
    }
    bitmap
}
