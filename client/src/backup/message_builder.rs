//! Builds what is sent: regions that are being filled, and descriptions of extents that wait for the regions
//! they need. Both leave in order.

use std::collections::VecDeque;
use std::convert::Infallible;

use holdfast_proto::fingerprint::FINGERPRINT_BYTES;
use holdfast_proto::limits::{
    CHUNK_MAX_BYTES, EXTENTS_PER_MESSAGE_MAX, RANGE_EXTENTS, RANGES_PER_MESSAGE_MAX, REGION_CHUNKS_MAX,
    REGION_PLAIN_MAX_BYTES,
};
use holdfast_proto::{Fingerprint, v1};

use crate::pool::RegionBufferPool;

/// Chunked extents that may wait for the open region to fill. At most 513 pieces of 36 bytes each: 2.4 MB.
const HELD_EXTENTS_MAX: usize = 128;

/// Output to send.
#[derive(Debug)]
pub(crate) enum Output {
    /// A region, to be compressed first.
    Region(PlainRegion),
    Extents(v1::Extents),
}

/// Chunks the server lacks, end to end.
#[derive(Debug, Default)]
pub(crate) struct PlainRegion {
    pub(crate) plain: Vec<u8>,
    /// 32 bytes per chunk.
    pub(crate) fingerprints: Vec<u8>,
    pub(crate) lengths: Vec<u32>,
}

impl PlainRegion {
    /// # Panics
    /// When the lists do not describe the bytes, or the region is empty or too long: the server would refuse
    /// it and end the backup.
    pub(crate) fn assert_whole(&self) {
        let chunks = self.lengths.len();
        let described: usize = self.lengths.iter().map(|len| *len as usize).sum();
        assert_eq!(described, self.plain.len(), "lengths of {chunks} chunks, bytes of a region");
        assert_eq!(chunks * FINGERPRINT_BYTES, self.fingerprints.len(), "fingerprints of {chunks} chunks");
        assert!((1..=REGION_CHUNKS_MAX).contains(&chunks), "a region of {chunks} chunks");
        assert!(described <= REGION_PLAIN_MAX_BYTES as usize, "a region of {described} bytes");
    }
}

/// Builds the messages of regions and extents, in order.
#[derive(Debug)]
pub(crate) struct MessageBuilder {
    buffers: RegionBufferPool,
    open: PlainRegion,
    /// Extents that may need the open region.
    held: VecDeque<v1::ChunkedExtent>,
    /// Extents being described.
    message: v1::Extents,
    /// Number of extents that the ranges of `message` cover.
    message_extents: u64,
    ready: VecDeque<Output>,
}

impl MessageBuilder {
    pub(crate) fn new(buffers: RegionBufferPool) -> Self {
        Self {
            buffers,
            open: PlainRegion::default(),
            held: VecDeque::new(),
            message: v1::Extents::default(),
            message_extents: 0,
            ready: VecDeque::new(),
        }
    }

    /// Extents of zeros.
    pub(crate) fn zero(&mut self, first: u64, count: u64) {
        push_range(&mut self.message.zero, first, count);
        self.ranges_grew(count);
    }

    /// An extent as in the parent.
    pub(crate) fn unchanged(&mut self, index: u64) {
        push_range(&mut self.message.unchanged, index, 1);
        self.ranges_grew(1);
    }

    /// A chunk the server needs.
    ///
    /// # Panics
    /// When it is empty or longer than any chunk may be.
    pub(crate) fn chunk(&mut self, fingerprint: Fingerprint, chunk: &[u8]) {
        let len = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        assert!((1..=CHUNK_MAX_BYTES).contains(&len), "a chunk of {} bytes", chunk.len());
        let full = self.open.plain.len() + chunk.len() > REGION_PLAIN_MAX_BYTES as usize
            || self.open.lengths.len() >= REGION_CHUNKS_MAX;
        if full {
            self.seal();
        }
        if self.open.lengths.is_empty() {
            let make = || Ok::<_, Infallible>(Vec::with_capacity(REGION_PLAIN_MAX_BYTES as usize));
            self.open.plain = self.buffers.take_or(make).unwrap_or_else(|never| match never {});
            self.open.plain.clear();
        }
        self.open.plain.extend_from_slice(chunk);
        self.open.fingerprints.extend_from_slice(fingerprint.as_bytes());
        self.open.lengths.push(len);
    }

    /// An extent. All of its chunks the server needs were given before.
    pub(crate) fn chunked(&mut self, extent: v1::ChunkedExtent) {
        if self.open.lengths.is_empty() {
            self.describe(extent);
            return;
        }
        self.held.push_back(extent);
        if self.held.len() >= HELD_EXTENTS_MAX {
            self.seal();
        }
    }

    /// Ends the open region and message, full or not.
    pub(crate) fn finish(&mut self) {
        self.seal();
        self.flush();
    }

    /// The next thing to send.
    pub(crate) fn take(&mut self) -> Option<Output> {
        self.ready.pop_front()
    }

    fn seal(&mut self) {
        if !self.open.lengths.is_empty() {
            self.ready.push_back(Output::Region(std::mem::take(&mut self.open)));
        }
        while let Some(extent) = self.held.pop_front() {
            self.describe(extent);
        }
        // At once: the server proves an extent's digest while it has its regions at hand.
        if !self.message.chunked.is_empty() {
            self.flush();
        }
    }

    fn describe(&mut self, extent: v1::ChunkedExtent) {
        self.message.chunked.push(extent);
        if self.message.chunked.len() >= EXTENTS_PER_MESSAGE_MAX {
            self.flush();
        }
    }

    fn ranges_grew(&mut self, extents: u64) {
        self.message_extents += extents;
        let ranges = self.message.unchanged.len() + self.message.zero.len();
        if self.message_extents >= RANGE_EXTENTS || ranges >= RANGES_PER_MESSAGE_MAX {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.message_extents = 0;
        let message = std::mem::take(&mut self.message);
        if message != v1::Extents::default() {
            self.ready.push_back(Output::Extents(message));
        }
    }
}

/// Appends to the last range if they touch.
fn push_range(ranges: &mut Vec<v1::ExtentRange>, first: u64, count: u64) {
    match ranges.last_mut().filter(|last| last.first + last.count == first) {
        Some(last) => last.count += count,
        None => ranges.push(v1::ExtentRange { first, count }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_proto::limits::{EXTENT_BYTES, MOVES_BYTES, READ_FOR_SENT};

    use super::*;

    /// A server takes a slot from an agent that does not tell of as much in a minute.
    #[test]
    fn an_unchanged_disk_is_told_of_as_soon_as_it_counts_as_progress() {
        let mut builder = MessageBuilder::new(Arc::default());
        let counts = MOVES_BYTES * READ_FOR_SENT / u64::from(EXTENT_BYTES);
        for round in 0..3 {
            for index in 0..counts {
                assert!(builder.take().is_none(), "{index} extents tell of too little");
                builder.unchanged(round * counts + index);
            }
            let Some(Output::Extents(told)) = builder.take() else { panic!("{counts} extents were read") };
            assert_eq!(told.unchanged, [v1::ExtentRange { first: round * counts, count: counts }]);
        }
        for index in 0..counts {
            builder.zero(2 * index, 1);
        }
        assert!(builder.take().is_some(), "zeros are read too");
    }
}
