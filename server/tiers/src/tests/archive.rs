//! Storage classes: the state after an interrupted round of freezing, and how often a thaw is requested.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_types::clock::Clock as _;
use holdfast_volume::{Ends, Thawed};
use parking_lot::Mutex;

use super::classed::{Classed, Fate};
use super::*;
use crate::prices::Thaw;
use crate::{Archive, Flaw, Outcome, Thawing, enter_moved, is_archive};

const CLASS: &str = "DEEP_ARCHIVE";
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

struct Site {
    world: World,
    bucket: Arc<Classed>,
}

impl Site {
    fn new() -> Self {
        Self::meeting(None)
    }

    fn meeting(meeting: Option<(Barrier, AtomicBool)>) -> Self {
        let world = World::new();
        let inner = Arc::clone(&world.bucket);
        Self { bucket: Arc::new(Classed { inner, classes: Mutex::default(), meeting }), world }
    }

    fn start(&self) -> Process {
        let clock = Arc::<ManualClock>::clone(&self.world.clock);
        let local = Arc::new(self.world.local.clone());
        let volume = TieredVolume::new(local, Remote::plain(&self.bucket), self.world.record(), NAMES, clock)
            .archiving_to(CLASS);
        let copies = volume.copies(NonZeroUsize::MIN, "here").unwrap();
        Process { volume, copies }
    }

    /// Starts a process that has moved container 1 to the bucket.
    fn moved(&self) -> Process {
        let process = self.start();
        put(&process.volume, &container(1), &[7; 4000]);
        process.finish();
        assert!(process.volume.evict(&one(), Ends { head: 16, tail: 100 }).unwrap());
        process
    }

    /// Same, with the container archived.
    fn frozen(&self) -> (Process, Archive) {
        let process = self.moved();
        assert!(process.volume.freeze(&one()).unwrap());
        let archive = process.volume.archive();
        (process, archive)
    }

    fn is_cold_there(&self) -> bool {
        self.bucket.classes.lock().of.get(&one()).is_some_and(|class| is_archive(class))
    }

    fn asked(&self) -> usize {
        self.bucket.classes.lock().asked.len()
    }

    fn shows(&self, thawed: Thawed) {
        self.bucket.classes.lock().thawed.insert(one(), thawed);
    }
}

fn one() -> BlobName {
    name(&container(1))
}

/// As seen by a start, or a backup.
fn counts_as_cold(process: &Process) -> bool {
    let named = process.volume.archive().names().unwrap().contains(&one());
    let told = process.volume.open(&one()).unwrap().cold();
    assert_eq!(named, told.is_some());
    named
}

/// (T10) Wherever it is interrupted, a container that may be cold counts as cold, and the next attempt finishes.
#[test]
fn a_round_that_is_cut_off_leaves_nothing_cold_unknown() {
    for fate in [Fate::Refused, Fate::AnswerLost, Fate::RequestLost] {
        let site = Site::new();
        let process = site.moved();
        site.bucket.classes.lock().fate = Some(fate);
        assert!(process.volume.freeze(&one()).is_err(), "{fate:?}");
        // (T10) A refusal is an answer: it is as warm as before.
        assert_eq!(counts_as_cold(&process), fate != Fate::Refused, "{fate:?}");
        assert_eq!(site.is_cold_there(), fate == Fate::AnswerLost);
        let told = process.volume.open(&one()).unwrap().cold();
        assert!(told.is_none_or(|place| !place.is_certain), "{fate:?}");
        if fate == Fate::RequestLost {
            // A check alone does not decide the outcome of a request that may be on its way.
            process.volume.archive().look(&one()).unwrap();
            assert!(counts_as_cold(&process));
        }
        drop(process);
        let process = site.start();
        process.finish();
        assert!(process.volume.freeze(&one()).unwrap(), "{fate:?}");
        assert!(site.is_cold_there() && counts_as_cold(&process), "{fate:?}");
        assert!(process.volume.open(&one()).unwrap().cold().unwrap().is_certain);
        assert!(!process.volume.freeze(&one()).unwrap(), "once");
    }
    // Nor does one whose last check fails.
    let site = Site::new();
    let process = site.moved();
    site.bucket.classes.lock().looks_fail_after = Some(1);
    assert!(process.volume.freeze(&one()).is_err());
    assert!(counts_as_cold(&process) && site.is_cold_there());
    site.bucket.classes.lock().looks_fail_after = None;
    assert!(process.volume.freeze(&one()).unwrap());
}

