//! Walk over the extents that have to be read, in disk order: holes become ranges of zeros without being
//! read, extents the source knows to be unchanged are not read either, and those the server accepted before a
//! lost connection are skipped.

use std::collections::VecDeque;
use std::ops::Range;

use holdfast_proto::limits::{EXTENT_BYTES, extent_count, extent_len};
use holdfast_proto::v1;

use super::{Content, Segment, Source, SourceError, extent_bytes};

/// Extents whose segments are asked for at a time: 64 MiB of disk, in segments of 4 KiB at worst 16,384 of
/// 24 bytes.
const LOOK_AHEAD_EXTENTS: u64 = 16;

/// One step along a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Span {
    /// Extents wholly in holes.
    Zero { first: u64, count: u64 },
    /// Extents the server has already.
    Accepted { first: u64, count: u64 },
    /// An extent that the source knows to be as in the parent backup.
    Unchanged { index: u64, segments: Vec<Segment> },
    /// An extent to read, and what is where in it; the first and last segment may reach beyond it.
    Read { index: u64, segments: Vec<Segment> },
}

/// The parent of the backup being made, as far as this disk is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParentDisk<'a> {
    pub backup_id: &'a str,
    pub size_bytes: u64,
}

/// Walks along a disk.
#[derive(Debug)]
pub struct ExtentWalk {
    position: u64,
    count: u64,
    size_bytes: u64,
    /// Sorted, disjoint, not empty; those behind `position` are dropped.
    accepted: VecDeque<v1::ExtentRange>,
    /// Known segments of the disk from `position` on, without gaps.
    segments: VecDeque<Segment>,
    /// Size of the disk when the source began to track changes, if that was the parent backup.
    tracked_size_bytes: Option<u64>,
}

impl ExtentWalk {
    /// A walk over all extents of `source` but the `accepted` ones. What the source knows to be unchanged is
    /// believed only if it has tracked changes since the backup `parent`.
    ///
    /// # Errors
    /// A sentence when the ranges overlap or reach past the disk.
    pub fn new(
        source: &dyn Source,
        accepted: Vec<v1::ExtentRange>,
        parent: Option<ParentDisk<'_>>,
    ) -> Result<Self, String> {
        let size_bytes = source.size_bytes();
        let count = extent_count(size_bytes);
        let tracked = parent.filter(|parent| source.changes_since() == Some(parent.backup_id));
        Ok(Self {
            position: 0,
            count,
            size_bytes,
            accepted: in_order(accepted, count)?,
            segments: VecDeque::new(),
            tracked_size_bytes: tracked.map(|parent| parent.size_bytes),
        })
    }

    /// The next step; `None` at the disk's end.
    ///
    /// # Errors
    /// [`SourceError::Read`] when the source cannot say where its holes are.
    pub fn next(&mut self, source: &dyn Source) -> Result<Option<Span>, SourceError> {
        if self.position >= self.count {
            return Ok(None);
        }
        let first = self.position;
        if let Some(range) = self.accepted.front().copied().filter(|range| range.first == first) {
            self.accepted.pop_front();
            self.position += range.count;
            return Ok(Some(Span::Accepted { first, count: range.count }));
        }
        let extent = extent_bytes(self.size_bytes, first, 1);
        self.look_up(source, &extent)?;
        let zero = self.extents_in_hole();
        if zero > 0 {
            self.position += zero;
            return Ok(Some(Span::Zero { first, count: zero }));
        }
        let segments: Vec<Segment> =
            self.segments.iter().copied().take_while(|segment| segment.start < extent.end).collect();
        self.position += 1;
        if self.is_trusted(first) && segments.iter().all(|segment| segment.content == Content::Unchanged) {
            return Ok(Some(Span::Unchanged { index: first, segments }));
        }
        Ok(Some(Span::Read { index: first, segments }))
    }

    /// Makes sure that `segments` begins with `extent` and covers it.
    fn look_up(&mut self, source: &dyn Source, extent: &Range<u64>) -> Result<(), SourceError> {
        while self.segments.front().is_some_and(|segment| segment.end <= extent.start) {
            self.segments.pop_front();
        }
        let known = self.segments.back().map_or(extent.start, |segment| segment.end);
        if known < extent.end {
            let ahead = extent.start + LOOK_AHEAD_EXTENTS * u64::from(EXTENT_BYTES);
            let range = known..ahead.min(self.size_bytes);
            let found = source.segments(range.clone())?;
            assert_cover(&found, &range, self.size_bytes);
            found.into_iter().for_each(|segment| self.add(segment));
        }
        Ok(())
    }

    /// Joins neighbours of the same content.
    fn add(&mut self, segment: Segment) {
        match self.segments.back_mut().filter(|last| last.content == segment.content) {
            Some(last) => last.end = segment.end,
            None => self.segments.push_back(segment),
        }
    }

    /// Returns the number of extents from `position` on that lie wholly in the hole that begins there.
    fn extents_in_hole(&self) -> u64 {
        let hole = self.segments.front().filter(|segment| segment.content == Content::Hole);
        let hole_end = hole.map_or(0, |hole| hole.end);
        let in_hole =
            if hole_end == self.size_bytes { self.count } else { hole_end / u64::from(EXTENT_BYTES) };
        let next_accepted = self.accepted.front().map_or(self.count, |range| range.first);
        in_hole.min(next_accepted).saturating_sub(self.position)
    }

    /// Returns true if the source can know that extent `index` is as in the parent: it was as long there.
    fn is_trusted(&self, index: u64) -> bool {
        let was = self.tracked_size_bytes.map(|size_bytes| extent_len(size_bytes, index));
        was == Some(extent_len(self.size_bytes, index))
    }
}

/// Sorts ranges of extents of a disk that has `count`.
fn in_order(mut ranges: Vec<v1::ExtentRange>, count: u64) -> Result<VecDeque<v1::ExtentRange>, String> {
    ranges.retain(|range| range.count > 0);
    ranges.sort_by_key(|range| range.first);
    let mut end = 0;
    for range in &ranges {
        let past = range.first.checked_add(range.count).filter(|past| *past <= count && range.first >= end);
        end = past.ok_or_else(|| {
            let (first, length) = (range.first, range.count);
            format!("it has accepted extents {first} + {length} twice, or the disk of {count} ends before")
        })?;
    }
    Ok(ranges.into())
}

/// A gap would be a part of the disk that is never backed up.
fn assert_cover(segments: &[Segment], range: &Range<u64>, size_bytes: u64) {
    let mut position = range.start;
    for segment in segments {
        assert!(
            segment.start == position && segment.end > position && segment.end <= size_bytes,
            "a source of {size_bytes} bytes has {segment:?} at {position}"
        );
        position = segment.end;
    }
    assert!(
        position >= range.end,
        "a source tells of {}..{position} only, asked up to {}",
        range.start,
        range.end
    );
}

#[cfg(test)]
mod tests;
