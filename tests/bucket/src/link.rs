//! The line between the bucket and its clients: a limited rate in each direction, and the traffic so far.
//!
//! In each direction transfers wait for earlier ones, as on one line: concurrent requests share the rate. A body
//! passes as a whole when its transfer time is over, so a request takes as long as it would, but its first byte
//! arrives with its last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Traffic so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of bodies received.
    pub received_bytes: u64,
    /// Bytes of bodies sent.
    pub sent_bytes: u64,
    /// Most concurrent GETs of objects since this was last taken.
    pub gets_in_flight_max: u64,
}

/// One direction of the line.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// When the line will be free again.
    taken_until: Mutex<Option<Instant>>,
    bytes: AtomicU64,
}

impl Way {
    /// Returns when `bytes` have passed at `rate` bytes a second; 0: at once.
    pub(crate) async fn pass(&self, bytes: u64, rate: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if rate == 0 || bytes == 0 {
            return;
        }
        let until = {
            let mut taken = self.taken_until.lock();
            let now = Instant::now();
            let begin = taken.filter(|until| *until > now).unwrap_or(now);
            let until =
                begin + Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64);
            *taken = Some(until);
            until
        };
        tokio::time::sleep_until(until.into()).await;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Number of GETs in progress.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    now: AtomicU64,
    most: AtomicU64,
}

impl InFlight {
    /// Counts one more, until the guard is dropped.
    pub(crate) fn begin(&self) -> Begun<'_> {
        let now = self.now.fetch_add(1, Ordering::AcqRel) + 1;
        self.most.fetch_max(now, Ordering::AcqRel);
        Begun(self)
    }

    pub(crate) fn take_most(&self) -> u64 {
        self.most.swap(self.now.load(Ordering::Acquire), Ordering::AcqRel)
    }
}

/// Guard of a request in progress.
#[derive(Debug)]
pub(crate) struct Begun<'a>(&'a InFlight);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Kind of a key: the first folder after the prefix of a repository, or its last part.
pub fn folder_of(key: &str) -> &str {
    const FOLDERS: [&str; 4] = ["containers", "points", "snapshots", "keys"];
    let mut parts = key.split('/');
    parts.clone().find(|part| FOLDERS.contains(part)).or_else(|| parts.next_back()).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_of_kinds() {
        for (key, folder) in [
            ("/holdfast/site/containers/0000000/1.data-", "containers"),
            ("site/points/a/b/c", "points"),
            ("site/lease", "lease"),
            ("repository", "repository"),
        ] {
            assert_eq!(folder_of(key), folder);
        }
    }

    #[test]
    fn requests_share_the_rate() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let way = Way::default();
        let begun = Instant::now();
        runtime.block_on(async {
            let one = way.pass(100_000, 1_000_000);
            let other = way.pass(100_000, 1_000_000);
            tokio::join!(one, other)
        });
        assert!(begun.elapsed() >= Duration::from_millis(200));
        assert_eq!(way.bytes(), 200_000);
    }

    #[test]
    fn the_most_at_once_is_kept_until_it_is_asked_for() {
        let gets = InFlight::default();
        let first = gets.begin();
        drop((gets.begin(), gets.begin()));
        assert_eq!(gets.take_most(), 3);
        assert_eq!(gets.take_most(), 1);
        drop(first);
    }
}
