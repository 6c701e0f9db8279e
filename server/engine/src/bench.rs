//! For the benchmarks of the index and of marking alone; nothing else uses it, and it may change at any time.

use std::collections::HashSet;

use bytes::Bytes;
use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{EXTENT_BYTES, REGION_PLAIN_MAX_BYTES};
use holdfast_proto::region::{Codec, Encoder};
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, NamespaceId, VmId};
use ulid::Ulid;

use crate::container::{ContainerName, ContainerWriter, VerifiedRegion};
use crate::core::Core;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::format::container::{Contents, Footer, Header, RegionRecord, encode_directory};
use crate::format::recipe::{ExtentEntry, ExtentNode, PieceRef};
use crate::recipe::{BuildError, NodeSink, TreeBuilder};
use crate::reclaim::Control;
use crate::reclaim::live::{Candidates, Scope, WINDOW_BYTES, is_live_data};
use crate::reclaim::mark::mark;
use crate::reclaim::mix;
use crate::reclaim::roots::{Root, Roots};

pub use crate::index::{Index, IndexKey, NamespaceKey};

/// Chunks of an extent, all of one length: 16 KiB.
const CHUNKS: u32 = 256;
/// Chunks of a region, 256 KiB, and of a container: 32 MiB of data that halves.
const REGION_CHUNKS: usize = 16;
const CONTAINER_CHUNKS: usize = 4096;
/// Extents that change together, and chunks of each that do.
const RUN_EXTENTS: u64 = 4;
const RUN_CHUNKS: u64 = 77;

/// The repository to make.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub vms: u32,
    /// Extents of each VM's only disk.
    pub extents: u64,
    /// Backups of each VM: a first full, then daily changes.
    pub days: u32,
    /// Extents that change in a day, in thousandths.
    pub changed_permille: u64,
}

/// The recipes of all backups that were made.
#[derive(Debug)]
pub struct Made {
    roots: Vec<Root>,
    /// Chunks stored.
    pub chunks: u64,
}

/// Time and memory that a mark of it took.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// References to chunks that were followed, in all windows.
    pub references: u64,
    pub live_chunks: u64,
    pub containers: u64,
    pub windows: u64,
}

/// Fills an empty repository.
///
/// # Errors
/// Errors of writing containers and the catalog.
pub fn fill(engine: &Engine, namespace: NamespaceId, shape: Shape) -> Result<Made, EngineError> {
    let core = engine.core();
    let mut made = Made { roots: Vec::new(), chunks: 0 };
    let mut recipes = Recipes::new(core, namespace)?;
    for vm in 0..shape.vms {
        let mut disk = Disk::new(vm, shape.extents);
        for day in 0..shape.days {
            let mut data = Data { core, namespace, fingerprints: Vec::new() };
            disk.change(day, shape.changed_permille, &mut data, &mut recipes)?;
            made.chunks += disk.written;
            data.seal()?;
            let fingerprint = disk.tree(&mut recipes)?;
            made.roots.push(Root {
                namespace,
                vm: VmId(Ulid(vm.into())),
                backup: BackupId(Ulid(u128::from(day) << 32 | u128::from(vm))),
                disk: "disk".into(),
                size_bytes: shape.extents * u64::from(EXTENT_BYTES),
                fingerprint,
                committed_ms: day.into(),
            });
        }
    }
    recipes.seal()?;
    core.store.index.checkpoint()?;
    core.store.index.settle()?;
    Ok(made)
}

/// Marks all of it.
///
/// # Errors
/// Errors of reading; something that is not found.
pub fn measure(engine: &Engine, made: &Made) -> Result<Measured, EngineError> {
    let core = engine.core();
    let roots: Roots = made.roots.iter().cloned().collect();
    let (scope, control) = (Scope::all(), Control::default());
    let mut measured = Measured { references: 0, live_chunks: 0, containers: 0, windows: 0 };
    let mut after = None;
    while let Some((candidates, last)) = Candidates::window(&core.catalog, after, WINDOW_BYTES, is_live_data)?
    {
        let marked = mark(core, &roots, &candidates, &scope, &control)?;
        if let Some(finding) = marked.incomplete.values().flatten().next() {
            return Err(EngineError::Internal(format!("the mark is not complete: {}", finding.reason)));
        }
        measured.references += marked.references;
        measured.live_chunks += marked.live.iter().map(|(_, live)| u64::from(live.live())).sum::<u64>();
        measured.containers += marked.live.len() as u64;
        measured.windows += 1;
        after = Some(last);
    }
    Ok(measured)
}

