//! False chunks: they do not match their fingerprints, in regions that are just what some agent sealed.
//!
//! The server cannot see these (N6): an agent that has the key and finds one reports it, so that it is sent again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

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
    /// Commitment of the region it came in.
    pub commitment: Commitment,
}

impl FalseChunk {
    /// `None`: the region is not sealed, or not as its agent sealed it, which the server finds by itself.
    pub(super) fn of(region: &CheckedRegion, chunk: Placed<'_>) -> Option<Self> {
        let commitment = sealed_as(region)?;
        let extent = chunk.places.first()? / u64::from(EXTENT_BYTES);
        Some(Self { extent, fingerprint: chunk.fingerprint, commitment })
    }
}

/// The commitment of a region that is just what some agent sealed. `None`: it is not, which the server finds by itself.
pub(super) fn sealed_as(region: &CheckedRegion) -> Option<Commitment> {
    let is_whole = region.codec == Codec::Sealed && parts(&region.payload, region.plain_bytes).is_ok();
    commitment_of(&region.payload).filter(|_| is_whole).copied()
}

/// (N8) Regions that did not open, by the extents whose chunks are to come out of others, and those of the extents that are
/// to be read again.
#[derive(Debug, Default)]
pub(super) struct Refused {
    regions: Mutex<BTreeMap<u64, BTreeSet<Commitment>>>,
    again: Mutex<BTreeSet<u64>>,
}

impl Refused {
    /// The regions of these extents.
    pub(super) fn of(&self, extents: Range<u64>) -> BTreeSet<Commitment> {
        self.regions.lock().range(extents).flat_map(|(_, regions)| regions).copied().collect()
    }

    pub(super) fn add(&self, extent: u64, region: Commitment) {
        self.regions.lock().entry(extent).or_default().insert(region);
        self.again.lock().insert(extent);
    }

    /// The extents that are to be read again.
    pub(super) fn take_again(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.again.lock())
    }
}

/// False chunks of one disk, one a region; as many as a server takes note of, some 2 MiB.
#[derive(Debug, Default)]
pub(super) struct FalseChunks(Mutex<BTreeMap<Commitment, FalseChunk>>);

impl FalseChunks {
    pub(super) fn add(&self, chunk: FalseChunk) {
        let mut found = self.0.lock();
        if found.len() < REPORTED_REGIONS_MAX {
            found.entry(chunk.commitment).or_insert(chunk);
        }
    }

    /// Returns the false chunks by the extents they are in.
    pub(super) fn found(&self) -> Vec<FalseChunk> {
        let mut found: Vec<FalseChunk> = self.0.lock().values().copied().collect();
        found.sort_by_key(|chunk| chunk.extent);
        found
    }
}
