//! A volume limited to its share of a disk or a network: bytes and requests a second, reads and writes separately.
//!
//! `open`, `list`, `space` and each `read_at` are requests of reading; `create`, `seal`, `remove` and
//! `discard_unfinished` of writing. `append` is charged for its bytes only: how many requests a volume makes of
//! them is its own affair. A call that fails is charged all the same.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{Blob, BlobName, BlobWriter, ListPage, Owner, Space, Volume, VolumeError};

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// How far calls may run ahead of the rate. Within any time `t` pass at most rate × (`t` + 250 ms) and one call more,
/// so a second sees at most 1.25 times the rate and one call.
const BURST: Duration = Duration::from_millis(250);

/// Limits per second; `None` is without limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    pub bytes_per_sec: Option<NonZeroU64>,
    pub requests_per_sec: Option<NonZeroU64>,
}

/// Rates that may change with the time of day.
pub trait RateSchedule: Send + Sync + fmt::Debug {
    /// Returns the rates in force now.
    fn rates(&self) -> Rates;
}

impl RateSchedule for Rates {
    fn rates(&self) -> Rates {
        *self
    }
}

/// A token bucket, stored as the time by which all past amounts are paid for at the rate of their time. A call begins
/// as soon as the debt is at most a burst, and then takes all it needs, even more than a burst: later calls wait for
/// it. So no call is too large to pass, and none has to be split.
#[derive(Debug, Default)]
pub struct TokenBucket {
    /// Time up to which past amounts are paid for.
    paid_until: Mutex<Duration>,
}

impl TokenBucket {
    /// Takes `amount` and returns how long to wait before using it. `now`: the time since a fixed moment.
    pub fn take(&self, amount: u64, per_sec: NonZeroU64, now: Duration) -> Duration {
        let cost_nanos = u128::from(amount) * NANOS_PER_SEC / u128::from(per_sec.get());
        let cost = Duration::from_nanos(u64::try_from(cost_nanos).unwrap_or(u64::MAX));
        let mut paid_until = self.paid_until.lock();
        // Idle time does not accumulate: past amounts are paid for no later than now.
        let begin = (*paid_until).max(now);
        let after = begin.saturating_add(cost);
        assert!(after >= *paid_until, "a token bucket was given back what had been taken");
        *paid_until = after;
        // A debt of one burst is allowed.
        begin.saturating_sub(now.saturating_add(BURST))
    }
}

/// The buckets of one direction.
#[derive(Debug)]
struct Gate {
    schedule: Arc<dyn RateSchedule>,
    bytes: TokenBucket,
    requests: TokenBucket,
    timer: Arc<dyn Timer>,
}

impl Gate {
    fn new(schedule: Arc<dyn RateSchedule>, timer: Arc<dyn Timer>) -> Arc<Self> {
        Arc::new(Self { schedule, bytes: TokenBucket::default(), requests: TokenBucket::default(), timer })
    }

    /// Waits until this many requests and bytes may pass.
    fn pass(&self, requests: u64, bytes: u64) {
        let rates = self.schedule.rates();
        let now = self.timer.now();
        let wait = |bucket: &TokenBucket, rate: Option<NonZeroU64>, amount: u64| match rate {
            Some(rate) if amount > 0 => bucket.take(amount, rate, now),
            _ => Duration::ZERO,
        };
        let wait = wait(&self.requests, rates.requests_per_sec, requests).max(wait(
            &self.bytes,
            rates.bytes_per_sec,
            bytes,
        ));
        // No lock is held here: others queue up behind the amount this call has taken.
        if wait > Duration::ZERO {
            self.timer.sleep(wait);
        }
    }
}

/// A volume limited to its share of a disk or a network.
#[derive(Debug)]
pub struct ThrottleVolume {
    inner: Arc<dyn Volume>,
    reads: Arc<Gate>,
    writes: Arc<Gate>,
}

impl ThrottleVolume {
    /// Creates a volume that limits calls to `inner` to these rates.
    pub fn new(inner: Arc<dyn Volume>, reads: Rates, writes: Rates, timer: Arc<dyn Timer>) -> Self {
        Self::scheduled(inner, Arc::new(reads), Arc::new(writes), timer)
    }

    /// Creates a volume that limits calls to `inner` to the rates in force at the time.
    pub fn scheduled(
        inner: Arc<dyn Volume>,
        reads: Arc<dyn RateSchedule>,
        writes: Arc<dyn RateSchedule>,
        timer: Arc<dyn Timer>,
    ) -> Self {
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

    fn drop_cached(&self) {
        self.inner.drop_cached();
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        self.reads.pass(1, buffer.len() as u64);
        self.inner.read_at(offset, buffer)
    }
}

/// A monotonic clock, and a way to wait.
pub trait Timer: Send + Sync + fmt::Debug {
    /// Time since some fixed moment.
    fn now(&self) -> Duration;

    /// Blocks the calling thread.
    fn sleep(&self, time: Duration);
}

/// The clock of the operating system.
#[derive(Debug)]
pub struct SystemTimer(Instant);

impl SystemTimer {
    /// Counts from now.
    #[must_use]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for SystemTimer {
    fn default() -> Self {
        Self::new()
    }
}

impl Timer for SystemTimer {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A source of random numbers, to spread waits. Not for secrets.
pub trait Random: Send + Sync + fmt::Debug {
    /// Returns any number, all equally likely.
    fn next_u64(&self) -> u64;
}

/// Random numbers from the standard library's randomly keyed hasher: different in every process and at every call.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        RandomState::new().hash_one(0_u64)
    }
}

#[cfg(test)]
mod tests;
