//! How far restores read ahead, all of them together: a bound of its own for each would have to allow for all of them
//! at once, and one that is alone needs more than its share.

use std::sync::Arc;

use parking_lot::Mutex;

/// Reads ahead that all readers share.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// Reads that may be held beside one of each reader.
    extra_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    readers: usize,
    extra: usize,
}

/// What one reader holds. Gives it back when dropped.
#[derive(Debug)]
pub(crate) struct ReaderShare {
    pool: Arc<ReadAhead>,
    reads: usize,
}

impl ReadAhead {
    /// `extra_max` reads, beside the one that every reader may always hold.
    pub(crate) fn new(extra_max: usize) -> Arc<Self> {
        Arc::new(Self { extra_max, state: Mutex::default() })
    }

    /// One more reader; holds nothing yet.
    pub(crate) fn join(self: &Arc<Self>) -> ReaderShare {
        self.state.lock().readers += 1;
        ReaderShare { pool: Arc::clone(self), reads: 0 }
    }

    /// Reads held beside the first of each reader.
    #[cfg(test)]
    pub(crate) fn extra(&self) -> usize {
        self.state.lock().extra
    }
}

impl ReaderShare {
    /// Takes one more read. The first is always granted, so that every reader goes on; others while there are any, and
    /// at most an equal share of them, so that the readers that came first, or whose clients do not read, leave some.
    pub(crate) fn take(&mut self) -> bool {
        let mut state = self.pool.state.lock();
        if self.reads > 0 {
            let share = self.pool.extra_max / state.readers.max(1);
            if self.reads > share || state.extra >= self.pool.extra_max {
                return false;
            }
            state.extra += 1;
        }
        self.reads += 1;
        true
    }

    /// Gives one back.
    ///
    /// # Panics
    /// When it holds none.
    pub(crate) fn give_back(&mut self) {
        assert!(self.reads > 0, "a read is given back that was not taken");
        self.reads -= 1;
        if self.reads > 0 {
            self.pool.state.lock().extra -= 1;
        }
    }

    /// Reads it holds.
    pub(crate) const fn reads(&self) -> usize {
        self.reads
    }
}

impl Drop for ReaderShare {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.readers -= 1;
        state.extra -= self.reads.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(share: &mut ReaderShare) -> usize {
        while share.take() {}
        share.reads()
    }

    #[test]
    fn one_reader_has_all_of_it_and_many_have_one_at_least() {
        let pool = ReadAhead::new(6);
        let mut first = pool.join();
        assert_eq!(take_all(&mut first), 7);
        // The first does not give anything back: the others go on with one read each.
        let mut others: Vec<ReaderShare> = (0..10).map(|_| pool.join()).collect();
        for other in &mut others {
            assert_eq!(take_all(other), 1);
        }
        assert_eq!(pool.extra(), 6);
        drop(first);
        assert_eq!(pool.extra(), 0);
        others.truncate(2);
        assert_eq!(others.iter_mut().map(take_all).collect::<Vec<_>>(), [4, 4], "6 extra for 2");
        others[0].give_back();
        assert_eq!((pool.extra(), others[0].reads()), (5, 3));
        drop(others);
        let state = pool.state.lock();
        assert_eq!((state.readers, state.extra), (0, 0));
    }

    #[test]
    #[should_panic(expected = "given back that was not taken")]
    fn what_was_not_taken_cannot_be_given_back() {
        ReadAhead::new(1).join().give_back();
    }
}
