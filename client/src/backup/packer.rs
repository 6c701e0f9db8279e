//! Turns scan results in disk order into messages: queries, regions of the chunks the server lacks, and
//! descriptions of extents that only follow the regions they need.
//!
//! Pure state, no I/O. The rules it keeps:
//!
//! * every chunk of an extent is asked about, or known in this session, before the extent is packed;
//! * extents are packed strictly in disk order, a needed chunk with the first extent that has it;
//! * an extent is described after the region with its last new chunk, so the server never meets a chunk it
//!   has not received, or another stream is bringing;
//! * what another stream did not bring is sent when the server asks for it again; extents are not described twice.

mod queries;

use std::collections::VecDeque;

use holdfast_proto::fingerprint::FINGERPRINT_BYTES;
use holdfast_proto::v1;

use self::queries::Queries;
use super::again::{Absent, Again};
use super::known::{FingerprintSet, Known};
use super::message_builder::{MessageBuilder, Output};
use super::scan::{Changed, ScanResult};
use crate::error::ClientError;
use crate::pool::RegionBufferPool;
use crate::slices::piece_bytes;

/// Turns scan results into queries, regions and descriptions of extents.
#[derive(Debug)]
pub(crate) struct Packer {
    known: Known,
    /// Asked, needed, and not yet packed: no more than the chunks of the extents waiting.
    needed: FingerprintSet,
    queries: Queries,
    waiting: VecDeque<Waiting>,
    messages: MessageBuilder,
    /// Extents the server asks for again after the disk's end.
    again: Again,
}

#[derive(Debug)]
struct Waiting {
    changed: Changed,
    /// Queries below this sequence must be answered first.
    after_query: u64,
}

impl Packer {
    /// A packer for one stream.
    pub(crate) fn new(buffers: RegionBufferPool) -> Self {
        Self {
            known: Known::new(),
            needed: FingerprintSet::default(),
            queries: Queries::default(),
            waiting: VecDeque::new(),
            messages: MessageBuilder::new(buffers),
            again: Again::default(),
        }
    }

    /// Takes the next result in disk order.
    pub(crate) fn add(&mut self, result: ScanResult) {
        match result {
            ScanResult::Accepted { .. } => {}
            ScanResult::Zero { first, count } => self.messages.zero(first, count),
            ScanResult::Unchanged { index } => self.messages.unchanged(index),
            ScanResult::Changed(changed) => {
                for fingerprint in &changed.fingerprints {
                    if !fingerprint.is_zero() && self.known.insert(*fingerprint) {
                        self.queries.ask(*fingerprint);
                    }
                }
                let after_query = self.queries.asked_below();
                self.waiting.push_back(Waiting { changed, after_query });
                self.pack_ready();
            }
        }
    }

    /// A query to send: a full one, or with `flush` whatever there is.
    pub(crate) fn take_query(&mut self, flush: bool) -> Option<v1::Query> {
        self.queries.take(flush)
    }

    /// Takes the server's answer to a query.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] for an answer to no open query, or of the wrong length.
    pub(crate) fn answer(&mut self, need: &v1::Need) -> Result<(), ClientError> {
        let needed = &mut self.needed;
        self.queries.answer(need, |fingerprint| {
            needed.insert(fingerprint);
        })?;
        self.pack_ready();
        Ok(())
    }

    /// From now on, chunks of extents that are read again are to be sent, as the server asks; to be called after
    /// [`Packer::finish`], which is to be called once more after the last of them.
    pub(crate) fn begin_again(&mut self, again: Again) {
        self.again = again;
    }

    /// Takes a result of reading extents again, in disk order.
    ///
    /// # Errors
    /// A chunk that is asked for and is no longer there.
    pub(crate) fn add_again(&mut self, result: &ScanResult) -> Result<(), Absent> {
        let Self { again, messages, .. } = self;
        again.take(result, |fingerprint, chunk| messages.chunk(fingerprint, chunk))
    }

    /// The next thing to send, in order.
    pub(crate) fn take_output(&mut self) -> Option<Output> {
        self.messages.take()
    }

    /// Returns true if every extent taken in is packed.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Ends the last region and message, and forgets what was asked about; to be called when idle and nothing more
    /// comes, unless the server asks for chunks again.
    ///
    /// # Panics
    /// When an extent, a query or a chunk the server needs is left over.
    pub(crate) fn finish(&mut self) {
        assert!(self.waiting.is_empty(), "{} extents are not packed", self.waiting.len());
        assert!(self.queries.is_empty(), "queries are not answered");
        assert!(self.needed.is_empty(), "{} chunks the server needs are not packed", self.needed.len());
        assert!(self.again.is_done(), "chunks the server asked for again are not packed");
        self.known = Known::new();
        self.messages.finish();
    }

    fn pack_ready(&mut self) {
        while self.waiting.front().is_some_and(|head| head.after_query <= self.queries.answered_below()) {
            let Some(Waiting { changed, .. }) = self.waiting.pop_front() else { return };
            for (piece, fingerprint) in changed.pieces.iter().zip(&changed.fingerprints) {
                if !piece.zero && self.needed.remove(fingerprint) {
                    self.messages.chunk(*fingerprint, piece_bytes(&changed.buffer, piece));
                }
            }
            self.messages.chunked(describe(&changed));
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
