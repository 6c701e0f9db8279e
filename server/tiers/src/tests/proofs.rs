//! Proofs that an object of the bucket is what was sent: before the first audit, beside what is cold, and once a year.

use holdfast_volume::Ends;
use parking_lot::Mutex;

use super::audit::Watch;
use super::classed::Classed;
use super::*;
use crate::{Audited, Flaw, Outcome};

const ENDS: Ends = Ends { head: 16, tail: 100 };
const DAY_MS: i64 = 24 * 3_600_000;

/// A bucket that keeps checksums, and a process whose container 1 is copied, and lies there alone if it `is_moved`.
fn scene(is_moved: bool) -> (World, Arc<Classed>, Process) {
    let world = World::new();
    let inner = Arc::clone(&world.bucket);
    let bucket = Arc::new(Classed { inner, classes: Mutex::default(), meeting: None });
    let (local, clock) = (Arc::new(world.local.clone()), Arc::<ManualClock>::clone(&world.clock));
    let volume = TieredVolume::new(local, Remote::plain(&bucket), world.record(), NAMES, clock)
        .archiving_to("DEEP_ARCHIVE");
    let copies = volume.copies(NonZeroUsize::MIN, "here").unwrap();
    let process = Process { volume, copies };
    put(&process.volume, &container(1), &[7; 4000]);
    process.finish();
    if is_moved {
        assert!(process.volume.evict(&name(&container(1)), ENDS).unwrap());
    }
    (world, bucket, process)
}

/// (T20) The bucket gives a checksum to whatever was sent with one. Who replaced an object need not have sent one.
#[test]
fn what_was_replaced_before_the_first_look_is_found() {
    for (is_moved, outcome) in [(false, Outcome::CopiedAgain), (true, Outcome::Lost)] {
        let (world, bucket, process) = scene(is_moved);
        world.stored.replace(&name(&container(1)), vec![8; 4000]);
        bucket.classes.lock().without_sum.insert(name(&container(1)));
        let found = process.audit();
        assert_eq!(found.findings(), [(container(1), Flaw::Content, outcome)]);
        assert_eq!(process.audit().findings().len(), usize::from(is_moved), "until it is put right");
    }
    // Sent before the settings said that checksums are kept.
    let (world, bucket, process) = scene(true);
    bucket.classes.lock().without_sum.insert(name(&container(1)));
    world.bucket.fail_next(OpKind::Read, 1, Fault::Torn);
    assert_eq!(process.audit().findings(), [], "(R9) it was read once more");
    let reads = world.bucket.count(OpKind::Read);
    assert_eq!(process.audit().findings(), []);
    assert_eq!(world.bucket.count(OpKind::Read), reads, "once");
}

/// (T6) (T20) What was there already has the checksum of what is here from then on.
#[test]
fn what_counts_as_the_copy_is_known_by_its_checksum() {
    let (world, bucket, process) = scene(false);
    put(&world.stored, &container(2), &[1; 4000]);
    put(&process.volume, &container(2), &[1; 4000]);
    process.finish();
    world.stored.replace(&name(&container(2)), vec![2; 4000]);
    bucket.classes.lock().without_sum.insert(name(&container(2)));
    assert_eq!(process.audit().findings(), [(container(2), Flaw::Content, Outcome::CopiedAgain)]);
}

/// (T20) Without its ends a recovery takes a container of an archive for one that can be read.
#[test]
fn ends_beside_what_is_cold_are_put_there_again() {
    let (world, bucket, process) = scene(true);
    assert!(process.volume.freeze(&name(&container(1))).unwrap());
    let ends = format!("ends/{}", container(1));
    let there = || world.stored.get(&name(&ends));
    let whole = there().unwrap();
    let again = |flaw: Flaw, outcome| [(ends.clone(), flaw, outcome)];

    world.stored.remove(&name(&ends)).unwrap();
    assert_eq!(process.audit().findings(), again(Flaw::Missing, Outcome::CopiedAgain));
    assert_eq!(there().unwrap(), whole);
    world.stored.replace(&name(&ends), vec![0; whole.len()]);
    assert_eq!(process.audit().findings(), again(Flaw::Content, Outcome::CopiedAgain));
    assert_eq!(there().unwrap(), whole);
    assert_eq!(process.audit().findings(), []);

    // A record of an earlier version, or a crash before they were noted: they are taken in.
    let record = rusqlite::Connection::open(world.folder.path().join("tiers.db")).unwrap();
    assert_eq!(record.execute("DELETE FROM copied WHERE name = ?1", [&ends]).unwrap(), 1);
    let found = process.audit();
    assert_eq!((found.findings(), found.audited.strangers), (vec![], 0));
    world.stored.remove(&name(&ends)).unwrap();
    world.local.replace(&name(&ends), vec![0; whole.len()]);
    assert_eq!(process.audit().findings(), again(Flaw::Missing, Outcome::DamagedHere));
    world.local.remove(&name(&ends)).unwrap();
    assert_eq!(process.audit().findings(), again(Flaw::Missing, Outcome::Lost));
    assert_eq!(bucket.classes.lock().of.get(&name(&container(1))).unwrap(), "DEEP_ARCHIVE");

    // They go with their container.
    process.volume.remove(&name(&container(1))).unwrap();
    process.finish();
    assert_eq!((process.audit().findings(), world.record().flaws_count().unwrap()), (vec![], 0));
}