/// One VM's disk: of each chunk the day it was written last, and of each extent its entry.
struct Disk {
    vm: u32,
    days: Vec<[u32; CHUNKS as usize]>,
    entries: Vec<ExtentEntry>,
    /// Chunks the last backup wrote.
    written: u64,
}

impl Disk {
    fn new(vm: u32, extents: u64) -> Self {
        let extents = usize::try_from(extents).unwrap_or(usize::MAX);
        let entries = vec![ExtentEntry::ZERO; extents];
        Self { vm, days: vec![[0; CHUNKS as usize]; extents], entries, written: 0 }
    }

    /// Makes one day's backup: new chunks to `data`, new nodes to `recipes`.
    fn change(
        &mut self,
        day: u32,
        permille: u64,
        data: &mut Data<'_>,
        recipes: &mut Recipes<'_>,
    ) -> Result<(), EngineError> {
        self.written = 0;
        let seed = u64::from(self.vm) << 32 | u64::from(day);
        for ((extent, days), entry) in (0u64..).zip(&mut self.days).zip(&mut self.entries) {
            let drawn = mix(mix(seed) ^ (extent / RUN_EXTENTS));
            if day > 0 && drawn % 1000 >= permille {
                continue;
            }
            let first = if day == 0 { 0 } else { mix(drawn ^ extent) % (u64::from(CHUNKS) - RUN_CHUNKS) };
            let last = if day == 0 { u64::from(CHUNKS) } else { first + RUN_CHUNKS };
            let mut pieces = Vec::with_capacity(CHUNKS as usize);
            for (chunk, written) in (0u64..).zip(days) {
                let is_new = (first..last).contains(&chunk);
                if is_new {
                    *written = day;
                }
                let fingerprint = name(self.vm, extent, chunk, *written);
                if is_new {
                    data.push(fingerprint)?;
                    self.written += 1;
                }
                pieces.push(PieceRef { fingerprint, bytes: EXTENT_BYTES / CHUNKS });
            }
            let node = ExtentNode::new(EXTENT_BYTES, pieces).map_err(internal)?;
            *entry = ExtentEntry {
                node: recipes.put(node.encode())?,
                digest: name(self.vm, extent, u64::MAX, day),
                data_bytes: EXTENT_BYTES,
            };
        }
        Ok(())
    }

    /// Writes the pages that are new; the root.
    fn tree(&self, recipes: &mut Recipes<'_>) -> Result<Fingerprint, EngineError> {
        let mut builder = TreeBuilder::new(self.entries.len() as u64 * u64::from(EXTENT_BYTES));
        for (extent, entry) in (0u64..).zip(&self.entries) {
            builder.set(extent, *entry, recipes).map_err(build_error)?;
        }
        builder.finish(recipes).map_err(build_error)
    }
}

fn build_error(error: BuildError<EngineError>) -> EngineError {
    match error {
        BuildError::Sink(error) => error,
        other => internal(other),
    }
}

fn internal(error: impl std::fmt::Display) -> EngineError {
    EngineError::Internal(error.to_string())
}

/// A name that no other chunk has, as good as a hash.
fn name(vm: u32, extent: u64, chunk: u64, day: u32) -> Fingerprint {
    let mut bytes = [0; 32];
    let mut word = mix(u64::from(vm) << 32 | u64::from(day)) ^ mix(extent << 16 ^ chunk);
    for part in bytes.chunks_mut(8) {
        word = mix(word.wrapping_add(0x9E37_79B9_7F4A_7C15));
        part.copy_from_slice(&word.to_le_bytes());
    }
    Fingerprint::from_bytes(bytes)
}

/// The data containers of one backup.
struct Data<'c> {
    core: &'c Core,
    namespace: NamespaceId,
    fingerprints: Vec<Fingerprint>,
}

