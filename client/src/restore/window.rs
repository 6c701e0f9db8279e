//! What a restore stream says, checked before anything is believed: windows must follow each other without
//! gaps, their layouts must fill their extents exactly, and every chunk must arrive exactly once before a
//! window ends. Whether a chunk is what it should be is checked by its fingerprint, in `job`.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::limits::{
    CHUNK_MAX_BYTES, DISK_MAX_BYTES, EXTENT_BYTES, EXTENT_PIECES_MAX, REGION_CHUNKS_MAX,
    REGION_PLAIN_MAX_BYTES, WINDOW_EXTENTS, extent_count, extent_len,
};
use holdfast_proto::region::{Codec, RegionError};
use holdfast_proto::{Fingerprint, v1};

/// Why a restore stream was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    #[error("a {got} where {expected} was due")]
    Order { got: &'static str, expected: &'static str },
    #[error("a disk of {size_bytes} bytes in extents of {extent_bytes}; {expected_bytes} bytes were due")]
    Header { size_bytes: u64, extent_bytes: u32, expected_bytes: u64 },
    #[error("a window of {count} extents from extent {first}; extent {due} was due, and {left} are left")]
    Span { first: u64, count: usize, due: u64, left: u64 },
    #[error("a window of {fingerprints} chunks with {lengths} lengths")]
    Chunks { fingerprints: usize, lengths: usize },
    #[error("chunk {chunk} of the window from extent {first} is {bytes} bytes long")]
    ChunkLength { first: u64, chunk: usize, bytes: u32 },
    #[error("extent {extent} is laid out wrongly: {what}")]
    Layout { extent: u64, what: &'static str },
    #[error("chunk {chunk} of the window from extent {first} is used nowhere")]
    Unused { first: u64, chunk: usize },
    #[error("a message of regions without any")]
    NoRegions,
    #[error("a region that delivers {chunks} chunks at {offsets} offsets")]
    RegionLists { chunks: usize, offsets: usize },
    #[error("a region that delivers chunk {chunk}, which {what}")]
    RegionChunk { chunk: u32, what: &'static str },
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error("the window from extent {first} ended with {missing} chunks missing")]
    Missing { first: u64, missing: usize },
}

/// Layout of one window, checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WindowPlan {
    /// First byte of the disk, and first byte after the window.
    pub(crate) start: u64,
    pub(crate) end: u64,
    chunks: Vec<ChunkPlan>,
    /// Offsets on the disk, grouped by chunk.
    placements: Vec<u64>,
    /// Offsets and lengths of zeros, ascending, merged.
    pub(crate) zeros: Vec<(u64, u64)>,
}

#[derive(Debug, PartialEq, Eq)]
struct ChunkPlan {
    fingerprint: Fingerprint,
    len: u32,
    /// Its places are `placements[first..first + count]`.
    first: usize,
    count: usize,
}

/// A chunk and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed<'a> {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) len: u32,
    /// Offsets on the disk, ascending; at least one.
    pub(crate) places: &'a [u64],
}

impl WindowPlan {
    /// Chunk `index` of the window.
    pub(crate) fn chunk(&self, index: u32) -> Option<Placed<'_>> {
        let chunk = self.chunks.get(usize::try_from(index).ok()?)?;
        let places = self.placements.get(chunk.first..chunk.first.checked_add(chunk.count)?)?;
        Some(Placed { fingerprint: chunk.fingerprint, len: chunk.len, places })
    }

    fn read(window: &v1::Window, size_bytes: u64) -> Result<Self, WindowError> {
        let first = window.first_extent;
        let mut chunks = chunk_list(window)?;
        let mut uses: Vec<(usize, u64)> = Vec::new();
        let mut zeros: Vec<(u64, u64)> = Vec::new();
        for (extent, layout) in (first..).zip(&window.extents) {
            let len = extent_len(size_bytes, extent);
            lay_out(extent, len, layout, &chunks, &mut uses, &mut zeros)?;
        }
        uses.sort_unstable();
        for (chunk, _) in &uses {
            if let Some(chunk) = chunks.get_mut(*chunk) {
                chunk.count += 1;
            }
        }
        let mut next = 0;
        for (index, chunk) in chunks.iter_mut().enumerate() {
            if chunk.count == 0 {
                return Err(WindowError::Unused { first, chunk: index });
            }
            chunk.first = next;
            next += chunk.count;
        }
        let placements = uses.into_iter().map(|(_, offset)| offset).collect();
        let start = first * u64::from(EXTENT_BYTES);
        let end = ((first + window.extents.len() as u64) * u64::from(EXTENT_BYTES)).min(size_bytes);
        Ok(Self { start, end, chunks, placements, zeros })
    }
}

