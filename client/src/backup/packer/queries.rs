//! Queries: which chunks does the server lack, and which of them does another backup bring?

use std::collections::VecDeque;

use holdfast_proto::fingerprint::FINGERPRINT_BYTES;
use holdfast_proto::limits::QUERY_FINGERPRINTS_MAX;
use holdfast_proto::{Fingerprint, v1};

use crate::error::ClientError;

/// Queries that are being filled, ready to be sent, and not yet answered.
#[derive(Debug, Default)]
pub(super) struct Queries {
    /// Fingerprints of the next query; at most [`QUERY_FINGERPRINTS_MAX`].
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

    /// Takes an answer: calls `needed` with each chunk of the query that this stream is to send. A chunk that another
    /// stream brings is as good as one the server has.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] for an answer to no open query, of the wrong length, or one that contradicts itself.
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
        let bytes = asked.len().div_ceil(8);
        if need.bitmap.len() != bytes || !(need.pending.is_empty() || need.pending.len() == bytes) {
            return Err(ClientError::Protocol(format!(
                "it answered a query about {} chunks with {} and {} bytes",
                asked.len(),
                need.bitmap.len(),
                need.pending.len()
            )));
        }
        if need.bitmap.iter().zip(&need.pending).any(|(needed, pending)| needed & pending != 0) {
            let sequence = need.sequence;
            return Err(ClientError::Protocol(format!(
                "its answer to query {sequence} has a chunk both as needed and as brought by another backup"
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

    /// Returns true when every query has been answered.
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