/// (T9) A container archived by a foreign rule cannot be read there, so it stays here, whatever this server's own class
/// is.
#[test]
fn what_others_archived_does_not_cost_the_local_copy() {
    let site = Site::new();
    let process = site.start();
    put(&process.volume, &container(1), &[7; 4000]);
    process.finish();
    let moves = |class: &str| {
        site.bucket.classes.lock().of.insert(one(), class.to_owned());
        process.volume.evict(&one(), Ends { head: 16, tail: 100 }).unwrap()
    };
    for class in ["GLACIER", CLASS] {
        assert!(!moves(class), "{class}");
        assert!(site.world.local.get(&one()).is_some());
        let flaw = Flaw::Cold { class: class.to_owned() };
        assert_eq!(site.world.record().flaw(&one()).unwrap(), Some(flaw.clone()));
        // The local copy can be read, and counts.
        assert!(process.volume.open(&one()).unwrap().is_at_hand() && !counts_as_cold(&process));
        assert_eq!(process.audit().findings(), [(container(1), flaw, Outcome::AlsoHere)]);
        assert!(!moves("STANDARD_IA"), "not before an audit found that it was brought back");
        assert_eq!(process.audit().back, [container(1)]);
    }
    assert!(moves("GLACIER_IR"), "which is read at once");
}

/// (T10) A container taken into the record is known to be archived before anyone counts on it.
#[test]
fn what_is_taken_in_from_an_archive_counts_as_cold() {
    let site = Site::new();
    let process = site.moved();
    site.bucket.classes.lock().of.insert(one(), "GLACIER".to_owned());
    let record = site.world.record();
    let is_cold = || {
        let place = process.volume.open(&one()).unwrap().cold();
        counts_as_cold(&process) && place.is_some_and(|place| place.is_certain && !place.is_readable)
    };
    record.forget(&one()).unwrap();
    assert_eq!(process.audit().audited.taken_in, 1);
    assert!(is_cold());
    record.forget(&one()).unwrap();
    assert_eq!(enter_moved(&site.world.local, &*site.bucket, &record).unwrap(), 1);
    assert!(is_cold());
}

/// (T10) Its ends cannot be put beside it: nothing was requested, so nothing counts as cold.
#[test]
fn a_container_without_ends_there_stays_warm() {
    let site = Site::new();
    let process = site.moved();
    site.world.bucket.fail_next(OpKind::Create, 1, Fault::Unavailable);
    assert!(process.volume.freeze(&one()).is_err());
    assert!(!counts_as_cold(&process) && !site.is_cold_there());
    site.world.bucket.heal();
    assert!(process.volume.freeze(&one()).unwrap());
}

/// (T10) An object that is not what was sent is not archived.
#[test]
fn another_content_does_not_go_to_the_archive() {
    let site = Site::new();
    let process = site.moved();
    site.world.stored.remove(&one()).unwrap();
    put(&site.world.stored, &container(1), &[8; 4000]);
    let error = process.volume.freeze(&one()).unwrap_err();
    assert!(matches!(error, VolumeError::BadAnswer { .. }), "{error}");
    assert!(!counts_as_cold(&process) && !site.is_cold_there());
}

/// A lost answer does not cause a second, billed request.
#[test]
fn a_thaw_is_asked_for_once() {
    let site = Site::new();
    let (process, archive) = site.frozen();
    site.bucket.classes.lock().fate = Some(Fate::AnswerLost);
    assert!(archive.ask(&one(), 7, Thaw::Bulk).is_err());
    assert_eq!(archive.known(&one()).unwrap().unwrap().1, Thawing::UnderWay, "it may be paid for");
    // A store that takes a moment to show it.
    site.shows(Thawed::No);
    assert_eq!(archive.ask(&one(), 7, Thaw::Bulk).unwrap(), Thawing::UnderWay);
    site.shows(Thawed::UnderWay);
    site.world.clock.advance_ms(HOUR_MS);
    assert_eq!(archive.ask(&one(), 7, Thaw::Bulk).unwrap(), Thawing::UnderWay);
    // Since the request, and not since the check.
    let hour = u64::try_from(HOUR_MS).ok();
    assert_eq!((site.asked(), archive.under_way_ms(&one()).unwrap()), (1, hour));
    drop((process, archive));
    let archive = site.start().volume.archive();
    assert_eq!(archive.ask(&one(), 7, Thaw::Bulk).unwrap(), Thawing::UnderWay);
    assert_eq!((site.asked(), archive.under_way_ms(&one()).unwrap()), (1, hour));
}