fn chunk_list(window: &v1::Window) -> Result<Vec<ChunkPlan>, WindowError> {
    let first = window.first_extent;
    let lengths = window.lengths.len();
    let wrong = |fingerprints| WindowError::Chunks { fingerprints, lengths };
    let Some(fingerprints) = Fingerprint::split_list(&window.fingerprints) else {
        return Err(wrong(window.fingerprints.len() / 32));
    };
    if fingerprints.len() != lengths || lengths > WINDOW_EXTENTS * EXTENT_PIECES_MAX {
        return Err(wrong(fingerprints.len()));
    }
    let listed = fingerprints.zip(&window.lengths).enumerate();
    listed
        .map(|(chunk, (fingerprint, &bytes))| {
            if bytes == 0 || bytes > CHUNK_MAX_BYTES {
                return Err(WindowError::ChunkLength { first, chunk, bytes });
            }
            Ok(ChunkPlan { fingerprint, len: bytes, first: 0, count: 0 })
        })
        .collect()
}

/// Puts the pieces of one extent, `len` bytes long, end to end.
fn lay_out(
    extent: u64,
    len: u32,
    layout: &v1::ExtentLayout,
    chunks: &[ChunkPlan],
    uses: &mut Vec<(usize, u64)>,
    zeros: &mut Vec<(u64, u64)>,
) -> Result<(), WindowError> {
    let wrong = |what| WindowError::Layout { extent, what };
    let start = extent * u64::from(EXTENT_BYTES);
    let end = start + u64::from(len);
    if layout.refs.is_empty() {
        if !layout.zero_lengths.is_empty() {
            return Err(wrong("it has lengths of zeros but no pieces"));
        }
        push_zeros(zeros, start, u64::from(len));
        return Ok(());
    }
    if layout.refs.len() > EXTENT_PIECES_MAX {
        return Err(wrong("it has too many pieces"));
    }
    let mut zero_lengths = layout.zero_lengths.iter();
    let mut position = start;
    for &reference in &layout.refs {
        let piece = if reference == 0 {
            let zero = u64::from(*zero_lengths.next().ok_or_else(|| wrong("a run of zeros has no length"))?);
            push_zeros(zeros, position, zero);
            zero
        } else {
            let index = usize::try_from(reference - 1).unwrap_or(usize::MAX);
            let chunk =
                chunks.get(index).ok_or_else(|| wrong("it names a chunk the window does not have"))?;
            uses.push((index, position));
            u64::from(chunk.len)
        };
        position += piece;
        if piece == 0 || position > end {
            return Err(wrong("its pieces are longer than it, or empty"));
        }
    }
    if position != end {
        return Err(wrong("its pieces are shorter than it"));
    }
    if zero_lengths.next().is_some() {
        return Err(wrong("it has more lengths of zeros than runs"));
    }
    Ok(())
}

fn push_zeros(zeros: &mut Vec<(u64, u64)>, offset: u64, len: u64) {
    match zeros.last_mut().filter(|(start, run)| start + run == offset) {
        Some((_, run)) => *run += len,
        None => zeros.push((offset, len)),
    }
}

/// A region of a window, its lists checked against the window and its own length. Its payload is not.
#[derive(Debug)]
pub(crate) struct CheckedRegion {
    pub(crate) window: Arc<WindowPlan>,
    pub(crate) codec: Codec,
    pub(crate) plain_bytes: u32,
    pub(crate) payload: Bytes,
    /// Chunk of the window and its offset within the plain bytes.
    pub(crate) chunks: Vec<(u32, u32)>,
}

/// Follows a restore stream.
#[derive(Debug)]
pub(crate) struct Assembler {
    size_bytes: u64,
    header_seen: bool,
    /// First extent not yet complete.
    next_extent: u64,
    window: Option<Open>,
}

#[derive(Debug)]
struct Open {
    first: u64,
    extents: u64,
    plan: Arc<WindowPlan>,
    arrived: Vec<bool>,
    missing: usize,
}

impl Assembler {
    /// Expects a disk of `size_bytes` from `first_extent` on.
    pub(crate) const fn new(size_bytes: u64, first_extent: u64) -> Self {
        Self { size_bytes, header_seen: false, next_extent: first_extent, window: None }
    }

