#![expect(clippy::cast_possible_truncation, reason = "test disks are small")]

use holdfast_proto::chunker::is_zero;
use proptest::prelude::*;

use super::*;
use crate::source::testing::{MemorySource, image};

const EXTENT: u64 = EXTENT_BYTES as u64;

fn walk(disk: &dyn Source, accepted: Vec<v1::ExtentRange>, parent: Option<ParentDisk<'_>>) -> Vec<Span> {
    let mut walk = ExtentWalk::new(disk, accepted, parent).unwrap();
    std::iter::from_fn(|| walk.next(disk).unwrap()).collect()
}

/// A span's kind, first extent and count.
fn brief(span: &Span) -> (&'static str, u64, u64) {
    match *span {
        Span::Zero { first, count } => ("zero", first, count),
        Span::Accepted { first, count } => ("accepted", first, count),
        Span::Unchanged { index, .. } => ("unchanged", index, 1),
        Span::Read { index, .. } => ("read", index, 1),
    }
}

fn briefs(disk: &dyn Source, accepted: Vec<v1::ExtentRange>) -> Vec<(&'static str, u64, u64)> {
    walk(disk, accepted, None).iter().map(brief).collect()
}

fn range(first: u64, count: u64) -> v1::ExtentRange {
    v1::ExtentRange { first, count }
}

#[test]
fn holes_are_not_read() {
    let size = (100 * EXTENT + 5) as usize;
    let (_file, raw) = image::raw(&image::sparse(size, &[10 * EXTENT as usize + 7]));
    assert_eq!(briefs(&raw, Vec::new()), [("zero", 0, 10), ("read", 10, 1), ("zero", 11, 90)]);
    assert_eq!(
        briefs(&raw, vec![range(50, 1), range(8, 4)]),
        [("zero", 0, 8), ("accepted", 8, 4), ("zero", 12, 38), ("accepted", 50, 1), ("zero", 51, 50)]
    );
}

#[test]
fn a_hole_of_any_size_is_one_step() {
    let disk = MemorySource::hole((1 << 50) - 3);
    assert_eq!(briefs(&disk, Vec::new()), [("zero", 0, 1 << 28)]);
    let skipped = briefs(&disk, vec![range(0, 7), range(1 << 27, 1 << 27)]);
    assert_eq!(skipped, [("accepted", 0, 7), ("zero", 7, (1 << 27) - 7), ("accepted", 1 << 27, 1 << 27)]);
}

#[test]
fn accepted_ranges_that_make_no_sense_are_refused() {
    let disk = MemorySource::hole(40 << 20);
    let refused = |ranges: Vec<v1::ExtentRange>| ExtentWalk::new(&disk, ranges, None).is_err();
    assert!(!refused(vec![range(9, 1), range(0, 9), range(3, 0)]));
    assert!(refused(vec![range(9, 2)]));
    assert!(refused(vec![range(u64::MAX, 2)]));
    assert!(refused(vec![range(u64::MAX - 1, u64::MAX)]));
    assert!(refused(vec![range(1, 3), range(3, 1)]), "overlapping");
}

fn since(backup_id: &str, size_bytes: u64) -> Option<ParentDisk<'_>> {
    Some(ParentDisk { backup_id, size_bytes })
}

#[test]
fn unchanged_parts_are_believed_against_the_right_parent_only() {
    let size = 4 * EXTENT + 10;
    let bytes = image::noise(1, size as usize);
    let disk = MemorySource::new(bytes).tracking("01A", &[0..2 * EXTENT + 100, 3 * EXTENT..size]);
    let kinds = |parent| walk(&disk, Vec::new(), parent).iter().map(|span| brief(span).0).collect::<Vec<_>>();
    let read_all = ["read"; 5];
    assert_eq!(kinds(since("01A", size)), ["unchanged", "unchanged", "read", "unchanged", "unchanged"]);
    assert_eq!(kinds(since("01B", size)), read_all, "changes since another backup say nothing");
    assert_eq!(kinds(None), read_all);
    let resized = kinds(since("01A", size - 1));
    assert_eq!(resized, ["unchanged", "unchanged", "read", "unchanged", "read"], "the last one was shorter");
}

#[test]
#[should_panic(expected = "asked up to")]
fn a_source_that_leaves_a_part_out_is_not_believed() {
    let segments = vec![Segment { start: 0, end: 100, content: Content::Data }];
    drop(walk(&MemorySource::new(vec![1; 200]).with_segments(segments), Vec::new(), None));
}

#[test]
#[should_panic(expected = "Hole } at 100")]
fn a_source_with_a_gap_is_not_believed() {
    let segment = |start, end, content| Segment { start, end, content };
    let segments = vec![segment(0, 100, Content::Data), segment(101, 200, Content::Hole)];
    drop(walk(&MemorySource::new(vec![1; 200]).with_segments(segments), Vec::new(), None));
}

/// Every extent once, in order, none called zero that is not, none skipped that was not accepted.
fn assert_right(disk: &dyn Source, bytes: &[u8], taken: &[u64]) -> Result<(), TestCaseError> {
    let taken: Vec<u64> =
        taken.iter().copied().filter(|index| *index < extent_count(disk.size_bytes())).collect();
    let accepted = taken.iter().map(|&first| range(first, 1)).collect();
    let mut position = 0;
    for span in walk(disk, accepted, None) {
        let (kind, first, count) = brief(&span);
        prop_assert_eq!(first, position);
        for index in first..first + count {
            let extent = extent_bytes(disk.size_bytes(), index, 1);
            let extent = &bytes[extent.start as usize..extent.end as usize];
            prop_assert!(kind != "zero" || is_zero(extent));
            prop_assert_eq!(kind == "accepted", taken.contains(&index));
        }
        position += count;
    }
    prop_assert_eq!(position, extent_count(disk.size_bytes()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_extent_is_met_once(size in 1usize..60 << 20, seeds in proptest::collection::vec(any::<usize>(), 0..6),
                                taken in proptest::collection::btree_set(0u64..15, 0..5)) {
        let places: Vec<usize> = seeds.iter().map(|seed| seed % size).collect();
        let taken: Vec<u64> = taken.into_iter().collect();
        let bytes = image::sparse(size, &places);
        let (_file, raw) = image::raw(&bytes);
        assert_right(&raw, &bytes, &taken)?;
        assert_right(&MemorySource::sparse(bytes.clone()), &bytes, &taken)?;
    }
}
