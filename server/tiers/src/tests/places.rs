//! Totals by place.

use holdfast_volume::Ends;

use super::*;
use crate::{Held, KindPlaces};

fn places(process: &Process, kind: &str) -> KindPlaces {
    process.copies.places().unwrap().into_iter().find(|places| places.kind == kind).unwrap()
}

const fn held(blobs: u64, bytes: u64) -> Held {
    Held { blobs, bytes }
}

#[test]
fn each_blob_is_counted_once_where_it_lies() {
    let world = World::new();
    let process = world.start();
    for number in 1..=9 {
        put(&process.volume, &container(number), &[7; 100]);
    }
    put(&process.volume, "points/a/b/1", &[7; 10]);
    assert_eq!(places(&process, "containers").local, held(9, 900));
    assert_eq!(places(&process, "repository").local, held(1, 8));
    process.finish();
    assert_eq!(places(&process, "repository").both, held(1, 8));
    assert_eq!(places(&process, "points").both, held(1, 10));
    assert!(!process.copies.has_moved_containers().unwrap());
    // Moved; removed here but not there yet; and not copied yet.
    for number in [2, 5, 9] {
        let moved = process.volume.evict(&name(&container(number)), Ends { head: 8, tail: 8 });
        assert!(moved.unwrap());
    }
    process.volume.remove(&name(&container(4))).unwrap();
    put(&process.volume, &container(10), &[7; 50]);
    let expected =
        KindPlaces { kind: "containers", local: held(1, 50), both: held(5, 500), bucket: held(3, 300) };
    assert_eq!(places(&process, "containers"), expected);
    assert!(process.copies.has_moved_containers().unwrap());
    process.finish();
    let expected = KindPlaces { local: Held::default(), both: held(6, 550), ..expected };
    assert_eq!(places(&process, "containers"), expected);
}

/// More than a page on each side.
#[test]
fn pages_neither_overlap_nor_leave_anything_out() {
    let world = World::new();
    let process = world.start();
    let record = process.copies.record();
    for number in 0..9000_u32 {
        if number % 3 != 0 {
            put(&world.local, &container(number), b"here");
        }
    }
    let there = (0..9000_u32).filter(|number| number % 3 != 1);
    let entry = |number| holdfast_volume::BlobEntry { name: name(&container(number)), len: 4 };
    record.add_all(there.map(entry)).unwrap();
    let found = places(&process, "containers");
    assert_eq!(
        (found.local, found.both, found.bucket),
        (held(3000, 12_000), held(3000, 12_000), held(3000, 12_000))
    );
}
