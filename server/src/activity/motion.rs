//! Tells streams that move from streams that could and do not: these hold their slots for nothing.
//!
//! A stream waits for its peer or for this server. Only the first is its own doing, so time in which this server works for
//! it does not count. It moves while it brings or takes [`MOVES_BYTES`] in [`TURN_PATIENCE`], 17 KiB/s: less than the slowest
//! line that agents are for, and more than an agent that sends a query now and then to keep its slot.

use holdfast_proto::limits::{EXTENT_BYTES, MOVES_BYTES, READ_FOR_SENT};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::TURN_PATIENCE;

#[derive(Debug)]
struct State {
    /// Since when, or from when on, fewer than [`MOVES_BYTES`] were moved.
    since: Instant,
    moved_bytes: u64,
    /// Since when this server works for it.
    works_since: Option<Instant>,
}

/// Progress of one stream since it last moved.
#[derive(Debug)]
pub(super) struct Motion(Mutex<State>);

impl Motion {
    /// It has moved until now.
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { since: Instant::now(), moved_bytes: 0, works_since: None }))
    }

    /// It has its slot from now on.
    pub(super) fn begins(&self) {
        let mut state = self.0.lock();
        (state.since, state.moved_bytes) = (Instant::now(), 0);
    }

    pub(super) fn moved(&self, bytes: u64) {
        let mut state = self.0.lock();
        state.moved_bytes = state.moved_bytes.saturating_add(bytes);
        if state.moved_bytes >= MOVES_BYTES {
            (state.since, state.moved_bytes) = (Instant::now(), 0);
        }
    }

    /// Runs `work` of this server's.
    pub(super) fn working<T>(&self, work: impl FnOnce() -> T) -> T {
        self.begin_work();
        let done = work();
        self.end_work();
        done
    }

    fn begin_work(&self) {
        self.0.lock().works_since = Some(Instant::now());
    }

    fn end_work(&self) {
        let mut state = self.0.lock();
        if let Some(begun) = state.works_since.take() {
            state.since += begun.elapsed();
        }
    }

    /// Returns true if the peer alone keeps the stream from moving, and has done so for [`TURN_PATIENCE`].
    pub(super) fn is_idle(&self) -> bool {
        let state = self.0.lock();
        let idle = Instant::now().saturating_duration_since(state.since);
        state.works_since.is_none() && idle >= TURN_PATIENCE
    }
}

/// Progress, in bytes, of a message that reports `extents` and took `sent_bytes`.
pub(crate) const fn worth(extents: u64, sent_bytes: u64) -> u64 {
    let read_bytes = extents.saturating_mul(EXTENT_BYTES as u64);
    sent_bytes.saturating_add(read_bytes / READ_FOR_SENT)
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_its_peer_does_not_do_counts() {
        let motion = Motion::new();
        advance(TURN_PATIENCE - Duration::from_secs(1)).await;
        motion.begin_work();
        advance(TURN_PATIENCE * 5).await;
        assert!(!motion.is_idle(), "this server works for it");
        motion.end_work();
        assert!(!motion.is_idle(), "its peer had no time yet");
        advance(Duration::from_secs(1)).await;
        assert!(motion.is_idle());
        motion.moved(MOVES_BYTES - 1);
        assert!(motion.is_idle(), "it trickles");
        motion.moved(1);
        assert!(!motion.is_idle());
        motion.moved(worth(16, 0));
        advance(TURN_PATIENCE - Duration::from_secs(1)).await;
        assert!(!motion.is_idle(), "64 MiB of its disk were told of");
    }
}
