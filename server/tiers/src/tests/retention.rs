//! Objects that locked restore points need stay in the bucket.

use holdfast_types::clock::Clock as _;
use holdfast_volume::testing::LockingVolume;
use holdfast_volume::{LockMode, RemoteVolume as _, Retained};

use super::*;
use crate::record::PromisedPoint;
use crate::{AuditEnd, Audited, Extending, Flaw, Keep, Outcome, RetentionTotals};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// A data folder, and its bucket with Object Lock.
struct Locking {
    world: World,
    bucket: Arc<LockingVolume>,
}

impl Locking {
    fn new() -> Self {
        let world = World::new();
        let bucket = Arc::new(LockingVolume::new(world.stored.clone()));
        let locking = Self { world, bucket };
        locking.later(0);
        locking
    }

    fn start(&self) -> Process {
        let remote = Remote::plain(&self.bucket);
        let clock = Arc::<ManualClock>::clone(&self.world.clock);
        let local = Arc::new(self.world.local.clone());
        let volume = TieredVolume::new(local, remote, self.world.record(), NAMES, clock)
            .retaining(LockMode::Compliance);
        let copies = volume.copies(NonZeroUsize::new(2).unwrap(), "here").unwrap();
        Process { volume, copies }
    }

    fn later(&self, ms: i64) {
        self.world.clock.advance_ms(ms);
        self.bucket.set_now_ms(self.world.clock.now_ms());
    }

    fn now_ms(&self) -> i64 {
        self.world.clock.now_ms()
    }

    /// End of an object's retention, in days from the beginning of the first one.
    fn days(&self, blob: &str) -> Option<i64> {
        let retained = self.bucket.retained(&name(blob))?;
        assert_eq!((retained.mode, retained.until_ms % DAY_MS), (LockMode::Compliance, 0));
        Some(retained.until_ms / DAY_MS)
    }
}

fn point(number: u32) -> String {
    format!("points/n/v/{number}.1")
}

impl Process {
    /// Creates a restore point of these containers, copied.
    fn back_up(&self, number: u32, containers: &[u32]) -> Vec<Vec<BlobName>> {
        for number in containers {
            if self.volume.open(&name(&container(*number))).is_err() {
                put(&self.volume, &container(*number), &[7; 100]);
            }
        }
        put(&self.volume, &point(number), b"a point");
        self.finish();
        needed(number, containers)
    }

    /// Checks these restore points: number, lock, and needed blobs.
    fn look_at(&self, now_ms: i64, points: &[(u32, i64, Vec<Vec<BlobName>>)]) -> usize {
        self.copies.begin_locked_points().unwrap();
        let mut looked = 0;
        for (number, until_ms, needed) in points {
            let Some(keep) = Keep::of(Some(*until_ms), false, now_ms) else { continue };
            if self.copies.is_point_due(&number.to_string(), keep, false).unwrap() {
                self.copies.promise(&number.to_string(), keep, needed).unwrap();
                looked += 1;
            }
        }
        looked
    }

    /// Extends until nothing is behind; returns the number of objects.
    fn extend(&self) -> Result<u64, CopyError> {
        let (mut extending, mut objects) = (Extending::default(), 0);
        loop {
            let extended = self.copies.extend_some(&mut extending, &|| false)?;
            objects += extended.objects;
            if !extended.more {
                return Ok(objects);
            }
        }
    }

    fn totals(&self, now_ms: i64) -> RetentionTotals {
        self.copies.record().retention_totals(now_ms).unwrap()
    }
}

fn needed(number: u32, containers: &[u32]) -> Vec<Vec<BlobName>> {
    let all = containers.iter().map(|number| container(*number)).chain([point(number)]);
    // Also by a name that it does not have.
    all.map(|one| vec![name(&one), name(&format!("{one}-"))]).collect()
}