/// (T21) Length, tag and checksum stay what they were when a store cannot read an object any more.
#[test]
fn what_lies_there_alone_is_read_once_a_year() {
    let (world, _bucket, process) = scene(true);
    let audit = |stop_after| {
        let mut watch = Watch { stop_after, ..Watch::default() };
        let _ = process.copies.audit("", Audited::default(), None, &mut watch).unwrap();
        watch
    };
    assert_eq!(audit(None).audited.read, 0, "the year begins");
    let mut reads = 0;
    for _week in 0..53 {
        world.clock.advance_ms(7 * DAY_MS);
        // One that was stopped has read nothing for good.
        audit(Some(0));
        let found = audit(None);
        assert_eq!(found.findings(), []);
        reads += found.audited.read;
        assert_eq!(found.audited.read_bytes, 4000 * found.audited.read);
    }
    assert!((1..=2).contains(&reads), "{reads}: once in 52 weeks");

    world.clock.advance_ms(366 * DAY_MS);
    for nth in [1, 2] {
        world.bucket.fail_next(OpKind::Read, nth, Fault::Torn);
    }
    assert_eq!(audit(None).findings(), [(container(1), Flaw::Content, Outcome::Lost)]);
    // Torn still, though the bucket tells of it what it always told: the first read is that of its checksum.
    for nth in [2, 3] {
        world.bucket.fail_next(OpKind::Read, nth, Fault::Torn);
    }
    let found = audit(None);
    assert_eq!((found.audited.read, found.back.len()), (1, 0), "it is read again");
    assert_eq!(found.findings(), [(container(1), Flaw::Content, Outcome::Lost)]);
    // It cannot be read at all, as from an archive: nothing new is known of it.
    world.bucket.fail_next(OpKind::Read, 2, Fault::NotReadableNow);
    let found = audit(None);
    assert_eq!((found.findings(), found.back), (vec![], vec![]));
    assert_eq!(world.record().flaws_count().unwrap(), 1, "it is lost still");
    // Gone for a while, and there again as it always was.
    world.stored.remove(&name(&container(1))).unwrap();
    assert_eq!(audit(None).findings(), [(container(1), Flaw::Missing, Outcome::Lost)]);
    put(&world.stored, &container(1), &[7; 4000]);
    for nth in [2, 3] {
        world.bucket.fail_next(OpKind::Read, nth, Fault::Torn);
    }
    let found = audit(None);
    assert_eq!((found.findings(), found.back), (vec![(container(1), Flaw::Content, Outcome::Lost)], vec![]));
    // Torn no more.
    let found = audit(None);
    assert_eq!((found.findings(), found.back), (vec![], vec![container(1)]));
    // What is cold is not read.
    assert!(process.volume.freeze(&name(&container(1))).unwrap());
    world.clock.advance_ms(366 * DAY_MS);
    let found = audit(None);
    assert_eq!((found.findings(), found.audited.read), (vec![], 0));
}

/// (T21) The bucket answers, but cannot give this one now.
#[test]
fn an_object_that_cannot_be_read_does_not_end_the_audit() {
    let (world, _bucket, process) = scene(true);
    put(&process.volume, &container(2), &[8; 4000]);
    process.finish();
    assert!(process.volume.evict(&name(&container(2)), ENDS).unwrap());
    process.audit();
    world.clock.advance_ms(366 * DAY_MS);
    world.bucket.fail_next(OpKind::Read, 1, Fault::Io);
    let found = process.audit();
    assert_eq!((found.findings(), found.audited.read), (vec![], 1), "the other one was read");
}
