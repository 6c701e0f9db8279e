//! Time, passed in so that tests own it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

/// A source of time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Milliseconds since the Unix epoch. For times that people read or that are kept: it may be set to anything at
    /// any moment.
    fn now_ms(&self) -> i64;

    /// Milliseconds since some fixed moment of this process. Never goes back and never jumps: for everything that
    /// waits or runs out within the process.
    fn monotonic_ms(&self) -> i64;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        jiff::Timestamp::now().as_millisecond()
    }

    fn monotonic_ms(&self) -> i64 {
        static START: OnceLock<Instant> = OnceLock::new();
        i64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// A time for people, in UTC and to the second: `2031-05-01T00:00:00Z`.
pub fn utc_text(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms)
        .map_or_else(|_| format!("{at_ms} ms after 1970"), |at| format!("{at:.0}"))
}

/// A clock that a test sets.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
    monotonic_ms: AtomicI64,
}

impl ManualClock {
    /// Starts at `now_ms`.
    pub const fn new(now_ms: i64) -> Self {
        Self { now_ms: AtomicI64::new(now_ms), monotonic_ms: AtomicI64::new(0) }
    }

    /// Lets time pass.
    pub fn advance_ms(&self, by_ms: i64) {
        self.now_ms.fetch_add(by_ms, Ordering::Relaxed);
        self.monotonic_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Sets the time of day forward, or back, while no time passes.
    pub fn set_by_ms(&self, by_ms: i64) {
        self.now_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn monotonic_ms(&self) -> i64 {
        self.monotonic_ms.load(Ordering::Relaxed)
    }
}
