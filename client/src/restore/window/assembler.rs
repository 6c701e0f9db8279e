//! Follows a restore stream, message by message.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::limits::{
    DISK_MAX_BYTES, EXTENT_BYTES, REGION_CHUNKS_MAX, REGION_PLAIN_MAX_BYTES, WINDOW_EXTENTS, extent_count,
};
use holdfast_proto::region::{Codec, RegionError};
use holdfast_proto::v1;

use super::super::bad::BadRange;
use super::WindowError;
use super::plan::WindowPlan;

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
    /// Damage was asked to be reported.
    past_damage: bool,
    /// Windows end though chunks of them did not come.
    in_part: bool,
    header_seen: bool,
    /// First extent not yet complete.
    next_extent: u64,
    /// First extent that was not asked for.
    end_extent: u64,
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
        Self {
            size_bytes,
            past_damage: false,
            in_part: false,
            header_seen: false,
            next_extent: first_extent,
            end_extent: extent_count(size_bytes),
            window: None,
        }
    }

    /// Expects nothing from extent `end` on.
    #[must_use]
    pub(crate) fn until(self, end: u64) -> Self {
        Self { end_extent: self.end_extent.min(end), ..self }
    }

    /// Expects to be told of damage.
    #[must_use]
    pub(crate) fn past_damage(self, past_damage: bool) -> Self {
        Self { past_damage, ..self }
    }

    /// Expects windows that lack the chunks that were not asked for.
    #[must_use]
    pub(crate) fn in_part(self) -> Self {
        Self { in_part: true, ..self }
    }

    /// The first extent that is not complete.
    pub(crate) const fn next_extent(&self) -> u64 {
        self.next_extent
    }

    /// The first message.
    pub(crate) fn header(&mut self, header: &v1::DiskHeader) -> Result<(), WindowError> {
        if self.header_seen {
            return Err(WindowError::Order { got: "a header", expected: "a window" });
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
            return Err(WindowError::Order { got: "a window", expected: "a header" });
        }
        if self.window.is_some() {
            return Err(WindowError::Order {
                got: "a window",
                expected: "a region or the end of the window before",
            });
        }
        let count = window.extents.len();
        let left = self.end_extent.saturating_sub(self.next_extent);
        let in_place = window.first_extent == self.next_extent && count as u64 <= left;
        if !in_place || count == 0 || count > WINDOW_EXTENTS {
            let (first, due) = (window.first_extent, self.next_extent);
            return Err(WindowError::Span { first, count, due, left });
        }
        let plan = Arc::new(WindowPlan::read(window, self.size_bytes, self.past_damage)?);
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

    /// Chunks of the window will not come: where they belong.
    pub(crate) fn damaged(&mut self, damaged: &v1::DamagedChunks) -> Result<Vec<BadRange>, WindowError> {
        let Some(open) = self.window.as_mut().filter(|_| self.past_damage) else {
            return Err(WindowError::Order { got: "damage", expected: "data" });
        };
        if damaged.chunks.is_empty() {
            return Err(WindowError::NoRegions);
        }
        let damage = damaged.damage.clone().unwrap_or_default();
        let mut ranges = Vec::new();
        for &chunk in &damaged.chunks {
            let wrong = |what| WindowError::RegionChunk { chunk, what };
            let placed = open.plan.chunk(chunk).ok_or_else(|| wrong("the window does not have"))?;
            let arrived = usize::try_from(chunk).ok().and_then(|chunk| open.arrived.get_mut(chunk));
            let arrived = arrived.ok_or_else(|| wrong("the window does not have"))?;
            if std::mem::replace(arrived, true) {
                return Err(wrong("has arrived before"));
            }
            open.missing -= 1;
            ranges.extend(placed.places.iter().map(|&at| BadRange::said(at, placed.len.into(), &damage)));
        }
        Ok(ranges)
    }

    fn region(&mut self, region: v1::RegionData) -> Result<CheckedRegion, WindowError> {
        let Some(open) = &mut self.window else {
            return Err(WindowError::Order { got: "a region", expected: "a window" });
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
            return Err(WindowError::Order { got: "the end of a window", expected: "a window" });
        };
        if open.missing > 0 && !self.in_part {
            return Err(WindowError::Missing { first: open.first, missing: open.missing });
        }
        self.next_extent = open.first + open.extents;
        Ok(open.plan)
    }

    /// Returns true if the stream may end here.
    pub(crate) fn is_complete(&self) -> bool {
        self.header_seen && self.window.is_none() && self.next_extent >= self.end_extent
    }
}
