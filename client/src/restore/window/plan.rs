//! The layout of one window: which chunk goes where, and where zeros are.

use std::ops::Range;

use holdfast_proto::limits::{CHUNK_MAX_BYTES, EXTENT_BYTES, EXTENT_PIECES_MAX, WINDOW_EXTENTS, extent_len};
use holdfast_proto::{Fingerprint, v1};

use super::super::bad::BadRange;
use super::WindowError;
use crate::source::extent_bytes;

/// Layout of one window, checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WindowPlan {
    /// First byte of the disk, and first byte after the window.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(super) chunks: Vec<ChunkPlan>,
    /// Offsets on the disk, grouped by chunk.
    placements: Vec<u64>,
    /// Offsets and lengths of zeros, ascending, merged.
    pub(crate) zeros: Vec<(u64, u64)>,
    /// Extents of which nothing is known.
    pub(crate) bad: Vec<BadRange>,
    /// Claimed digest of each extent, if any.
    digests: Vec<Option<Fingerprint>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChunkPlan {
    fingerprint: Fingerprint,
    len: u32,
    /// Index in `placements` of the first of its `count` places.
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

    /// Checks a window of a disk of `size_bytes`; its extents are known to lie within the disk.
    pub(super) fn read(window: &v1::Window, size_bytes: u64, past_damage: bool) -> Result<Self, WindowError> {
        let first = window.first_extent;
        let mut chunks = chunk_list(window)?;
        let mut uses: Vec<(usize, u64)> = Vec::new();
        let mut zeros: Vec<(u64, u64)> = Vec::new();
        let mut bad = Vec::new();
        let mut digests = Vec::with_capacity(window.extents.len());
        for (extent, layout) in (first..).zip(&window.extents) {
            let len = extent_len(size_bytes, extent);
            if let Some(damage) = layout.damage.as_ref().filter(|_| past_damage) {
                if !layout.refs.is_empty() || !layout.zero_lengths.is_empty() {
                    return Err(WindowError::Layout { extent, what: "it is damaged and has pieces" });
                }
                bad.push(BadRange::said(extent * u64::from(EXTENT_BYTES), len.into(), damage));
                digests.push(None);
                continue;
            }
            if layout.damage.is_some() {
                return Err(WindowError::Layout { extent, what: "it is damaged, which was not asked for" });
            }
            lay_out(extent, len, layout, &chunks, &mut uses, &mut zeros)?;
            digests.push(digest_of(extent, layout)?);
        }
        place(&mut chunks, &mut uses, first)?;
        let placements = uses.into_iter().map(|(_, offset)| offset).collect();
        let Range { start, end } = extent_bytes(size_bytes, first, window.extents.len() as u64);
        let plan = Self { start, end, chunks, placements, zeros, bad, digests };
        plan.assert_filled();
        Ok(plan)
    }

    /// The chunks of these bytes of the disk, each with one place.
    pub(crate) fn within(&self, bytes: Range<u64>) -> impl Iterator<Item = Placed<'_>> {
        let all = (0u32..).map_while(|index| self.chunk(index));
        let places =
            all.flat_map(|chunk| chunk.places.chunks(1).map(move |places| Placed { places, ..chunk }));
        places.filter(move |chunk| chunk.places.iter().all(|place| bytes.contains(place)))
    }

    /// Returns for each extent its digest, if it has one, and the bytes of its chunks.
    pub(crate) fn due(&self) -> Vec<(Option<Fingerprint>, u64)> {
        let mut data = vec![0u64; self.digests.len()];
        for chunk in &self.chunks {
            let places = self.placements.get(chunk.first..chunk.first + chunk.count).unwrap_or_default();
            for place in places {
                if let Some(bytes) = data.get_mut(self.extent_of(*place)) {
                    *bytes += u64::from(chunk.len);
                }
            }
        }
        self.digests.iter().copied().zip(data).collect()
    }

    /// Number within the window of the extent at `offset` of the disk.
    pub(crate) fn extent_of(&self, offset: u64) -> usize {
        usize::try_from((offset - self.start) / u64::from(EXTENT_BYTES)).unwrap_or(usize::MAX)
    }

    /// # Panics
    /// When chunks and zeros are not as many bytes as the window: a target would keep what it held before.
    fn assert_filled(&self) {
        let data: u64 = self.chunks.iter().map(|chunk| u64::from(chunk.len) * chunk.count as u64).sum();
        let zeros: u64 = self.zeros.iter().map(|(_, len)| len).sum();
        let bad: u64 = self.bad.iter().map(|range| range.len).sum();
        let (start, end) = (self.start, self.end);
        assert!(
            data + zeros + bad == end - start,
            "{data} + {zeros} + {bad} bytes for a window from {start} to {end}"
        );
    }
}

/// Groups the uses by chunk, and tells each chunk where its own are.
fn place(chunks: &mut [ChunkPlan], uses: &mut [(usize, u64)], first_extent: u64) -> Result<(), WindowError> {
    uses.sort_unstable();
    let mut next = 0;
    for (index, chunk) in chunks.iter_mut().enumerate() {
        chunk.first = next;
        chunk.count = uses.iter().skip(next).take_while(|(used, _)| *used == index).count();
        next += chunk.count;
        if chunk.count == 0 {
            return Err(WindowError::Unused { first: first_extent, chunk: index });
        }
    }
    assert_eq!(next, uses.len(), "uses of chunks that were placed, all uses");
    Ok(())
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

fn digest_of(extent: u64, layout: &v1::ExtentLayout) -> Result<Option<Fingerprint>, WindowError> {
    if layout.digest.is_empty() {
        return Ok(None);
    }
    let wrong = WindowError::Layout { extent, what: "its digest is not 32 bytes long" };
    Fingerprint::from_slice(&layout.digest).map(Some).ok_or(wrong)
}

/// Puts the pieces of one extent, `len` bytes long, end to end, into `uses` (chunk, offset) and `zeros`.
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
            let named = usize::try_from(reference - 1).ok();
            let named = named.and_then(|index| Some((index, chunks.get(index)?)));
            let (index, chunk) = named.ok_or_else(|| wrong("it names a chunk the window does not have"))?;
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
