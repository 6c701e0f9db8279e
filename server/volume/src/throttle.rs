//! A volume that takes no more than its share of a disk or a network: bytes and requests a second, reads and
//! writes apart.
//!
//! `open`, `list`, `space` and each `read_at` are requests of reading; `create`, `seal`, `remove` and
//! `discard_unfinished` of writing. `append` is charged for its bytes only: how many requests a volume makes of
//! them is its own affair. A call that fails is charged all the same.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{Blob, BlobName, BlobWriter, ListPage, Owner, Space, Timer, Volume, VolumeError};

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// What passes in this time may pass ahead of the rate. Within any time `t` pass at most
/// rate × (`t` + 250 ms) and one call more, so a second sees at most 1.25 times the rate and one call.
const BURST: Duration = Duration::from_millis(250);

/// What may pass in a second; `None` is without limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    pub bytes_per_sec: Option<NonZeroU64>,
    pub requests_per_sec: Option<NonZeroU64>,
}

/// A token bucket, kept as the time by which everything that has passed is paid for at the rate. A call begins
/// as soon as the debt is a burst at most, and then takes all it needs, also more than a burst: later calls wait
/// for it. So no call is too large to pass, and none has to be cut.
#[derive(Debug)]
struct Bucket {
    per_sec: NonZeroU64,
    /// Up to when what has passed is paid for.
    paid_until: Mutex<Duration>,
}

impl Bucket {
    fn new(per_sec: NonZeroU64) -> Self {
        Self { per_sec, paid_until: Mutex::new(Duration::ZERO) }
    }

    /// Takes `amount` and returns how long to wait before using it.
    fn take(&self, amount: u64, now: Duration) -> Duration {
        let cost_nanos = u128::from(amount) * NANOS_PER_SEC / u128::from(self.per_sec.get());
        let cost = Duration::from_nanos(u64::try_from(cost_nanos).unwrap_or(u64::MAX));
        let mut paid_until = self.paid_until.lock();
        // Idle time does not add up: what has passed is paid for no further back than now.
        let begin = (*paid_until).max(now);
        let after = begin.saturating_add(cost);
        assert!(after >= *paid_until, "a token bucket was given back what had been taken");
        *paid_until = after;
        // A debt of one burst may stand.
        begin.saturating_sub(now.saturating_add(BURST))
    }
}

/// The buckets of one direction.
#[derive(Debug)]
struct Gate {
    bytes: Option<Bucket>,
    requests: Option<Bucket>,
    timer: Arc<dyn Timer>,
}

impl Gate {
    fn new(rates: Rates, timer: Arc<dyn Timer>) -> Arc<Self> {
        let bytes = rates.bytes_per_sec.map(Bucket::new);
        let requests = rates.requests_per_sec.map(Bucket::new);
        Arc::new(Self { bytes, requests, timer })
    }

    /// Waits until so much may pass.
    fn pass(&self, requests: u64, bytes: u64) {
        let now = self.timer.now();
        let wait = |bucket: &Option<Bucket>, amount: u64| match bucket {
            Some(bucket) if amount > 0 => bucket.take(amount, now),
            _ => Duration::ZERO,
        };
        let wait = wait(&self.requests, requests).max(wait(&self.bytes, bytes));
        // No lock is held here: others queue up behind what this call has taken.
        if wait > Duration::ZERO {
            self.timer.sleep(wait);
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct ThrottleVolume {
    inner: Arc<dyn Volume>,
    reads: Arc<Gate>,
    writes: Arc<Gate>,
}

impl ThrottleVolume {
    /// Lets pass to `inner` what the rates allow.
    pub fn new(inner: Arc<dyn Volume>, reads: Rates, writes: Rates, timer: Arc<dyn Timer>) -> Self {
        Self { inner, reads: Gate::new(reads, Arc::clone(&timer)), writes: Gate::new(writes, timer) }
    }
}

impl Volume for ThrottleVolume {
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        self.writes.pass(1, 0);
        let inner = self.inner.create_for(name, owner)?;
        Ok(Box::new(ThrottleWriter { inner, writes: Arc::clone(&self.writes) }))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        self.reads.pass(1, 0);
        let inner = self.inner.open(name)?;
        Ok(Arc::new(ThrottleBlob { inner, reads: Arc::clone(&self.reads) }))
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        self.reads.pass(1, 0);
        self.inner.list(prefix, after, limit)
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        self.writes.pass(1, 0);
        self.inner.remove(name)
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        self.writes.pass(1, 0);
        self.inner.discard_unfinished()
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        self.reads.pass(1, 0);
        self.inner.space()
    }

    crate::pass_on!(handles_outlive_removal, evict, freeze to inner);
}

#[derive(Debug)]
struct ThrottleWriter {
    inner: Box<dyn BlobWriter>,
    writes: Arc<Gate>,
}

impl BlobWriter for ThrottleWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        self.writes.pass(0, bytes.len() as u64);
        self.inner.append(bytes)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn seal(self: Box<Self>) -> Result<(), VolumeError> {
        self.writes.pass(1, 0);
        self.inner.seal()
    }
}

#[derive(Debug)]
struct ThrottleBlob {
    inner: Arc<dyn Blob>,
    reads: Arc<Gate>,
}

impl Blob for ThrottleBlob {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_at_hand(&self) -> bool {
        self.inner.is_at_hand()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        self.reads.pass(1, buffer.len() as u64);
        self.inner.read_at(offset, buffer)
    }
}

#[cfg(test)]
mod tests;
