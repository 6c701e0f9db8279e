//! Finds clients that stopped reading.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The answers of one connection that wait for their reader to take more, and since when.
#[derive(Debug, Default)]
pub(super) struct StallMonitor {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Instant>>,
}

impl StallMonitor {
    /// A number for an answer.
    pub(super) fn enter(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A chunk of the answer was handed over.
    pub(super) fn waits(&self, answer: u64) {
        self.waiting.lock().insert(answer, Instant::now());
    }

    /// More of it was asked for, or it is done.
    pub(super) fn reads(&self, answer: u64) {
        self.waiting.lock().remove(&answer);
    }

    /// Whether an answer has waited for longer than `patience`.
    pub(super) fn is_stalled(&self, patience: Duration) -> bool {
        let now = Instant::now();
        self.waiting.lock().values().any(|since| now.duration_since(*since) > patience)
    }
}
