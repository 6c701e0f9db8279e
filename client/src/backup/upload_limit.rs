//! `--limit-upload`, and the agent's rates: a token bucket for what is sent. Time is passed in.

use std::num::NonZeroU64;
use std::time::Duration;

use holdfast_proto::rate_window::RateWindows;
use holdfast_proto::size::ByteSize;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Burst after a pause, in seconds of the limit. Half a second keeps the average over any few seconds within the limit.
const BURST_SECONDS: f64 = 0.5;

/// A bucket that fills at a steady rate and is emptied by sending.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TokenBucket {
    bytes_per_second: f64,
    /// Below zero: more was taken than was there, and is waited for.
    level_bytes: f64,
    filled_at: Duration,
}

impl TokenBucket {
    /// A full bucket at time `now` (since any fixed moment).
    #[expect(clippy::cast_precision_loss, reason = "rates far below 2^52 bytes a second")]
    pub(crate) fn new(bytes_per_second: u64, now: Duration) -> Self {
        let bytes_per_second = bytes_per_second.max(1) as f64;
        Self { bytes_per_second, level_bytes: bytes_per_second * BURST_SECONDS, filled_at: now }
    }

    /// The bucket with another rate from time `now` on: a new one, for what was owed was owed at the old rate.
    fn at_rate(&mut self, bytes_per_second: u64, now: Duration) -> &mut Self {
        let other = Self::new(bytes_per_second, now);
        if (other.bytes_per_second - self.bytes_per_second).abs() > f64::EPSILON {
            *self = other;
        }
        self
    }

    /// Takes `bytes` out at time `now` and says how long to wait before sending them. A message larger than
    /// the bucket can be sent too, after a longer wait.
    #[expect(clippy::cast_precision_loss, reason = "messages are at most some MiB")]
    pub(crate) fn take(&mut self, bytes: u64, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.filled_at).as_secs_f64();
        self.filled_at = self.filled_at.max(now);
        let full = self.bytes_per_second * BURST_SECONDS;
        self.level_bytes = (self.level_bytes + passed * self.bytes_per_second).min(full) - bytes as f64;
        Duration::try_from_secs_f64(-self.level_bytes / self.bytes_per_second).unwrap_or(Duration::ZERO)
    }
}

/// A bucket on the real clock, whose rate may depend on the time of the week. Backups at the same time share it.
#[derive(Debug)]
pub struct UploadLimit {
    rates: Mutex<RateWindows>,
    bucket: Mutex<TokenBucket>,
    epoch: Instant,
}

impl Default for UploadLimit {
    /// Without limit.
    fn default() -> Self {
        Self::steady(None)
    }
}

impl UploadLimit {
    /// A limit in bytes per second; `None`: without limit.
    pub fn steady(bytes_per_sec: Option<NonZeroU64>) -> Self {
        let otherwise = ByteSize(bytes_per_sec.map_or(0, NonZeroU64::get));
        let bucket = TokenBucket::new(otherwise.0, Duration::ZERO);
        let rates = RateWindows { windows: Vec::new(), otherwise };
        Self { rates: Mutex::new(rates), bucket: Mutex::new(bucket), epoch: Instant::now() }
    }

    /// Limits what is sent from now on by these rates.
    pub fn set(&self, rates: RateWindows) {
        *self.rates.lock() = rates;
    }

    /// Waits until `bytes` may be sent.
    pub(crate) async fn wait(&self, bytes: u64) {
        let rate = self.rates.lock().bytes_per_sec(jiff::Timestamp::now().as_millisecond());
        let Some(rate) = rate else { return };
        let delay =
            self.bucket.lock().at_rate(rate.get(), self.epoch.elapsed()).take(bytes, self.epoch.elapsed());
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_is_free_and_the_rest_waits() {
        let second = Duration::from_secs(1);
        let mut bucket = TokenBucket::new(1000, Duration::ZERO);
        assert_eq!(bucket.take(500, Duration::ZERO), Duration::ZERO);
        assert_eq!(bucket.take(1000, Duration::ZERO), second);
        assert_eq!(bucket.take(1000, second), second, "1,000 paid, 1,000 more owed");
        assert_eq!(bucket.take(0, 60 * second), Duration::ZERO);
        assert_eq!(bucket.take(600, 60 * second), second / 10, "a long pause saves up half a second only");
    }

    #[test]
    fn another_rate_begins_anew() {
        let mut bucket = TokenBucket::new(1000, Duration::ZERO);
        bucket.take(1500, Duration::ZERO);
        let owed = bucket.at_rate(1000, Duration::ZERO).take(0, Duration::ZERO);
        assert_eq!(owed, Duration::from_secs(1), "the same rate changes nothing");
        assert_eq!(bucket.at_rate(10, Duration::ZERO).take(0, Duration::ZERO), Duration::ZERO);
        assert_eq!(bucket.take(15, Duration::ZERO), Duration::from_secs(1));
    }

    proptest! {
        /// A sender that waits as told never exceeds the rate by more than one burst.
        #[test]
        fn the_rate_holds(rate in 1u64..10_000_000, sizes in proptest::collection::vec(0u64..400_000, 1..50)) {
            let mut now = Duration::ZERO;
            let mut bucket = TokenBucket::new(rate, now);
            let mut sent = 0.0;
            for bytes in sizes {
                now += bucket.take(bytes, now);
                sent += bytes as f64;
                let allowed = rate as f64 * (now.as_secs_f64() + BURST_SECONDS);
                prop_assert!(sent <= allowed * 1.000_001 + 1.0, "{sent} > {allowed}");
            }
        }
    }
}
