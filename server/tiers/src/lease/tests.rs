//! Two servers and one bucket. A paused server is one that is not called; no time passes anywhere.

use std::num::NonZeroUsize;
use std::sync::Arc;

use holdfast_types::clock::ManualClock;
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind, list, put};
use holdfast_volume::{BlobName, MemoryVolume, RemoteVolume as _, Volume as _};

use super::*;
use crate::tests::NAMES;
use crate::{Copies, Record, Remote, TieredVolume, survey};

type Bucket = Arc<FaultyVolume<MemoryVolume>>;

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

/// A data folder.
struct Folder {
    here: tempfile::TempDir,
    local: MemoryVolume,
    name: &'static str,
}

/// A process with that data folder open.
struct Process {
    volume: TieredVolume,
    copies: Copies,
}

impl Folder {
    fn new(name: &'static str) -> Self {
        let local = MemoryVolume::new();
        put(&local, "repository", b"this one");
        Self { here: tempfile::tempdir().unwrap(), local, name }
    }

    fn record(&self) -> Record {
        Record::open_or_create(&self.here.path().join("tiers.db"), "s3://here").unwrap()
    }

    fn start(&self, bucket: &Bucket) -> Process {
        let (local, remote) = (Arc::new(self.local.clone()), Remote::plain(bucket));
        let clock = Arc::new(ManualClock::new(1_000_000));
        let volume = TieredVolume::new(local, remote, Arc::new(self.record()), NAMES, clock);
        let copies = volume.copies(NonZeroUsize::MIN, self.name).unwrap();
        Process { volume, copies }
    }

    /// Copies the data folder, as cloning the machine does.
    fn cloned(&self, name: &'static str) -> Self {
        let clone = Self { here: tempfile::tempdir().unwrap(), local: MemoryVolume::new(), name };
        put(&clone.local, "repository", b"this one");
        drop(self.record());
        for file in std::fs::read_dir(self.here.path()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), clone.here.path().join(file.file_name())).unwrap();
        }
        clone
    }
}

impl Process {
    fn work(&self) -> Result<(), CopyError> {
        while self.copies.work(&|| false)?.more {}
        Ok(())
    }

    /// Writes and copies one more blob.
    fn write(&self, blob: &str) {
        put(&self.volume, blob, b"bytes");
        self.work().unwrap();
    }

    /// Name of the server that holds the lease.
    fn refused(&self) -> String {
        match self.work().unwrap_err() {
            CopyError::Leased(holder) => holder.name,
            other => panic!("{other}"),
        }
    }
}

/// Names of all objects, and the text of the lease.
fn names(stored: &MemoryVolume) -> Vec<String> {
    let lists = ["containers", "keys", "points", "snapshots"].map(|folder| list(stored, folder));
    let mut names: Vec<String> = lists.into_iter().flatten().map(|entry| entry.name.to_string()).collect();
    names.push(String::from_utf8_lossy(&stored.get(&name(NAME)).unwrap()).into_owned());
    names
}

fn bucket() -> (MemoryVolume, Bucket) {
    let stored = MemoryVolume::new();
    (stored.clone(), Arc::new(FaultyVolume::new(stored)))
}

/// (T8) The second server's error names the first; it writes nothing, and still works locally.
#[test]
fn a_second_server_is_refused() {
    let (stored, bucket) = bucket();
    let (first, second) = (Folder::new("first"), Folder::new("second"));
    let a = first.start(&bucket);
    put(&a.volume, "containers/1", b"a");
    a.work().unwrap();
    let b = second.start(&bucket);
    put(&b.volume, "containers/2", b"b");
    b.volume.remove(&name("containers/2")).unwrap();
    put(&b.volume, "containers/3", b"b");
    for _ in 0..3 {
        assert_eq!(b.refused(), "first");
        assert!(b.copies.status().failure.unwrap().contains("take-over"));
    }
    assert!(stored.get(&name("containers/3")).is_none());
    assert_eq!(second.record().other_writer().unwrap().unwrap().name, "first");
    assert_eq!(b.copies.other_writer().unwrap().unwrap().number, 1);
    // Also after restarts; the first server still works after its own.
    drop((a, b));
    assert_eq!(second.start(&bucket).refused(), "first");
    let a = first.start(&bucket);
    put(&a.volume, "containers/4", b"a");
    a.work().unwrap();
    assert!(stored.get(&name("containers/4")).is_some());
    assert_eq!(a.copies.other_writer().unwrap(), None);
}

