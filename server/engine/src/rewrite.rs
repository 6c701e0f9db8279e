//! Regions of sealed containers on their way into new ones: of damaged containers, and of those that reclaim empties.
//!
//! A region is decoded and every chunk of it hashed before it is written again (W1); one that its agent sealed is found to
//! be what was sent (N1), and goes over as a whole. A container grows only with a
//! grant (W10), and its chunks are in the index only once it is durable (W2, W3). A crash leaves an unfinished blob,
//! which the next start discards, or a container the catalog does not know, which it adopts.

use bytes::Bytes;
use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_proto::region::Decoder;
use holdfast_types::ids::{ContainerClass, Location, NamespaceId};

use crate::container::{
    ContainerError, ContainerWriter, OpenContainer, SealedContainer, StoredRegion, UnverifiedRegion,
    VerifiedRegion,
};
use crate::core::Core;
use crate::error::EngineError;
use crate::space::{Grant, Purpose};
use crate::store::Domain;

/// (W1) A region as it is stored, and its plain bytes, once these hash to the names they are given. `None`: it is sealed,
/// and bound to them (N1).
pub(crate) fn verified(
    open: &OpenContainer,
    stored: StoredRegion,
    decoder: &mut Decoder,
) -> Result<(VerifiedRegion, Option<Bytes>), ContainerError> {
    let StoredRegion { region, codec, plain_bytes, payload } = stored;
    let (fingerprints, ends) = open.directory().region_chunks(region).ok_or_else(|| {
        let (container, count) = (open.name().clone(), open.directory().region_count());
        ContainerError::NoSuchRegion { container, region, count }
    })?;
    let mut start = 0;
    let lengths = ends.iter().map(|end| end - std::mem::replace(&mut start, *end)).collect();
    let unverified =
        UnverifiedRegion { codec, plain_bytes, fingerprints: fingerprints.to_vec(), lengths, payload };
    unverified.verify(decoder).map_err(|source| {
        let container = open.name().clone();
        ContainerError::Content { container, region, source }
    })
}

/// Fills containers of one namespace and class, one after the other: one is open at a time.
#[derive(Debug)]
pub(crate) struct Rewriter<'a> {
    core: &'a Core,
    domain: Domain,
    class: ContainerClass,
    purpose: Purpose,
    /// The open container, and the room it was promised.
    open: Option<(ContainerWriter, Grant)>,
}

impl<'a> Rewriter<'a> {
    pub(crate) fn new(
        core: &'a Core,
        namespace: NamespaceId,
        class: ContainerClass,
        purpose: Purpose,
    ) -> Self {
        Self { core, domain: core.store.domain(namespace), class, purpose, open: None }
    }

    /// Key domain in which its chunks are found.
    pub(crate) const fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Returns true if `region` fits into the open container.
    pub(crate) fn has_room_for(&self, region: &VerifiedRegion) -> bool {
        self.open.as_ref().is_some_and(|(writer, _)| writer.fits(region))
    }

    /// Appends a region; the caller [seals](Self::seal) the container before when it
    /// [has no room](Self::has_room_for).
    ///
    /// # Errors
    /// [`EngineError::Full`] without a grant: nothing was done, and what was appended before can be sealed. When the
    /// volume fails, the open container is discarded.
    pub(crate) fn append(&mut self, region: &VerifiedRegion) -> Result<(), EngineError> {
        let core = self.core;
        if self.open.is_none() {
            self.open = Some(self.create(region)?);
        }
        let Some((writer, room)) = &mut self.open else {
            return Err(EngineError::Internal("no container is open to append to".into()));
        };
        // (W10) Promised before it is written, with the directory that the seal will add.
        room.cover(writer.stored_bytes_with(region))?;
        let appended = writer.append(region);
        room.wrote(writer.written_bytes());
        appended.map(drop).map_err(|error| {
            // A partly written container cannot be sealed.
            self.open = None;
            core.write_failure(error.into())
        })
    }

    /// Makes the open container durable and its chunks known to the index; `None` when none is open.
    ///
    /// # Errors
    /// The container is then discarded, or durable and unknown, for the next start to adopt.
    pub(crate) fn seal(&mut self) -> Result<Option<SealedContainer>, EngineError> {
        let Some((writer, room)) = self.open.take() else { return Ok(None) };
        let core = self.core;
        // (W2)
        let sealed = writer.seal().map_err(|error| core.write_failure(error.into()))?;
        room.sealed(sealed.stored_bytes);
        let key = self.domain.key(self.class);
        let entries = sealed.directory.iter().map(|(fingerprint, region, slot)| {
            (key.of(&fingerprint), Location { container: sealed.id, region, slot })
        });
        // (W3) Durable by now.
        core.store.index.insert_container(sealed.id, entries)?;
        Ok(Some(sealed))
    }

    fn create(&self, first: &VerifiedRegion) -> Result<(ContainerWriter, Grant), EngineError> {
        let core = self.core;
        core.check_writable()?;
        // (W10) Not by deleting what failed sessions left: that is the caller's to choose.
        let mut room = Grant::new(&core.ledger, self.purpose);
        room.cover(ContainerWriter::bytes_of_first(first))?;
        let id = core.next_container()?;
        let (namespace, now_ms) = (self.domain.namespace, core.clock.now_ms());
        let owner = (core.repository, namespace);
        let writer = ContainerWriter::create_for(&*core.volume, owner, id, self.class, now_ms, first)
            .map_err(|error| core.write_failure(error.into()))?;
        Ok((writer, room))
    }
}

/// Catalog record of a container that was not written by a backup.
pub(crate) fn record_of(sealed: &SealedContainer) -> ContainerRecord {
    ContainerRecord {
        id: sealed.id,
        class: sealed.class,
        namespace: sealed.namespace,
        stored_bytes: sealed.stored_bytes,
        plain_bytes: sealed.directory.plain_bytes(),
        chunk_count: sealed.directory.chunk_count() as u64,
        created_ms: sealed.created_ms,
        run: None,
        state: ContainerState::Live,
    }
}