/// (T17) (T18)
#[test]
fn what_a_locked_point_needs_stays_and_a_newer_one_extends_what_they_share() {
    let locking = Locking::new();
    let process = locking.start();
    put(&process.volume, "keys/1", b"old keys");
    put(&process.volume, "keys/2", b"keys");
    let (first, second) = (process.back_up(1, &[1, 2]), process.back_up(2, &[2, 3]));
    let now_ms = locking.now_ms();
    let one = (1, now_ms + 4 * DAY_MS + 1, first);
    assert_eq!(process.look_at(now_ms, std::slice::from_ref(&one)), 1);
    assert_eq!(process.totals(now_ms).kept_points, 0, "nothing was asked for yet");
    // Two containers, the point, the mark, the newest keys.
    assert_eq!(process.extend().unwrap(), 5);
    for (blob, days) in [
        (container(1), Some(5)),
        (container(2), Some(5)),
        (container(3), None),
        (point(1), Some(5)),
        (point(2), None),
        ("repository".to_owned(), Some(5)),
        ("keys/1".to_owned(), None),
        ("keys/2".to_owned(), Some(5)),
    ] {
        assert_eq!(locking.days(&blob), days, "{blob}");
    }
    let totals = process.totals(now_ms);
    assert_eq!((totals.objects, totals.behind, totals.points, totals.kept_points), (5, 0, 1, 1));
    assert_eq!((totals.first_ms, totals.last_ms), (Some(5 * DAY_MS), Some(5 * DAY_MS)));

    let two = (2, now_ms + 9 * DAY_MS, second);
    assert_eq!(process.look_at(now_ms, &[one.clone(), two.clone()]), 1, "the first one is known");
    assert_eq!(process.totals(now_ms).kept_points, 1);
    assert_eq!(process.extend().unwrap(), 5);
    assert_eq!((locking.days(&container(1)), locking.days(&container(2))), (Some(5), Some(10)));
    assert_eq!(process.totals(now_ms).kept_points, 2);
    // Nothing is requested twice, nor after a start.
    let asked = locking.bucket.asked();
    drop(process);
    let process = locking.start();
    assert_eq!(process.look_at(now_ms, &[one, two]), 0);
    assert_eq!((process.extend().unwrap(), locking.bucket.asked()), (0, asked));
    assert_eq!(process.totals(now_ms).kept_points, 2);
}

/// (T17) Longer retention is unchanged, and not requested again after a record was lost.
#[test]
fn nothing_is_shortened() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    let needed = process.back_up(1, &[1]);
    let long = Retained { mode: LockMode::Compliance, until_ms: 90 * DAY_MS };
    locking.bucket.set_retained(&name(&container(1)), Some(long));
    // Of another mode, which is kept when it is extended.
    let short = Retained { mode: LockMode::Governance, until_ms: DAY_MS };
    locking.bucket.set_retained(&name(&point(1)), Some(short));
    process.look_at(now_ms, &[(1, now_ms + 3 * DAY_MS, needed.clone())]);
    assert_eq!(process.extend().unwrap(), 3);
    assert_eq!(locking.days(&container(1)), Some(90));
    let kept = Retained { mode: LockMode::Governance, until_ms: 4 * DAY_MS };
    assert_eq!(locking.bucket.retained(&name(&point(1))), Some(kept));
    // A shorter lock changes nothing.
    let asked = locking.bucket.asked();
    process.look_at(now_ms, &[(1, now_ms + DAY_MS, needed)]);
    assert_eq!((process.extend().unwrap(), locking.bucket.asked()), (0, asked));
}

/// (T18) Between the check of a restore point and its record, a blob that it needs was removed.
#[test]
fn what_is_to_go_when_it_is_noted_is_missing() {
    for goes in [false, true] {
        let locking = Locking::new();
        let process = locking.start();
        let names: Vec<BlobName> =
            [container(1), container(2), point(1)].iter().map(|one| name(one)).collect();
        let _ = process.back_up(1, &[1, 2]);
        let (record, now_ms, blob) = (process.copies.record(), locking.now_ms(), point(1));
        if goes {
            process.volume.remove(&names[0]).unwrap();
        }
        let until_ms = now_ms + DAY_MS;
        let point = PromisedPoint { backup: "1", blob: &blob, until_ms, missing: 0 };
        record.promise(&point, &names, now_ms).unwrap();
        process.extend().unwrap();
        let totals = process.totals(now_ms);
        assert_eq!((totals.points, totals.kept_points), (1, u64::from(!goes)), "{goes}");
    }
}

