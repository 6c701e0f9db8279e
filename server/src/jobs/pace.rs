//! How fast a job may be. Pure arithmetic.

use std::num::NonZeroU64;
use std::time::Duration;

use holdfast_engine::StepLimits;

/// What a job may cost, and how it is tried again.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub limits: StepLimits,
    pub throttle: Throttle,
    pub retry: Retry,
}

/// A job's share of time and of bytes, kept by waiting after each step. Within each step it runs at full speed, so what
/// holds for a step and the wait after it holds for any number of them.
#[derive(Debug, Clone, Copy)]
pub struct Throttle {
    /// Of 100 s of a busy job, how many are steps; the others are waits. 1 to 100.
    share_percent: u32,
    /// Bytes charged to budgets; `None`: any.
    bytes_per_sec: Option<NonZeroU64>,
}

impl Throttle {
    /// Steps without waits between them. For jobs that do a little and are idle then.
    pub const NONE: Self = Self { share_percent: 100, bytes_per_sec: None };

    /// A share of time, from 1 to 100 percent; values outside are moved to the nearest of these.
    pub const fn share(percent: u32) -> Self {
        let share_percent = match percent {
            0 => 1,
            1..=100 => percent,
            _ => 100,
        };
        Self { share_percent, bytes_per_sec: None }
    }

    /// As it is, and no more bytes than these.
    pub const fn with_bytes_per_sec(self, bytes_per_sec: NonZeroU64) -> Self {
        Self { bytes_per_sec: Some(bytes_per_sec), ..self }
    }

    /// The share of time, from 1 to 100 percent.
    pub const fn share_percent(self) -> u32 {
        self.share_percent
    }

    /// Bytes a second at most; `None`: any.
    pub const fn bytes_per_sec(self) -> Option<NonZeroU64> {
        self.bytes_per_sec
    }

    /// How long to wait after a step that took `took` and moved so many bytes.
    ///
    /// The share holds when `took ÷ (took + wait) = share`, so `wait = took × (100 − share) ÷ share`; the rate when
    /// `bytes ÷ (took + wait) = rate`, so `wait = bytes ÷ rate − took`. The longer wait keeps both.
    pub fn wait(self, took: Duration, bytes: u64) -> Duration {
        let by_share = took.saturating_mul(100 - self.share_percent) / self.share_percent;
        let by_rate = self.bytes_per_sec.map_or(Duration::ZERO, |rate| {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).saturating_sub(took)
        });
        by_share.max(by_rate)
    }
}

/// How long to wait after steps that failed: `first`, then twice as long each time, at most `longest`.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    pub first: Duration,
    pub longest: Duration,
}

impl Retry {
    /// The wait after so many failures in a row, one or more.
    pub fn wait(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_share_is_kept_by_waiting() {
        assert_eq!(Throttle::NONE.wait(ms(500), 1 << 30), ms(0));
        assert_eq!(Throttle::share(50).wait(ms(500), 0), ms(500));
        assert_eq!(Throttle::share(25).wait(ms(500), 0), ms(1500));
        assert_eq!(Throttle::share(0).wait(ms(10), 0), ms(990));
        assert_eq!(Throttle::share(400).wait(ms(10), 0), ms(0));
    }

    #[test]
    fn a_rate_is_kept_by_waiting() {
        let rate = Throttle::NONE.with_bytes_per_sec(NonZeroU64::new(1000).unwrap());
        assert_eq!(rate.wait(ms(100), 1000), ms(900));
        assert_eq!(rate.wait(ms(100), 50), ms(0));
        let both = Throttle::share(50).with_bytes_per_sec(NonZeroU64::new(1000).unwrap());
        assert_eq!(both.wait(ms(800), 1000), ms(800));
        assert_eq!(both.wait(ms(100), 1000), ms(900));
        assert!(rate.wait(ms(1), u64::MAX) > Duration::from_secs(1 << 33), "no overflow");
    }

    #[test]
    fn retries_grow_and_are_bounded() {
        let retry = Retry { first: ms(100), longest: ms(1000) };
        let waits: Vec<Duration> = (1..=6).map(|failures| retry.wait(failures)).collect();
        assert_eq!(waits, [ms(100), ms(200), ms(400), ms(800), ms(1000), ms(1000)]);
        assert_eq!(retry.wait(u32::MAX), ms(1000));
    }
}
