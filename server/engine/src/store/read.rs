//! Reading found chunks: checked bytes of regions, chunks and recipe nodes.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_proto::region::Codec;
use holdfast_types::ids::{ContainerClass, Location};
use parking_lot::Mutex;

use super::Domain;
use super::chunks::{ChunkStore, Found};
use crate::container::{CheckedBytes, ContainerError, OpenContainer, RecentDirectories, StoredRegion};
use crate::error::EngineError;
use crate::recipe::{NodeSource, WalkError};

/// Results of reading a chunk where that is allowed.
#[derive(Debug, Clone)]
pub(crate) enum ReadFrom {
    Chunk(ReadChunk),
    /// Only in a place that is not to be read.
    Elsewhere,
    /// No sound copy.
    Lacks,
}

/// A chunk that was read and checked.
#[derive(Debug, Clone)]
pub(crate) enum ReadChunk {
    Plain(Bytes),
    /// The region it lies in, which only agents can decode, and where in its plain bytes.
    Sealed {
        stored: StoredRegion,
        offset: u32,
        bytes: u32,
    },
}

impl ReadChunk {
    /// Its plain length.
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Sealed { bytes, .. } => *bytes as usize,
        }
    }
}

impl ChunkStore {
    /// The decoded, checked plain bytes of a region of `container`; of a sealed one what can be checked of it.
    pub(crate) fn read_region(
        &self,
        container: &OpenContainer,
        region: u16,
    ) -> Result<CheckedBytes, ContainerError> {
        // The regions of a salvaged container may have other numbers than those of the same container when it is whole.
        if container.is_salvaged() {
            return container.read_region(region)?.checked(container);
        }
        match self.decoded.get(container.id(), region) {
            Some(checked) => Ok(checked),
            None => self.check(container, &container.read_region(region)?),
        }
    }

    /// The plain bytes of a region read from `container` that is not sealed, for an agent, which proves what it gets: chunks
    /// are not compared with their fingerprints here (R2).
    pub(crate) fn decode_for_agent(
        &self,
        container: &OpenContainer,
        stored: &StoredRegion,
    ) -> Result<Bytes, ContainerError> {
        match self.decoded.get(container.id(), stored.region) {
            Some(CheckedBytes::Plain(plain)) => Ok(plain),
            _ => stored.plain(container.name()),
        }
    }

    fn check(
        &self,
        container: &OpenContainer,
        stored: &StoredRegion,
    ) -> Result<CheckedBytes, ContainerError> {
        // (R2) Checked against every fingerprint before any of it is handed out.
        let checked = stored.checked(container)?;
        self.decoded.insert(container.id(), stored.region, checked.clone());
        Ok(checked)
    }

    /// Reads one chunk, from another copy when one is damaged. `Ok(None)`: there is no sound copy.
    ///
    /// # Errors
    /// [`EngineError::Sealed`] for one that its agent sealed.
    pub(crate) fn read_chunk(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
    ) -> Result<Option<Bytes>, EngineError> {
        match self.read_stored(domain, class, fingerprint, recent)? {
            Some(ReadChunk::Plain(bytes)) => Ok(Some(bytes)),
            Some(ReadChunk::Sealed { .. }) => Err(EngineError::Sealed),
            None => Ok(None),
        }
    }

    /// As [`ChunkStore::read_chunk`], also of chunks that agents sealed.
    pub(crate) fn read_stored(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
    ) -> Result<Option<ReadChunk>, EngineError> {
        match self.read_from(domain, class, fingerprint, recent, |_| true)? {
            ReadFrom::Chunk(chunk) => Ok(Some(chunk)),
            ReadFrom::Lacks | ReadFrom::Elsewhere => Ok(None),
        }
    }

    /// As [`ChunkStore::read_stored`], if nothing far away is asked for it.
    pub(crate) fn read_at_hand(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
    ) -> Result<ReadFrom, EngineError> {
        self.read_from(domain, class, fingerprint, recent, OpenContainer::is_at_hand)
    }

    fn read_from(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
        may_read: fn(&OpenContainer) -> bool,
    ) -> Result<ReadFrom, EngineError> {
        match self.read_copy(domain, class, fingerprint, recent, may_read)? {
            ReadFrom::Lacks => {
                let salvaged = self.read_salvaged(domain, class, fingerprint)?;
                Ok(salvaged.map_or(ReadFrom::Lacks, ReadFrom::Chunk))
            }
            done => Ok(done),
        }
    }

    /// As [`ChunkStore::read_chunk`], only of what counts as a copy: nothing out of damaged containers, nor what parity
    /// makes again.
    pub(super) fn read_sound_chunk(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
    ) -> Result<Option<Bytes>, EngineError> {
        match self.read_copy(domain, class, fingerprint, recent, |_| true)? {
            ReadFrom::Chunk(ReadChunk::Plain(bytes)) => Ok(Some(bytes)),
            ReadFrom::Chunk(ReadChunk::Sealed { .. }) => Err(EngineError::Sealed),
            ReadFrom::Lacks | ReadFrom::Elsewhere => Ok(None),
        }
    }