/// (T18) A restore point does not count as kept while anything it needs is missing there, or not retained.
#[test]
fn a_point_is_kept_when_all_it_needs_is() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    let mut all = process.back_up(1, &[1]);
    all.insert(0, vec![name(&container(2))]);
    let one = (1, now_ms + 3 * DAY_MS, all);
    assert_eq!(process.look_at(now_ms, std::slice::from_ref(&one)), 1);
    assert_eq!(process.extend().unwrap(), 3);
    assert_eq!(process.totals(now_ms).kept_points, 0, "a container is missing");
    put(&process.volume, &container(2), &[7; 100]);
    process.finish();
    assert_eq!(process.look_at(now_ms, std::slice::from_ref(&one)), 0, "not again at once");
    locking.later(10_000);
    assert_eq!(process.look_at(now_ms, std::slice::from_ref(&one)), 1);
    assert_eq!(process.totals(now_ms).kept_points, 0);
    assert_eq!(process.extend().unwrap(), 1);
    assert_eq!(process.totals(now_ms).kept_points, 1);

    // Its chunks were copied forward: their new containers are unknown before the next check.
    process.volume.remove(&name(&container(1))).unwrap();
    put(&process.volume, &container(3), &[7; 100]);
    process.finish();
    assert_eq!(process.totals(now_ms).kept_points, 0);
    let moved = (1, one.1, needed(1, &[2, 3]));
    assert_eq!(process.look_at(now_ms, std::slice::from_ref(&moved)), 0, "it may go on moving");
    locking.later(3_600_000);
    assert_eq!(process.look_at(now_ms, std::slice::from_ref(&moved)), 1);
    assert_eq!(process.totals(now_ms).kept_points, 0);
    assert_eq!(process.extend().unwrap(), 1);
    assert_eq!(process.totals(now_ms).kept_points, 1);

    // Its point is sealed anew.
    process.volume.remove(&name(&point(1))).unwrap();
    put(&process.volume, "points/n/v/1.2", b"a point");
    process.finish();
    assert_eq!(process.totals(now_ms).kept_points, 0);
    let mut all = needed(1, &[2, 3]);
    all.pop();
    all.push(vec![name("points/n/v/1.2")]);
    let resealed = (1, one.1, all);
    assert_eq!(process.look_at(now_ms, std::slice::from_ref(&resealed)), 1);
    assert_eq!(process.extend().unwrap(), 1);
    assert_eq!(process.totals(now_ms).kept_points, 1);
    // And its lock ends.
    locking.later(4 * DAY_MS);
    process.look_at(locking.now_ms(), &[]);
    assert_eq!(process.totals(now_ms).points, 0);
    // The blobs it needed are forgotten by the next full pass.
    locking.later(7 * DAY_MS);
    process.look_at(locking.now_ms(), &[]);
    assert!(!process.copies.record().has_retained().unwrap());
}

/// Removals of retained objects wait; nothing else does, and nothing is retried without end.
#[test]
fn a_removal_of_what_must_stay_waits_alone() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    let needed = process.back_up(1, &[1]);
    process.back_up(2, &[2]);
    process.look_at(now_ms, &[(1, now_ms + 3 * DAY_MS, needed)]);
    assert_eq!(process.extend().unwrap(), 3);
    for gone in [point(1), container(1), point(2), container(2)] {
        process.volume.remove(&name(&gone)).unwrap();
    }
    process.finish();
    assert_eq!(locking.world.there(), [container(1), point(1)]);
    assert!(process.copies.status().failure.is_none());
    assert_eq!((process.copies.status().removals, process.totals(now_ms).held), (2, 2));
    // Nothing is done, and no request is made, until it may be removed.
    let worked = process.copies.work(&|| false).unwrap();
    assert!(!worked.more);
    drop(process);
    let process = locking.start();
    process.finish();
    assert_eq!(process.totals(now_ms).held, 2);
    locking.later(4 * DAY_MS);
    process.finish();
    assert_eq!(locking.world.there(), Vec::<String>::new());
    assert_eq!((process.copies.status().removals, process.totals(locking.now_ms()).held), (0, 0));
    for gone in [container(1), container(2)] {
        assert!(!locking.bucket.uncover(&name(&gone), 100, None, None).unwrap(), "it is gone for good");
    }
}

