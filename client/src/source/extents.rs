//! Which extents have to be read at all, in disk order: holes become ranges of zeros without being read,
//! and what the server accepted before a lost connection is passed over.

use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::v1;

use super::SourceError;
use super::disk::{Segment, SourceDisk};

/// One step along a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Extents wholly in holes.
    Zero { first: u64, count: u64 },
    /// Extents the server has already.
    Accepted { first: u64, count: u64 },
    /// An extent to read. `solid`: no part of it is known to be a hole.
    Read { index: u64, solid: bool },
}

/// Walks along a disk.
#[derive(Debug)]
pub struct ExtentWalk {
    position: u64,
    count: u64,
    /// Sorted, disjoint, not empty; those behind `position` are dropped.
    accepted: std::collections::VecDeque<v1::ExtentRange>,
    /// The segment at or after `position`, as far as known; `None` when only a hole is left.
    segment: Option<Segment>,
}

impl ExtentWalk {
    /// A walk over all extents of `disk` but the `accepted` ones.
    ///
    /// # Errors
    /// A sentence when the ranges overlap or reach past the disk.
    pub fn new(disk: &SourceDisk, accepted: Vec<v1::ExtentRange>) -> Result<Self, String> {
        let count = disk.extent_count();
        let mut accepted = accepted;
        accepted.retain(|range| range.count > 0);
        accepted.sort_by_key(|range| range.first);
        let mut end = 0;
        for range in &accepted {
            let past =
                range.first.checked_add(range.count).filter(|past| *past <= count && range.first >= end);
            end = past.ok_or_else(|| format!("accepted extents {} + {}", range.first, range.count))?;
        }
        let segment = Some(Segment { start: 0, end: 0 });
        Ok(Self { position: 0, count, accepted: accepted.into(), segment })
    }

    /// The next step; `None` at the disk's end.
    ///
    /// # Errors
    /// [`SourceError::Read`] when holes cannot be looked for.
    pub fn next(&mut self, disk: &SourceDisk) -> Result<Option<Span>, SourceError> {
        if self.position >= self.count {
            return Ok(None);
        }
        let first = self.position;
        if let Some(range) = self.accepted.front().copied().filter(|range| range.first == first) {
            self.accepted.pop_front();
            self.position += range.count;
            return Ok(Some(Span::Accepted { first, count: range.count }));
        }
        let start = first * u64::from(EXTENT_BYTES);
        if self.segment.is_some_and(|segment| segment.end <= start) {
            self.segment = disk.next_data(start)?;
        }
        let data_start = self.segment.map_or(u64::MAX, |segment| segment.start);
        let data_extent = data_start / u64::from(EXTENT_BYTES);
        if data_extent > first {
            let next_accepted = self.accepted.front().map_or(self.count, |range| range.first);
            let count = data_extent.min(next_accepted).min(self.count) - first;
            self.position += count;
            return Ok(Some(Span::Zero { first, count }));
        }
        let end = (start + u64::from(EXTENT_BYTES)).min(disk.size_bytes());
        let solid = self.segment.is_some_and(|segment| segment.start <= start && segment.end >= end);
        self.position += 1;
        Ok(Some(Span::Read { index: first, solid }))
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "test disks are small")]
mod tests {
    use super::*;
    use crate::source::DiskArgument;
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt as _;

    fn walk(disk: &SourceDisk, accepted: Vec<v1::ExtentRange>) -> Vec<Span> {
        let mut walk = ExtentWalk::new(disk, accepted).unwrap();
        std::iter::from_fn(|| walk.next(disk).unwrap()).collect()
    }

    /// A sparse file of `size` bytes with 100 bytes of data at each of `places`.
    fn sparse(size: u64, places: &[u64]) -> (tempfile::NamedTempFile, SourceDisk) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        for &at in places {
            let len = 100.min(size - at) as usize;
            file.as_file().write_all_at(&[1; 100][..len], at).unwrap();
        }
        let disk =
            SourceDisk::open(&DiskArgument { name: "d".into(), path: file.path().to_owned() }).unwrap();
        (file, disk)
    }

    #[test]
    fn holes_are_not_read() {
        let extent = u64::from(EXTENT_BYTES);
        let (_file, disk) = sparse(100 * extent + 5, &[10 * extent + 7]);
        assert_eq!(
            walk(&disk, Vec::new()),
            [
                Span::Zero { first: 0, count: 10 },
                Span::Read { index: 10, solid: false },
                Span::Zero { first: 11, count: 90 }
            ]
        );
        let accepted = vec![v1::ExtentRange { first: 50, count: 1 }, v1::ExtentRange { first: 8, count: 4 }];
        assert_eq!(
            walk(&disk, accepted),
            [
                Span::Zero { first: 0, count: 8 },
                Span::Accepted { first: 8, count: 4 },
                Span::Zero { first: 12, count: 38 },
                Span::Accepted { first: 50, count: 1 },
                Span::Zero { first: 51, count: 50 }
            ]
        );
    }

    #[test]
    fn senseless_accepted_ranges_are_refused() {
        let (_file, disk) = sparse(40 << 20, &[]);
        for (first, count) in [(9, 2), (u64::MAX, 2), (u64::MAX - 1, u64::MAX)] {
            assert!(ExtentWalk::new(&disk, vec![v1::ExtentRange { first, count }]).is_err());
        }
        let overlapping =
            vec![v1::ExtentRange { first: 1, count: 3 }, v1::ExtentRange { first: 3, count: 1 }];
        assert!(ExtentWalk::new(&disk, overlapping).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// Against the plain reading of the file: every extent once, in order, and none called zero that
        /// is not.
        #[test]
        fn every_extent_is_met_once(size in 1u64..60 << 20, seeds in proptest::collection::vec(any::<u64>(), 0..6),
                                    taken in proptest::collection::btree_set(0u64..15, 0..5)) {
            let places: Vec<u64> = seeds.iter().map(|seed| seed % size).collect();
            let (file, disk) = sparse(size, &places);
            let taken: Vec<u64> = taken.into_iter().filter(|index| *index < disk.extent_count()).collect();
            let accepted = taken.iter().map(|&first| v1::ExtentRange { first, count: 1 }).collect();
            let bytes = std::fs::read(file.path()).unwrap();
            let mut position = 0;
            for span in walk(&disk, accepted) {
                let (first, count, zero) = match span {
                    Span::Zero { first, count } => (first, count, true),
                    Span::Accepted { first, count } => (first, count, false),
                    Span::Read { index, .. } => (index, 1, false),
                };
                prop_assert_eq!(first, position);
                prop_assert!(count > 0);
                for index in first..first + count {
                    let start = (index * u64::from(EXTENT_BYTES)) as usize;
                    let end = (start + EXTENT_BYTES as usize).min(bytes.len());
                    prop_assert!(!zero || bytes[start..end].iter().all(|&byte| byte == 0));
                    prop_assert_eq!(matches!(span, Span::Accepted { .. }), taken.contains(&index));
                }
                position += count;
            }
            prop_assert_eq!(position, disk.extent_count());
        }
    }
}
