//! Reads the regions that a plan names, checked, several with one request where they lie side by side.

use std::collections::VecDeque;

use bytes::Bytes;
use holdfast_proto::region::Decoder;

use super::plan::Piece;
use crate::container::{ContainerError, OpenContainer, StoredRegion, VerifiedRegion};
use crate::error::EngineError;
use crate::rewrite;

/// Regions read with one request at most: 2 MiB.
const SPAN_REGIONS_MAX: u16 = 8;

/// Decoded regions kept: a merge of so many small containers reads from all of them by turns. 256 KiB plain and at most
/// as much stored each: 32 MiB in all.
pub(super) const DECODED_MAX: usize = 64;

/// A region that was checked.
#[derive(Debug, Clone)]
pub(super) struct Checked {
    pub(super) region: VerifiedRegion,
    pub(super) plain: Bytes,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Source {
    decoder: Decoder,
    /// Read ahead, and not decoded yet: of one victim.
    span: (usize, VecDeque<StoredRegion>),
    /// The last used first.
    decoded: VecDeque<((usize, u16), Checked)>,
}

impl Source {
    pub(super) fn new() -> Result<Self, EngineError> {
        let decoder = Decoder::new().map_err(|error| EngineError::Internal(error.to_string()))?;
        Ok(Self { decoder, span: (0, VecDeque::new()), decoded: VecDeque::new() })
    }

    /// (R2) The region of `piece`, which is of `container`, checked against its CRC and every fingerprint. Where it
    /// takes one request, what the pieces that `follow` need is read with it. Says how many bytes were read.
    pub(super) fn region(
        &mut self,
        container: &OpenContainer,
        piece: Piece,
        follow: &[Piece],
    ) -> Result<(Checked, u64), ContainerError> {
        let (victim, region) = piece.place();
        if let Some(checked) = self.kept(victim, region) {
            return Ok((checked, 0));
        }
        let (stored, read_bytes) = match self.read_ahead(victim, region) {
            Some(stored) => (stored, 0),
            None => {
                // One damaged region fails them all: then each is read by itself.
                let span = container.read_regions(region..span_end(follow, victim, region));
                let mut span = span.map(VecDeque::from).unwrap_or_default();
                let bytes = span.iter().map(|stored| stored.payload.len() as u64).sum();
                let first = span.pop_front();
                self.span = (victim, span);
                match first {
                    Some(stored) => (stored, bytes),
                    None => {
                        let stored = container.read_region(region)?;
                        let bytes = stored.payload.len() as u64;
                        (stored, bytes)
                    }
                }
            }
        };
        let (region, plain) = rewrite::verified(container, stored, &mut self.decoder)?;
        let checked = Checked { region, plain };
        if matches!(piece, Piece::Chunk { .. }) {
            self.decoded.push_front((piece.place(), checked.clone()));
            self.decoded.truncate(DECODED_MAX);
        }
        Ok((checked, read_bytes))
    }

    fn kept(&mut self, victim: usize, region: u16) -> Option<Checked> {
        let place = self.decoded.iter().position(|(known, _)| *known == (victim, region))?;
        let entry = self.decoded.remove(place)?;
        let checked = entry.1.clone();
        self.decoded.push_front(entry);
        Some(checked)
    }

    fn read_ahead(&mut self, victim: usize, region: u16) -> Option<StoredRegion> {
        let (of, span) = &mut self.span;
        let is_next = *of == victim && span.front().is_some_and(|stored| stored.region == region);
        if is_next { span.pop_front() } else { None }
    }
}

/// Where the regions end that are needed one after the other from `region` on.
fn span_end(follow: &[Piece], victim: usize, region: u16) -> u16 {
    let mut end = region + 1;
    for piece in follow {
        let (of, next) = piece.place();
        let goes_on = of == victim && (next == end || next + 1 == end);
        if !goes_on || end - region >= SPAN_REGIONS_MAX {
            break;
        }
        end = next + 1;
    }
    end
}
