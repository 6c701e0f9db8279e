//! One disk's stream: queries, regions, extents, in the order the agent sent them.
//!
//! The state belongs to the session and survives the connection: a stream opened again goes on where the
//! last accepted message left off.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::QUERY_FINGERPRINTS_MAX;
use holdfast_proto::region::{Codec, RegionError};
use holdfast_proto::v1;
use holdfast_types::ids::ContainerClass;
use v1::ingest_request::Kind as Request;
use v1::ingest_response::Kind as Response;

use super::extents::Recipe;
use super::filler::Filler;
use super::sessions::{DiskSlot, Session};
use super::verify::VerifyQueue;
use crate::container::{RecentDirectories, UnverifiedRegion};
use crate::core::Core;
use crate::error::EngineError;
use crate::store::Domain;

/// Chunks found in the repository that a stream remembers, so that naming them in an extent costs no second
/// look-up. 2¹⁷ entries of about 48 bytes are 6 MiB.
const KNOWN_MAX: usize = 1 << 17;

/// Chunks sent but not yet named by an extent at most. An honest agent has a few hundred.
const UNNAMED_MAX: usize = 1 << 17;

/// What a disk's stream has come to.
#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) size_bytes: u64,
    pub(super) data: Filler,
    pub(super) recipe: Recipe,
    pub(super) counters: Counters,
    pub(super) finished: Option<Finished>,
    pub(super) domain: Domain,
    verify: VerifyQueue,
    /// Chunks of this stream that are not in the index yet, with their lengths.
    own: HashMap<Fingerprint, u32>,
    /// Chunks of this stream that no extent has named yet: the first to name one pays for it.
    unnamed: HashMap<Fingerprint, u32>,
    known: HashMap<Fingerprint, u32>,
    recent: RecentDirectories,
    acked: (u64, u64),
    failed: Option<String>,
}

/// A finished stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finished {
    pub(super) root: Fingerprint,
    pub(super) at_ms: i64,
}

/// What the compression details count. `bytes` is the sum of the first three.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) unchanged_bytes: u64,
    pub(super) dup_bytes: u64,
    pub(super) new_bytes: u64,
    pub(super) read_bytes: u64,
    pub(super) wire_bytes: u64,
    pub(super) chunks: u64,
    pub(super) new_chunks: u64,
    pub(super) first_message_ms: i64,
}

impl StreamState {
    pub(super) fn new(core: &Arc<Core>, domain: &Domain, size_bytes: u64) -> Self {
        Self {
            size_bytes,
            data: Filler::new(Arc::clone(core), domain.clone(), ContainerClass::Data),
            recipe: Recipe::new(core, domain, size_bytes),
            counters: Counters::default(),
            finished: None,
            domain: domain.clone(),
            verify: VerifyQueue::new(Arc::clone(&core.verify_pool)),
            own: HashMap::new(),
            unnamed: HashMap::new(),
            known: HashMap::new(),
            recent: RecentDirectories::default(),
            acked: (0, 0),
            failed: None,
        }
    }

    fn query(&mut self, core: &Core, query: &v1::Query) -> Result<v1::Need, EngineError> {
        let fingerprints = split_fingerprints(&query.fingerprints, "the query")?;
        if fingerprints.len() > QUERY_FINGERPRINTS_MAX {
            let count = fingerprints.len();
            return Err(EngineError::Invalid(format!(
                "the query names {count} chunks; the limit is {QUERY_FINGERPRINTS_MAX}"
            )));
        }
        let mut bitmap = vec![0u8; fingerprints.len().div_ceil(8)];
        for (bits, group) in bitmap.iter_mut().zip(fingerprints.chunks(8)) {
            for (bit, fingerprint) in group.iter().enumerate() {
                if self.length_of(core, fingerprint)?.is_none() {
                    *bits |= 1 << bit;
                }
            }
        }
        Ok(v1::Need { sequence: query.sequence, bitmap: bitmap.into() })
    }

    /// The length of a chunk this stream may refer to; `None` when the repository lacks it.
    fn length_of(&mut self, core: &Core, fingerprint: &Fingerprint) -> Result<Option<u32>, EngineError> {
        if let Some(&length) = self.own.get(fingerprint).or_else(|| self.known.get(fingerprint)) {
            return Ok(Some(length));
        }
        let found = core.store.find(&self.domain, ContainerClass::Data, fingerprint, &mut self.recent)?;
        let Some(found) = found else { return Ok(None) };
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(*fingerprint, found.bytes);
        Ok(Some(found.bytes))
    }