    /// The first extent that is not complete.
    pub(crate) const fn next_extent(&self) -> u64 {
        self.next_extent
    }

    /// The first message.
    pub(crate) fn header(&mut self, header: &v1::DiskHeader) -> Result<(), WindowError> {
        if self.header_seen {
            return Err(WindowError::Order { got: "header", expected: "window" });
        }
        let right = header.size_bytes == self.size_bytes && header.size_bytes <= DISK_MAX_BYTES;
        if !right || header.extent_bytes != EXTENT_BYTES {
            return Err(WindowError::Header {
                size_bytes: header.size_bytes,
                extent_bytes: header.extent_bytes,
                expected_bytes: self.size_bytes,
            });
        }
        self.header_seen = true;
        Ok(())
    }

    /// A window begins.
    pub(crate) fn window(&mut self, window: &v1::Window) -> Result<Arc<WindowPlan>, WindowError> {
        if !self.header_seen {
            return Err(WindowError::Order { got: "window", expected: "header" });
        }
        if self.window.is_some() {
            return Err(WindowError::Order { got: "window", expected: "region or end of the window before" });
        }
        let count = window.extents.len();
        let left = extent_count(self.size_bytes).saturating_sub(self.next_extent);
        let in_place = window.first_extent == self.next_extent && count as u64 <= left;
        if !in_place || count == 0 || count > WINDOW_EXTENTS {
            let (first, due) = (window.first_extent, self.next_extent);
            return Err(WindowError::Span { first, count, due, left });
        }
        let plan = Arc::new(WindowPlan::read(window, self.size_bytes)?);
        self.window = Some(Open {
            first: window.first_extent,
            extents: count as u64,
            arrived: vec![false; plan.chunks.len()],
            missing: plan.chunks.len(),
            plan: Arc::clone(&plan),
        });
        Ok(plan)
    }

    /// Data for the window arrives.
    pub(crate) fn regions(&mut self, batch: v1::Regions) -> Result<Vec<CheckedRegion>, WindowError> {
        if batch.regions.is_empty() {
            return Err(WindowError::NoRegions);
        }
        batch.regions.into_iter().map(|region| self.region(region)).collect()
    }

    fn region(&mut self, region: v1::RegionData) -> Result<CheckedRegion, WindowError> {
        let Some(open) = &mut self.window else {
            return Err(WindowError::Order { got: "region", expected: "window" });
        };
        let lists = (region.chunks.len(), region.offsets.len());
        if lists.0 != lists.1 || lists.0 == 0 || lists.0 > REGION_CHUNKS_MAX {
            return Err(WindowError::RegionLists { chunks: lists.0, offsets: lists.1 });
        }
        if region.plain_bytes > REGION_PLAIN_MAX_BYTES {
            return Err(RegionError::PlainTooLong { plain_bytes: region.plain_bytes }.into());
        }
        let codec = Codec::try_from(region.codec)?;
        let mut chunks = Vec::with_capacity(region.chunks.len());
        for (chunk, offset) in region.chunks.into_iter().zip(region.offsets) {
            let wrong = |what| WindowError::RegionChunk { chunk, what };
            let len = open.plan.chunk(chunk).ok_or_else(|| wrong("the window does not have"))?.len;
            if offset.checked_add(len).is_none_or(|end| end > region.plain_bytes) {
                return Err(wrong("reaches past the region's end"));
            }
            let arrived = usize::try_from(chunk).ok().and_then(|chunk| open.arrived.get_mut(chunk));
            let arrived = arrived.ok_or_else(|| wrong("the window does not have"))?;
            if std::mem::replace(arrived, true) {
                return Err(wrong("has arrived before"));
            }
            open.missing -= 1;
            chunks.push((chunk, offset));
        }
        Ok(CheckedRegion {
            window: Arc::clone(&open.plan),
            codec,
            plain_bytes: region.plain_bytes,
            payload: region.payload,
            chunks,
        })
    }

    /// The window is complete.
    pub(crate) fn window_end(&mut self) -> Result<Arc<WindowPlan>, WindowError> {
        let Some(open) = self.window.take() else {
            return Err(WindowError::Order { got: "end of window", expected: "window" });
        };
        if open.missing > 0 {
            return Err(WindowError::Missing { first: open.first, missing: open.missing });
        }
        self.next_extent = open.first + open.extents;
        Ok(open.plan)
    }

    /// Whether the stream may end here.
    pub(crate) fn is_complete(&self) -> bool {
        self.header_seen && self.window.is_none() && self.next_extent >= extent_count(self.size_bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests;