/// (T14) An object removed by the server that holds the lease is not reported as damage by an outdated drill server.
#[test]
fn what_another_server_removed_is_no_damage() {
    let (_, bucket) = bucket();
    let (live, drill) = (Folder::new("live"), Folder::new("drill"));
    let a = live.start(&bucket);
    for blob in ["containers/1", "containers/2"] {
        a.write(blob);
    }
    survey(&*bucket, &drill.record()).unwrap();
    let b = drill.start(&bucket);
    // As a recovery does.
    assert_eq!(b.copies.other_writer().unwrap().unwrap().name, "live");
    for blob in ["containers/1", "containers/2"] {
        a.volume.remove(&name(blob)).unwrap();
    }
    a.work().unwrap();
    let read = |blob: &str| b.volume.open(&name(blob)).map(drop).unwrap_err();
    for error in [read("containers/1"), read("containers/2")] {
        assert!(error.is_unreadable_now(), "{error}");
        assert!(error.to_string().contains("live") && error.to_string().contains("Recover again"), "{error}");
    }
    assert_eq!(drill.record().flaws_count().unwrap(), 0);
    // With the lease gone as well, the server that did it is unknown.
    bucket.remove(&name(NAME)).unwrap();
    put(&b.volume, "containers/3", b"b");
    assert!(matches!(b.work(), Err(CopyError::NoLease { .. })));
    assert!(matches!(read("containers/2"), VolumeError::Io { .. }));
}

/// (T8) A server that was paused, and lost the bucket meanwhile, neither writes nor removes anything there when it
/// resumes, at any point of its work.
#[test]
fn a_paused_server_that_lost_the_bucket_stops_at_once() {
    for pieces in 0..9 {
        let (stored, bucket) = bucket();
        let (first, second) = (Folder::new("first"), Folder::new("second"));
        let a = first.start(&bucket);
        put(&a.volume, "containers/1", b"a");
        put(&a.volume, "points/n/v/1.1", b"a");
        a.work().unwrap();
        // Work of all kinds, with a pause in it.
        put(&a.volume, "keys/00000000000000000001", b"k");
        put(&a.volume, "containers/2", b"a");
        put(&a.volume, "points/n/v/2.1", b"a");
        a.volume.remove(&name("points/n/v/1.1")).unwrap();
        for _ in 0..pieces {
            let _ = a.copies.work(&|| false).unwrap();
        }
        // Made from the bucket in its current state.
        survey(&*bucket, &second.record()).unwrap();
        let b = second.start(&bucket);
        put(&b.volume, "containers/7", b"b");
        assert_eq!(b.refused(), "first");
        second.record().take_over().unwrap();
        b.work().unwrap();
        assert!(stored.get(&name("containers/7")).is_some());
        let before = names(&stored);
        put(&a.volume, "containers/3", b"a");
        a.volume.remove(&name("containers/1")).unwrap();
        for _ in 0..3 {
            assert_eq!(a.refused(), "second", "after {pieces}");
        }
        assert_eq!(names(&stored), before, "after {pieces}");
        // Local work went on, and the server may get the bucket back.
        assert!(a.volume.open(&name("containers/3")).is_ok());
        survey(&*bucket, &first.record()).unwrap();
        first.record().take_over().unwrap();
        a.work().unwrap();
        assert!(stored.get(&name("containers/3")).is_some() && stored.get(&name("containers/1")).is_none());
        put(&b.volume, "containers/8", b"b");
        assert_eq!(b.refused(), "first");
    }
}

