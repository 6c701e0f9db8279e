//! Order and crashes. The bucket is a volume in memory that fails on demand; so is the local volume, so that a
//! test can crash.

mod answers;
mod archive;
mod audit;
mod away;
mod classed;
mod evict;
mod fetching;
mod keys;
mod places;
mod proofs;
mod retention;
mod thawed;

use std::num::NonZeroUsize;
use std::sync::Arc;

use holdfast_types::clock::ManualClock;
use holdfast_types::ids::BackupId;
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind, list, put, volume_suite};
use holdfast_volume::{BlobName, MemoryVolume, Volume, VolumeError};

use crate::{AbsentVolume, Copies, CopyError, Names, Record, Remote, TieredVolume, survey, survey_missing};

type Bucket = FaultyVolume<MemoryVolume>;

/// A data folder and its bucket.
struct World {
    folder: tempfile::TempDir,
    local: MemoryVolume,
    stored: MemoryVolume,
    bucket: Arc<Bucket>,
    clock: Arc<ManualClock>,
}

/// A process with that data folder open.
struct Process {
    volume: TieredVolume,
    copies: Copies,
}

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn container(number: u32) -> String {
    format!("containers/0000000/{number:010}.data")
}

/// Names of forms as with encryption, and of points by the first letter of their restore points.
pub(crate) const NAMES: Names = Names {
    may_travel: |_| true,
    forms: |name| {
        let plain = name.as_str().trim_end_matches('-');
        ["", "-", "--"].map(|end| self::name(&format!("{plain}{end}"))).into()
    },
    revision: |name| {
        let plain = name.as_str().strip_prefix("points/")?.trim_end_matches('-');
        let (backup, revision) = plain.rsplit_once('.')?;
        let letter = *backup.rsplit('/').next()?.as_bytes().first()?;
        Some((BackupId::from_bytes([letter; 16]), revision.parse().ok()?))
    },
};

impl World {
    fn new() -> Self {
        let stored = MemoryVolume::new();
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
            local: MemoryVolume::new(),
            bucket: Arc::new(FaultyVolume::new(stored.clone())),
            stored,
            clock: Arc::new(ManualClock::new(1_000_000)),
        };
        put(&world.local, "repository", b"this one");
        world
    }

    fn record(&self) -> Arc<Record> {
        Arc::new(Record::open_or_create(&self.folder.path().join("tiers.db"), "s3://here").unwrap())
    }

    /// Starts a process, however the one before ended.
    fn start(&self) -> Process {
        self.start_on(Arc::new(self.local.clone()))
    }

    /// Same as [`World::start`], on a local volume that fails.
    fn start_on(&self, local: Arc<dyn Volume>) -> Process {
        let remote = Remote::plain(&self.bucket);
        let clock = Arc::<ManualClock>::clone(&self.clock);
        let volume = TieredVolume::new(local, remote, self.record(), NAMES, clock);
        let copies = volume.copies(NonZeroUsize::new(2).unwrap(), "here").unwrap();
        Process { volume, copies }
    }

    fn there(&self) -> Vec<String> {
        ["containers", "keys", "points", "snapshots"]
            .into_iter()
            .flat_map(|folder| list(&self.stored, folder))
            .map(|entry| entry.name.to_string())
            .collect()
    }

    fn is_there(&self, blob: &str) -> bool {
        self.stored.get(&name(blob)).is_some()
    }
}

impl Process {
    /// Works until nothing is left to do; returns the number of blobs copied.
    fn finish(&self) -> u64 {
        let mut blobs = 0;
        for _ in 0..10_000 {
            let worked = self.copies.work(&|| false).unwrap();
            blobs += worked.blobs;
            if !worked.more {
                return blobs;
            }
        }
        panic!("it does not end");
    }

    /// Works until it fails.
    fn fail(&self) -> CopyError {
        for _ in 0..1000 {
            if let Err(error) = self.copies.work(&|| false) {
                return error;
            }
        }
        panic!("it does not fail");
    }
}