/// A blob sealed anew may reuse the name of a retained object: it covers the old version.
#[test]
fn a_name_of_what_must_stay_can_be_used_again() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    let needed = process.back_up(1, &[1]);
    process.look_at(now_ms, &[(1, now_ms + 3 * DAY_MS, needed)]);
    assert_eq!(process.extend().unwrap(), 3);
    process.volume.remove(&name(&container(1))).unwrap();
    process.finish();
    assert_eq!(process.totals(now_ms).held, 1);
    put(&process.volume, &container(1), b"sealed anew");
    process.finish();
    process.finish();
    assert_eq!(locking.world.stored.get(&name(&container(1))).unwrap(), "sealed anew");
    assert_eq!((process.copies.status().removals, process.totals(now_ms).held), (0, 0));
    assert_eq!(process.totals(now_ms).kept_points, 0, "and that does not stay yet");
}

/// An object that cannot be extended is reported, and does not keep others from being extended.
#[test]
fn what_cannot_be_extended_is_told_after_the_others() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    let needed = process.back_up(1, &[1, 2]);
    locking.world.stored.replace(&name(&container(1)), "others");
    process.look_at(now_ms, &[(1, now_ms + 3 * DAY_MS, needed)]);
    let error = process.extend().unwrap_err();
    assert!(error.to_string().contains(&container(1)), "{error}");
    assert_eq!((locking.days(&container(1)), locking.days(&container(2))), (None, Some(4)));
    let totals = process.totals(now_ms);
    assert_eq!((totals.objects, totals.behind, totals.kept_points), (3, 1, 0));
}

/// (T8) Another server's objects are not extended from here; and for a bucket without Object Lock the error
/// says what to do.
#[test]
fn only_the_writer_extends_and_only_where_it_can() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    let needed = process.back_up(1, &[1]);
    process.look_at(now_ms, &[(1, now_ms + 3 * DAY_MS, needed)]);
    let mark = locking.world.stored.get(&name("lease")).unwrap();
    locking.world.stored.replace(&name("lease"), "holdfast-lease 1\nnumber 9\nname other\n");
    assert!(matches!(process.extend().unwrap_err(), CopyError::Leased(_)));
    assert_eq!(locking.days(&container(1)), None);
    locking.world.stored.replace(&name("lease"), mark);
    process.copies.check_retention().unwrap();
    locking.bucket.have_none();
    let error = process.copies.check_retention().unwrap_err();
    assert!(error.to_string().contains("put-object-lock-configuration"), "{error}");
}

/// A record of an earlier version gets its missing tables when it is opened.
#[test]
fn an_earlier_record_is_taken_over() {
    let locking = Locking::new();
    let process = locking.start();
    let needed = process.back_up(1, &[1]);
    drop(process);
    let path = locking.world.folder.path().join("tiers.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "DROP TRIGGER retained_leaves; DROP TRIGGER keys_come; DROP TRIGGER retained_anew;
             DROP TRIGGER retained_lost; DROP TABLE retained; DROP TABLE locked_points; DROP TABLE held;",
        )
        .unwrap();
    drop(connection);
    let process = locking.start();
    process.look_at(locking.now_ms(), &[(1, locking.now_ms() + DAY_MS, needed)]);
    assert_eq!(process.extend().unwrap(), 3);
}

/// (T18) With a newer table of keys no restore point counts as kept before that is retained as well.
#[test]
fn the_newest_table_of_keys_stays() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    put(&process.volume, "keys/1", b"keys");
    let needed = process.back_up(1, &[1]);
    let one = (1, now_ms + 6 * DAY_MS, needed);
    process.look_at(now_ms, std::slice::from_ref(&one));
    assert_eq!((process.extend().unwrap(), process.totals(now_ms).kept_points), (4, 1));
    put(&process.volume, "keys/2", b"newer keys");
    process.finish();
    assert_eq!(process.totals(now_ms).kept_points, 0, "a newer table came");
    locking.later(3_600_000);
    assert_eq!(process.look_at(now_ms, std::slice::from_ref(&one)), 1);
    assert_eq!((process.extend().unwrap(), process.totals(now_ms).kept_points), (1, 1));
    assert_eq!(locking.days("keys/2"), Some(7));
    // And the newest one is removed: then it is another.
    process.volume.remove(&name("keys/2")).unwrap();
    assert_eq!(process.totals(now_ms).kept_points, 0);
    locking.later(3_600_000);
    assert_eq!(process.look_at(now_ms, &[one]), 1);
    assert_eq!((process.extend().unwrap(), process.totals(now_ms).kept_points), (0, 1));
}

