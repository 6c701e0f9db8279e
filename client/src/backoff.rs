//! Number and spacing of retries after a lost connection.

use std::time::Duration;

/// Delay before the first retry; doubles with each.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// Longest delay between attempts.
const DELAY_MAX: Duration = Duration::from_secs(15);

/// Follows an outage, from the first loss to the next progress. Time is passed in.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    retry_for: Duration,
    /// Start of the outage, and the number of attempts made in it.
    outage: Option<(Duration, u32)>,
}

impl Backoff {
    /// Outages may last `retry_for`.
    pub(crate) const fn new(retry_for: Duration) -> Self {
        Self { retry_for, outage: None }
    }

    /// Work went on: the next loss begins a new outage.
    pub(crate) const fn progressed(&mut self) {
        self.outage = None;
    }

    /// A loss at time `now`: how long to wait before the next attempt, `None` when the outage has lasted too
    /// long. Delays vary at random, so that agents that lost the same server do not return all at once.
    pub(crate) fn next_delay(&mut self, now: Duration) -> Option<Duration> {
        let micros = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().subsec_micros();
        self.spread_delay(now, f64::from(micros) / 1e6)
    }

    /// `random`: 0 to 1.
    fn spread_delay(&mut self, now: Duration, random: f64) -> Option<Duration> {
        let (since, attempts) = self.outage.unwrap_or((now, 0));
        self.outage = Some((since, attempts.saturating_add(1)));
        let left = (since + self.retry_for).checked_sub(now)?;
        if left.is_zero() {
            return None;
        }
        let delay = FIRST_DELAY.saturating_mul(2u32.saturating_pow(attempts.min(10))).min(DELAY_MAX);
        Some(delay.mul_f64(1.0 - 0.3 * random.clamp(0.0, 1.0)).min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_spread_out_and_end() {
        let mut backoff = Backoff::new(Duration::from_secs(60));
        let mut now = Duration::from_secs(1000);
        let mut delays = Vec::new();
        while let Some(delay) = backoff.spread_delay(now, 0.0) {
            delays.push(delay.as_secs_f64());
            now += delay;
        }
        assert_eq!(delays, [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 14.5]);
        backoff.progressed();
        assert_eq!(backoff.spread_delay(now, 1.0), Some(FIRST_DELAY.mul_f64(0.7)), "a new outage, spread");
        assert_eq!(Backoff::new(Duration::ZERO).spread_delay(now, 0.0), None);
    }
}