/// A lost request is repeated, a minute later.
#[test]
fn what_was_not_asked_for_after_all_is_asked_for_again() {
    for fate in [Fate::RequestLost, Fate::Refused] {
        let site = Site::new();
        let (_process, archive) = site.frozen();
        site.bucket.classes.lock().fate = Some(fate);
        assert!(archive.ask(&one(), 7, Thaw::Bulk).is_err());
        if fate == Fate::RequestLost {
            assert_eq!(archive.ask(&one(), 7, Thaw::Bulk).unwrap(), Thawing::UnderWay);
            site.world.clock.advance_ms(60_000);
        }
        assert_eq!(archive.ask(&one(), 7, Thaw::Bulk).unwrap(), Thawing::Cold);
        assert_eq!(site.asked(), 1);
    }
}

/// Two restores that need the same object at the same moment.
#[test]
fn two_that_ask_at_once_ask_once() {
    let site = Site::meeting(Some((Barrier::new(2), AtomicBool::new(true))));
    let (_process, archive) = site.frozen();
    let (barrier, is_over) = site.bucket.meeting.as_ref().unwrap();
    is_over.store(false, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| archive.ask(&one(), 7, Thaw::Bulk).unwrap());
        // The first one has checked and found it cold; the second one begins.
        let second = scope.spawn(|| {
            barrier.wait();
            archive.ask(&one(), 7, Thaw::Bulk).unwrap()
        });
        assert_eq!(first.join().unwrap(), Thawing::Cold);
        assert_eq!(second.join().unwrap(), Thawing::UnderWay);
    });
    assert_eq!(site.asked(), 1);
}

#[test]
fn what_was_thawed_counts_until_shortly_before_its_end() {
    let site = Site::new();
    let (process, archive) = site.frozen();
    archive.ask(&one(), 7, Thaw::Bulk).unwrap();
    let now_ms = site.world.clock.now_ms();
    site.shows(Thawed::Until(now_ms + HOUR_MS));
    assert_eq!(archive.look(&one()).unwrap(), Thawing::Readable);
    let known = || archive.known(&one()).unwrap().unwrap().1;
    let is_readable = || process.volume.open(&one()).unwrap().cold().unwrap().is_readable;
    assert!(known() == Thawing::Readable && is_readable());
    site.world.clock.advance_ms(HOUR_MS - 60_000);
    // A quote shows what a restore would find.
    assert!(known() == Thawing::Cold && !is_readable());
    assert_eq!(archive.look(&one()).unwrap(), Thawing::Cold);
    assert_eq!(archive.ask(&one(), 7, Thaw::Bulk).unwrap(), Thawing::Cold, "its days are prolonged");
    // Requested, and never checked again: the copy came and expired.
    site.world.clock.advance_ms(8 * 24 * HOUR_MS);
    assert_eq!(known(), Thawing::Cold);
}

/// (T10) A check that began before a container got its class does not clear it afterwards.
#[test]
fn what_was_noted_since_a_look_stays() {
    let site = Site::new();
    let (process, _) = site.frozen();
    let record = site.world.record();
    let seen = record.cold(&one()).unwrap();
    record.note_seen(&one(), seen.as_ref(), "STANDARD").unwrap();
    assert!(!counts_as_cold(&process));
    record.note_freezing(&one(), CLASS).unwrap();
    record.note_seen(&one(), seen.as_ref(), "STANDARD").unwrap();
    record.note_seen(&one(), None, "STANDARD").unwrap();
    assert!(counts_as_cold(&process));
}

/// (T18) A change of class creates another object, which is not retained even if the one before was put under
/// retention at that moment.
#[test]
fn what_was_made_to_stay_while_it_was_moved_is_looked_at_again() {
    for fate in [None, Some(Fate::AnswerLost), Some(Fate::RequestLost)] {
        let site = Site::new();
        let process = site.moved();
        let (now_ms, record) = (site.world.clock.now_ms(), site.world.record());
        let until_ms = now_ms + DAY_MS;
        let mut classes = site.bucket.classes.lock();
        (classes.fate, classes.retained_by) = (fate, Some((site.world.record(), until_ms)));
        drop(classes);
        assert_eq!(process.volume.freeze(&one()).is_ok(), fate.is_none(), "{fate:?}");
        assert!(record.is_to_stay(&one(), now_ms).unwrap());
        assert_eq!(record.retained_until(&one(), now_ms).unwrap(), None, "{fate:?}");
        assert_eq!(record.behind("", now_ms, 9).unwrap().len(), 1, "{fate:?}");
    }
}