#[test]
fn conforms() {
    let folders = parking_lot::Mutex::new(Vec::new());
    volume_suite(|| {
        let world = World::new();
        world.local.remove(&name("repository")).unwrap();
        let process = world.start();
        folders.lock().push(world.folder);
        Box::new(process.volume)
    });
}

/// (T4) Same as above, for a folder of which only the bucket has some blobs.
#[test]
fn what_is_only_there_is_listed_read_and_removed_as_if_it_were_here() {
    let world = World::new();
    let process = world.start();
    for number in 1..=9 {
        put(&process.volume, &container(number), &[u8::try_from(number).unwrap(); 100]);
    }
    process.finish();
    for number in [1, 2, 5, 9] {
        world.local.remove(&name(&container(number))).unwrap();
    }
    let listed_before = world.bucket.count(OpKind::List);
    let all: Vec<String> = (1..=9).map(container).collect();
    for size in 1..=10 {
        let limit = NonZeroUsize::new(size).unwrap();
        let folder = name("containers");
        let walk = holdfast_volume::list_all(&process.volume, &folder).in_pages_of(limit);
        let found: Vec<String> = walk.map(|entry| entry.unwrap().name.to_string()).collect();
        assert_eq!(found, all, "in pages of {size}");
    }
    let blob = process.volume.open(&name(&container(5))).unwrap();
    assert_eq!(blob.read_vec(&name("x"), 0, 100).unwrap(), [5; 100]);
    assert!(matches!(process.volume.create(&name(&container(5))), Err(VolumeError::Exists { .. })));
    process.volume.remove(&name(&container(5))).unwrap();
    assert!(matches!(process.volume.open(&name(&container(5))), Err(VolumeError::NotFound { .. })));
    assert!(matches!(process.volume.remove(&name(&container(5))), Err(VolumeError::NotFound { .. })));
    assert_eq!(list(&process.volume, "containers").len(), 8);
    assert_eq!(world.bucket.count(OpKind::List), listed_before, "work never lists the bucket");
    process.finish();
    assert!(!world.is_there(&container(5)));
}

/// (T1) A bucket in which every blob of the work below may be the last one that got through.
/// (S3) A blob that only the bucket has does not prove that a file system is mounted here.
#[test]
fn what_is_here_is_what_the_folder_has() {
    let world = World::new();
    let process = world.start();
    process.finish();
    world.local.remove(&name("repository")).unwrap();
    assert!(process.volume.open(&name("repository")).is_ok(), "it is read from the bucket");
    let here = process.volume.here().expect("some of it lies far away");
    assert!(matches!(here.open(&name("repository")), Err(VolumeError::NotFound { .. })));
}

#[test]
fn a_point_never_comes_before_what_it_needs() {
    let work = |volume: &TieredVolume| {
        for point in 0..5_u32 {
            put(volume, &format!("keys/{point:020}"), b"k");
            for part in 1..=3 {
                put(volume, &container(10 * point + part), &[1; 50]);
            }
            put(volume, &format!("points/n/v/{point}.1"), b"p");
        }
    };
    let total = 5 * 5 + 1;
    for at in 1..=total {
        for is_whole in [true, false] {
            let world = World::new();
            let process = world.start();
            if is_whole {
                work(&process.volume);
            } else {
                process.finish();
                work(&process.volume);
            }
            world.bucket.fail_next(OpKind::Seal, at, Fault::Unavailable);
            while process.copies.work(&|| false).is_ok_and(|worked| worked.more) {
                for point in 0..5_u32 {
                    if world.is_there(&format!("points/n/v/{point}.1")) {
                        for part in 1..=3 {
                            assert!(
                                world.is_there(&container(10 * point + part)),
                                "{at}: {:?}",
                                world.there()
                            );
                        }
                        assert!(world.is_there(&format!("keys/{point:020}")), "{at}: {:?}", world.there());
                    }
                }
            }
            world.bucket.heal();
            process.finish();
            assert_eq!(world.there().len(), 25);
        }
    }
}

