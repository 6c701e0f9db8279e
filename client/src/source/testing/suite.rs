//! Conformance suite of every source, whatever it reads from. The test of each source passes it here with the
//! bytes it must have.

use holdfast_proto::chunker::is_zero;

use crate::source::walk::{ExtentWalk, Span};
use crate::source::{Content, Segment, Source, extent_bytes, read};

/// Passes `source`, which holds `expected` and is not written to meanwhile, through all checks.
///
/// # Panics
/// When it breaks a promise of [`Source`].
pub(crate) fn check(source: &dyn Source, expected: &[u8]) {
    assert_eq!(source.size_bytes(), expected.len() as u64, "size of {source:?}");
    assert!(!source.name().is_empty() && !source.location().is_empty(), "{source:?} must be named");
    for (start, end) in ranges(expected.len()) {
        reads_the_bytes(source, expected, start, end);
        segments_cover(source, expected, start, end);
    }
    ends_where_it_says(source);
    serves_many_readers(source, expected);
    source.check_unchanged(source.size_bytes()).unwrap();
    is_read_whole_by_extents(source, expected);
    source.check_unchanged(0).unwrap();
}

/// All of it, ranges across every kind of boundary, single bytes, the last byte.
fn ranges(len: usize) -> Vec<(usize, usize)> {
    let starts =
        [0, 1, 511, 512, 4095, 4096, 4097, 65_537, 1 << 20, (4 << 20) - 1, 4 << 20, len / 2, len.max(1) - 1];
    let lengths = [1, 511, 4096, 100_000, 5 << 20, len];
    let all = starts.iter().flat_map(|&start| lengths.map(|n| (start, len.min(start.saturating_add(n)))));
    all.filter(|(start, end)| start < end).collect()
}

fn reads_the_bytes(source: &dyn Source, expected: &[u8], start: usize, end: usize) {
    let mut buffer = vec![0xEE; end - start];
    source.read_at(start as u64, &mut buffer).unwrap();
    assert!(buffer == expected[start..end], "{source:?} reads other bytes at {start}..{end}");
}

fn segments_cover(source: &dyn Source, expected: &[u8], start: usize, end: usize) {
    let segments = source.segments(start as u64..end as u64).unwrap();
    let mut position = start as u64;
    for Segment { start, end, content } in segments {
        assert!(start == position, "{source:?} has a gap or overlap at {position}: next is {start}");
        assert!(end > start && end <= source.size_bytes(), "{source:?} has a segment {start}..{end}");
        let bytes = &expected[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()];
        assert!(content != Content::Hole || is_zero(bytes), "{source:?} has data in its hole {start}..{end}");
        let tracks = source.changes_since().is_some();
        assert!(
            content != Content::Unchanged || tracks,
            "{source:?} names no backup, but has unchanged parts"
        );
        position = end;
    }
    assert!(position >= end as u64, "{source:?} tells of {start}..{position} only, asked up to {end}");
}

/// Past the end there are no bytes, and no short read either.
fn ends_where_it_says(source: &dyn Source) {
    let size = source.size_bytes();
    for offset in [size, size.saturating_sub(1)] {
        let outcome = source.read_at(offset, &mut [0xEE; 4096]);
        assert!(outcome.is_err(), "{source:?} reads past its end");
    }
}

/// Eight threads at different places get what one gets.
fn serves_many_readers(source: &dyn Source, expected: &[u8]) {
    std::thread::scope(|scope| {
        for first in 0..8 {
            scope.spawn(move || {
                for (number, bytes) in expected.chunks(50_000).enumerate().skip(first).step_by(8) {
                    let start = number * 50_000;
                    reads_the_bytes(source, expected, start, start + bytes.len());
                }
            });
        }
    });
}

/// As a backup without a parent reads it.
fn is_read_whole_by_extents(source: &dyn Source, expected: &[u8]) {
    let mut walk = ExtentWalk::new(source, Vec::new(), None).unwrap();
    let mut rebuilt: Vec<u8> = Vec::with_capacity(expected.len());
    while let Some(span) = walk.next(source).unwrap() {
        match span {
            Span::Zero { first, count } => {
                let range = extent_bytes(source.size_bytes(), first, count);
                assert_eq!(range.start, rebuilt.len() as u64);
                rebuilt.resize(usize::try_from(range.end).unwrap(), 0);
            }
            Span::Read { index, segments } => {
                let range = extent_bytes(source.size_bytes(), index, 1);
                let mut buffer = vec![0xEE; usize::try_from(range.end - range.start).unwrap()];
                read(source, &segments, range.start, &mut buffer).unwrap();
                assert_eq!(range.start, rebuilt.len() as u64);
                rebuilt.extend(buffer);
            }
            other => panic!("{other:?} without a parent or an earlier stream"),
        }
    }
    assert!(rebuilt == expected, "{source:?} reads differently extent by extent");
}

/// The suite itself: sources in memory pass, and each broken promise is found.
mod tests {
    use super::*;
    use crate::source::testing::{MemorySource, image};

    fn disk() -> Vec<u8> {
        image::sparse((9 << 20) + 77, &[5000, 1 << 20, (4 << 20) + 9, 9 << 20])
    }

    #[test]
    fn memory_passes_with_and_without_holes() {
        check(&MemorySource::new(disk()), &disk());
        check(&MemorySource::sparse(disk()), &disk());
        check(&MemorySource::sparse(disk()).tracking("01A", &[0..6 << 20, 7_000_000..7_000_001]), &disk());
        check(&MemorySource::hole(20 << 20), &vec![0; 20 << 20]);
        check(&MemorySource::new(Vec::new()), &[]);
    }

    fn segment(start: u64, end: u64, content: Content) -> Segment {
        Segment { start, end, content }
    }

    #[test]
    #[should_panic(expected = "has data in its hole")]
    fn a_hole_with_data_in_it_is_found() {
        let size = disk().len() as u64;
        check(&MemorySource::new(disk()).with_segments(vec![segment(0, size, Content::Hole)]), &disk());
    }

    #[test]
    #[should_panic(expected = "has a gap or overlap")]
    fn a_gap_is_found() {
        let size = disk().len() as u64;
        let segments = vec![segment(0, 4096, Content::Data), segment(8192, size, Content::Data)];
        check(&MemorySource::new(disk()).with_segments(segments), &disk());
    }

    #[test]
    #[should_panic(expected = "only, asked up to")]
    fn segments_that_end_early_are_found() {
        check(&MemorySource::new(disk()).with_segments(vec![segment(0, 6 << 20, Content::Data)]), &disk());
    }

    #[test]
    #[should_panic(expected = "names no backup")]
    fn unchanged_since_nothing_is_found() {
        let size = disk().len() as u64;
        check(&MemorySource::new(disk()).with_segments(vec![segment(0, size, Content::Unchanged)]), &disk());
    }

    #[test]
    #[should_panic(expected = "reads other bytes")]
    fn wrong_bytes_are_found() {
        let mut bytes = disk();
        bytes[5 << 20] = 1;
        check(&MemorySource::new(bytes), &disk());
    }
}
