//! Ranges of a disk, in its order, put together where they touch.

use holdfast_catalog::{ByteRange, LISTED_RANGES_MAX, LostRanges};

/// Ranges of one disk kept while it is walked: 1 MiB. Of more, only the sums are known.
const KEPT_MAX: usize = 65_536;

/// What of a disk is lost.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges {
    kept: Vec<ByteRange>,
    bytes: u64,
    count: u64,
    /// Where the last one ends.
    end: u64,
}

impl Ranges {
    /// Adds bytes, none of which may lie before the last that were added.
    pub(super) fn add(&mut self, start: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        let touches = self.count > 0 && start == self.end;
        self.end = start.saturating_add(bytes);
        if touches {
            // The last one may not be kept.
            if self.is_complete()
                && let Some(last) = self.kept.last_mut()
            {
                last.bytes = last.bytes.saturating_add(bytes);
            }
            return;
        }
        self.count += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(ByteRange { start, bytes });
        }
    }

    /// Whether every range is kept.
    pub(super) const fn is_complete(&self) -> bool {
        self.kept.len() as u64 == self.count
    }

    /// Adds what `other` has from `start` to `end`.
    pub(super) fn add_from(&mut self, other: &Self, start: u64, end: u64) {
        let first = other.kept.partition_point(|range| range.start.saturating_add(range.bytes) <= start);
        for range in other.kept.iter().skip(first).take_while(|range| range.start < end) {
            let from = range.start.max(start);
            let to = range.start.saturating_add(range.bytes).min(end);
            self.add(from, to.saturating_sub(from));
        }
    }

    /// As it is recorded; `None`: nothing is lost.
    pub(super) fn lost(&self, position: u32) -> Option<LostRanges> {
        let listed = self.kept.iter().take(LISTED_RANGES_MAX).copied().collect();
        let Self { bytes, count: ranges, .. } = *self;
        (ranges > 0).then_some(LostRanges { position, bytes, ranges, listed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, bytes: u64) -> ByteRange {
        ByteRange { start, bytes }
    }

    #[test]
    fn neighbours_are_one_range() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.lost(0), None);
        for (start, bytes) in [(0, 10), (10, 5), (20, 0), (20, 1)] {
            ranges.add(start, bytes);
        }
        let lost = ranges.lost(3).unwrap();
        assert_eq!((lost.position, lost.bytes, lost.ranges), (3, 16, 2));
        assert_eq!(lost.listed, [range(0, 15), range(20, 1)]);
        let mut part = Ranges::default();
        part.add_from(&ranges, 5, 21);
        part.add_from(&ranges, 21, 40);
        assert_eq!(part.lost(0).unwrap().listed, [range(5, 10), range(20, 1)]);
        assert_eq!(part.bytes, 11);
    }

    #[test]
    fn more_than_are_kept_are_counted() {
        let mut ranges = Ranges::default();
        for number in 0..KEPT_MAX as u64 + 2 {
            ranges.add(number * 2, 1);
        }
        ranges.add(KEPT_MAX as u64 * 2 + 3, 1);
        let lost = ranges.lost(0).unwrap();
        assert_eq!((lost.ranges, lost.bytes), (KEPT_MAX as u64 + 2, KEPT_MAX as u64 + 3));
        assert_eq!(lost.listed.len(), LISTED_RANGES_MAX);
        assert!(!ranges.is_complete());
    }
}