/// (T1) Points sealed while a round is in progress belong to the next one.
#[test]
fn points_sealed_during_a_round_wait() {
    let world = World::new();
    let process = world.start();
    for number in 1..=40 {
        put(&process.volume, &container(number), b"early");
    }
    put(&process.volume, "points/n/v/early.1", b"p");
    let mut number = 100;
    // A backup ends after each step of the round.
    loop {
        let worked = process.copies.work(&|| false).unwrap();
        for entry in list(&world.stored, "points") {
            let of = entry.name.as_str().trim_start_matches("points/n/v/").trim_end_matches(".1");
            let needs = of.parse().map_or(40, |number: u32| number);
            assert!(world.is_there(&container(needs)), "{of} is there without {needs}");
        }
        if number == 120 && !worked.more {
            break;
        }
        if number < 120 {
            number += 1;
            put(&process.volume, &container(number), b"late");
            put(&process.volume, &format!("points/n/v/{number}.1"), b"p");
        }
    }
    assert_eq!(world.there().len(), 40 + 1 + 2 * 20);
}

/// (T1) (T2) Copying forward: the live chunks of one container move to another, and the first is removed.
#[test]
fn what_was_copied_forward_is_there_before_the_point_and_before_the_removal() {
    for is_new_process in [false, true] {
        let world = World::new();
        let process = world.start();
        process.finish();
        put(&process.volume, &container(1), b"old");
        put(&process.volume, "points/n/v/p.1", b"p");
        let process = if is_new_process { world.start() } else { process };
        // The round has begun when reclaim runs.
        let _ = process.copies.work(&|| false).unwrap();
        put(&process.volume, &container(2), b"live of old");
        process.volume.remove(&name(&container(1))).unwrap();
        while process.copies.work(&|| false).unwrap().more {
            let has_content = world.is_there(&container(1)) || world.is_there(&container(2));
            assert!(!world.is_there("points/n/v/p.1") || has_content, "{:?}", world.there());
        }
        process.finish();
        assert_eq!(world.there(), [container(2), "points/n/v/p.1".to_owned()]);
    }
}

#[test]
fn a_removal_waits_for_what_was_sealed_before_it() {
    let world = World::new();
    let process = world.start();
    put(&process.volume, &container(1), b"old");
    process.finish();
    put(&process.volume, &container(2), b"live of old");
    process.volume.remove(&name(&container(1))).unwrap();
    world.bucket.fail_next(OpKind::Seal, 1, Fault::Unavailable);
    process.fail();
    assert!(world.is_there(&container(1)), "it is all there is of it");
    process.finish();
    assert_eq!(world.there(), [container(2)]);
}

/// Nothing is copied twice: after a lost answer, and after a crash between the copy and its record.
#[test]
fn a_copy_whose_answer_was_lost_counts() {
    let world = World::new();
    let process = world.start();
    process.finish();
    put(&process.volume, &container(1), b"one");
    world.bucket.fail_next(OpKind::Seal, 1, Fault::OutcomeUnknown { applied: true });
    assert!(process.fail().is_passing());
    let sealed = world.bucket.count(OpKind::Seal);
    process.finish();
    assert_eq!(world.bucket.count(OpKind::Seal), sealed, "it was asked for first");
    assert_eq!(process.copies.record().totals().unwrap()[0].blobs, 1);

    // Not carried out: it is sent again.
    put(&process.volume, &container(2), b"two");
    world.bucket.fail_next(OpKind::Seal, 1, Fault::OutcomeUnknown { applied: false });
    process.fail();
    process.finish();
    assert!(world.is_there(&container(2)));

    put(&world.stored, &container(3), b"three");
    put(&process.volume, &container(3), b"three");
    let sealed = world.bucket.count(OpKind::Seal);
    let process = world.start();
    process.finish();
    assert_eq!(world.bucket.count(OpKind::Seal), sealed, "the record lacked it, the bucket did not");
    assert_eq!(process.copies.status().waiting_blobs, 0);
}

