//! An unreachable bucket.

use super::*;

/// (T5) The bucket may be unreachable for any time.
#[test]
fn work_goes_on_while_the_bucket_is_away() {
    let world = World::new();
    let record = world.record();
    let absent = Remote::plain(&Arc::new(AbsentVolume::new("it is away")));
    let clock = Arc::<ManualClock>::clone(&world.clock);
    let volume = TieredVolume::new(Arc::new(world.local.clone()), absent, record, NAMES, clock);
    let copies = volume.copies(NonZeroUsize::MIN, "here").unwrap();
    volume.discard_unfinished().unwrap();
    put(&volume, &container(1), b"one");
    put(&volume, &container(2), b"two");
    volume.remove(&name(&container(1))).unwrap();
    assert!(copies.work(&|| false).unwrap_err().is_passing() || copies.status().failure.is_some());
    assert_eq!(list(&volume, "containers").len(), 1);
    // It is back, in another process.
    let process = world.start();
    process.finish();
    assert_eq!(world.there(), [container(2)]);
}

/// A blob lost here is read from the bucket, and an unreachable bucket is not damage.
#[test]
fn what_only_an_absent_bucket_has_cannot_be_read_now() {
    let world = World::new();
    let process = world.start();
    put(&process.volume, &container(1), b"one");
    process.finish();
    world.local.remove(&name(&container(1))).unwrap();
    world.bucket.fail_next(OpKind::Open, 1, Fault::Unavailable);
    let error = process.volume.open(&name(&container(1))).unwrap_err();
    assert!(error.is_unreadable_now(), "{error}");
    assert!(process.volume.open(&name(&container(1))).is_ok());
}
