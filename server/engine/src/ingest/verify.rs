//! Verification of incoming regions on all cores, results in the order of submission.
//!
//! An agent must not be able to poison the pool: nothing it sends is stored under a fingerprint before the
//! bytes have been decoded and hashed here.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};
use holdfast_proto::region::{Decoder, RegionError};
use rayon::ThreadPool;

use crate::container::{UnverifiedRegion, VerifiedRegion};

/// Regions of one stream being verified at most: 16 × 256 KiB of plain bytes and as much again on the wire.
const IN_FLIGHT_MAX: usize = 16;

thread_local! {
    static DECODER: RefCell<Option<Decoder>> = const { RefCell::new(None) };
}

type Outcome = Result<VerifiedRegion, RegionError>;

/// One stream's queue of regions being verified.
#[derive(Debug)]
pub(super) struct VerifyQueue {
    pool: Arc<ThreadPool>,
    waiting: VecDeque<Receiver<Outcome>>,
}

impl VerifyQueue {
    pub(super) const fn new(pool: Arc<ThreadPool>) -> Self {
        Self { pool, waiting: VecDeque::new() }
    }

    /// Begins to verify a region.
    pub(super) fn submit(&mut self, region: UnverifiedRegion) {
        let (sender, receiver) = bounded(1);
        self.pool.spawn(move || {
            // The receiver is gone when the session ended meanwhile: then nobody wants to know.
            let _ = sender.send(verify(region));
        });
        self.waiting.push_back(receiver);
    }

    /// The next verified region: waits for it when the queue is full or `wait` is set, otherwise only takes
    /// what is ready.
    pub(super) fn next(&mut self, wait: bool) -> Option<Outcome> {
        let front = self.waiting.front()?;
        let outcome = if wait || self.waiting.len() >= IN_FLIGHT_MAX {
            front.recv().ok()
        } else {
            match front.try_recv() {
                Ok(outcome) => Some(outcome),
                Err(crossbeam_channel::TryRecvError::Empty) => return None,
                Err(crossbeam_channel::TryRecvError::Disconnected) => None,
            }
        };
        self.waiting.pop_front();
        // A verifier that died without an answer verified nothing.
        Some(outcome.unwrap_or_else(|| Err(RegionError::Frame("verification stopped unexpectedly".into()))))
    }
}

fn verify(region: UnverifiedRegion) -> Outcome {
    DECODER.with_borrow_mut(|kept| {
        let mut decoder = match kept.take() {
            Some(decoder) => decoder,
            None => Decoder::new()?,
        };
        let outcome = region.verify(&mut decoder);
        *kept = Some(decoder);
        outcome
    })
}
