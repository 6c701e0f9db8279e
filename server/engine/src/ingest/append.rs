//! Verifies regions and appends them to containers of one class for one disk.
//!
//! (W1, A3) An agent must not be able to poison the pool: nothing it sends is stored under a fingerprint before the bytes
//! have been decoded and hashed here, on all cores, with results in the order of submission. Where agents encrypt, the
//! server cannot see that: `container/region.rs` says what it checks then (N1).
//!
//! A container is filled by one stream only, so what a disk cost is known to the byte. Containers are sealed in the
//! background; the end of the disk waits for that. (W3) A chunk enters the index only after its container is durable.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_proto::region::{Decoder, RegionError};
use holdfast_types::ids::{ContainerClass, ContainerId, Location};
use parking_lot::Mutex;

use crate::claims::{self, Arrivals, StreamClaims};
use crate::container::{ContainerWriter, Directory, SealedContainer, UnverifiedRegion, VerifiedRegion};
use crate::core::Core;
use crate::error::EngineError;
use crate::fair::{FairPool, Tenant};
use crate::quota::SessionCharge;
use crate::space::{Grant, Purpose};
use crate::store::Domain;
use crate::task::{self, Task};

/// Containers of one stream and class being sealed at most: 2 × 32 MiB not yet on the disk.
const SEALING_MAX: usize = 2;

type Outcome = Result<SealedContainer, EngineError>;

/// One disk's containers of one class: one open, some being sealed, the rest sealed.
#[derive(Debug)]
pub(super) struct ContainerAppender {
    output: Arc<Output>,
    /// The stream's claims; nodes of recipes have none.
    claims: Option<Arc<StreamClaims>>,
    sealed: Vec<SealedSummary>,
    sealed_bytes: u64,
}

/// The part that other streams reach, which may have to seal chunks that they wait for.
#[derive(Debug)]
struct Output {
    core: Arc<Core>,
    domain: Domain,
    class: ContainerClass,
    /// Quota that the session is charged to.
    charge: Arc<SessionCharge>,
    /// Held while a region is written, and for moments otherwise: never while anything is waited for that needs a
    /// stream.
    filling: Mutex<Filling>,
}

#[derive(Debug, Default)]
struct Filling {
    open: Option<OpenOutput>,
    sealing: VecDeque<(ContainerId, Task<Outcome>)>,
}

/// A container being written, and the room it was promised.
#[derive(Debug)]
struct OpenOutput {
    writer: ContainerWriter,
    room: Grant,
    /// (C3)
    arrivals: Option<Arrivals>,
}

/// Facts about a sealed container for the catalog.
#[derive(Debug, Clone, Copy)]
pub(super) struct SealedSummary {
    pub(super) id: ContainerId,
    pub(super) class: ContainerClass,
    pub(super) stored_bytes: u64,
    pub(super) plain_bytes: u64,
    pub(super) chunk_count: u64,
    pub(super) created_ms: i64,
}

impl Output {
    /// Begins to seal the open container, if there is one.
    fn seal_open(self: &Arc<Self>, filling: &mut Filling) {
        let Some(open) = filling.open.take() else { return };
        let id = open.writer.id();
        let output = Arc::clone(self);
        let work = move || seal(&output.core, &output.domain, open);
        let task = task::spawn(&self.core.seal_pool, self.charge.tenant(), "sealing a container", work);
        filling.sealing.push_back((id, task));
    }

    fn create(
        &self,
        first: &VerifiedRegion,
        claims: Option<&StreamClaims>,
    ) -> Result<OpenOutput, EngineError> {
        let core = &self.core;
        core.check_writable()?;
        let purpose = match self.class {
            ContainerClass::Data => Purpose::Data,
            ContainerClass::Recipe => Purpose::Recipe,
        };
        let mut room = Grant::new(&core.ledger, purpose);
        core.cover(&mut room, u64::from(first.stored_bytes()))?;
        let id = core.next_container()?;
        let writer = ContainerWriter::create_for(
            &*core.volume,
            (core.repository, self.domain.namespace),
            id,
            self.class,
            core.clock.now_ms(),
            first,
        )
        .map_err(|error| core.write_failure(error.into()))?;
        Ok(OpenOutput { writer, room, arrivals: claims.map(|claims| claims.arrivals(id)) })
    }
}

