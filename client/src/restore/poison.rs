//! Chunks that are not what their fingerprints say, in regions that are just what some agent sealed.
//!
//! The server cannot see these (N6): an agent that has the key and finds one reports it, so that it is sent again.

use std::collections::BTreeMap;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{EXTENT_BYTES, REPORTED_REGIONS_MAX};
use holdfast_proto::region::Codec;
use holdfast_proto::region::sealed::{Commitment, commitment_of, parts};
use parking_lot::Mutex;

use super::window::{CheckedRegion, Placed};

/// One such chunk, for its whole region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FalseChunk {
    /// The first extent that has it.
    pub extent: u64,
    pub fingerprint: Fingerprint,
    /// Of the region it came in.
    pub commitment: Commitment,
}

impl FalseChunk {
    /// `None`: the region is not sealed, or not as its agent sealed it, which the server finds by itself.
    pub(super) fn of(region: &CheckedRegion, chunk: Placed<'_>) -> Option<Self> {
        let is_whole = region.codec == Codec::Sealed && parts(&region.payload, region.plain_bytes).is_ok();
        let commitment = *commitment_of(&region.payload).filter(|_| is_whole)?;
        let extent = chunk.places.first()? / u64::from(EXTENT_BYTES);
        Some(Self { extent, fingerprint: chunk.fingerprint, commitment })
    }
}

/// Those of one disk, one a region; as many as a server takes note of, some 2 MiB.
#[derive(Debug, Default)]
pub(super) struct FalseChunks(Mutex<BTreeMap<Commitment, FalseChunk>>);

impl FalseChunks {
    pub(super) fn add(&self, chunk: FalseChunk) {
        let mut found = self.0.lock();
        if found.len() < REPORTED_REGIONS_MAX {
            found.entry(chunk.commitment).or_insert(chunk);
        }
    }

    /// By the extents they are in.
    pub(super) fn found(&self) -> Vec<FalseChunk> {
        let mut found: Vec<FalseChunk> = self.0.lock().values().copied().collect();
        found.sort_by_key(|chunk| chunk.extent);
        found
    }
}
