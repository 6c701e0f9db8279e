//! A volume that retries calls that may succeed later.
//!
//! Only errors that say so ([`VolumeError::is_retryable`]), and only calls that may be repeated without changing
//! what the caller ends up with:
//!
//! | call | repeated |
//! |---|---|
//! | `open`, `read_at`, `list`, `space` | yes: they change nothing |
//! | `create` | yes: nothing is visible; what a lost attempt began, `discard_unfinished` removes |
//! | `remove` | yes: after an attempt whose outcome is unknown, "does not exist" means that it was carried out |
//! | `discard_unfinished` | yes; the count is that of the last attempt |
//! | `append` | no: after a failure the blob has a hole, and its writer can only be dropped |
//! | `seal` | no: it uses up the writer, and whether a blob of the name is this one only the caller can tell |

use std::num::NonZeroU32;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{Blob, BlobName, BlobWriter, ListPage, Owner, Random, Space, Timer, Volume, VolumeError};

/// Successes that pay for one retry.
const SUCCESSES_PER_RETRY: u32 = 10;

/// Number of attempts, and waits between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts of one call, including the first.
    pub attempts_max: NonZeroU32,
    /// Upper bound of the first wait; that of each further one doubles.
    pub base_delay: Duration,
    /// Upper bound of every wait.
    pub max_delay: Duration,
    /// Retries of all calls together while none succeeds; ten successes give one back. A volume that is down
    /// is then asked once a call, not `attempts_max` times, and is not kept down by retries.
    pub budget_retries: u32,
}

/// Five attempts wait 0.2 + 0.4 + 0.8 + 1.6 = 3 s at most and half of it on average; with ten threads a
/// budget of 100 retries lasts for two or three calls of each.
impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: NonZeroU32::MIN.saturating_add(4),
            base_delay: Duration::from_millis(200),
            max_delay: Duration::from_secs(10),
            budget_retries: 100,
        }
    }
}

/// A volume that retries (see the module documentation).
#[derive(Debug)]
pub struct RetryVolume {
    inner: Arc<dyn Volume>,
    retries: Arc<Retries>,
}

impl RetryVolume {
    /// Creates a volume that retries calls that fail on `inner`.
    pub fn new(
        inner: Arc<dyn Volume>,
        policy: RetryPolicy,
        timer: Arc<dyn Timer>,
        random: Arc<dyn Random>,
    ) -> Self {
        let budget = AtomicU32::new(policy.budget_retries.saturating_mul(SUCCESSES_PER_RETRY));
        Self { inner, retries: Arc::new(Retries { policy, timer, random, budget }) }
    }
}

#[derive(Debug)]
struct Retries {
    policy: RetryPolicy,
    timer: Arc<dyn Timer>,
    random: Arc<dyn Random>,
    /// Unit: successes. A retry takes [`SUCCESSES_PER_RETRY`], a success puts one back.
    budget: AtomicU32,
}

impl Retries {
    fn run<T>(&self, mut call: impl FnMut() -> Result<T, VolumeError>) -> Result<T, VolumeError> {
        let mut attempt = 1;
        loop {
            let error = match call() {
                Ok(value) => {
                    self.give_back();
                    return Ok(value);
                }
                Err(error) => error,
            };
            if !error.is_retryable() || attempt >= self.policy.attempts_max.get() || !self.take() {
                return Err(error);
            }
            self.timer.sleep(self.delay(attempt));
            attempt += 1;
        }
    }

    /// Exponential back-off with full jitter: anything from nothing to the ceiling, so that clients that
    /// failed together do not come back together (Brooker, "Exponential Backoff And Jitter", 2015).
    fn delay(&self, attempt: u32) -> Duration {
        let factor = 1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX);
        let ceiling = self.policy.base_delay.saturating_mul(factor).min(self.policy.max_delay);
        // The upper half of a 128-bit product scales a 64-bit number without division; below 2^64 it fits.
        let ceiling_nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
        let scaled = (u128::from(self.random.next_u64()) * (u128::from(ceiling_nanos) + 1)) >> 64;
        let delay = Duration::from_nanos(u64::try_from(scaled).unwrap_or(ceiling_nanos));
        debug_assert!(delay <= ceiling, "waits {delay:?}, more than {ceiling:?}");
        delay
    }

    fn take(&self) -> bool {
        let less = |budget: u32| budget.checked_sub(SUCCESSES_PER_RETRY);
        self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give_back(&self) {
        let full = self.policy.budget_retries.saturating_mul(SUCCESSES_PER_RETRY);
        // Nearly always full already: then nothing is written, and no cache line goes from core to core.
        let more = |budget: u32| (budget < full).then(|| budget + 1);
        let _ = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

impl Volume for RetryVolume {
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        self.retries.run(|| self.inner.create_for(name, owner))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let inner = self.retries.run(|| self.inner.open(name))?;
        Ok(Arc::new(RetryBlob { inner, retries: Arc::clone(&self.retries) }))
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        self.retries.run(|| self.inner.list(prefix, after, limit))
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        let mut may_be_removed = false;
        self.retries.run(|| match self.inner.remove(name) {
            Err(VolumeError::NotFound { .. }) if may_be_removed => Ok(()),
            result => {
                may_be_removed |= result.as_ref().is_err_and(VolumeError::may_have_written);
                result
            }
        })
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        self.retries.run(|| self.inner.discard_unfinished())
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        self.retries.run(|| self.inner.space())
    }

    crate::pass_on!(handles_outlive_removal, evict, freeze to inner);
}

#[derive(Debug)]
struct RetryBlob {
    inner: Arc<dyn Blob>,
    retries: Arc<Retries>,
}

impl Blob for RetryBlob {
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
        self.retries.run(|| self.inner.read_at(offset, buffer))
    }
}

#[cfg(test)]
mod tests;