/// (T18) A record of an earlier version, which did not check tables of keys, starts to; and everything is
/// checked once more.
#[test]
fn an_earlier_record_learns_to_look_at_tables_of_keys() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    put(&process.volume, "keys/1", b"keys");
    let needed = process.back_up(1, &[1]);
    let one = (1, now_ms + 6 * DAY_MS, needed);
    process.look_at(now_ms, std::slice::from_ref(&one));
    assert_eq!(process.extend().unwrap(), 4);
    drop(process);
    let connection = rusqlite::Connection::open(locking.world.folder.path().join("tiers.db")).unwrap();
    connection
        .execute_batch(
            "DROP TRIGGER retained_leaves; DROP TRIGGER keys_come;
             CREATE TRIGGER retained_goes AFTER INSERT ON removals
                 WHEN EXISTS (SELECT 1 FROM retained WHERE name = new.name) BEGIN
                 INSERT OR REPLACE INTO said (key, value)
                     SELECT 'retention_moved', '1' WHERE new.name GLOB 'containers/*';
                 UPDATE locked_points SET is_kept = 0, again_ms = 0 WHERE blob = new.name;
             END;",
        )
        .unwrap();
    drop(connection);
    let process = locking.start();
    let look_again = || {
        assert_eq!(process.totals(now_ms).kept_points, 0);
        locking.later(3_600_000);
        assert_eq!(process.look_at(now_ms, std::slice::from_ref(&one)), 1);
        let _ = process.extend().unwrap();
        assert_eq!(process.totals(now_ms).kept_points, 1);
    };
    look_again();
    put(&process.volume, "keys/2", b"newer keys");
    process.finish();
    look_again();
    process.volume.remove(&name("keys/2")).unwrap();
    look_again();
    drop(process);
    assert_eq!(locking.start().totals(now_ms).kept_points, 1, "and not with every start");
}

impl Process {
    fn audit_retention(&self) -> (Vec<(String, Flaw, Outcome)>, Audited) {
        let mut watch = super::audit::Watch::default();
        let ended = self.copies.audit("", Audited::default(), None, &mut watch).unwrap();
        assert_eq!(ended, AuditEnd::Done);
        (watch.findings(), watch.audited)
    }
}

/// (T17) Shortened retention is found, extended again, and named; if that fails, no restore point that needs the
/// object counts as kept.
#[test]
fn the_audit_finds_what_does_not_stay() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    let needed = process.back_up(1, &[1, 2]);
    process.back_up(2, &[3]);
    process.look_at(now_ms, &[(1, now_ms + 6 * DAY_MS, needed)]);
    assert_eq!(process.extend().unwrap(), 4);
    let (found, first) = process.audit_retention();
    assert_eq!((found, first.short_retention), (vec![], 0));
    let (_, second) = process.audit_retention();
    assert_eq!(second.asked, 4, "a look at each object that is to stay, and at no other");

    let short = Retained { mode: LockMode::Compliance, until_ms: 2 * DAY_MS };
    locking.bucket.set_retained(&name(&container(1)), Some(short));
    locking.bucket.set_retained(&name(&point(1)), None);
    let (found, audited) = process.audit_retention();
    assert_eq!(
        found,
        [
            (container(1), Flaw::Retention { until_ms: 2 * DAY_MS }, Outcome::Extended),
            (point(1), Flaw::Retention { until_ms: 0 }, Outcome::Extended),
        ]
    );
    assert_eq!((audited.short_retention, process.totals(now_ms).kept_points), (2, 1));
    assert_eq!((locking.days(&container(1)), locking.days(&point(1))), (Some(7), Some(7)));

    // Started without the setting, it cannot.
    locking.bucket.set_retained(&name(&container(1)), None);
    let plain = TieredVolume::new(
        Arc::new(locking.world.local.clone()),
        Remote::plain(&locking.bucket),
        locking.world.record(),
        NAMES,
        Arc::<ManualClock>::clone(&locking.world.clock),
    );
    let copies = plain.copies(NonZeroUsize::MIN, "here").unwrap();
    drop(process);
    let plain = Process { volume: plain, copies };
    let (found, _) = plain.audit_retention();
    assert_eq!(found, [(container(1), Flaw::Retention { until_ms: 0 }, Outcome::NotExtended)]);
    let totals = plain.totals(now_ms);
    assert_eq!((totals.behind, totals.kept_points), (1, 0));
    drop(plain);
    let process = locking.start();
    assert_eq!(process.extend().unwrap(), 1);
    assert_eq!((process.audit_retention().0, locking.days(&container(1))), (vec![], Some(7)));
    assert_eq!(process.copies.record().flaws_count().unwrap(), 0);
}

