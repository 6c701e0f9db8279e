//! Verification of objects: before the first audit, beside cold containers, and once a year.

use holdfast_volume::Ends;
use parking_lot::Mutex;

use super::audit::Watch;
use super::classed::Classed;
use super::*;
use crate::{Audited, Flaw, Outcome};

const ENDS: Ends = Ends { head: 16, tail: 100 };
const DAY_MS: i64 = 24 * 3_600_000;

/// A bucket that keeps checksums, and a process that has copied container 1, and moved it if `is_moved`.
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

/// (T20) The bucket gives a checksum to whatever was sent with one. An attacker who replaces an object need not send
/// one.
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
    // Sent before checksums were enabled in the settings.
    let (world, bucket, process) = scene(true);
    bucket.classes.lock().without_sum.insert(name(&container(1)));
    world.bucket.fail_next(OpKind::Read, 1, Fault::Torn);
    assert_eq!(process.audit().findings(), [], "(R9) it was read once more");
    let reads = world.bucket.count(OpKind::Read);
    assert_eq!(process.audit().findings(), []);
    assert_eq!(world.bucket.count(OpKind::Read), reads, "once");
}

/// (T6) (T20) An existing object accepted as the copy is known by the local blob's checksum from then on.
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

/// (T20) Without its ends a recovery takes an archived container for one that can be read.
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

    // A record of an earlier version, or a crash before they were recorded: they are taken in.
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

    // They are removed with their container.
    process.volume.remove(&name(&container(1))).unwrap();
    process.finish();
    assert_eq!((process.audit().findings(), world.record().flaws_count().unwrap()), (vec![], 0));
}

/// (T21) Length, tag and checksum are unchanged when a store cannot read an object any more.
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
        // A stopped audit does not count as having read anything.
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
    // Still torn, though the bucket reports the same properties: the first read verifies its checksum.
    for nth in [2, 3] {
        world.bucket.fail_next(OpKind::Read, nth, Fault::Torn);
    }
    let found = audit(None);
    assert_eq!((found.audited.read, found.back.len()), (1, 0), "it is read again");
    assert_eq!(found.findings(), [(container(1), Flaw::Content, Outcome::Lost)]);
    // It cannot be read at all, as from an archive: its state is unchanged.
    world.bucket.fail_next(OpKind::Read, 2, Fault::NotReadableNow);
    let found = audit(None);
    assert_eq!((found.findings(), found.back), (vec![], vec![]));
    assert_eq!(world.record().flaws_count().unwrap(), 1, "it is lost still");
    // Gone for a while, and back unchanged.
    world.stored.remove(&name(&container(1))).unwrap();
    assert_eq!(audit(None).findings(), [(container(1), Flaw::Missing, Outcome::Lost)]);
    put(&world.stored, &container(1), &[7; 4000]);
    for nth in [2, 3] {
        world.bucket.fail_next(OpKind::Read, nth, Fault::Torn);
    }
    let found = audit(None);
    assert_eq!((found.findings(), found.back), (vec![(container(1), Flaw::Content, Outcome::Lost)], vec![]));
    // No longer torn.
    let found = audit(None);
    assert_eq!((found.findings(), found.back), (vec![], vec![container(1)]));
    // Cold objects are not read.
    assert!(process.volume.freeze(&name(&container(1))).unwrap());
    world.clock.advance_ms(366 * DAY_MS);
    let found = audit(None);
    assert_eq!((found.findings(), found.audited.read), (vec![], 0));
}

/// (T21) The bucket answers, but cannot give this object now.
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
