//! Messages of one disk that come over several connections, put back into the one order they were given.
//!
//! Every ordered message has a number, from 1 without a gap. On each connection the numbers ascend, and each connection
//! has a queue of its own, so the next message in order is always at the head of some connection's queue or on its way:
//! no full queue can keep it out, and nothing waits in a circle. What this holds is bounded by those queues, because a
//! message keeps its room there until the engine is done with it.
//!
//! An agent without lanes numbers nothing: all its numbers are 0, and its messages pass as they come.

use std::collections::BTreeMap;

/// Numbers farther ahead than this are nonsense. The agent has some MiB under way on each of 16 connections, and a
/// message of a sparse disk may be of 16 bytes.
const AHEAD_MAX: u64 = 1 << 24;

/// Why a message's number cannot be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum OrderError {
    #[error("an ordered message has number {order}, but message {order} came before")]
    Repeated { order: u64 },
    #[error("number {order} follows number {last} on the same connection; they must ascend")]
    Descending { order: u64, last: u64 },
    #[error(
        "an ordered message has number {order} while {next} is the next; that is more than {AHEAD_MAX} ahead"
    )]
    TooFarAhead { order: u64, next: u64 },
    #[error("ordered messages have numbers on some connections of this stream and none on others")]
    Mixed,
}

/// The last number that came over one connection.
#[derive(Debug, Default)]
pub(super) struct Source(u64);

/// See the module.
#[derive(Debug)]
pub(super) struct Merge<T> {
    /// The number of the next message in order.
    next: u64,
    /// Messages that came before the next in order.
    held: BTreeMap<u64, T>,
    /// Whether messages have numbers, once one has come.
    numbered: Option<bool>,
}

impl<T> Default for Merge<T> {
    fn default() -> Self {
        Self { next: 1, held: BTreeMap::new(), numbered: None }
    }
}

impl<T> Merge<T> {
    /// Takes message number `order` of `source`; [`Merge::take`] then gives what is in order. Nothing is changed by a
    /// message that is refused.
    ///
    /// # Errors
    /// When the number cannot be right.
    pub(super) fn put(&mut self, source: &mut Source, order: u64, message: T) -> Result<(), OrderError> {
        if self.numbered.is_some_and(|numbered| numbered != (order > 0)) {
            return Err(OrderError::Mixed);
        }
        if order == 0 {
            self.numbered = Some(false);
            // Behind all before it.
            self.held.insert(self.next.saturating_add(self.held.len() as u64), message);
            return Ok(());
        }
        if order < self.next || self.held.contains_key(&order) {
            return Err(OrderError::Repeated { order });
        }
        if order <= source.0 {
            return Err(OrderError::Descending { order, last: source.0 });
        }
        if order - self.next > AHEAD_MAX {
            return Err(OrderError::TooFarAhead { order, next: self.next });
        }
        (source.0, self.numbered) = (order, Some(true));
        self.held.insert(order, message);
        Ok(())
    }

    /// The next message in order, if it has come.
    pub(super) fn take(&mut self) -> Option<T> {
        let message = self.held.remove(&self.next)?;
        self.next = self.next.saturating_add(1);
        Some(message)
    }

    /// The number that is waited for, when others came before it.
    pub(super) fn gap(&self) -> Option<u64> {
        (!self.held.is_empty()).then_some(self.next)
    }