/// (T6) Nothing is replaced, and an object with other content is not accepted as a copy.
#[test]
fn other_content_under_a_name_stops_the_copies() {
    let world = World::new();
    let process = world.start();
    process.finish();
    put(&world.stored, &container(1), b"of another");
    put(&process.volume, &container(1), b"the right 1");
    put(&process.volume, "points/n/v/p.1", b"p");
    assert!(matches!(process.fail(), CopyError::Other { .. }));
    assert!(!world.is_there("points/n/v/p.1"));
    // Same length, other bytes.
    world.stored.replace(&name(&container(1)), b"the wrong 1".to_vec());
    let error = process.fail();
    assert!(matches!(error, CopyError::Other { .. }) && !error.is_passing(), "{error}");
    assert!(process.copies.status().failure.unwrap().contains(&container(1)));
    world.stored.remove(&name(&container(1))).unwrap();
    process.finish();
    assert!(world.is_there("points/n/v/p.1"));
}

#[test]
fn two_repositories_never_mix_in_one_place() {
    let world = World::new();
    put(&world.stored, "repository", b"another1");
    let process = world.start();
    put(&process.volume, &container(1), b"one");
    assert!(matches!(process.fail(), CopyError::OtherRepository));
    assert_eq!(world.there(), [""; 0]);
}

/// (T3) No crash brings a removed blob back, and a blob that was not removed stays in both places.
#[test]
fn a_removal_is_noted_before_the_blob_goes() {
    let world = World::new();
    let process = world.start();
    put(&process.volume, &container(1), b"one");
    process.finish();
    process.volume.remove(&name(&container(1))).unwrap();
    // Power fails right after; the bucket still has it.
    let process = world.start();
    assert!(matches!(process.volume.open(&name(&container(1))), Err(VolumeError::NotFound { .. })));
    assert_eq!(list(&process.volume, "containers"), []);
    process.finish();
    assert!(!world.is_there(&container(1)));

    // Power fails between the record and the local removal.
    put(&process.volume, &container(2), b"two");
    process.finish();
    world.record().note_removal(&name(&container(2))).unwrap();
    let process = world.start();
    assert!(process.volume.open(&name(&container(2))).is_ok());
    process.finish();
    assert!(world.is_there(&container(2)), "it is here, so it is there again");
    assert_eq!(process.copies.status().removals, 0);
}

/// A name that is reused before the bucket has removed its first blob.
#[test]
fn a_name_used_again_gets_its_own_copy() {
    let world = World::new();
    let process = world.start();
    put(&process.volume, "points/n/v/p.1", b"first");
    process.finish();
    process.volume.remove(&name("points/n/v/p.1")).unwrap();
    put(&process.volume, "points/n/v/p.1", b"second");
    process.finish();
    assert_eq!(world.stored.get(&name("points/n/v/p.1")).unwrap(), "second");
    let record = process.copies.record();
    assert_eq!(record.removals_count().unwrap(), 0);
    assert_eq!(record.totals().unwrap().iter().map(|kind| kind.blobs).sum::<u64>(), 2);
}

#[test]
fn a_record_that_is_lost_is_made_anew_of_the_bucket() {
    let world = World::new();
    let process = world.start();
    for number in 1..=5 {
        put(&process.volume, &container(number), b"bytes");
    }
    put(&process.volume, "points/n/v/p.1", b"p");
    process.finish();
    let record = Record::open_or_create(&world.folder.path().join("new.db"), "s3://here").unwrap();
    assert_eq!(survey(&*world.bucket, &record).unwrap(), 7);
    let local = Arc::new(MemoryVolume::new());
    let clock = Arc::<ManualClock>::clone(&world.clock);
    let remote = Remote::plain(&world.bucket);
    let volume = TieredVolume::new(local, remote, Arc::new(record), NAMES, clock);
    assert_eq!(list(&volume, "containers").len(), 5);
    assert!(volume.open(&name("repository")).is_ok());
    assert!(volume.open(&name("points/n/v/p.1")).is_ok());
}

