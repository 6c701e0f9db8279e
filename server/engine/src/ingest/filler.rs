//! Fills containers of one class for one disk, and seals them in the background.
//!
//! A container is filled by one stream only, so what a disk cost is known to the byte. Sealing waits for the
//! disk; meanwhile the next container fills. A chunk enters the index only after its container is durable.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};
use holdfast_types::ids::{ContainerClass, Location};

use crate::container::{ContainerWriter, Directory, SealedContainer, VerifiedRegion};
use crate::core::Core;
use crate::error::EngineError;
use crate::store::Domain;

/// Containers of one stream and class being sealed at most: 2 × 32 MiB not yet on the disk.
const SEALING_MAX: usize = 2;

type Outcome = Result<SealedContainer, EngineError>;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Filler {
    core: Arc<Core>,
    domain: Domain,
    class: ContainerClass,
    open: Option<ContainerWriter>,
    sealing: VecDeque<Receiver<Outcome>>,
    sealed: Vec<SealedSummary>,
    sealed_bytes: u64,
}

/// What the catalog keeps of a sealed container.
#[derive(Debug, Clone, Copy)]
pub(super) struct SealedSummary {
    pub(super) id: holdfast_types::ids::ContainerId,
    pub(super) class: ContainerClass,
    pub(super) stored_bytes: u64,
    pub(super) plain_bytes: u64,
    pub(super) chunk_count: u64,
    pub(super) created_ms: i64,
}

impl Filler {
    pub(super) const fn new(core: Arc<Core>, domain: Domain, class: ContainerClass) -> Self {
        Self {
            core,
            domain,
            class,
            open: None,
            sealing: VecDeque::new(),
            sealed: Vec::new(),
            sealed_bytes: 0,
        }
    }

    /// Appends a region; seals the container before when it is full.
    pub(super) fn append(&mut self, region: &VerifiedRegion) -> Result<(), EngineError> {
        if self.open.as_ref().is_some_and(|open| !open.fits(region)) {
            self.seal_open()?;
        }
        let mut writer = match self.open.take() {
            Some(writer) => writer,
            None => self.create()?,
        };
        writer.append(region).map_err(|error| self.core.write_failure(error.into()))?;
        self.open = Some(writer);
        Ok(())
    }

    fn create(&self) -> Result<ContainerWriter, EngineError> {
        self.core.check_writable_for(u64::from(holdfast_proto::limits::CONTAINER_MAX_BYTES))?;
        let core = &self.core;
        let id = core.next_container()?;
        ContainerWriter::create(
            &*core.volume,
            core.repository,
            self.domain.namespace,
            id,
            self.class,
            core.clock.now_ms(),
        )
        .map_err(|error| core.write_failure(error.into()))
    }

    /// Directories of containers that became durable since the last call; waits for all when `wait` is set.
    pub(super) fn take_sealed(&mut self, wait: bool) -> Result<Vec<Directory>, EngineError> {
        let mut directories = Vec::new();
        while let Some(front) = self.sealing.front() {
            let outcome = if wait || self.sealing.len() > SEALING_MAX {
                front
                    .recv()
                    .map_err(|_| EngineError::Internal("a seal thread stopped unexpectedly".into()))?
            } else {
                let Ok(outcome) = front.try_recv() else { break };
                outcome
            };
            self.sealing.pop_front();
            let sealed = outcome?;
            self.sealed_bytes += sealed.stored_bytes;
            self.sealed.push(SealedSummary {
                id: sealed.id,
                class: self.class,
                stored_bytes: sealed.stored_bytes,
                plain_bytes: sealed.directory.plain_bytes(),
                chunk_count: sealed.directory.chunk_count() as u64,
                created_ms: sealed.created_ms,
            });
            directories.push(sealed.directory);
        }
        Ok(directories)
    }

    /// Begins to seal the open container, if there is one.
    pub(super) fn seal_open(&mut self) -> Result<(), EngineError> {
        let Some(writer) = self.open.take() else { return Ok(()) };
        let (sender, receiver) = bounded(1);
        let core = Arc::clone(&self.core);
        let domain = self.domain.clone();
        self.core.seal_pool.spawn(move || {
            let _ = sender.send(seal(&core, &domain, writer));
        });
        self.sealing.push_back(receiver);
        Ok(())
    }

    /// Discards the open container; what was sealed stays.
    pub(super) fn discard_open(&mut self) {
        self.open = None;
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

/// Steps 2 to 5 of the write order: directory and footer, fdatasync, rename, fsync of the folder, index.
fn seal(core: &Core, domain: &Domain, writer: ContainerWriter) -> Outcome {
    let class = writer.class();
    let sealed = writer.seal().map_err(|error| core.write_failure(error.into()))?;
    let key = domain.key(class);
    let entries = sealed.directory.iter().map(|(fingerprint, region, slot)| {
        (key.of(&fingerprint), Location { container: sealed.id, region, slot })
    });
    core.store.index.insert_container(sealed.id, entries)?;
    Ok(sealed)
}