impl Data<'_> {
    fn push(&mut self, fingerprint: Fingerprint) -> Result<(), EngineError> {
        self.fingerprints.push(fingerprint);
        if self.fingerprints.len() == CONTAINER_CHUNKS { self.seal() } else { Ok(()) }
    }

    /// Writes a container whose regions have one byte each.
    fn seal(&mut self) -> Result<(), EngineError> {
        let fingerprints = std::mem::take(&mut self.fingerprints);
        if fingerprints.is_empty() {
            return Ok(());
        }
        let (id, class) = (self.core.next_container()?, ContainerClass::Data);
        let (repository, namespace) = (self.core.repository, self.namespace);
        let header = Header { class, repository, namespace, id, created_ms: 0, sealed: false };
        let mut file = header.encode().to_vec();
        let mut contents = Contents::default();
        for chunks in fingerprints.chunks(REGION_CHUNKS) {
            let count = u16::try_from(chunks.len()).map_err(internal)?;
            let plain_bytes = u32::from(count) * (EXTENT_BYTES / CHUNKS);
            let record = RegionRecord {
                offset: u32::try_from(file.len()).map_err(internal)?,
                stored_bytes: 1,
                plain_bytes,
                payload_crc: 0,
                chunk_count: count,
                codec: Codec::Zstd,
            };
            file.extend_from_slice(&record.encode_header());
            file.push(0);
            contents.regions.push(record);
            contents.ends.extend((1..=u32::from(count)).map(|chunk| chunk * (EXTENT_BYTES / CHUNKS)));
        }
        contents.fingerprints = fingerprints;
        let directory_offset = u32::try_from(file.len()).map_err(internal)?;
        let directory = encode_directory(id, &contents).map_err(internal)?;
        file.extend_from_slice(&directory);
        let total_bytes =
            u32::try_from(file.len() + crate::format::container::FOOTER_BYTES).map_err(internal)?;
        let directory_bytes = u32::try_from(directory.len()).map_err(internal)?;
        let footer = Footer { directory_offset, directory_bytes, id, total_bytes, sealed: false };
        file.extend_from_slice(&footer.encode());
        let mut blob = self.core.store.containers.volume().create(&ContainerName { id, class }.blob())?;
        blob.append(&file)?;
        blob.seal()?;
        enter(self.core, id, class)
    }
}

/// Makes index and catalog know a container.
fn enter(core: &Core, id: ContainerId, class: ContainerClass) -> Result<(), EngineError> {
    let open = core.store.containers.open(id, class)?;
    core.store.index_container(&open)?;
    let record = ContainerRecord {
        id,
        class,
        namespace: open.namespace(),
        stored_bytes: open.stored_bytes(),
        plain_bytes: open.directory().plain_bytes(),
        chunk_count: open.directory().chunk_count() as u64,
        created_ms: 0,
        run: None,
        state: ContainerState::Live,
    };
    Ok(core.catalog.add_containers(&[record])?)
}

/// Packs nodes as backups do.
struct Recipes<'c> {
    core: &'c Core,
    namespace: NamespaceId,
    encoder: Encoder,
    /// Nodes of the region in progress.
    nodes: Vec<(Fingerprint, Bytes)>,
    node_bytes: usize,
    known: HashSet<Fingerprint>,
    writer: Option<ContainerWriter>,
}

impl<'c> Recipes<'c> {
    fn new(core: &'c Core, namespace: NamespaceId) -> Result<Self, EngineError> {
        let encoder = Encoder::new(1).map_err(internal)?;
        let (nodes, known) = (Vec::new(), HashSet::new());
        Ok(Self { core, namespace, encoder, nodes, node_bytes: 0, known, writer: None })
    }

    fn end_region(&mut self) -> Result<(), EngineError> {
        let nodes = std::mem::take(&mut self.nodes);
        self.node_bytes = 0;
        if nodes.is_empty() {
            return Ok(());
        }
        let chunks: Vec<_> = nodes.iter().map(|(name, bytes)| (*name, &**bytes)).collect();
        let region = VerifiedRegion::encode(&chunks, &mut self.encoder).map_err(internal)?;
        if self.writer.as_ref().is_some_and(|writer| !writer.fits(&region)) {
            self.end_container()?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let (id, class) = (self.core.next_container()?, ContainerClass::Recipe);
                let volume = self.core.store.containers.volume();
                let repository = self.core.repository;
                let writer = ContainerWriter::create(volume, repository, self.namespace, id, class, 0)?;
                none.insert(writer)
            }
        };
        writer.append(&region)?;
        Ok(())
    }

    fn end_container(&mut self) -> Result<(), EngineError> {
        match self.writer.take() {
            Some(writer) => {
                let sealed = writer.seal()?;
                enter(self.core, sealed.id, sealed.class)
            }
            None => Ok(()),
        }
    }

    fn seal(mut self) -> Result<(), EngineError> {
        self.end_region()?;
        self.end_container()
    }
}

impl NodeSink for Recipes<'_> {
    type Error = EngineError;

    fn put(&mut self, node: Vec<u8>) -> Result<Fingerprint, EngineError> {
        let name = Fingerprint::of(&node);
        if self.known.insert(name) {
            if self.node_bytes + node.len() > REGION_PLAIN_MAX_BYTES as usize {
                self.end_region()?;
            }
            self.node_bytes += node.len();
            self.nodes.push((name, node.into()));
        }
        Ok(name)
    }
}
