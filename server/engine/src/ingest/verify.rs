//! Verification of incoming regions on all cores, results in the order of submission.
//!
//! (W1, A3) An agent must not be able to poison the pool: nothing it sends is stored under a fingerprint
//! before the bytes have been decoded and hashed here. Where agents encrypt, the server cannot see that: what it checks
//! then says `container/region.rs` (N1).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::region::{Decoder, RegionError};

use crate::container::{UnverifiedRegion, VerifiedRegion};
use crate::error::EngineError;
use crate::fair::{FairPool, Tenant};
use crate::task::{self, Task};

/// Regions of one stream being verified at most: 16 × 256 KiB of plain bytes and as much again on the wire.
const IN_FLIGHT_MAX: usize = 16;

thread_local! {
    static DECODER: RefCell<Option<Decoder>> = const { RefCell::new(None) };
}

/// A region, and the plain bytes of its chunks; `None`: its agent sealed it.
type Verified = (VerifiedRegion, Option<Bytes>);
type Outcome = Result<Verified, RegionError>;

/// One stream's queue of regions being verified.
#[derive(Debug)]
pub(super) struct VerifyQueue {
    pool: Arc<FairPool>,
    tenant: Tenant,
    waiting: VecDeque<Task<Outcome>>,
}

impl VerifyQueue {
    pub(super) const fn new(pool: Arc<FairPool>, tenant: Tenant) -> Self {
        Self { pool, tenant, waiting: VecDeque::new() }
    }

    /// Begins to verify a region.
    pub(super) fn submit(&mut self, region: UnverifiedRegion) {
        let verify = move || verify(region);
        self.waiting.push_back(task::spawn(&self.pool, self.tenant, "verifying a region", verify));
    }

    /// Forgets what is being verified.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// The next verified region: waits for it when the queue is full or `wait` is set, otherwise only takes
    /// what is ready.
    pub(super) fn next(&mut self, wait: bool) -> Option<Result<Verified, EngineError>> {
        let front = self.waiting.front()?;
        let outcome =
            if wait || self.waiting.len() >= IN_FLIGHT_MAX { front.wait() } else { front.try_take()? };
        self.waiting.pop_front();
        // A verifier that panicked verified nothing.
        Some(outcome.and_then(|verified| Ok(verified?)))
    }
}

impl From<RegionError> for EngineError {
    /// The stream that sent the region adds the disk's name.
    fn from(source: RegionError) -> Self {
        Self::Region { disk: String::new(), source }
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