/// (T19) A deleted or replaced object, of which the bucket kept a version, is restored with its retention.
#[test]
fn the_audit_brings_back_what_was_deleted() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    let needed = process.back_up(1, &[1, 2, 3]);
    process.look_at(now_ms, &[(1, now_ms + 6 * DAY_MS, needed)]);
    assert_eq!(process.extend().unwrap(), 5);
    process.audit_retention();
    // One that only the bucket has, and one that is also local.
    let ends = holdfast_volume::Ends { head: 16, tail: 20 };
    assert!(process.volume.evict(&name(&container(1)), ends).unwrap());
    for gone in [container(1), container(2), container(3)] {
        locking.bucket.remove(&name(&gone)).unwrap();
    }
    locking.world.stored.replace(&name(&container(3)), "what someone else put there");
    let (found, audited) = process.audit_retention();
    let outcomes: Vec<(String, Outcome)> =
        found.into_iter().map(|(name, _, outcome)| (name, outcome)).collect();
    let back = |number| (container(number), Outcome::BroughtBack);
    assert_eq!(outcomes, [back(1), back(2), back(3)]);
    assert_eq!((audited.brought_back, audited.lost, audited.copied_again), (3, 0, 0));
    for number in 1..=3 {
        assert_eq!(locking.world.stored.get(&name(&container(number))).unwrap(), [7; 100][..]);
        assert_eq!(locking.days(&container(number)), Some(7));
    }
    assert_eq!(process.audit_retention().0, []);
    assert_eq!(process.totals(now_ms).kept_points, 1);
}

/// (T19) A retained version that covers it cannot be removed: that is reported, and the audit continues.
#[test]
fn what_lies_below_something_that_must_stay_is_told() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    let needed = process.back_up(1, &[1, 2]);
    process.look_at(now_ms, &[(1, now_ms + 6 * DAY_MS, needed)]);
    assert_eq!(process.extend().unwrap(), 4);
    process.audit_retention();
    let ends = holdfast_volume::Ends { head: 16, tail: 20 };
    assert!(process.volume.evict(&name(&container(1)), ends).unwrap());
    for gone in [container(1), container(2)] {
        locking.bucket.remove(&name(&gone)).unwrap();
    }
    put(&*locking.bucket, &container(1), b"what someone else put there");
    let stays = Retained { mode: LockMode::Compliance, until_ms: 90 * DAY_MS };
    locking.bucket.set_retained(&name(&container(1)), Some(stays));
    let (found, audited) = process.audit_retention();
    let outcomes: Vec<_> = found.into_iter().map(|(name, _, outcome)| (name, outcome)).collect();
    assert_eq!(outcomes, [(container(1), Outcome::Lost), (container(2), Outcome::BroughtBack)]);
    assert_eq!((audited.brought_back, audited.lost), (1, 1));
    // Once it may be removed, it is.
    locking.later(90 * DAY_MS);
    let (found, _) = process.audit_retention();
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].0, found[0].2), (&container(1), Outcome::BroughtBack));
}

/// (T19) An older version counts only if it is what was sent.
#[test]
fn what_was_replaced_before_it_was_deleted_is_copied_again() {
    let locking = Locking::new();
    let process = locking.start();
    process.back_up(1, &[1]);
    let record = rusqlite::Connection::open(locking.world.folder.path().join("tiers.db")).unwrap();
    record.execute("UPDATE objects SET sum = NULL", []).unwrap();
    locking.world.stored.replace(&name(&container(1)), vec![8; 100]);
    locking.bucket.remove(&name(&container(1))).unwrap();
    let (found, audited) = process.audit_retention();
    assert_eq!(found, [(container(1), Flaw::Content, Outcome::CopiedAgain)]);
    assert_eq!(audited.brought_back, 0);
    process.finish();
    assert_eq!(locking.world.stored.get(&name(&container(1))).unwrap(), [7; 100][..]);
}

