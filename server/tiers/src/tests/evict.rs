//! Containers that lie in the bucket alone, but for their ends.

use holdfast_volume::Ends;
use holdfast_volume::testing::{CrashPoint, InFlight};

use super::*;

const ENDS: Ends = Ends { head: 16, tail: 100 };

fn content(number: u32) -> Vec<u8> {
    (0..4000u32).map(|at| u8::try_from((at * 7 + number) % 251).unwrap()).collect()
}

/// A process whose containers 1 to 9 are copied.
fn copied(world: &World) -> Process {
    let process = world.start();
    for number in 1..=9 {
        put(&process.volume, &container(number), &content(number));
    }
    process.finish();
    process
}

fn evict(process: &Process, number: u32) -> bool {
    process.volume.evict(&name(&container(number)), ENDS).unwrap()
}

fn is_here(world: &World, number: u32) -> bool {
    world.local.get(&name(&container(number))).is_some()
}

fn read(process: &Process, number: u32, offset: u64, len: usize) -> Result<Vec<u8>, VolumeError> {
    let name = name(&container(number));
    process.volume.open(&name)?.read_vec(&name, offset, len)
}

/// (T9)
#[test]
fn a_container_stays_until_its_copy_is_in_the_bucket() {
    let world = World::new();
    let process = world.start();
    put(&process.volume, &container(1), &content(1));
    assert!(!evict(&process, 1), "no copy yet");
    assert!(is_here(&world, 1));
    process.finish();
    assert!(process.volume.open(&name(&container(1))).unwrap().is_at_hand());
    assert!(evict(&process, 1));
    assert!(!is_here(&world, 1));
    assert!(!process.volume.open(&name(&container(1))).unwrap().is_at_hand());
    assert!(!evict(&process, 1), "it is not here any more");
    assert_eq!(read(&process, 1, 0, 4000).unwrap(), content(1));
    // Only containers go.
    put(&process.volume, "points/a/b/1", &content(2));
    process.finish();
    assert!(!process.volume.evict(&name("points/a/b/1"), ENDS).unwrap());
    assert!(process.volume.open(&name("points/a/b/1")).unwrap().is_at_hand());
}

#[test]
fn ends_are_read_without_the_bucket() {
    let world = World::new();
    let process = copied(&world);
    assert!(evict(&process, 3));
    let asked = || world.bucket.count(OpKind::Open) + world.bucket.count(OpKind::Read);
    let before = asked();
    let opened = process.volume.open(&name(&container(3))).unwrap();
    assert_eq!(opened.len(), 4000);
    for (offset, len) in [(0, 16), (3, 9), (3900, 100), (3999, 1), (4000, 0)] {
        let from = usize::try_from(offset).unwrap();
        let mut bytes = vec![0; len];
        opened.read_at(offset, &mut bytes).unwrap();
        assert_eq!(bytes, content(3)[from..from + len], "{offset}");
    }
    assert_eq!(asked(), before, "nothing was asked of the bucket");
    assert_eq!(read(&process, 3, 10, 20).unwrap(), content(3)[10..30]);
    assert!(asked() > before);
    let error = opened.read_at(3990, &mut [0; 11]).unwrap_err();
    assert!(matches!(error, VolumeError::OutOfRange { .. }), "{error}");
}

#[test]
fn without_its_ends_a_container_is_read_from_the_bucket() {
    let world = World::new();
    let process = copied(&world);
    assert!(evict(&process, 3));
    let opened = process.volume.open(&name(&container(3))).unwrap();
    world.local.remove(&name(&format!("ends/{}", container(3)))).unwrap();
    assert_eq!(read(&process, 3, 3900, 100).unwrap(), content(3)[3900..]);
    let mut bytes = [0; 16];
    opened.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, content(3)[..16]);
    // Ends that no container has.
    for bad in [&[][..], &[1; 7], &[255; 8], &[0; 5000]] {
        put(&world.local, &format!("ends/{}", container(3)), bad);
        assert_eq!(read(&process, 3, 0, 4000).unwrap(), content(3), "{bad:?}");
        world.local.remove(&name(&format!("ends/{}", container(3)))).unwrap();
    }
}

/// (T9)
#[test]
fn what_the_bucket_has_lost_or_changed_does_not_cost_the_local_copy() {
    let world = World::new();
    let process = copied(&world);
    world.stored.remove(&name(&container(4))).unwrap();
    assert!(!evict(&process, 4));
    assert!(is_here(&world, 4));
    assert_eq!(process.finish(), 1, "it is copied again");
    assert!(evict(&process, 4));

    world.stored.remove(&name(&container(5))).unwrap();
    put(&world.stored, &container(5), &content(6));
    let error = process.volume.evict(&name(&container(5)), ENDS).unwrap_err();
    assert!(matches!(error, VolumeError::BadAnswer { .. }), "{error}");
    assert!(is_here(&world, 5));
    assert_eq!(read(&process, 5, 0, 4000).unwrap(), content(5));
}

#[test]
fn what_is_removed_goes_with_its_ends_and_from_the_bucket() {
    let world = World::new();
    let process = copied(&world);
    assert!(evict(&process, 2));
    assert_eq!(list(&world.local, "ends").len(), 1);
    process.volume.remove(&name(&container(2))).unwrap();
    assert_eq!(list(&world.local, "ends").len(), 0);
    assert!(matches!(read(&process, 2, 0, 1), Err(VolumeError::NotFound { .. })));
    process.finish();
    assert!(!world.is_there(&container(2)));
    assert_eq!(list(&process.volume, "containers").len(), 8);
}

/// After a crash anywhere in it the container is whole, here or there, and moving goes on.
#[test]
fn a_crash_in_the_middle_loses_nothing() {
    for (after_mutations, in_flight) in
        (0..6).flat_map(|after| [(after, InFlight::Done), (after, InFlight::Lost)])
    {
        let world = World::new();
        drop(copied(&world));
        let faulty = FaultyVolume::new(world.local.clone());
        faulty.crash_at(CrashPoint { after_mutations, in_flight });
        let process = world.start_on(Arc::new(faulty));
        let done = process.volume.evict(&name(&container(1)), ENDS);
        assert!(done.is_err(), "{after_mutations}: it has six steps");
        drop(process);
        let process = world.start();
        assert_eq!(read(&process, 1, 0, 4000).unwrap(), content(1), "{after_mutations}");
        process.finish();
        assert!(!is_here(&world, 1) || evict(&process, 1), "{after_mutations}");
        assert_eq!(read(&process, 1, 0, 4000).unwrap(), content(1), "{after_mutations}");
        assert_eq!(list(&process.volume, "containers").len(), 9);
    }
}

/// A process that starts anew neither misses what was moved nor brings it back.
#[test]
fn a_comparison_of_everything_leaves_moved_containers_where_they_are() {
    let world = World::new();
    let process = copied(&world);
    assert!(evict(&process, 1) && evict(&process, 9));
    drop(process);
    let process = world.start();
    assert_eq!(process.finish(), 0);
    assert!(!is_here(&world, 1) && !is_here(&world, 9));
    assert_eq!(list(&process.volume, "containers").len(), 9);
}

/// (T9) The server that writes there now may remove it.
#[test]
fn who_lost_the_bucket_keeps_what_is_here() {
    let world = World::new();
    let process = copied(&world);
    let lease = name("lease");
    world.stored.remove(&lease).unwrap();
    put(&world.stored, "lease", b"another server's");
    let error = process.volume.evict(&name(&container(1)), ENDS).unwrap_err();
    assert!(error.to_string().contains("another server"), "{error}");
    assert!(is_here(&world, 1));
}
