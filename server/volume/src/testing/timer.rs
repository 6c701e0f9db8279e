//! Time and randomness controlled by a test.

use std::time::Duration;

use parking_lot::Mutex;

use crate::{Random, Timer};

/// Time that passes only when the test says so, or when a call waits.
#[derive(Debug, Default)]
pub struct ManualTimer(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    now: Duration,
    slept: Vec<Duration>,
}

impl ManualTimer {
    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        self.0.lock().now += time;
    }

    /// Returns the waits since the last call.
    pub fn take_sleeps(&self) -> Vec<Duration> {
        std::mem::take(&mut self.0.lock().slept)
    }
}

impl Timer for ManualTimer {
    fn now(&self) -> Duration {
        self.0.lock().now
    }

    fn sleep(&self, time: Duration) {
        let mut state = self.0.lock();
        state.now += time;
        state.slept.push(time);
    }
}

/// Always returns the same number.
#[derive(Debug, Clone, Copy)]
pub struct FixedRandom(pub u64);

impl Random for FixedRandom {
    fn next_u64(&self) -> u64 {
        self.0
    }
}
