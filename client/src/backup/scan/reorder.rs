//! Results back in disk order.

use std::collections::BTreeMap;

use super::lead::LEAD_MAX;
use super::result::ScanResult;

/// Takes results in any order and gives them in the order of their numbers, from 0 on.
#[derive(Debug, Default)]
pub(crate) struct ReorderBuffer {
    early: BTreeMap<u64, ScanResult>,
    next: u64,
}

impl ReorderBuffer {
    /// Takes one in.
    ///
    /// # Panics
    /// When the number was there before, or is further ahead than scanning may be.
    pub(crate) fn put(&mut self, sequence: u64, result: ScanResult) {
        let ahead = self.next..self.next + LEAD_MAX as u64;
        assert!(ahead.contains(&sequence), "scan result {sequence}, but {ahead:?} are due");
        let twice = self.early.insert(sequence, result);
        assert!(twice.is_none(), "scan result {sequence} came twice");
    }

    /// The next one in order, if it has come.
    pub(crate) fn take(&mut self) -> Option<ScanResult> {
        let result = self.early.remove(&self.next)?;
        self.next += 1;
        Some(result)
    }

    /// How many were taken.
    pub(crate) const fn taken(&self) -> u64 {
        self.next
    }

    /// Whether none wait.
    pub(crate) fn is_empty(&self) -> bool {
        self.early.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(sequences: &[u64]) -> ReorderBuffer {
        let mut buffer = ReorderBuffer::default();
        for &sequence in sequences {
            buffer.put(sequence, ScanResult::Unchanged { index: sequence });
        }
        buffer
    }

    #[test]
    fn results_leave_in_order_and_only_when_due() {
        let mut buffer = buffer(&[2, 0, 1, 4]);
        let order: Vec<_> = std::iter::from_fn(|| buffer.take()).map(|result| result.extents().0).collect();
        assert_eq!(order, [0, 1, 2]);
        assert_eq!((buffer.taken(), buffer.is_empty()), (3, false));
    }

    #[test]
    #[should_panic(expected = "scan result 1 came twice")]
    fn a_result_that_comes_twice_is_a_defect() {
        drop(buffer(&[1, 1]));
    }

    #[test]
    #[should_panic(expected = "but 0..256 are due")]
    fn a_result_too_far_ahead_is_a_defect() {
        drop(buffer(&[256]));
    }
}
