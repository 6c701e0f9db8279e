//! Extents that are read again although nothing says that they changed.
//!
//! An agent skips extents on the strength of digests that earlier backups claimed. Each day a share of all extents is
//! due to be read and described anew, so that nothing wrong stays hidden for longer than the cycle. Extent `i` is due
//! on the days whose number has the same remainder as `i` by the days of the cycle; a backup rereads what has become
//! due since its parent, so that several backups a day reread no more than one, and a weekly one makes up for the days
//! between.

use crate::v1;

/// Days of a cycle unless told otherwise: each costs one part in thirty of a whole reading.
pub const REREAD_DAYS: u32 = 30;

/// The longest cycle: ten years.
pub const REREAD_DAYS_MAX: u32 = 3650;

const DAY_MS: i64 = 86_400_000;

/// The extents that are due in one backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reread {
    cycle_days: u32,
    /// Remainder of the first day that counts; below `cycle_days`.
    first: u32,
    /// Days that count; at most `cycle_days`, which is every extent.
    days: u32,
}

impl Reread {
    /// Returns the extents that became due between the start of the parent and now, both Unix milliseconds; `None` if
    /// there are none. A clock that was set back makes nothing due.
    pub fn since(cycle_days: u32, parent_ms: i64, now_ms: i64) -> Option<Self> {
        let cycle = i64::from(cycle_days);
        let (parent, today) = (parent_ms.div_euclid(DAY_MS), now_ms.div_euclid(DAY_MS));
        let days = u32::try_from(today.saturating_sub(parent).clamp(0, cycle)).ok()?;
        if cycle_days == 0 || days == 0 {
            return None;
        }
        let first = u32::try_from((parent + 1).rem_euclid(cycle)).ok()?;
        Some(Self { cycle_days, first, days })
    }

    /// Returns true if extent `index` is due.
    pub fn is_due(&self, index: u64) -> bool {
        let cycle = u64::from(self.cycle_days);
        (index % cycle + cycle - u64::from(self.first)) % cycle < u64::from(self.days)
    }

    /// From the wire; `None` when it makes no sense.
    pub fn from_wire(wire: &v1::Reread) -> Option<Self> {
        let v1::Reread { cycle_days, first, days } = *wire;
        let whole = (1..=REREAD_DAYS_MAX).contains(&cycle_days) && first < cycle_days;
        (whole && (1..=cycle_days).contains(&days)).then_some(Self { cycle_days, first, days })
    }
}

impl From<Reread> for v1::Reread {
    fn from(reread: Reread) -> Self {
        Self { cycle_days: reread.cycle_days, first: reread.first, days: reread.days }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cycle_of_no_days_rereads_nothing() {
        assert_eq!(Reread::since(0, 0, i64::MAX), None);
        assert_eq!(Reread::since(30, 5 * DAY_MS, 5 * DAY_MS + DAY_MS - 1), None, "the same day");
        assert_eq!(Reread::since(30, 5 * DAY_MS, 0), None, "a clock set back");
    }

    #[test]
    fn daily_backups_reread_a_thirtieth_each() {
        for day in 0..60 {
            let due = Reread::since(30, day * DAY_MS, (day + 1) * DAY_MS).unwrap();
            assert_eq!((0..3000).filter(|index| due.is_due(*index)).count(), 100, "day {day}");
        }
    }

    #[test]
    fn what_makes_no_sense_on_the_wire_is_refused() {
        let wire = |cycle_days, first, days| Reread::from_wire(&v1::Reread { cycle_days, first, days });
        assert!(wire(30, 29, 30).is_some());
        for bad in [wire(0, 0, 0), wire(30, 30, 1), wire(30, 0, 0), wire(30, 0, 31), wire(u32::MAX, 0, 1)] {
            assert_eq!(bad, None);
        }
    }

    proptest! {
        /// However backups are spaced: every extent is reread once in every cycle that they span, and never twice
        /// within one.
        #[test]
        fn every_extent_is_reread_once_a_cycle(
            cycle in 1u32..40,
            start in -100_000i64..100_000,
            gaps in prop::collection::vec(0i64..5 * DAY_MS, 1..200),
            index in 0u64..1 << 40,
        ) {
            let mut at = start * 1000;
            let first_day = at.div_euclid(DAY_MS);
            let mut rereads = Vec::new();
            for gap in gaps {
                let parent = at;
                at += gap;
                if let Some(due) = Reread::since(cycle, parent, at) {
                    prop_assert_eq!(Reread::from_wire(&due.into()), Some(due));
                    if due.is_due(index) {
                        rereads.push((parent.div_euclid(DAY_MS), at.div_euclid(DAY_MS)));
                    }
                }
            }
            let spanned = at.div_euclid(DAY_MS) - first_day;
            // Each is for a day of its own in (parent, backup]; days that suit are `cycle` apart.
            prop_assert!(i64::try_from(rereads.len()).unwrap() >= (spanned / i64::from(cycle)).min(1), "{:?}", rereads);
            for pair in rereads.windows(2) {
                let ((_, first), (parent, second)) = (pair[0], pair[1]);
                prop_assert!(parent >= first, "in order");
                // No gap between rereads is longer than a cycle and the time to the backup that makes up for it.
                prop_assert!(parent - first < i64::from(cycle), "{first} {second}");
            }
            let last = rereads.last().map_or(first_day, |(_, day)| *day);
            prop_assert!(at.div_euclid(DAY_MS) - last < i64::from(cycle));
        }
    }
}