#[test]
fn a_record_is_of_one_place_and_one_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiers.db");
    drop(Record::open_or_create(&path, "s3://here").unwrap());
    drop(Record::open_or_create(&path, "s3://here").unwrap());
    let error = Record::open_or_create(&path, "s3://elsewhere").unwrap_err().to_string();
    assert!(error.contains("s3://here") && error.contains("s3://elsewhere"), "{error}");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    drop(connection);
    let error = Record::open(&path).unwrap_err().to_string();
    assert!(error.contains("newer version"), "{error}");
}

/// The lag of copies is the age of the oldest waiting blob.
#[test]
fn the_lag_is_that_of_the_oldest_blob_that_waits() {
    let world = World::new();
    let process = world.start();
    assert!(process.copies.status().is_comparing);
    assert_eq!(process.copies.status().copied_up_to_ms, None);
    process.finish();
    assert_eq!(process.copies.status().copied_up_to_ms, Some(1_000_000));
    world.clock.advance_ms(500);
    put(&process.volume, &container(1), b"one");
    world.clock.advance_ms(60_000);
    let status = process.copies.status();
    assert_eq!((status.copied_up_to_ms, status.waiting_blobs, status.waiting_bytes), (Some(1_000_500), 1, 3));
    world.bucket.fail_next(OpKind::Seal, 1, Fault::Unavailable);
    process.fail();
    assert_eq!(process.copies.status().copied_up_to_ms, Some(1_000_500));
    process.finish();
    assert_eq!(process.copies.status().copied_up_to_ms, Some(1_060_500));
}

/// Blobs that may not leave this machine are not copied.
#[test]
fn what_may_not_travel_stays() {
    let world = World::new();
    let clock = Arc::<ManualClock>::clone(&world.clock);
    let volume = TieredVolume::new(
        Arc::new(world.local.clone()),
        Remote::plain(&world.bucket),
        world.record(),
        Names { may_travel: |name| name.as_str().ends_with('-') || name.as_str() == "repository", ..NAMES },
        clock,
    );
    put(&volume, &container(1), b"plain");
    put(&volume, &format!("{}-", container(2)), b"sealed");
    let copies = volume.copies(NonZeroUsize::MIN, "here").unwrap();
    while copies.work(&|| false).unwrap().more {}
    assert_eq!(world.there(), [format!("{}-", container(2))]);
}

/// Blobs copied while that was allowed are removed from the bucket, also when it no longer is.
#[test]
fn what_may_not_travel_any_more_goes_from_there() {
    let world = World::new();
    let process = world.start();
    put(&process.volume, &container(1), b"plain");
    process.finish();
    let clock = Arc::<ManualClock>::clone(&world.clock);
    let remote = Remote::plain(&world.bucket);
    let volume = TieredVolume::new(
        Arc::new(world.local.clone()),
        remote,
        world.record(),
        Names { may_travel: |_| false, ..NAMES },
        clock,
    );
    let copies = volume.copies(NonZeroUsize::MIN, "here").unwrap();
    volume.remove(&name(&container(1))).unwrap();
    let last = copies.record().last_removal().unwrap();
    assert_eq!(copies.record().removals_up_to(last).unwrap(), 1);
    while copies.work(&|| false).unwrap().more {}
    assert!(!world.is_there(&container(1)));
    assert_eq!(copies.record().removals_up_to(last).unwrap(), 0);
}

/// (T1) A container being removed while a round passes was copied forward before: the containers that took its live
/// chunks are copied before the points that need them.
#[test]
fn what_a_container_was_copied_into_comes_before_points() {
    for is_whole in [false, true] {
        let world = World::new();
        let process = world.start();
        if !is_whole {
            process.finish();
        }
        put(&process.volume, &container(1), b"first");
        put(&process.volume, "points/a/b/1", b"needs what container 1 has");
        // The round begins; then it is copied forward, and its removal is recorded but not done.
        let worked = process.copies.work(&|| false).unwrap();
        assert!(worked.more);
        put(&process.volume, &container(2), b"first, copied forward");
        process.volume.shared.record.note_removal(&name(&container(1))).unwrap();
        while !world.is_there("points/a/b/1") {
            let worked = process.copies.work(&|| false).unwrap();
            assert!(worked.more, "{is_whole}");
        }
        assert!(world.is_there(&container(2)), "{is_whole}");
    }
}

