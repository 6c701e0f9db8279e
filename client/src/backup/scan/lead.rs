//! How far scanning may run ahead of what is done with its results.

use parking_lot::{Condvar, Mutex};

/// Results may be this far ahead of the oldest one not yet delivered. An unchanged extent's result holds no
/// buffer, so this bounds them: 256 × some 100 bytes.
pub(crate) const LEAD_MAX: usize = 256;

/// Makes scanning wait for deliveries.
#[derive(Debug)]
pub(super) struct Lead {
    /// Deliveries so far; `None` once stopped.
    delivered: Mutex<Option<u64>>,
    moved: Condvar,
}

impl Lead {
    pub(super) const fn new() -> Self {
        Self { delivered: Mutex::new(Some(0)), moved: Condvar::new() }
    }

    /// Waits until `sequence` is near enough; false once stopped.
    pub(super) fn wait(&self, sequence: u64) -> bool {
        let mut delivered = self.delivered.lock();
        loop {
            match *delivered {
                None => return false,
                Some(count) if sequence < count + LEAD_MAX as u64 => return true,
                Some(_) => self.moved.wait(&mut delivered),
            }
        }
    }

    /// The first `count` results were delivered.
    pub(super) fn delivered(&self, count: u64) {
        if let Some(delivered) = &mut *self.delivered.lock() {
            assert!(count >= *delivered, "{count} results delivered after {delivered}");
            *delivered = count;
        }
        self.moved.notify_all();
    }

    /// Lets no one go on.
    pub(super) fn stop(&self) {
        *self.delivered.lock() = None;
        self.moved.notify_all();
    }
}
