//! A disk's recipe: the tree of its extents, packed into recipe containers.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::REGION_PLAIN_MAX_BYTES;
use holdfast_proto::region::{DEFAULT_LEVEL, Encoder};
use holdfast_types::ids::{ContainerClass, ContainerId};
use roaring::RoaringTreemap;

use super::append::{ContainerAppender, SealedSummary};
use crate::container::{RecentDirectories, VerifiedRegion};
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::ExtentEntry;
use crate::quota::SessionCharge;
use crate::recipe::{BuildError, NodeSink, TreeBuilder};
use crate::store::{Domain, Holds};

/// A disk's unfinished recipe: the tree, and the recipe containers its nodes go to.
#[derive(Debug)]
pub(super) struct RecipeWriter {
    tree: TreeBuilder,
    sink: NodePacker,
}

impl RecipeWriter {
    pub(super) fn new(
        core: &Arc<Core>,
        domain: &Domain,
        size_bytes: u64,
        charge: &Arc<SessionCharge>,
    ) -> Self {
        Self { tree: TreeBuilder::new(size_bytes), sink: NodePacker::new(core, domain, charge) }
    }

    /// Returns true if extent `index` was set already.
    pub(super) fn has(&self, index: u64) -> bool {
        self.tree.has(index)
    }

    /// Sets extent `index`, whose node was [put](RecipeWriter::put).
    pub(super) fn set(&mut self, index: u64, entry: ExtentEntry) -> Result<(), EngineError> {
        self.tree.set(index, entry, &mut self.sink).map_err(build_error)
    }

    /// Sets all extents of a range to zero, at the cost of one.
    pub(super) fn set_zero(&mut self, range: std::ops::Range<u64>) -> Result<(), EngineError> {
        self.tree.set_zero(range, &mut self.sink).map_err(build_error)
    }

    /// Memory it takes, about.
    pub(super) fn memory_bytes(&self) -> u64 {
        const NODE_BYTES: usize = 96;
        let nodes = self.sink.own.len() * NODE_BYTES + self.sink.packed_bytes;
        self.tree.memory_bytes() + nodes as u64 + self.sink.holds.memory_bytes()
    }

    /// Lets go of what was built, which will not be finished.
    pub(super) fn clear(&mut self, size_bytes: u64) {
        self.tree = TreeBuilder::new(size_bytes);
        self.sink.own = HashSet::new();
        self.sink.packed = Vec::new();
        self.sink.packed_bytes = 0;
        self.sink.recent = RecentDirectories::default();
    }

    /// Stores a node unless the repository has it.
    pub(super) fn put(&mut self, node: Vec<u8>) -> Result<Fingerprint, EngineError> {
        self.sink.put(node)
    }

    pub(super) const fn accepted(&self) -> u64 {
        self.tree.accepted()
    }

    pub(super) fn accepted_ranges(&self) -> Vec<(u64, u64)> {
        self.tree.accepted_ranges()
    }

    /// Completes the tree; its nodes are packed but not durable yet.
    pub(super) fn finish(&mut self) -> Result<Fingerprint, EngineError> {
        self.tree.finish(&mut self.sink).map_err(build_error)
    }

    /// Begins to seal what is packed.
    pub(super) fn seal(&mut self) -> Result<(), EngineError> {
        self.sink.flush()?;
        self.sink.appender.seal_open();
        Ok(())
    }

    /// Waits until every node is durable and indexed.
    pub(super) fn wait_sealed(&mut self) -> Result<(), EngineError> {
        self.sink.forget_sealed(true)
    }

    /// Containers this recipe refers to: those of its own, and those in which nodes were found.
    pub(super) fn relies_on(&self) -> RoaringTreemap {
        let mut containers = self.sink.holds.containers().clone();
        containers.extend(self.sink.appender.created().into_iter().map(ContainerId::get));
        containers
    }

    /// Containers of its own, finished or not.
    pub(super) fn created(&self) -> Vec<ContainerId> {
        self.sink.appender.created()
    }