    fn read_copy(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
        may_read: fn(&OpenContainer) -> bool,
    ) -> Result<ReadFrom, EngineError> {
        while let Some(found) = self.find_to_read(domain, class, fingerprint, recent)? {
            let Location { container, region, .. } = found.location;
            if !may_read(&found.container) {
                return Ok(ReadFrom::Elsewhere);
            }
            match self.read_found(&found) {
                Ok(chunk) => return Ok(ReadFrom::Chunk(chunk)),
                // (R4) Another copy is used when there is one.
                Err(error) if error.is_damage() => {
                    self.note_failure(container, Some(region), &error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(ReadFrom::Lacks)
    }

    fn read_found(&self, found: &Found) -> Result<ReadChunk, ContainerError> {
        let Found { container, chunk, .. } = found;
        let region = found.location.region;
        let place = |plain_bytes| container.chunk_range(region, chunk, plain_bytes);
        match self.read_region(container, region)? {
            CheckedBytes::Plain(plain) => Ok(ReadChunk::Plain(plain.slice(place(plain.len())?))),
            CheckedBytes::Sealed(payload) => {
                // It was just read by its record.
                let plain_bytes = container.directory().region(region).map_or(0, |record| record.plain_bytes);
                place(plain_bytes as usize)?;
                let stored = StoredRegion { region, codec: Codec::Sealed, plain_bytes, payload };
                Ok(ReadChunk::Sealed { stored, offset: chunk.offset, bytes: chunk.bytes })
            }
        }
    }

    /// Reads one chunk of a damaged container. `Ok(None)`: none has it.
    fn read_salvaged(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
    ) -> Result<Option<ReadChunk>, EngineError> {
        let Some(found) = self.find_salvaged(domain, class, fingerprint)? else { return Ok(None) };
        match self.read_found(&found) {
            Ok(chunk) => Ok(Some(chunk)),
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads the recipe nodes of one namespace.
#[derive(Debug)]
pub(crate) struct NodeReader {
    store: Arc<ChunkStore>,
    domain: Domain,
    recent: Mutex<RecentDirectories>,
    sound_only: bool,
}

impl NodeReader {
    pub(crate) fn new(store: Arc<ChunkStore>, domain: Domain) -> Self {
        Self { store, domain, recent: Mutex::new(RecentDirectories::default()), sound_only: false }
    }

    /// As [`NodeReader::new`]; what can only be had out of damaged containers, or of parity, is missing.
    pub(crate) fn of_sound_copies(store: Arc<ChunkStore>, domain: Domain) -> Self {
        Self { sound_only: true, ..Self::new(store, domain) }
    }

    /// As [`NodeReader::new`], of what lies on the volume (R9).
    pub(crate) fn proving(store: Arc<ChunkStore>, domain: Domain) -> Self {
        Self { recent: Mutex::new(RecentDirectories::proving()), ..Self::new(store, domain) }
    }

    /// Returns true if copies in damaged containers do not count.
    pub(crate) const fn is_sound_only(&self) -> bool {
        self.sound_only
    }

    pub(crate) const fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(crate) const fn store(&self) -> &Arc<ChunkStore> {
        &self.store
    }
}

impl NodeSource for NodeReader {
    type Error = EngineError;

    fn node(&self, fingerprint: &Fingerprint) -> Result<Bytes, EngineError> {
        let mut recent = self.recent.lock();
        let (store, domain, class) = (&self.store, &self.domain, ContainerClass::Recipe);
        let read = if self.sound_only {
            store.read_sound_chunk(domain, class, fingerprint, &mut recent)
        } else {
            store.read_chunk(domain, class, fingerprint, &mut recent)
        };
        read?.ok_or_else(|| EngineError::Damaged(format!("recipe node {fingerprint} is missing or damaged")))
    }
}

impl WalkError<EngineError> {
    /// Returns true if what is concerned cannot be restored. Going on past it loses nothing else; any other error ends a walk,
    /// which is tried again.
    pub(crate) const fn is_damage(&self) -> bool {
        match self {
            Self::Source(source) => matches!(source, EngineError::Damaged(_)),
            Self::Node { .. } | Self::Shape { .. } | Self::Above(_) => true,
        }
    }
}

impl From<WalkError<Self>> for EngineError {
    fn from(error: WalkError<Self>) -> Self {
        match error {
            WalkError::Source(source) => source,
            damaged @ (WalkError::Node { .. } | WalkError::Shape { .. } | WalkError::Above(_)) => {
                Self::Damaged(damaged.to_string())
            }
        }
    }
}