    fn region(&mut self, region: v1::Region) -> Result<(), EngineError> {
        let fingerprints = split_fingerprints(&region.fingerprints, "the region")?;
        if fingerprints.contains(&Fingerprint::ZERO) {
            return Err(EngineError::Invalid(
                "the region names a chunk with the fingerprint reserved for zeros".into(),
            ));
        }
        if self.unnamed.len() > UNNAMED_MAX {
            let message = format!("more than {UNNAMED_MAX} chunks were sent that no extent names");
            return Err(EngineError::Invalid(message));
        }
        for (fingerprint, &length) in fingerprints.iter().zip(&region.lengths) {
            self.own.insert(*fingerprint, length);
            self.unnamed.insert(*fingerprint, length);
        }
        self.verify.submit(UnverifiedRegion {
            codec: Codec::try_from(region.codec)?,
            plain_bytes: region.plain_bytes,
            fingerprints,
            lengths: region.lengths,
            payload: region.payload,
        });
        self.store_verified(false)
    }

    /// Appends verified regions to the container; all of them when `wait` is set.
    fn store_verified(&mut self, wait: bool) -> Result<(), EngineError> {
        while let Some(outcome) = self.verify.next(wait) {
            self.data.append(&outcome?)?;
        }
        self.forget_sealed(false)
    }

    /// Chunks of sealed containers are in the index now.
    fn forget_sealed(&mut self, wait: bool) -> Result<(), EngineError> {
        for directory in self.data.take_sealed(wait)? {
            for (fingerprint, _, _) in directory.iter() {
                self.own.remove(&fingerprint);
            }
        }
        Ok(())
    }

    /// Accounts for a chunk that an extent names; errs when the repository lacks it.
    pub(super) fn name_chunk(
        &mut self,
        core: &Core,
        fingerprint: &Fingerprint,
        bytes: u32,
    ) -> Result<(), EngineError> {
        let fresh = self.unnamed.remove(fingerprint);
        let length = match fresh {
            Some(length) => Some(length),
            None => self.length_of(core, fingerprint)?,
        };
        match length {
            None => {
                return Err(EngineError::Invalid(format!(
                    "chunk {fingerprint} was never uploaded and is not in the repository"
                )));
            }
            Some(length) if length != bytes => {
                return Err(EngineError::Invalid(format!(
                    "chunk {fingerprint} is {length} bytes long, not {bytes}"
                )));
            }
            Some(_) => {}
        }
        self.counters.chunks += 1;
        if fresh.is_some() {
            self.counters.new_chunks += 1;
            self.counters.new_bytes += u64::from(bytes);
        } else {
            self.counters.dup_bytes += u64::from(bytes);
        }
        Ok(())
    }

    fn finish(&mut self, core: &Core, finish: v1::FinishStream) -> Result<v1::StreamFinished, EngineError> {
        if self.finished.is_none() {
            self.store_verified(true)?;
            let root = self.recipe.finish()?;
            self.data.seal_open()?;
            self.recipe.seal()?;
            self.forget_sealed(true)?;
            self.recipe.wait_sealed()?;
            self.own.clear();
            self.counters.read_bytes += finish.read_bytes;
            self.finished = Some(Finished { root, at_ms: core.clock.now_ms() });
        }
        Ok(v1::StreamFinished { stored_bytes: self.data.sealed_bytes() })
    }

    /// Waits for what is being sealed and discards what is not; for a session that ends without a backup.
    pub(super) fn give_up(&mut self) {
        self.data.discard_open();
        self.recipe.discard_open();
        let outcome = self.forget_sealed(true).and_then(|()| self.recipe.wait_sealed());
        if let Err(error) = outcome {
            tracing::warn!(%error, "a container of an ended session was not sealed");
        }
    }

    fn ack(&mut self) -> Option<v1::IngestResponse> {
        let progress = (self.recipe.accepted(), self.data.sealed_bytes());
        if std::mem::replace(&mut self.acked, progress) == progress {
            return None;
        }
        let (extents_accepted, durable_bytes) = progress;
        Some(answer(Response::Ack(v1::Ack { extents_accepted, durable_bytes })))
    }
}

fn answer(kind: Response) -> v1::IngestResponse {
    v1::IngestResponse { kind: Some(kind) }
}

