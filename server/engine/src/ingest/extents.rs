//! Accepting extents: every chunk they name is there, every length is right, then they enter the recipe.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{
    EXTENTS_PER_MESSAGE_MAX, RANGES_PER_MESSAGE_MAX, REGION_PLAIN_MAX_BYTES, extent_len,
};
use holdfast_proto::region::{DEFAULT_LEVEL, Encoder};
use holdfast_proto::v1;
use holdfast_types::ids::ContainerClass;

use super::filler::{Filler, SealedSummary};
use super::sessions::DiskSlot;
use super::stream::{StreamState, split_fingerprints};
use crate::container::{RecentDirectories, VerifiedRegion};
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::{ExtentEntry, ExtentNode, PieceRef};
use crate::recipe::{BuildError, NodeSink, TreeBuilder};
use crate::store::Domain;

/// Accepts one message of extents.
pub(super) fn accept(
    core: &Core,
    slot: &DiskSlot,
    state: &mut StreamState,
    message: &v1::Extents,
) -> Result<(), EngineError> {
    if message.chunked.len() > EXTENTS_PER_MESSAGE_MAX
        || message.unchanged.len() + message.zero.len() > RANGES_PER_MESSAGE_MAX
    {
        return Err(EngineError::Invalid(format!(
            "the message describes more than {EXTENTS_PER_MESSAGE_MAX} extents or {RANGES_PER_MESSAGE_MAX} ranges"
        )));
    }
    for range in &message.zero {
        let range = checked_range(range, state.recipe.tree.accepted(), slot.size_bytes)?;
        state.recipe.set_zero(range)?;
    }
    for range in &message.unchanged {
        accept_unchanged(slot, state, range)?;
    }
    for extent in &message.chunked {
        accept_chunked(core, state, extent)?;
    }
    Ok(())
}

/// The extents of a range that lies within the disk. Bounded by what is still missing, so that a hostile
/// range costs nothing.
fn checked_range(
    range: &v1::ExtentRange,
    accepted: u64,
    size_bytes: u64,
) -> Result<std::ops::Range<u64>, EngineError> {
    let extents = holdfast_proto::limits::extent_count(size_bytes);
    let end = range.first.checked_add(range.count).filter(|&end| end <= extents);
    let (first, count) = (range.first, range.count);
    match end {
        Some(end) if count <= extents.saturating_sub(accepted) => Ok(first..end),
        _ => Err(EngineError::Invalid(format!(
            "extents {first} + {count} reach past the end of the disk or were sent before (it has {extents}, {accepted} accepted)"
        ))),
    }
}

fn accept_unchanged(
    slot: &DiskSlot,
    state: &mut StreamState,
    range: &v1::ExtentRange,
) -> Result<(), EngineError> {
    let Some(parent) = &slot.parent else {
        return Err(EngineError::Invalid("extents cannot be unchanged: the disk has no parent".into()));
    };
    let std::ops::Range { start: mut at, end } =
        checked_range(range, state.recipe.tree.accepted(), slot.size_bytes)?;
    while at < end {
        let zero_end = parent.zero_until(at).min(end);
        if at < zero_end {
            // Only the last extent of a disk can differ in length.
            parent.unchanged(zero_end - 1, slot.size_bytes)?;
            state.recipe.set_zero(at..zero_end)?;
            at = zero_end;
            continue;
        }
        let entry = parent.unchanged(at, slot.size_bytes)?;
        state.recipe.set(at, entry)?;
        state.counters.unchanged_bytes += u64::from(entry.data_bytes);
        at += 1;
    }
    Ok(())
}