/// Blobs that could not be read here are retried later.
#[test]
fn what_could_not_be_read_is_tried_again() {
    let world = World::new();
    let faulty = Arc::new(FaultyVolume::new(world.local.clone()));
    let process = world.start_on(Arc::<FaultyVolume<MemoryVolume>>::clone(&faulty) as Arc<dyn Volume>);
    process.finish();
    put(&process.volume, &container(1), b"one");
    faulty.fail_next(OpKind::Read, 1, Fault::Io);
    process.finish();
    assert_eq!(process.copies.status().unreadable.len(), 1);
    faulty.heal();
    process.finish();
    assert!(!world.is_there(&container(1)), "not at once");
    world.clock.advance_ms(3_600_000);
    process.finish();
    assert!(world.is_there(&container(1)));
    assert_eq!(process.copies.status().unreadable.len(), 0);
}

/// A blob that cannot be compared with its object does not keep others from being copied.
#[test]
fn what_cannot_be_compared_is_tried_again() {
    let world = World::new();
    for stored in [&world.stored, &world.local] {
        put(stored, &container(1), b"one");
    }
    put(&world.local, &container(2), b"two");
    let faulty = Arc::new(FaultyVolume::new(world.local.clone()));
    let process = world.start_on(Arc::<FaultyVolume<MemoryVolume>>::clone(&faulty) as Arc<dyn Volume>);
    world.record().lease_written("this server's").unwrap();
    faulty.fail_next(OpKind::Read, 1, Fault::Io);
    process.finish();
    assert_eq!(process.copies.status().unreadable.len(), 1);
    assert!(world.is_there(&container(2)));
}

/// (T12) Once a mark is reported as reached, the bucket has everything sealed before it.
#[test]
fn a_mark_is_reached_when_all_before_it_is_there() {
    let world = World::new();
    let faulty = Arc::new(FaultyVolume::new(world.local.clone()));
    let process = world.start_on(Arc::<FaultyVolume<MemoryVolume>>::clone(&faulty) as Arc<dyn Volume>);
    put(&world.local, "points/a/b/0", b"of an earlier process");
    assert!(!process.copies.has_up_to(process.copies.mark()), "nothing was compared yet");
    process.finish();
    assert!(process.copies.has_up_to(process.copies.mark()));

    put(&process.volume, &container(1), b"one");
    put(&process.volume, "points/a/b/1", b"needs it");
    let mark = process.copies.mark();
    put(&process.volume, &container(2), b"of a later one");
    put(&process.volume, "snapshots/1", b"later still");
    loop {
        let has = process.copies.has_up_to(mark);
        assert_eq!(has, world.is_there("points/a/b/1") && world.is_there(&container(1)));
        if has {
            break;
        }
        let worked = process.copies.work(&|| false).unwrap();
        assert!(worked.more || process.copies.has_up_to(mark));
    }

    process.finish();

    // An unreadable blob counts as missing, although nothing waits for it.
    put(&process.volume, &container(3), b"three");
    let mark = process.copies.mark();
    faulty.fail_next(OpKind::Read, 1, Fault::Io);
    process.finish();
    assert!(!process.copies.has_up_to(mark));
    // Also while it is retried, and fails again.
    world.clock.advance_ms(3_600_000);
    faulty.fail_next(OpKind::Read, 1, Fault::Io);
    while process.copies.work(&|| false).unwrap().more {
        assert!(!process.copies.has_up_to(mark));
    }
    assert!(!process.copies.has_up_to(mark));
    faulty.heal();
    world.clock.advance_ms(3_600_000);
    while process.copies.work(&|| false).unwrap().more {
        assert_eq!(process.copies.has_up_to(mark), world.is_there(&container(3)));
    }
    assert!(process.copies.has_up_to(mark));
}
