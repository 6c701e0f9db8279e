//! How many recipes are walked at once: each walk reads pages and asks the index for every chunk of a disk, and anyone who may
//! restore may start one.

use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::ServiceError;

/// Walks at once: more of them do not end sooner, and backups need the index, too.
const AT_ONCE: usize = 4;

/// Those that wait for one to end. Each has a thread of the pool of calls that block (512).
const WAITING_MAX: usize = 64;

/// Between two questions whether to go on waiting.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct Counts {
    walking: usize,
    waiting: usize,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Walks {
    counts: Mutex<Counts>,
    ended: Condvar,
}

impl Walks {
    /// Waits for its turn, which ends when what is returned is dropped; `None`: `go_on` said no.
    ///
    /// # Errors
    /// `Limit`: too many wait.
    pub(super) fn begin(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Option<Walk<'_>>, ServiceError> {
        let mut counts = self.counts.lock();
        if counts.walking >= AT_ONCE {
            if counts.waiting >= WAITING_MAX {
                return Err(ServiceError::at_capacity(format!(
                    "{WAITING_MAX} restores wait to be told what lies in the archive: try again in a minute"
                )));
            }
            counts.waiting += 1;
            let mut goes_on = true;
            while goes_on && counts.walking >= AT_ONCE {
                self.ended.wait_for(&mut counts, LOOK);
                // It may take its time: a task waits for its share in it.
                goes_on = MutexGuard::unlocked(&mut counts, &mut *go_on);
            }
            counts.waiting -= 1;
            if !goes_on {
                return Ok(None);
            }
        }
        counts.walking += 1;
        Ok(Some(Walk(self)))
    }
}

/// One under way.
#[derive(Debug)]
pub(super) struct Walk<'a>(&'a Walks);

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().walking -= 1;
        self.0.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::ErrorCode;

    use super::*;

    #[test]
    fn walks_wait_for_others_and_not_all_of_them() {
        let walks = Walks::default();
        let mut under_way: Vec<Walk<'_>> =
            (0..AT_ONCE).map(|_| walks.begin(&mut || false).unwrap().unwrap()).collect();
        assert!(walks.begin(&mut || false).unwrap().is_none(), "it was told not to wait");
        walks.counts.lock().waiting = WAITING_MAX;
        assert_eq!(walks.begin(&mut || true).unwrap_err().code, ErrorCode::Limit);
        walks.counts.lock().waiting = 0;
        // One ends while another waits.
        let walk = walks.begin(&mut || {
            under_way.pop();
            true
        });
        assert!(walk.unwrap().is_some());
        assert_eq!((under_way.len(), walks.counts.lock().waiting), (AT_ONCE - 1, 0));
        drop(under_way);
        assert_eq!(walks.counts.lock().walking, 0);
    }
}