    /// The session ended without a restore point.
    pub(super) fn release(&mut self) {
        self.sink.holds.release();
    }

    pub(super) fn discard_open(&mut self) {
        self.sink.appender.discard_open();
    }

    pub(super) fn sealed(&self) -> &[SealedSummary] {
        self.sink.appender.sealed()
    }

    pub(super) const fn sealed_bytes(&self) -> u64 {
        self.sink.appender.sealed_bytes()
    }
}

fn build_error(error: BuildError<EngineError>) -> EngineError {
    match error {
        BuildError::Sink(source) => source,
        refused => EngineError::Invalid(refused.to_string()),
    }
}

/// Packs nodes into regions of recipe containers; nodes the repository has are not stored again.
#[derive(Debug)]
struct NodePacker {
    core: Arc<Core>,
    domain: Domain,
    appender: ContainerAppender,
    encoder: Option<Encoder>,
    packed: Vec<(Fingerprint, Vec<u8>)>,
    packed_bytes: usize,
    /// Nodes of this recipe that are not in the index yet.
    own: HashSet<Fingerprint>,
    recent: RecentDirectories,
    /// Containers in which nodes were found that need not be stored again.
    holds: Holds,
    damage_seen: u64,
}

impl NodePacker {
    fn new(core: &Arc<Core>, domain: &Domain, charge: &Arc<SessionCharge>) -> Self {
        let (class, charge) = (ContainerClass::Recipe, Arc::clone(charge));
        Self {
            core: Arc::clone(core),
            domain: domain.clone(),
            appender: ContainerAppender::new(Arc::clone(core), domain.clone(), class, charge),
            encoder: None,
            packed: Vec::new(),
            packed_bytes: 0,
            own: HashSet::new(),
            recent: RecentDirectories::default(),
            holds: core.store.leftovers.holds(),
            damage_seen: core.store.damage_generation(domain.namespace),
        }
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        if self.packed.is_empty() {
            return Ok(());
        }
        let mut encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => Encoder::new(DEFAULT_LEVEL)?,
        };
        let chunks: Vec<(Fingerprint, &[u8])> =
            self.packed.iter().map(|(name, node)| (*name, node.as_slice())).collect();
        let region = VerifiedRegion::encode(&chunks, &mut encoder)?;
        self.encoder = Some(encoder);
        self.packed.clear();
        self.packed_bytes = 0;
        self.appender.append(&region)?;
        self.forget_sealed(false)
    }

    /// Returns true if the node is stored already.
    fn is_stored(&mut self, name: &Fingerprint) -> Result<bool, EngineError> {
        // (A7) A sealed container of this stream may be among what was found damaged: then its nodes are
        // looked up like any others.
        let generation = self.core.store.damage_generation(self.domain.namespace);
        if self.damage_seen != generation {
            self.forget_sealed(true)?;
            self.damage_seen = generation;
        }
        if self.own.contains(name) {
            return Ok(true);
        }
        let found = self.core.store.find_and_hold(
            &self.domain,
            ContainerClass::Recipe,
            name,
            &mut self.recent,
            &mut self.holds,
        )?;
        Ok(found.is_some())
    }

    /// Nodes of sealed containers are in the index now.
    fn forget_sealed(&mut self, wait: bool) -> Result<(), EngineError> {
        for directory in self.appender.take_sealed(wait)? {
            for (fingerprint, _, _) in directory.iter() {
                self.own.remove(&fingerprint);
            }
        }
        Ok(())
    }
}

impl NodeSink for NodePacker {
    type Error = EngineError;

    fn put(&mut self, node: Vec<u8>) -> Result<Fingerprint, EngineError> {
        let name = Fingerprint::of(&node);
        if self.is_stored(&name)? {
            return Ok(name);
        }
        if self.packed_bytes + node.len() > REGION_PLAIN_MAX_BYTES as usize {
            self.flush()?;
        }
        self.packed_bytes += node.len();
        self.own.insert(name);
        self.packed.push((name, node));
        Ok(name)
    }
}
