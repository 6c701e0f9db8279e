//! Time and randomness as decorators use them, passed in so that tests own both.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

/// A clock that never goes back, and a way to wait.
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

/// A source of numbers to spread waits with. Not for secrets.
pub trait Random: Send + Sync + fmt::Debug {
    /// Any number, each as likely as any other.
    fn next_u64(&self) -> u64;
}

/// Numbers from the standard library's randomly keyed hasher: different in every process and at every call.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        RandomState::new().hash_one(0_u64)
    }
}
