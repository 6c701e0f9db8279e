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
