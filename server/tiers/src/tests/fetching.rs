//! A data folder made from the bucket.

use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_volume::{BlobChecksum, ListPage, RemoteVolume};

use super::*;
use crate::record::Flaw;
use crate::{Missing, SurveyError};

const LONG: usize = 3 << 20;

impl World {
    /// Surveys the bucket as a recovery does.
    fn missing(&self) -> Result<Missing, SurveyError> {
        survey_missing(&self.local, &*self.bucket, &self.record(), NAMES)
    }
}

/// (R10)
#[test]
fn what_arrives_altered_is_brought_once_more() {
    let world = World::new();
    let point = "points/00/long";
    put(&world.stored, point, &vec![5; LONG]);
    survey(&*world.bucket, &world.record()).unwrap();
    let threads = NonZeroUsize::MIN;
    // The bucket keeps no checksum, so it is read twice: one answer of six, then one of each attempt.
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

/// A bucket that another server writes to: after each listing it has one more container, and then a point that needs
/// it.
#[derive(Debug)]
struct Growing {
    inner: MemoryVolume,
    listed: AtomicU32,
}

impl Volume for Growing {
    holdfast_volume::pass_on!(create_for, open, remove, discard_unfinished, space, handles_outlive_removal to inner);

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        let page = self.inner.list(prefix, after, limit)?;
        let number = self.listed.fetch_add(1, Ordering::Relaxed);
        put(&self.inner, &container(number), b"needed");
        put(&self.inner, &format!("points/00/{number}.1"), b"needs it");
        Ok(page)
    }
}

impl RemoteVolume for Growing {
    holdfast_volume::pass_on!(stat, list_objects, remove_all, tagged, sign_with to inner);
}

/// (T15) A drill while the server works: no restore point seems to be damaged.
#[test]
fn a_bucket_that_grows_is_found_without_points_that_lack_something() {
    let world = World::new();
    let growing = Growing { inner: world.stored.clone(), listed: AtomicU32::new(0) };
    put(&world.stored, "points/00/1000.1", b"needs it");
    put(&world.stored, &container(1000), b"needed");
    let record = world.record();
    survey(&growing, &record).unwrap();
    let points = record.page(&name("points"), None, 100).unwrap().entries;
    assert!(points.iter().any(|point| point.name.as_str() == "points/00/1000.1"));
    for point in points {
        let number = point.name.as_str().trim_start_matches("points/00/").trim_end_matches(".1");
        let needed = name(&container(number.parse().unwrap()));
        assert!(record.visible(&needed).unwrap().is_some(), "{} lacks {needed}", point.name);
    }
}

/// (T15) A copy of a volume that lacks containers moved to the bucket.
#[test]
fn a_recovery_finds_the_containers_it_lacks_and_nothing_that_was_deleted() {
    let world = World::new();
    let (here, converted, moved) = (container(1), container(2), container(3));
    for there in [&here, &converted, &moved, "points/00/deleted.1", "snapshots/9"] {
        put(&world.stored, there, &[7; 50]);
    }
    // The bucket is not asked about existing containers.
    put(&world.stored, &format!("ends/{}", container(5)), b"of nothing");
    put(&world.local, &here, &[7; 50]);
    put(&world.local, &format!("{converted}--"), &[7; 66]);
    world.record().note_removal(&name("points/00/deleted.1")).unwrap();

    assert_eq!(world.missing().unwrap(), Missing { count: 1, unequal: 0, points: 0 });
    let known = |text: &str| world.record().visible(&name(text)).unwrap();
    assert_eq!(known(&moved), Some(50));
    let unknown = [here, converted, container(5), "points/00/deleted.1".into(), "snapshots/9".into()];
    assert_eq!(unknown.map(|text| known(&text)), [None; 5]);

    world.bucket.fail_next(OpKind::List, 1, Fault::Unavailable);
    world.missing().unwrap_err();
}