    /// Whether no message has come without a number.
    pub(super) fn may_have_lanes(&self) -> bool {
        self.numbered != Some(false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(merge: &mut Merge<u64>) -> Vec<u64> {
        std::iter::from_fn(|| merge.take()).collect()
    }

    #[test]
    fn messages_without_numbers_pass_as_they_come() {
        let (mut merge, mut source) = (Merge::default(), Source::default());
        for message in 0..5 {
            merge.put(&mut source, 0, message).unwrap();
            assert_eq!(drain(&mut merge), [message]);
        }
        merge.put(&mut source, 0, 5).unwrap();
        merge.put(&mut source, 0, 6).unwrap();
        assert_eq!(drain(&mut merge), [5, 6]);
        assert_eq!(merge.put(&mut source, 8, 0), Err(OrderError::Mixed));
        assert!(!merge.may_have_lanes());
    }

    #[test]
    fn numbers_that_cannot_be_right_are_refused_and_change_nothing() {
        let (mut merge, mut one, mut two) = (Merge::default(), Source::default(), Source::default());
        assert_eq!(
            merge.put(&mut one, 2 + AHEAD_MAX, 0),
            Err(OrderError::TooFarAhead { order: 2 + AHEAD_MAX, next: 1 })
        );
        merge.put(&mut one, 5, 5).unwrap();
        assert_eq!(merge.gap(), Some(1));
        assert_eq!(merge.put(&mut one, 4, 4), Err(OrderError::Descending { order: 4, last: 5 }));
        assert_eq!(merge.put(&mut two, 5, 5), Err(OrderError::Repeated { order: 5 }));
        assert_eq!(merge.put(&mut two, 0, 5), Err(OrderError::Mixed));
        for order in 1..5 {
            merge.put(&mut two, order, order).unwrap();
        }
        assert_eq!(drain(&mut merge), [1, 2, 3, 4, 5]);
        assert_eq!(merge.put(&mut two, 3, 3), Err(OrderError::Repeated { order: 3 }));
        assert_eq!(merge.gap(), None);
        assert!(merge.may_have_lanes());
    }

    /// Lanes with a queue of `room` messages each, fed and read at random: the order is restored, never more is held
    /// than there is room, and as long as messages are left some lane can go on.
    fn run(assigned: &[usize], lanes: usize, room: usize, choices: &[usize]) -> Result<(), TestCaseError> {
        let mut lines: Vec<std::collections::VecDeque<u64>> = vec![Default::default(); lanes];
        for (order, lane) in (1..).zip(assigned) {
            lines[lane % lanes].push_back(order);
        }
        let mut sources: Vec<Source> = (0..lanes).map(|_| Source::default()).collect();
        let mut held_of = vec![0usize; lanes];
        let (mut merge, mut passed, mut choices) = (Merge::default(), Vec::new(), choices.iter().cycle());
        while passed.len() < assigned.len() {
            let able: Vec<usize> =
                (0..lanes).filter(|lane| held_of[*lane] < room && !lines[*lane].is_empty()).collect();
            prop_assert!(!able.is_empty(), "deadlock after {} messages", passed.len());
            let lane = able[choices.next().unwrap() % able.len()];
            let order = lines[lane].pop_front().unwrap();
            merge.put(&mut sources[lane], order, (lane, order)).unwrap();
            held_of[lane] += 1;
            while let Some((lane, order)) = merge.take() {
                held_of[lane] -= 1;
                passed.push(order);
            }
            prop_assert!(merge.held.len() <= lanes * room);
        }
        prop_assert!(passed.iter().copied().eq(1..=assigned.len() as u64), "{passed:?}");
        prop_assert_eq!(merge.gap(), None);
        Ok(())
    }

    proptest! {
        #[test]
        fn any_interleaving_comes_out_in_order_within_its_room(
            assigned in proptest::collection::vec(0usize..16, 0..200),
            lanes in 1usize..17,
            room in 1usize..4,
            choices in proptest::collection::vec(0usize..1000, 1..50),
        ) {
            run(&assigned, lanes, room, &choices)?;
        }

        /// Numbers made up by a hostile agent never come out in another order, and never twice.
        #[test]
        fn whatever_is_sent_what_passes_is_in_order(
            sent in proptest::collection::vec((0usize..4, 0u64..40), 0..200),
        ) {
            let mut sources: Vec<Source> = (0..4).map(|_| Source::default()).collect();
            let (mut merge, mut passed) = (Merge::default(), Vec::new());
            for (lane, order) in sent.into_iter().filter(|(_, order)| *order > 0) {
                if merge.put(&mut sources[lane], order, order).is_ok() {
                    passed.extend(std::iter::from_fn(|| merge.take()));
                }
            }
            prop_assert!(passed.iter().copied().eq(1..=passed.len() as u64), "{passed:?}");
        }
    }
}