/// (T8) Objects written by the first server after the second was made from the bucket would be lost, or mistaken.
#[test]
fn a_bucket_that_changed_since_is_not_taken_over() {
    let (stored, bucket) = bucket();
    let (first, second) = (Folder::new("first"), Folder::new("second"));
    let a = first.start(&bucket);
    a.write("containers/1");
    a.write("containers/2");
    survey(&*bucket, &second.record()).unwrap();
    let b = second.start(&bucket);
    put(&b.volume, "containers/7", b"b");
    assert_eq!(b.refused(), "first");
    a.write("containers/3");
    a.volume.remove(&name("containers/1")).unwrap();
    a.work().unwrap();
    second.record().take_over().unwrap();
    for _ in 0..2 {
        let error = b.work().unwrap_err();
        assert!(matches!(error, CopyError::Changed { more: 1, fewer: 1, .. }), "{error}");
    }
    assert!(stored.get(&name("containers/7")).is_none());
    // The first server continues as before.
    a.write("containers/4");
}

/// Of two servers started at once, one gets the lease.
#[test]
fn of_two_that_start_at_once_one_writes() {
    let (_, bucket) = bucket();
    let folders = [Folder::new("first"), Folder::new("second")];
    let processes: Vec<Process> = folders.iter().map(|folder| folder.start(&bucket)).collect();
    let outcomes: Vec<Result<(), CopyError>> = std::thread::scope(|scope| {
        let all: Vec<_> = processes.iter().map(|process| scope.spawn(|| process.work())).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
}

/// A copied data folder is the same server to the lease: the one started last holds it, the other is refused.
#[test]
fn of_a_server_and_its_clone_the_last_one_started_writes() {
    let (_, bucket) = bucket();
    let first = Folder::new("first");
    let a = first.start(&bucket);
    a.work().unwrap();
    let clone = first.cloned("clone");
    clone.start(&bucket).write("containers/5");
    put(&a.volume, "containers/1", b"a");
    assert_eq!(a.refused(), "clone");
    drop(a);
    assert_eq!(first.start(&bucket).refused(), "clone", "also after a restart");
}

/// After a crash or a lost answer at any point of taking the lease, the same server gets it.
#[test]
fn a_crash_while_taking_it_leaves_it_to_the_same_server() {
    let (_, bucket) = bucket();
    let first = Folder::new("first");
    // Recorded, but never written to the bucket.
    first.start(&bucket).write("containers/1");
    let text = first.record().lease().unwrap().written.unwrap();
    first.record().lease_writing("never got there").unwrap();
    first.start(&bucket).write("containers/2");
    let record = first.record();
    let own = record.lease().unwrap();
    assert_ne!(own.written.as_ref(), Some(&text), "each start writes its own");
    // Written to the bucket, but the answer was lost.
    record.lease_written("an older one").unwrap();
    record.lease_writing(own.written.as_ref().unwrap()).unwrap();
    first.start(&bucket).write("containers/3");
    // The object was deleted by hand: it is written again, with a higher number.
    let number = |record: &Record| Holder::parse(&record.lease().unwrap().written.unwrap()).number;
    let before = number(&first.record());
    bucket.remove(&name(NAME)).unwrap();
    first.start(&bucket).write("containers/4");
    assert!(number(&first.record()) > before);
}

/// (T8) With the lease deleted, a server started from an old copy of the data folder would carry out its last recorded
/// removals. The server that knows the bucket continues.
#[test]
fn a_missing_lease_goes_to_no_server_that_lacks_part_of_the_bucket() {
    let (stored, bucket) = bucket();
    let first = Folder::new("first");
    let a = first.start(&bucket);
    a.write("containers/1");
    a.write("points/n/v/1.1");
    let drill = first.cloned("drill");
    a.write("containers/2");
    bucket.remove(&name(NAME)).unwrap();
    let b = drill.start(&bucket);
    b.volume.remove(&name("containers/1")).unwrap();
    for _ in 0..2 {
        let error = b.work().unwrap_err();
        assert!(matches!(error, CopyError::NoLease { more: 1, fewer: 0 }), "{error}");
    }
    assert_eq!(drill.record().other_writer().unwrap().unwrap().name, NO_HOLDER);
    assert!(stored.get(&name("containers/1")).is_some() && stored.get(&name(NAME)).is_none());
    a.write("containers/3");
    assert!(stored.get(&name("containers/3")).is_some());
    assert_eq!(b.refused(), "first");
}

/// (T8) A server made from the bucket knows all of it, and records removals: a missing lease does not permit it to
/// carry them out.
#[test]
fn a_missing_lease_does_not_let_a_drill_remove_anything() {
    let (stored, bucket) = bucket();
    let (first, drill) = (Folder::new("first"), Folder::new("drill"));
    first.start(&bucket).write("containers/1");
    survey(&*bucket, &drill.record()).unwrap();
    let b = drill.start(&bucket);
    put(&b.volume, "snapshots/9", b"of the drill");
    assert_eq!(b.refused(), "first");
    bucket.remove(&name(NAME)).unwrap();
    let check = || {
        let error = drill.start(&bucket).work().unwrap_err();
        assert!(matches!(error, CopyError::NoLease { more: 1, fewer: 0 }), "{error}");
    };
    // Before it has anything to remove, and after.
    check();
    b.volume.remove(&name("containers/1")).unwrap();
    check();
    assert!(stored.get(&name("containers/1")).is_some());
}

/// (T8) A server that has seen that it lost the bucket is not its last writer, although it wrote there once.
#[test]
fn a_missing_lease_does_not_go_back_to_who_lost_the_bucket() {
    let (stored, bucket) = bucket();
    let first = Folder::new("first");
    let a = first.start(&bucket);
    a.write("containers/1");
    bucket.remove(&name(NAME)).unwrap();
    put(&stored, NAME, b"name another\n");
    a.volume.remove(&name("containers/1")).unwrap();
    assert_eq!(a.refused(), "another");
    bucket.remove(&name(NAME)).unwrap();
    let error = a.work().unwrap_err();
    assert!(matches!(error, CopyError::NoLease { more: 1, fewer: 0 }), "{error}");
    assert!(stored.get(&name("containers/1")).is_some());
}

/// (T8) Objects were deleted with the lease, also for the server that wrote it: an administrator decides, and for this
/// missing lease only.
#[test]
fn a_bucket_without_a_lease_that_changed_is_taken_over_on_request() {
    let (stored, bucket) = bucket();
    let first = Folder::new("first");
    let a = first.start(&bucket);
    a.write("containers/1");
    a.write("containers/2");
    stored.remove(&name("containers/2")).unwrap();
    bucket.remove(&name(NAME)).unwrap();
    put(&a.volume, "containers/3", b"a");
    let error = a.work().unwrap_err();
    assert!(matches!(error, CopyError::NoLease { more: 0, fewer: 1 }), "{error}");
    first.record().take_over().unwrap();
    put(&stored, NAME, b"name another\n");
    assert_eq!(a.refused(), "another", "it was not said of this one");
    bucket.remove(&name(NAME)).unwrap();
    a.work().unwrap_err();
    first.record().take_over().unwrap();
    a.work().unwrap();
    assert!(stored.get(&name("containers/3")).is_some());
    assert_eq!(first.record().other_writer().unwrap(), None);
}

/// (T8) Nothing of the repository is in the bucket yet, so no permission is needed.
#[test]
fn a_crash_before_the_first_lease_is_no_missing_lease() {
    let (stored, bucket) = bucket();
    let first = Folder::new("first");
    first.record().lease_writing("never got there").unwrap();
    let a = first.start(&bucket);
    put(&a.volume, "containers/1", b"a");
    a.volume.remove(&name("containers/1")).unwrap();
    a.write("containers/2");
    assert!(stored.get(&name("containers/2")).is_some());
}

/// An unreachable bucket is not a missing lease.
#[test]
fn a_bucket_that_is_away_takes_nothing() {
    let (_, bucket) = bucket();
    let first = Folder::new("first");
    let a = first.start(&bucket);
    a.work().unwrap();
    put(&a.volume, "containers/1", b"a");
    bucket.fail_next(OpKind::Open, 1, Fault::Unavailable);
    assert!(a.work().unwrap_err().is_passing());
    let tag = bucket.tag(&name(NAME)).unwrap();
    a.work().unwrap();
    assert_eq!(bucket.tag(&name(NAME)).unwrap(), tag);
}