/// (T19) Before any check: another object of the same length is not the one to keep.
#[test]
fn what_was_replaced_by_as_many_bytes_is_brought_back() {
    for is_moved in [false, true] {
        let locking = Locking::new();
        let process = locking.start();
        let now_ms = locking.now_ms();
        let needed = process.back_up(1, &[1]);
        process.look_at(now_ms, &[(1, now_ms + 6 * DAY_MS, needed)]);
        process.extend().unwrap();
        if is_moved {
            let ends = holdfast_volume::Ends { head: 16, tail: 20 };
            assert!(process.volume.evict(&name(&container(1)), ends).unwrap());
        }
        locking.bucket.remove(&name(&container(1))).unwrap();
        put(&*locking.bucket, &container(1), &[8; 100]);
        let (found, audited) = process.audit_retention();
        assert_eq!(found, [(container(1), Flaw::Content, Outcome::BroughtBack)]);
        assert_eq!((audited.brought_back, audited.copied_again), (1, 0));
        assert_eq!(locking.world.stored.get(&name(&container(1))).unwrap(), [7; 100][..]);
        assert_eq!(locking.days(&container(1)), Some(7));
    }
}

/// (T18) A known loss, here or there, keeps a restore point from counting as kept.
#[test]
fn a_restore_point_that_lacks_something_is_not_kept() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    let needed = process.back_up(1, &[1]);
    let ends = holdfast_volume::Ends { head: 16, tail: 20 };
    let look = |needed: &[Vec<BlobName>]| {
        process.look_at(locking.now_ms(), &[(1, now_ms + 30 * DAY_MS, needed.to_vec())]);
        process.extend().unwrap();
        process.totals(locking.now_ms()).kept_points
    };
    assert_eq!(look(&needed), 1);
    // In the bucket.
    assert!(process.volume.evict(&name(&container(1)), ends).unwrap());
    locking.world.stored.replace(&name(&container(1)), "cut");
    assert_eq!(process.audit_retention().0[0].2, Outcome::Lost);
    assert_eq!(process.totals(locking.now_ms()).kept_points, 0, "from the moment it is known");
    locking.later(DAY_MS);
    assert_eq!(look(&needed), 0);
    locking.world.stored.replace(&name(&container(1)), vec![7; 100]);
    assert_eq!(process.audit_retention().1.back, 1);
    locking.later(DAY_MS);
    assert_eq!(look(&needed), 1);
    // Here.
    let keep = Keep::of(Some(now_ms + 30 * DAY_MS), false, now_ms).unwrap();
    assert!(!process.copies.is_point_due("1", keep, false).unwrap());
    assert!(process.copies.is_point_due("1", keep, true).unwrap());
    process.copies.promise("1", keep, &[vec![], needed[1].clone()]).unwrap();
    process.extend().unwrap();
    assert_eq!(process.totals(locking.now_ms()).kept_points, 0);
    assert!(!process.copies.is_point_due("1", keep, true).unwrap(), "it is known");
}

/// (T18) Without its ends no recovery knows the contents of an archived container.
#[test]
fn ends_beside_what_is_cold_stay_as_well() {
    let locking = Locking::new();
    let process = locking.start();
    let now_ms = locking.now_ms();
    let needed = process.back_up(1, &[1, 2]);
    process.volume.shared.record.note_frozen(&name(&container(1)), "GLACIER").unwrap();
    let ends = format!("ends/{}", container(1));
    put(&*locking.bucket, &ends, b"its ends");
    process.look_at(now_ms, &[(1, now_ms + 3 * DAY_MS, needed)]);
    assert_eq!(process.extend().unwrap(), 5);
    assert_eq!((locking.days(&ends), locking.days(&container(1))), (Some(4), Some(4)));
    assert_eq!(process.totals(now_ms).kept_points, 1);
    // They are checked like all else.
    locking.bucket.set_retained(&name(&ends), None);
    let (found, _) = process.audit_retention();
    assert_eq!(found, [(ends.clone(), Flaw::Retention { until_ms: 0 }, Outcome::Extended)]);
    assert_eq!(locking.days(&ends), Some(4));
}
