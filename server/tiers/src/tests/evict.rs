//! Containers that only the bucket has, apart from their ends.

use holdfast_volume::testing::{CrashPoint, InFlight};
use holdfast_volume::{BlobWriter, Ends, Owner};

use crate::{enter_moved, has_moved_containers, moved_containers, note_made_of_bucket};

use super::*;

const ENDS: Ends = Ends { head: 16, tail: 100 };

fn content(number: u32) -> Vec<u8> {
    (0..4000u32).map(|at| u8::try_from((at * 7 + number) % 251).unwrap()).collect()
}

/// A process that has copied containers 1 to 9.
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
    // Only containers are moved.
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

/// Golden bytes; the checksum was computed by another implementation of CRC-64/NVME.
#[test]
fn ends_have_these_bytes() {
    let world = World::new();
    let process = world.start();
    put(&process.volume, &container(1), b"123456789");
    process.finish();
    assert!(process.volume.evict(&name(&container(1)), Ends { head: 2, tail: 3 }).unwrap());
    let kept = world.local.get(&name(&format!("ends/{}", container(1)))).unwrap();
    let hex: String = kept.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "0200000000000000090000000000000031323738392d86a2adcb0f8a6a");
}

/// Ends with a flipped bit are not returned as the container's.
#[test]
fn damaged_ends_are_not_believed() {
    let world = World::new();
    let process = copied(&world);
    assert!(evict(&process, 3) && evict(&process, 4));
    let ends = name(&format!("ends/{}", container(3)));
    let whole = world.local.get(&ends).unwrap().to_vec();
    assert_eq!(whole.len(), 16 + 16 + 100 + 8);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        world.local.replace(&ends, bytes);
        assert_eq!(read(&process, 3, 0, 4000).unwrap(), content(3), "{at}");
        assert_eq!(read(&process, 3, 0, 8).unwrap(), content(3)[..8], "{at}");
        assert_eq!(read(&process, 3, 3990, 10).unwrap(), content(3)[3990..], "{at}");
    }
    // Ends of another container.
    world.local.replace(&ends, world.local.get(&name(&format!("ends/{}", container(4)))).unwrap().to_vec());
    assert_eq!(read(&process, 3, 0, 8).unwrap(), content(3)[..8]);
}

/// (T9) A name may be reused for other bytes of the same length.
#[test]
fn ends_of_an_earlier_writing_are_made_anew() {
    let world = World::new();
    let process = copied(&world);
    assert!(evict(&process, 1));
    let ends = name(&format!("ends/{}", container(1)));
    let old = world.local.get(&ends).unwrap().to_vec();
    process.volume.remove(&name(&container(1))).unwrap();
    process.finish();
    put(&process.volume, &container(1), &content(77));
    process.finish();
    // As left by a crash.
    put(&world.local, ends.as_str(), &old);
    assert_eq!(moved_containers(&world.local).unwrap(), 0, "it is here");
    assert!(evict(&process, 1));
    assert_eq!(moved_containers(&world.local).unwrap(), 1);
    assert_eq!(read(&process, 1, 0, 16).unwrap(), content(77)[..16]);
    assert_eq!(read(&process, 1, 3900, 100).unwrap(), content(77)[3900..]);
}

/// Lets another thread remove a container right before the local copy is removed.
#[derive(Debug)]
struct Removing {
    inner: MemoryVolume,
    record: Arc<Record>,
}

impl Volume for Removing {
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        self.inner.create_for(name, owner)
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        if name.as_str().starts_with("containers/") {
            self.record.note_removal(name).unwrap();
        }
        self.inner.remove(name)
    }

    holdfast_volume::pass_on!(open, list, discard_unfinished, space, remove_empty_folders, handles_outlive_removal to inner);
}

/// (T9)
#[test]
fn what_is_removed_while_it_is_moved_leaves_no_ends() {
    let world = World::new();
    drop(copied(&world));
    let local = Removing { inner: world.local.clone(), record: world.record() };
    let process = world.start_on(Arc::new(local));
    process.finish();
    assert!(evict(&process, 1));
    assert_eq!(list(&world.local, "ends").len(), 0);
    assert!(matches!(read(&process, 1, 0, 1), Err(VolumeError::NotFound { .. })));
}

/// (T9) If the record is older than a move, the moved container is not missing.
#[test]
fn an_older_record_is_brought_up_to_date() {
    let world = World::new();
    let process = copied(&world);
    assert!(evict(&process, 1) && evict(&process, 2));
    process.volume.remove(&name(&container(2))).unwrap();
    drop(process);
    let folder = tempfile::tempdir().unwrap();
    let older = Record::open_or_create(&folder.path().join("tiers.db"), "s3://here").unwrap();
    older.add(&name(&container(9)), 4000).unwrap();
    assert_eq!(enter_moved(&world.local, &*world.bucket, &older).unwrap(), 1);
    assert_eq!(older.visible(&name(&container(1))).unwrap(), Some(4000));
    assert_eq!(enter_moved(&world.local, &*world.bucket, &older).unwrap(), 0);
    older.forget(&name(&container(1))).unwrap();
    world.bucket.fail_next(OpKind::Open, 1, Fault::Unavailable);
    assert!(enter_moved(&world.local, &*world.bucket, &older).is_err());
}

#[test]
fn a_folder_that_was_made_of_a_bucket_says_so() {
    let local = MemoryVolume::new();
    assert!(!has_moved_containers(&local).unwrap());
    note_made_of_bucket(&local).unwrap();
    note_made_of_bucket(&local).unwrap();
    assert!(has_moved_containers(&local).unwrap());
    assert_eq!(moved_containers(&local).unwrap(), 0);
}

#[test]
fn a_file_without_tables_is_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiers.db");
    assert!(!Record::is_at(&path).unwrap());
    std::fs::write(&path, "").unwrap();
    assert!(!Record::is_at(&path).unwrap());
    drop(Record::open_or_create(&path, "s3://here").unwrap());
    assert!(Record::is_at(&path).unwrap());
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

/// After a crash at any point the container is whole, here or there, and moving continues.
#[test]
fn a_crash_in_the_middle_loses_nothing() {
    for (after_mutations, in_flight) in
        (0..9).flat_map(|after| [(after, InFlight::Done), (after, InFlight::Lost)])
    {
        let world = World::new();
        drop(copied(&world));
        let faulty = FaultyVolume::new(world.local.clone());
        faulty.crash_at(CrashPoint { after_mutations, in_flight });
        let process = world.start_on(Arc::new(faulty));
        let done = process.volume.evict(&name(&container(1)), ENDS);
        assert!(done.is_err(), "{after_mutations}: it has nine steps");
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
    assert!(error.to_string().contains("a bucket has one writer"), "{error}");
    assert!(is_here(&world, 1));
}