fn accept_chunked(
    core: &Core,
    state: &mut StreamState,
    extent: &v1::ChunkedExtent,
) -> Result<(), EngineError> {
    let index = extent.index;
    let in_extent = |message: String| EngineError::Invalid(format!("extent {index}: {message}"));
    let digest = Fingerprint::from_slice(&extent.digest)
        .ok_or_else(|| in_extent(format!("the digest is {} bytes long, not 32", extent.digest.len())))?;
    let fingerprints = split_fingerprints(&extent.fingerprints, "the extent")?;
    if fingerprints.len() != extent.lengths.len() {
        let (names, lengths) = (fingerprints.len(), extent.lengths.len());
        return Err(in_extent(format!("{names} fingerprints but {lengths} lengths")));
    }
    let pieces = fingerprints
        .into_iter()
        .zip(&extent.lengths)
        .map(|(fingerprint, &bytes)| PieceRef { fingerprint, bytes })
        .collect();
    let expected = extent_len(state.size_bytes, index);
    if expected == 0 {
        return Err(in_extent("it lies past the end of the disk".into()));
    }
    if state.recipe.tree.has(index) {
        return Err(in_extent("it was sent twice".into()));
    }
    let node = ExtentNode::new(expected, pieces).map_err(|error| in_extent(error.to_string()))?;
    for piece in node.pieces().iter().filter(|piece| !piece.is_zero()) {
        state.name_chunk(core, &piece.fingerprint, piece.bytes).map_err(|error| match error {
            EngineError::Invalid(message) => in_extent(message),
            other => other,
        })?;
    }
    if node.data_bytes() == 0 {
        return state.recipe.set(index, ExtentEntry::ZERO);
    }
    let fingerprint = state.recipe.sink.put(node.encode())?;
    let entry = ExtentEntry { node: fingerprint, digest, data_bytes: node.data_bytes() };
    state.recipe.set(index, entry)
}

/// A disk's recipe in the making: the tree, and the recipe containers its nodes go to.
#[derive(Debug)]
pub(super) struct Recipe {
    tree: TreeBuilder,
    sink: NodePacker,
}

impl Recipe {
    pub(super) fn new(core: &Arc<Core>, domain: &Domain, size_bytes: u64) -> Self {
        Self { tree: TreeBuilder::new(size_bytes), sink: NodePacker::new(core, domain) }
    }

    fn set(&mut self, index: u64, entry: ExtentEntry) -> Result<(), EngineError> {
        self.tree.set(index, entry, &mut self.sink).map_err(build_error)
    }

    fn set_zero(&mut self, range: std::ops::Range<u64>) -> Result<(), EngineError> {
        self.tree.set_zero(range, &mut self.sink).map_err(build_error)
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
        self.sink.filler.seal_open()
    }

    /// Waits until every node is durable and indexed.
    pub(super) fn wait_sealed(&mut self) -> Result<(), EngineError> {
        self.sink.forget_sealed(true)
    }

    pub(super) fn discard_open(&mut self) {
        self.sink.filler.discard_open();
    }

    pub(super) fn sealed(&self) -> &[SealedSummary] {
        self.sink.filler.sealed()
    }

    pub(super) const fn sealed_bytes(&self) -> u64 {
        self.sink.filler.sealed_bytes()
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
    filler: Filler,
    encoder: Option<Encoder>,
    packed: Vec<(Fingerprint, Vec<u8>)>,
    packed_bytes: usize,
    own: HashSet<Fingerprint>,
    recent: RecentDirectories,
}

impl NodePacker {
    fn new(core: &Arc<Core>, domain: &Domain) -> Self {
        Self {
            core: Arc::clone(core),
            domain: domain.clone(),
            filler: Filler::new(Arc::clone(core), domain.clone(), ContainerClass::Recipe),
            encoder: None,
            packed: Vec::new(),
            packed_bytes: 0,
            own: HashSet::new(),
            recent: RecentDirectories::default(),
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
        self.filler.append(&region)?;
        self.forget_sealed(false)
    }

    fn forget_sealed(&mut self, wait: bool) -> Result<(), EngineError> {
        for directory in self.filler.take_sealed(wait)? {
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
        let stored = self.own.contains(&name)
            || self.core.store.find(&self.domain, ContainerClass::Recipe, &name, &mut self.recent)?.is_some();
        if stored {
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
