//! Accepting extents: every chunk they name is there or promised, every length is right, then they enter the recipe.

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{EXTENTS_PER_MESSAGE_MAX, RANGES_PER_MESSAGE_MAX, extent_len};
use holdfast_proto::v1;

use super::chunks::split_fingerprints;
use super::disk::DiskState;
use super::parent::ParentDisk;
use crate::container::RecentDirectories;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::{ExtentEntry, ExtentNode, PieceRef};

/// Accepts one message of extents.
pub(super) fn accept(
    core: &Core,
    parent: Option<&ParentDisk>,
    state: &mut DiskState,
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
        let range = checked_range(range, state.recipe.accepted(), state.size_bytes)?;
        state.recipe.set_zero(range)?;
    }
    for range in &message.unchanged {
        accept_unchanged(core, parent, state, range)?;
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

/// Extents taken over unchanged at a time.
const BATCH: usize = 1024;

fn accept_unchanged(
    core: &Core,
    parent: Option<&ParentDisk>,
    state: &mut DiskState,
    range: &v1::ExtentRange,
) -> Result<(), EngineError> {
    let Some(parent) = parent else {
        return Err(EngineError::Invalid("extents cannot be unchanged: the disk has no parent".into()));
    };
    let mut recent = RecentDirectories::default();
    let mut batch = Vec::new();
    let std::ops::Range { start: mut at, end } =
        checked_range(range, state.recipe.accepted(), state.size_bytes)?;
    while at < end {
        let zero_end = parent.zero_until(at).min(end);
        if at < zero_end {
            // Only the last extent of a disk can differ in length.
            parent.unchanged(zero_end - 1, state.size_bytes, &mut recent)?;
            state.recipe.set_zero(at..zero_end)?;
            at = zero_end;
            continue;
        }
        batch.push((at, parent.unchanged(at, state.size_bytes, &mut recent)?));
        if batch.len() == BATCH {
            take_over(core, parent, state, &mut batch)?;
        }
        at += 1;
    }
    take_over(core, parent, state, &mut batch)
}

fn take_over(
    core: &Core,
    parent: &ParentDisk,
    state: &mut DiskState,
    batch: &mut Vec<(u64, ExtentEntry)>,
) -> Result<(), EngineError> {
    parent.check_digests(&core.catalog, batch)?;
    for (at, entry) in batch.drain(..) {
        state.took_over(parent.placing(at));
        state.recipe.set(at, entry)?;
        state.counters.unchanged(entry.data_bytes, state.size_bytes)?;
    }
    Ok(())
}

fn accept_chunked(core: &Core, state: &mut DiskState, extent: &v1::ChunkedExtent) -> Result<(), EngineError> {
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
    if state.recipe.has(index) {
        return Err(in_extent("it was sent twice".into()));
    }
    let node = ExtentNode::new(expected, pieces).map_err(|error| in_extent(error.to_string()))?;
    let before = state.counters.data_bytes();
    for piece in node.pieces().iter().filter(|piece| !piece.is_zero()) {
        // (W4) There, and of that length, or promised (C2); otherwise the extent is refused.
        state.name_chunk(core, &piece.fingerprint, (piece.bytes, index)).map_err(|error| match error {
            EngineError::Invalid(message) => in_extent(message),
            EngineError::FoundDamaged(message) => {
                EngineError::FoundDamaged(format!("extent {index}: {message}"))
            }
            other => other,
        })?;
    }
    // (A8) Every byte of data was counted as duplicate or as new.
    let counted = state.counters.data_bytes() - before;
    if counted != u64::from(node.data_bytes()) {
        let data = node.data_bytes();
        return Err(EngineError::Internal(format!("extent {index}: counted {counted} of {data} bytes")));
    }
    if node.data_bytes() == 0 {
        return state.recipe.set(index, ExtentEntry::ZERO);
    }
    // A digest that means zeros would make later agents skip the extent as zero.
    if digest.is_zero() {
        return Err(in_extent("it has data, but its digest is the one reserved for zeros".into()));
    }
    let fingerprint = state.recipe.put(node.encode())?;
    let entry = ExtentEntry { node: fingerprint, digest, data_bytes: node.data_bytes() };
    state.recipe.set(index, entry)?;
    state.claim_digest(index, digest, node)
}
