//! Extents on their way to the target: one thread writes them, the lowest first. Several that write into one file would
//! wait for each other, as the kernel lets one in at a time, and would make it find room for the file out of order.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::extents::WholeExtent;

/// Extents that wait to be written. Their number is bounded where they are put together.
#[derive(Debug, Default)]
pub(super) struct Writes {
    state: Mutex<State>,
    idle: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By offset; and by number, as one that is read again after a lost connection may come twice.
    waiting: BTreeMap<(u64, u64), WholeExtent>,
    number: u64,
    being_written: usize,
}

/// An extent whose turn it is. It counts as being written until this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    writes: &'a Writes,
    pub(super) extent: WholeExtent,
}

impl Writes {
    /// One more to be written.
    pub(super) fn push(&self, extent: WholeExtent) {
        let mut state = self.state.lock();
        state.number += 1;
        let key = (extent.offset, state.number);
        state.waiting.insert(key, extent);
    }

    /// The lowest that waits.
    pub(super) fn next(&self) -> Option<Turn<'_>> {
        let mut state = self.state.lock();
        let (_, extent) = state.waiting.pop_first()?;
        state.being_written += 1;
        Some(Turn { writes: self, extent })
    }

    /// Returns the number of writes that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Waits until none waits or is being written.
    pub(super) async fn idle(&self) {
        loop {
            // Before looking: what happens from here on wakes it.
            let changed = self.idle.notified();
            if self.state.lock().is_idle() {
                return;
            }
            changed.await;
        }
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.being_written == 0
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.writes.state.lock();
        state.being_written -= 1;
        if state.is_idle() {
            self.writes.idle.notify_waiters();
        }
    }
}
