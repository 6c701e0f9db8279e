//! From findings in disk order to what is sent: queries, regions of the chunks the server lacks, and
//! descriptions of extents that only follow the regions they need.
//!
//! Pure state, no I/O. The rules it keeps:
//!
//! * every chunk of an extent is asked about, or known in this session, before the extent is packed;
//! * extents are packed strictly in disk order, a needed chunk with the first extent that has it;
//! * an extent is described after the region with its last new chunk, so the server never meets a chunk it
//!   has not received.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_proto::fingerprint::FINGERPRINT_BYTES;
use holdfast_proto::limits::QUERY_FINGERPRINTS_MAX;
use holdfast_proto::{Fingerprint, v1};

use super::known::{FingerprintSet, Known};
use super::outbox::{Outbox, Output};
use super::scan::{Changed, Finding};
use crate::error::ClientError;
use crate::pool::ObjectPool;

/// Memory of regions' plain bytes, used again.
pub(crate) type RegionBufferPool = Arc<ObjectPool<Vec<u8>>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Packer {
    known: Known,
    /// Asked, needed, and not yet packed: no more than the chunks of the extents waiting.
    needed: FingerprintSet,
    questions: Questions,
    waiting: VecDeque<Waiting>,
    outbox: Outbox,
}

#[derive(Debug)]
struct Waiting {
    changed: Changed,
    /// Queries below this sequence must be answered first.
    after_query: u64,
}

/// Queries being gathered, ready to go, and unanswered.
#[derive(Debug, Default)]
struct Questions {
    gathering: Vec<Fingerprint>,
    ready: VecDeque<v1::Query>,
    open: VecDeque<(u64, Vec<Fingerprint>)>,
    /// Sequence of the query being gathered.
    next: u64,
}

impl Questions {
    fn ask(&mut self, fingerprint: Fingerprint) {
        self.gathering.push(fingerprint);
        if self.gathering.len() >= QUERY_FINGERPRINTS_MAX {
            self.close();
        }
    }

    fn close(&mut self) {
        if self.gathering.is_empty() {
            return;
        }
        let asked = std::mem::take(&mut self.gathering);
        let mut list = Vec::with_capacity(asked.len() * FINGERPRINT_BYTES);
        asked.iter().for_each(|fingerprint| list.extend_from_slice(fingerprint.as_bytes()));
        self.ready.push_back(v1::Query { sequence: self.next, fingerprints: list.into() });
        self.open.push_back((self.next, asked));
        self.next += 1;
    }

    /// Queries below this are answered.
    fn answered_below(&self) -> u64 {
        self.open.front().map_or(self.next, |(sequence, _)| *sequence)
    }

    /// Queries below this hold everything asked so far.
    fn asked_below(&self) -> u64 {
        self.next + u64::from(!self.gathering.is_empty())
    }
}

impl Packer {
    /// A packer for one stream.
    pub(crate) fn new(stock: RegionBufferPool) -> Self {
        Self {
            known: Known::new(),
            needed: FingerprintSet::default(),
            questions: Questions::default(),
            waiting: VecDeque::new(),
            outbox: Outbox::new(stock),
        }
    }

    /// Takes the next finding in disk order.
    pub(crate) fn add(&mut self, finding: Finding) {
        match finding {
            Finding::Accepted { .. } => {}
            Finding::Zero { first, count } => self.outbox.zero(first, count),
            Finding::Unchanged { index } => self.outbox.unchanged(index),
            Finding::Changed(changed) => {
                for fingerprint in &changed.fingerprints {
                    if !fingerprint.is_zero() && self.known.insert(*fingerprint) {
                        self.questions.ask(*fingerprint);
                    }
                }
                let after_query = self.questions.asked_below();
                self.waiting.push_back(Waiting { changed, after_query });
                self.pack_ready();
            }
        }
    }

    /// A query to send: a full one, or with `flush` whatever there is.
    pub(crate) fn take_query(&mut self, flush: bool) -> Option<v1::Query> {
        if flush && self.questions.ready.is_empty() {
            self.questions.close();
        }
        self.questions.ready.pop_front()
    }

    /// Takes the server's answer to a query.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] for an answer to nothing asked, or of the wrong length.
    pub(crate) fn answer(&mut self, need: &v1::Need) -> Result<(), ClientError> {
        let at = self.questions.open.iter().position(|(sequence, _)| *sequence == need.sequence);
        let Some((_, asked)) = at.and_then(|at| self.questions.open.remove(at)) else {
            return Err(ClientError::Protocol(format!("an answer to query {}, not asked", need.sequence)));
        };
        if need.bitmap.len() != asked.len().div_ceil(8) {
            return Err(ClientError::Protocol(format!(
                "an answer of {} bytes to a query of {} chunks",
                need.bitmap.len(),
                asked.len()
            )));
        }
        for (eight, bits) in asked.chunks(8).zip(&need.bitmap) {
            for (bit, fingerprint) in eight.iter().enumerate() {
                if bits >> bit & 1 == 1 {
                    self.needed.insert(*fingerprint);
                }
            }
        }
        self.pack_ready();
        Ok(())
    }

    /// The next thing to send, in order.
    pub(crate) fn take_output(&mut self) -> Option<Output> {
        self.outbox.take()
    }

    /// Whether every extent taken in is packed.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Ends the last region and message; to be called when idle and nothing more comes.
    pub(crate) fn finish(&mut self) {
        self.outbox.finish();
    }

    fn pack_ready(&mut self) {
        while self.waiting.front().is_some_and(|head| head.after_query <= self.questions.answered_below()) {
            let Some(Waiting { changed, .. }) = self.waiting.pop_front() else { return };
            for (piece, fingerprint) in changed.pieces.iter().zip(&changed.fingerprints) {
                if !piece.zero && self.needed.remove(fingerprint) {
                    let start = piece.offset as usize;
                    let chunk = changed.buffer.get(start..start + piece.len as usize).unwrap_or_default();
                    self.outbox.chunk(*fingerprint, chunk);
                }
            }
            self.outbox.chunked(describe(&changed));
        }
    }
}

fn describe(changed: &Changed) -> v1::ChunkedExtent {
    let mut fingerprints = Vec::with_capacity(changed.fingerprints.len() * FINGERPRINT_BYTES);
    changed
        .fingerprints
        .iter()
        .for_each(|fingerprint| fingerprints.extend_from_slice(fingerprint.as_bytes()));
    v1::ChunkedExtent {
        index: changed.index,
        digest: changed.digest.as_bytes().to_vec().into(),
        fingerprints: fingerprints.into(),
        lengths: changed.pieces.iter().map(|piece| piece.len).collect(),
    }
}

#[cfg(test)]
mod tests;
