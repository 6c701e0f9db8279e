//! A set of extent numbers, kept as disjoint ranges: a range costs the same however long it is.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint, non-adjacent ranges by their first number.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    /// First number → end (one past the last).
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl Intervals {
    /// Numbers in the set.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Ranges it takes to describe the set.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.overlap(&(number..number + 1)).is_some()
    }

    /// Whether all of `range` is in the set. An empty range is.
    pub(super) fn covers(&self, range: &Range<u64>) -> bool {
        let before = self.ranges.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, &end)| end >= range.end)
    }

    /// A number that `range` and the set share.
    pub(super) fn overlap(&self, range: &Range<u64>) -> Option<u64> {
        let (&start, &end) = self.ranges.range(..range.end).next_back()?;
        (!range.is_empty() && end > range.start).then_some(start.max(range.start))
    }

    /// Adds `range`, which must not overlap the set.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        assert!(self.overlap(&range).is_none(), "{range:?} is in the set already");
        if range.is_empty() {
            return;
        }
        self.count += range.end - range.start;
        let after = self.ranges.remove(&range.end);
        let end = after.unwrap_or(range.end);
        match self.ranges.range_mut(..range.start).next_back() {
            Some((_, before)) if *before == range.start => *before = end,
            _ => {
                self.ranges.insert(range.start, end);
            }
        }
    }

    /// The ranges in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_set(steps in proptest::collection::vec((0u64..200, 0u64..20), 0..60)) {
            let mut intervals = Intervals::default();
            let mut model = BTreeSet::new();
            for (start, len) in steps {
                let range = start..start + len;
                let shared = range.clone().find(|number| model.contains(number));
                prop_assert_eq!(intervals.overlap(&range).is_some(), shared.is_some());
                prop_assert_eq!(intervals.covers(&range), range.clone().all(|number| model.contains(&number)));
                if shared.is_none() {
                    intervals.insert(range.clone());
                    model.extend(range);
                }
                prop_assert_eq!(intervals.count(), model.len() as u64);
                let listed: Vec<u64> = intervals.iter().flatten().collect();
                prop_assert_eq!(&listed, &model.iter().copied().collect::<Vec<_>>());
                prop_assert!(intervals.contains(start) == model.contains(&start));
                // Adjacent ranges are one.
                let ranges: Vec<_> = intervals.iter().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}
