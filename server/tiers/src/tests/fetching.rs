//! A data folder made of the bucket.

use super::*;

const LONG: usize = 3 << 20;

/// (R10)
#[test]
fn what_arrives_altered_is_brought_once_more() {
    let world = World::new();
    let point = "points/00/long";
    put(&world.stored, point, &vec![5; LONG]);
    survey(&*world.bucket, &world.record()).unwrap();
    let threads = NonZeroUsize::MIN;
    // The bucket keeps no checksum, so it is read twice: one answer of six, then one of each try.
    world.bucket.fail_next(OpKind::Read, 2, Fault::Torn);
    let fetched = world.start().volume.fetch(|_| false, threads).unwrap();
    assert_eq!((fetched.blobs, fetched.unreadable), (1, 0));
    assert!(world.local.get(&name(point)).unwrap() == vec![5; LONG]);

    world.local.remove(&name(point)).unwrap();
    world.bucket.fail_next(OpKind::Read, 2, Fault::Torn);
    world.bucket.fail_next(OpKind::Read, 8, Fault::Torn);
    let fetched = world.start().volume.fetch(|_| false, threads).unwrap();
    assert_eq!((fetched.blobs, fetched.unreadable), (0, 1));
    assert!(world.local.get(&name(point)).is_none(), "what is not as it was sent is not kept here");
}

/// (T15) A copy of a volume that lacks what lies in the bucket alone.
#[test]
fn a_recovery_finds_the_containers_it_lacks_and_nothing_that_was_deleted() {
    let world = World::new();
    let (here, converted, moved) = (container(1), container(2), container(3));
    for there in [&here, &converted, &moved, "points/00/deleted", "snapshots/9"] {
        put(&world.stored, there, &[7; 50]);
    }
    // Of no container that is there: it is not asked about.
    put(&world.stored, &format!("ends/{}", container(5)), b"of nothing");
    put(&world.local, &here, &[7; 50]);
    put(&world.local, &format!("{converted}-"), &[7; 66]);

    for _ in 0..2 {
        let found = survey_missing(&world.local, &*world.bucket, &world.record());
        assert_eq!(found.unwrap(), 1, "repeating it does nothing");
    }
    let known = |text: &str| world.record().visible(&name(text)).unwrap();
    assert_eq!(known(&moved), Some(50));
    let unknown = [here, converted, container(5), "points/00/deleted".into(), "snapshots/9".into()];
    assert_eq!(unknown.map(|text| known(&text)), [None; 5]);

    world.bucket.fail_next(OpKind::List, 1, Fault::Unavailable);
    survey_missing(&world.local, &*world.bucket, &world.record()).unwrap_err();
}