pub(super) fn split_fingerprints(list: &[u8], what: &str) -> Result<Vec<Fingerprint>, EngineError> {
    let Some(fingerprints) = Fingerprint::split_list(list) else {
        let bytes = list.len();
        return Err(EngineError::Invalid(format!(
            "{what} has a fingerprint list of {bytes} bytes, no multiple of 32"
        )));
    };
    Ok(fingerprints.collect())
}

impl From<RegionError> for EngineError {
    fn from(source: RegionError) -> Self {
        Self::Region { disk: String::new(), source }
    }
}

/// One disk's open stream. Dropping it leaves the state with the session.
#[derive(Debug)]
pub struct DiskStream {
    core: Arc<Core>,
    session: Arc<Session>,
    disk: u32,
    generation: u64,
}

impl DiskStream {
    /// Opens the stream of disk number `disk`; an older stream of it errs from now on.
    pub(crate) fn open(core: Arc<Core>, session: Arc<Session>, disk: u32) -> Result<Self, EngineError> {
        let generation = session.disk(disk)?.generation.fetch_add(1, Ordering::AcqRel) + 1;
        session.renew(&core);
        Ok(Self { core, session, disk, generation })
    }

    /// What to tell the agent first: extents it need not send again.
    ///
    /// # Errors
    /// When the session ended meanwhile.
    pub fn opened(&self) -> Result<v1::StreamOpened, EngineError> {
        self.with_state(|_, _, state| {
            let ranges = state.recipe.accepted_ranges();
            let accepted =
                ranges.into_iter().map(|(first, count)| v1::ExtentRange { first, count }).collect();
            Ok(v1::StreamOpened { accepted })
        })
    }

    /// Takes one message that was `wire_bytes` long. Blocks while verification or sealing lags behind, which
    /// holds the agent back. After an error the session cannot be committed.
    ///
    /// # Errors
    /// Names the disk and what is wrong with the message; or an error of the store.
    pub fn handle(
        &self,
        message: Request,
        wire_bytes: u64,
    ) -> Result<Option<v1::IngestResponse>, EngineError> {
        self.with_state(|core, slot, state| {
            state.counters.wire_bytes += wire_bytes;
            if state.counters.first_message_ms == 0 {
                state.counters.first_message_ms = core.clock.now_ms();
            }
            if state.finished.is_some() && !matches!(message, Request::Finish(_)) {
                return Err(EngineError::Invalid("the stream was finished already".into()));
            }
            match message {
                Request::Open(_) => Err(EngineError::Invalid("the stream is open already".into())),
                Request::Query(query) => Ok(Some(answer(Response::Need(state.query(core, &query)?)))),
                Request::Region(region) => state.region(region).map(|()| None),
                Request::Extents(extents) => {
                    super::extents::accept(core, slot, state, &extents)?;
                    Ok(state.ack())
                }
                Request::Finish(finish) => Ok(Some(answer(Response::Finished(state.finish(core, finish)?)))),
            }
        })
    }

    /// What happened since the last answer, if anything; for when no message waits.
    ///
    /// # Errors
    /// As [`DiskStream::handle`].
    pub fn idle(&self) -> Result<Option<v1::IngestResponse>, EngineError> {
        self.with_state(|_, _, state| {
            state.store_verified(false)?;
            Ok(state.ack())
        })
    }

    /// Runs `work` on the state unless the stream was superseded or failed before; remembers a failure.
    fn with_state<T>(
        &self,
        work: impl FnOnce(&Core, &DiskSlot, &mut StreamState) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let slot = self.session.disk(self.disk)?;
        let mut state = slot.state.lock();
        if slot.generation.load(Ordering::Acquire) != self.generation {
            let why = "has ended, or its stream was opened again".into();
            return Err(EngineError::SessionGone { session: self.session.id.to_string(), why });
        }
        if let Some(why) = &state.failed {
            let why = format!("failed: {why}");
            return Err(EngineError::SessionGone { session: self.session.id.to_string(), why });
        }
        self.session.renew(&self.core);
        let outcome = work(&self.core, slot, &mut state);
        slot.progress.store(&state);
        outcome.map_err(|error| {
            let error = name_disk(error, &slot.name);
            state.failed = Some(error.to_string());
            error
        })
    }
}

/// Puts the disk's name into messages that lack it.
fn name_disk(error: EngineError, disk: &str) -> EngineError {
    match error {
        EngineError::Region { source, .. } => EngineError::Region { disk: disk.to_owned(), source },
        EngineError::Invalid(message) => EngineError::Invalid(format!("disk {disk:?}: {message}")),
        other => other,
    }
}

impl StreamState {
    /// Why the stream cannot be committed, if so.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }
}