impl claims::Output for Output {
    fn seal(self: Arc<Self>, container: ContainerId) {
        let mut filling = self.filling.lock();
        if filling.open.as_ref().is_some_and(|open| open.writer.id() == container) {
            self.seal_open(&mut filling);
        }
    }
}

impl ContainerAppender {
    pub(super) fn new(
        core: Arc<Core>,
        domain: Domain,
        class: ContainerClass,
        charge: Arc<SessionCharge>,
    ) -> Self {
        let output = Output { core, domain, class, charge, filling: Mutex::default() };
        Self { output: Arc::new(output), claims: None, sealed: Vec::new(), sealed_bytes: 0 }
    }

    /// As [`ContainerAppender::new`] for chunks, which other streams are told of while they are on their way.
    pub(super) fn of_chunks(
        core: &Arc<Core>,
        domain: &Domain,
        charge: &Arc<SessionCharge>,
    ) -> (Self, Arc<StreamClaims>) {
        let mut appender =
            Self::new(Arc::clone(core), domain.clone(), ContainerClass::Data, Arc::clone(charge));
        let output: Weak<Output> = Arc::downgrade(&appender.output);
        let claims = core.claims.enter(domain.namespace, output);
        appender.claims = Some(Arc::clone(&claims));
        (appender, claims)
    }

    /// Appends a region, which counts against the namespace's quota to the byte; seals the container before when it is
    /// full.
    pub(super) fn append(&mut self, region: &VerifiedRegion) -> Result<(), EngineError> {
        let Output { core, class, charge, .. } = &*self.output;
        let mut filling = self.output.filling.lock();
        if filling.open.as_ref().is_some_and(|open| !open.writer.fits(region)) {
            self.output.seal_open(&mut filling);
        }
        match &mut filling.open {
            Some(open) => charge.add_stored(*class, open.writer.bytes_added_by(region))?,
            None => {
                charge.add_stored(*class, ContainerWriter::bytes_of_first(region))?;
                filling.open = Some(self.output.create(region, self.claims.as_deref())?);
            }
        }
        if let Some(open) = &mut filling.open {
            // (W10) Promised before it is written, with the directory that the seal will add.
            core.cover(&mut open.room, open.writer.stored_bytes_with(region))?;
        }
        // Taken out: a container to which a write failed is discarded.
        let Some(mut open) = filling.open.take() else {
            return Err(EngineError::Internal("no container is open to append to".into()));
        };
        // (W9) A failed write latches the engine; (W10) a full disk does not.
        open.writer.append(region).map_err(|error| core.write_failure(error.into()))?;
        open.room.wrote(open.writer.written_bytes());
        if let Some(arrivals) = &mut open.arrivals {
            arrivals.add(region.fingerprints());
        }
        filling.open = Some(open);
        Ok(())
    }

