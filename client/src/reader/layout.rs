//! The pieces of a window of a disk, in the order of the disk.

use std::ops::Range;
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{EXTENT_BYTES, WINDOW_EXTENTS};

use crate::restore::window::WindowPlan;

/// Bytes of a disk that one layout describes; the last one of a disk is shorter.
pub(super) const WINDOW_BYTES: u64 = WINDOW_EXTENTS as u64 * EXTENT_BYTES as u64;

/// The pieces of a window.
#[derive(Debug)]
pub(super) struct Layout {
    /// Ascending, without gaps.
    pieces: Vec<Piece>,
}

/// Bytes of a disk that are one chunk, zeros, or not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// First byte on the disk, and the first after it.
    pub(super) bytes: Range<u64>,
    pub(super) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    Zeros,
    Chunk(Fingerprint),
    /// The server cannot say what is there, and why.
    Unknown(Arc<str>),
}

impl Layout {
    /// The layout that a checked window has.
    pub(super) fn of(plan: &WindowPlan) -> Self {
        let piece =
            |start: u64, len: u64, content| Piece { bytes: start..start.saturating_add(len), content };
        let mut pieces: Vec<Piece> = Vec::new();
        for chunk in plan.within(plan.start..plan.end) {
            let content = Content::Chunk(chunk.fingerprint);
            pieces.extend(chunk.places.iter().map(|at| piece(*at, chunk.len.into(), content.clone())));
        }
        pieces.extend(plan.zeros.iter().map(|(at, len)| piece(*at, *len, Content::Zeros)));
        let unknown = |reason: &Arc<str>| Content::Unknown(Arc::clone(reason));
        pieces.extend(plan.bad.iter().map(|bad| piece(bad.offset, bad.len, unknown(&bad.reason))));
        pieces.sort_unstable_by_key(|piece| piece.bytes.start);
        Self { pieces }
    }

    #[cfg(test)]
    pub(super) fn of_pieces(pieces: Vec<Piece>) -> Self {
        Self { pieces }
    }

    /// The pieces that have any of these bytes.
    pub(super) fn within(&self, bytes: Range<u64>) -> impl Iterator<Item = &Piece> {
        let first = self.pieces.partition_point(|piece| piece.bytes.end <= bytes.start);
        self.pieces.iter().skip(first).take_while(move |piece| piece.bytes.start < bytes.end)
    }

    /// The chunk at an offset that a piece begins at.
    pub(super) fn chunk_at(&self, offset: u64) -> Option<Fingerprint> {
        match self.within(offset..offset + 1).next().map(|piece| &piece.content) {
            Some(Content::Chunk(fingerprint)) => Some(*fingerprint),
            _ => None,
        }
    }

    /// Memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.pieces.capacity() * size_of::<Piece>()
    }
}
