//! Queries: which chunks does the server lack?

use std::collections::VecDeque;

use holdfast_proto::fingerprint::FINGERPRINT_BYTES;
use holdfast_proto::limits::QUERY_FINGERPRINTS_MAX;
use holdfast_proto::{Fingerprint, v1};

use crate::error::ClientError;

/// Queries that are being filled, ready to be sent, and not yet answered.
#[derive(Debug, Default)]
pub(super) struct Queries {
    /// At most [`QUERY_FINGERPRINTS_MAX`].
    filling: Vec<Fingerprint>,
    ready: VecDeque<v1::Query>,
    unanswered: VecDeque<(u64, Vec<Fingerprint>)>,
    /// Sequence of the query being filled.
    next: u64,
}

impl Queries {
    /// Asks about a chunk.
    pub(super) fn ask(&mut self, fingerprint: Fingerprint) {
        self.filling.push(fingerprint);
        if self.filling.len() >= QUERY_FINGERPRINTS_MAX {
            self.close();
        }
    }

    /// A query to send: a full one, or with `flush` whatever there is.
    pub(super) fn take(&mut self, flush: bool) -> Option<v1::Query> {
        if flush && self.ready.is_empty() {
            self.close();
        }
        self.ready.pop_front()
    }

    /// Takes an answer: calls `needed` with each chunk of the query that the server lacks.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] for an answer to no open query, or of the wrong length.
    pub(super) fn answer(
        &mut self,
        need: &v1::Need,
        mut needed: impl FnMut(Fingerprint),
    ) -> Result<(), ClientError> {
        let at = self.unanswered.iter().position(|(sequence, _)| *sequence == need.sequence);
        let Some((_, asked)) = at.and_then(|at| self.unanswered.remove(at)) else {
            let sequence = need.sequence;
            return Err(ClientError::Protocol(format!("it answered query {sequence}, which is not open")));
        };
        if need.bitmap.len() != asked.len().div_ceil(8) {
            return Err(ClientError::Protocol(format!(
                "it answered a query about {} chunks with {} bytes",
                asked.len(),
                need.bitmap.len()
            )));
        }
        for (eight, bits) in asked.chunks(8).zip(&need.bitmap) {
            let lacking = eight.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
            lacking.for_each(|(_, fingerprint)| needed(*fingerprint));
        }
        Ok(())
    }

    /// Queries below this are answered.
    pub(super) fn answered_below(&self) -> u64 {
        self.unanswered.front().map_or(self.next, |(sequence, _)| *sequence)
    }

    /// Queries below this hold everything asked so far.
    pub(super) fn asked_below(&self) -> u64 {
        self.next + u64::from(!self.filling.is_empty())
    }

    /// Whether everything asked has been answered.
    pub(super) fn is_empty(&self) -> bool {
        self.filling.is_empty() && self.ready.is_empty() && self.unanswered.is_empty()
    }

    fn close(&mut self) {
        if self.filling.is_empty() {
            return;
        }
        let asked = std::mem::take(&mut self.filling);
        let mut list = Vec::with_capacity(asked.len() * FINGERPRINT_BYTES);
        asked.iter().for_each(|fingerprint| list.extend_from_slice(fingerprint.as_bytes()));
        self.ready.push_back(v1::Query { sequence: self.next, fingerprints: list.into() });
        self.unanswered.push_back((self.next, asked));
        self.next += 1;
    }
}