    /// Directories of containers that became durable since the last call; waits for all when `wait` is set.
    ///
    /// # Errors
    /// The first failure; the containers behind it were asked as well, and those that are durable count.
    pub(super) fn take_sealed(&mut self, wait: bool) -> Result<Vec<Directory>, EngineError> {
        let mut directories = Vec::new();
        let mut failure = None;
        while let Some(outcome) = self.next_sealed(wait) {
            match outcome.and_then(|sealed| self.count(sealed?)) {
                Ok(directory) => directories.push(directory),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(directories), Err)
    }

    fn next_sealed(&self, wait: bool) -> Option<Result<Outcome, EngineError>> {
        let mut filling = self.output.filling.lock();
        let (_, front) = filling.sealing.front()?;
        if let Some(outcome) = front.try_take() {
            filling.sealing.pop_front();
            return Some(outcome);
        }
        if !wait && filling.sealing.len() <= SEALING_MAX {
            return None;
        }
        let (_, task) = filling.sealing.pop_front()?;
        // Others may need what is open meanwhile.
        drop(filling);
        Some(task.wait())
    }

    /// Keeps the catalog record of a container that is durable now.
    fn count(&mut self, sealed: SealedContainer) -> Result<Directory, EngineError> {
        let total = self.sealed_bytes.checked_add(sealed.stored_bytes);
        self.sealed_bytes = total.ok_or_else(|| EngineError::Internal("stored bytes overflow".into()))?;
        self.sealed.push(SealedSummary {
            id: sealed.id,
            class: self.output.class,
            stored_bytes: sealed.stored_bytes,
            plain_bytes: sealed.directory.plain_bytes(),
            chunk_count: sealed.directory.chunk_count() as u64,
            created_ms: sealed.created_ms,
        });
        Ok(sealed.directory)
    }

    /// Begins to seal the open container, if there is one.
    pub(super) fn seal_open(&mut self) {
        self.output.seal_open(&mut self.output.filling.lock());
    }

    /// The containers of this stream and class: sealed, being sealed and open.
    pub(super) fn created(&self) -> Vec<ContainerId> {
        let filling = self.output.filling.lock();
        let sealed = self.sealed.iter().map(|sealed| sealed.id);
        let sealing = filling.sealing.iter().map(|(id, _)| *id);
        let open = filling.open.as_ref().map(|open| open.writer.id());
        sealed.chain(sealing).chain(open).collect()
    }

    /// Discards the open container; what was sealed stays. (C6) A container that another stream counts on is sealed
    /// instead.
    pub(super) fn discard_open(&mut self) {
        let mut filling = self.output.filling.lock();
        let arrivals = filling.open.as_ref().and_then(|open| open.arrivals.as_ref());
        if arrivals.is_some_and(Arrivals::are_awaited) {
            self.output.seal_open(&mut filling);
        }
        filling.open = None;
    }

    /// Containers sealed so far.
    pub(super) fn sealed(&self) -> &[SealedSummary] {
        &self.sealed
    }

    /// Stored bytes of sealed containers so far.
    pub(super) const fn sealed_bytes(&self) -> u64 {
        self.sealed_bytes
    }
}

/// Directory and footer, fdatasync, rename, fsync of the folder; then the index.
fn seal(core: &Core, domain: &Domain, open: OpenOutput) -> Outcome {
    let OpenOutput { writer, room, arrivals } = open;
    let class = writer.class();
    // (W2)
    let sealed = writer.seal().map_err(|error| core.write_failure(error.into()))?;
    room.sealed(sealed.stored_bytes);
    let key = domain.key(class);
    let entries = sealed.directory.iter().map(|(fingerprint, region, slot)| {
        (key.of(&fingerprint), Location { container: sealed.id, region, slot })
    });
    // (W3, A4) Durable now, so other sessions may refer to its chunks from here on.
    core.store.index.insert_container(sealed.id, entries)?;
    // (C3) Found there from now on, so no longer on their way.
    drop(arrivals);
    core.note_sealed(ContainerRecord {
        id: sealed.id,
        class,
        namespace: domain.namespace,
        stored_bytes: sealed.stored_bytes,
        plain_bytes: sealed.directory.plain_bytes(),
        chunk_count: sealed.directory.chunk_count() as u64,
        created_ms: sealed.created_ms,
        run: None,
        state: ContainerState::Live,
    });
    Ok(sealed)
}

/// Regions of one stream being verified at most: 16 × 256 KiB of plain bytes and as much again on the wire.
const IN_FLIGHT_MAX: usize = 16;

thread_local! {
    static DECODER: RefCell<Option<Decoder>> = const { RefCell::new(None) };
}

/// A region, and the plain bytes of its chunks; `None`: its agent sealed it.
type Verified = (VerifiedRegion, Option<Bytes>);
type VerifyOutcome = Result<Verified, RegionError>;

/// One stream's queue of regions being verified.
#[derive(Debug)]
pub(super) struct VerifyQueue {
    pool: Arc<FairPool>,
    tenant: Tenant,
    waiting: VecDeque<Task<VerifyOutcome>>,
}

impl VerifyQueue {
    pub(super) const fn new(pool: Arc<FairPool>, tenant: Tenant) -> Self {
        Self { pool, tenant, waiting: VecDeque::new() }
    }