/// (T15) With its containers taken in and its restore points unknown, reclaim would remove them from the bucket.
#[test]
fn a_volume_that_is_older_than_the_bucket_takes_nothing_in() {
    let world = World::new();
    let moved = container(1);
    // The VM of `renamed` had another name when this revision was sealed.
    for there in [&moved, "points/00/a.1", "points/00/b.1-", "points/00/c.1", "points/00/renamed.1"] {
        put(&world.stored, there, &[7; 50]);
    }
    for here in ["points/00/a.1", "points/00/b.2--", "points/00/c.0", "points/77/renamed.2"] {
        put(&world.local, here, &[7; 50]);
    }
    assert_eq!(world.missing().unwrap(), Missing { count: 0, unequal: 0, points: 1 }, "that is c");
    assert_eq!(world.record().visible(&name(&moved)).unwrap(), None);
    put(&world.local, "points/00/c.1", &[7; 50]);
    assert_eq!(world.missing().unwrap(), Missing { count: 1, unequal: 0, points: 0 });
}

/// (T8) Local blobs need not be in the record: the recovered server takes the bucket over.
#[test]
fn a_recovered_server_takes_the_bucket_over() {
    let world = World::new();
    let (here, moved) = (container(1), container(2));
    put(&world.stored, "repository", b"this one");
    put(&world.stored, "lease", b"the old server");
    let (old, new) = (container(3), format!("{}-", container(3)));
    for there in [&here, &moved, &old, "points/00/a.1", "points/00/b.1"] {
        put(&world.stored, there, &[7; 50]);
    }
    for there in [&here, &new, "points/00/a.1", "points/77/b.2"] {
        put(&world.local, there, &[7; 50]);
    }
    assert_eq!(world.missing().unwrap().count, 1);
    let process = world.start();
    assert!(matches!(process.fail(), CopyError::Leased(_)));
    // A restore point was deleted before the take-over.
    process.volume.remove(&name("points/00/a.1")).unwrap();
    world.record().take_over().unwrap();
    process.finish();
    assert!(!world.is_there("points/00/a.1") && world.is_there(&moved));
}

/// (T15) After a crash, or with a copied record: its entries stay.
#[test]
fn a_repeated_recovery_changes_nothing_that_is_known() {
    let world = World::new();
    let (moved, gone, asked) = (name(&container(1)), name(&container(2)), name(&container(3)));
    for there in [&moved, &gone, &asked] {
        put(&world.stored, there.as_str(), &[7; 50]);
    }
    let survey_again = || world.missing().unwrap().count;
    assert_eq!(survey_again(), 3);
    put(&world.stored, &format!("ends/{asked}"), b"ends");
    let record = world.record();
    record.note_flaw(&moved, Some(&Flaw::Content), 1).unwrap();
    record.proved(&moved, Some(BlobChecksum::Crc32c(7)), Some("tag")).unwrap();
    record.note_frozen(&asked, "DEEP_ARCHIVE").unwrap();
    record.note_asking(&asked, 5).unwrap();
    record.note_removal(&gone).unwrap();
    let (known, cold) = (record.known_one(&moved).unwrap(), record.cold(&asked).unwrap());

    assert_eq!(survey_again(), 2, "what is to go is not there");
    assert_eq!(record.known_one(&moved).unwrap(), known);
    assert_eq!(known.unwrap().flaw, Some(Flaw::Content));
    assert_eq!(record.cold(&asked).unwrap(), cold);
    assert_eq!(cold.unwrap().asked_ms, Some(5));
}

/// (T15) A truncated file in a copy does not hide the bucket's object.
#[test]
fn a_file_of_another_length_is_not_taken_for_the_container() {
    let world = World::new();
    let (cut, converted) = (container(1), container(2));
    for there in [&cut, &converted] {
        put(&world.stored, there, &[7; 50]);
        put(&world.local, there, &[7; 20]);
    }
    put(&world.local, &format!("{converted}-"), &[7; 66]);
    let unequal = |count, unequal| Missing { count, unequal, points: 0 };
    assert_eq!(world.missing().unwrap(), unequal(0, 2));
    world.local.remove(&name(&converted)).unwrap();
    assert_eq!(world.missing().unwrap(), unequal(0, 1));
    // (T13) The record has the length: the object is at fault.
    let record = world.record();
    record.add(&name(&cut), 20).unwrap();
    drop(record);
    assert_eq!(world.missing().unwrap(), unequal(0, 0));
    world.local.remove(&name(&cut)).unwrap();
    assert_eq!(world.missing().unwrap(), unequal(1, 0));
}
