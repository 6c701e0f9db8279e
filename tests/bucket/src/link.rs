//! The line between the bucket and who asks it: bytes a second, each way, and what passed.
//!
//! Each way what passes waits for what passed before, as on one line: requests at once share the rate. Bytes are let through
//! as a whole when their time is over, so a request takes as long as it would, and its first byte comes with its last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Of bodies that came.
    pub received_bytes: u64,
    /// Of bodies that went.
    pub sent_bytes: u64,
    /// GETs of objects that were answered at once, at most, since this was asked last.
    pub gets_in_flight_max: u64,
}

/// One way of the line.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// Until when it is taken.
    taken_until: Mutex<Option<Instant>>,
    bytes: AtomicU64,
}

impl Way {
    /// Returns when so many bytes have passed at `rate` bytes a second; 0: at once.
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

/// GETs under way.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    now: AtomicU64,
    most: AtomicU64,
}

impl InFlight {
    /// One more, until what is returned is dropped.
    pub(crate) fn begin(&self) -> Begun<'_> {
        let now = self.now.fetch_add(1, Ordering::AcqRel) + 1;
        self.most.fetch_max(now, Ordering::AcqRel);
        Begun(self)
    }

    pub(crate) fn take_most(&self) -> u64 {
        self.most.swap(self.now.load(Ordering::Acquire), Ordering::AcqRel)
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Begun<'a>(&'a InFlight);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The first folder of a key behind the prefix of a repository, or its last part: of what kind it is.
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