    /// Begins to verify a region.
    pub(super) fn submit(&mut self, region: UnverifiedRegion) {
        let verify = move || verify(region);
        self.waiting.push_back(task::spawn(&self.pool, self.tenant, "verifying a region", verify));
    }

    /// Forgets the regions being verified.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// The next verified region: waits for it when the queue is full or `wait` is set, otherwise only takes
    /// what is ready.
    pub(super) fn next(&mut self, wait: bool) -> Option<Result<Verified, EngineError>> {
        let front = self.waiting.front()?;
        let outcome =
            if wait || self.waiting.len() >= IN_FLIGHT_MAX { front.wait() } else { front.try_take()? };
        self.waiting.pop_front();
        // A verifier that panicked verified nothing.
        Some(outcome.and_then(|verified| Ok(verified?)))
    }
}

impl From<RegionError> for EngineError {
    /// The stream that sent the region adds the disk's name.
    fn from(source: RegionError) -> Self {
        Self::Region { disk: String::new(), source }
    }
}

fn verify(region: UnverifiedRegion) -> VerifyOutcome {
    DECODER.with_borrow_mut(|kept| {
        let mut decoder = match kept.take() {
            Some(decoder) => decoder,
            None => Decoder::new()?,
        };
        let outcome = region.verify(&mut decoder);
        *kept = Some(decoder);
        outcome
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use holdfast_proto::Fingerprint;
    use holdfast_proto::region::Encoder;
    use holdfast_volume::MemoryVolume;
    use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};

    use super::*;
    use crate::container::list_containers;
    use crate::core::SEAL_THREADS;
    use crate::tests::agent::request;
    use crate::tests::{Bench, namespace, noise};

    #[test]
    fn every_seal_is_waited_for_although_several_fail() {
        let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
        let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
        let (core, sessions) = engine.parts();
        let started = crate::tests::agent::start(&engine, request("web", &[("root", &[1])])).unwrap();
        let charge = Arc::clone(&sessions.get(started.session_id.parse().unwrap()).unwrap().charge);
        // All but one thread are busy, so containers are sealed one after another, in order.
        let (busy, started) = mpsc::channel();
        let held: Vec<_> = (1..SEAL_THREADS)
            .map(|_| {
                let (release, wait) = mpsc::channel::<()>();
                let busy = busy.clone();
                core.seal_pool.spawn(charge.tenant(), move || {
                    busy.send(()).unwrap();
                    let _ = wait.recv();
                });
                started.recv().unwrap();
                release
            })
            .collect();
        let domain = core.store.domain(namespace(&engine));
        let class = ContainerClass::Data;
        let mut appender = ContainerAppender::new(Arc::clone(core), domain, class, Arc::clone(&charge));
        volume.fail_next(OpKind::Seal, 1, Fault::Full);
        volume.fail_next(OpKind::Seal, 3, Fault::Full);
        let mut encoder = Encoder::new(1).unwrap();
        for seed in 0..4 {
            let bytes = noise(seed, 5000);
            let region = VerifiedRegion::encode(&[(Fingerprint::of(&bytes), &bytes)], &mut encoder).unwrap();
            appender.append(&region).unwrap();
            appender.seal_open();
        }
        appender.take_sealed(true).unwrap_err();
        drop(held);
        let files = list_containers(&*volume).unwrap().containers;
        assert_eq!(files.len(), 2);
        let counted: Vec<_> =
            appender.sealed().iter().map(|sealed| (sealed.id, sealed.stored_bytes)).collect();
        let there: Vec<_> = files.into_iter().map(|(name, bytes)| (name.id, bytes)).collect();
        assert_eq!(counted, there, "each container that is there is counted");
    }
}
