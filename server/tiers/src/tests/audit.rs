//! Objects that the bucket lost or changed, or that the record does not know.

use holdfast_volume::Ends;
use holdfast_volume::testing::{CrashPoint, InFlight};

use super::*;
use crate::{AuditEnd, AuditFinding, AuditWatch, Audited, Flaw, Outcome};

const ENDS: Ends = Ends { head: 16, tail: 100 };

fn content(number: u32) -> Vec<u8> {
    (0..4000u32).map(|at| u8::try_from((at * 7 + number) % 251).unwrap()).collect()
}

/// Follows an audit.
#[derive(Default)]
pub(super) struct Watch {
    pub(super) found: Vec<AuditFinding>,
    pub(super) back: Vec<String>,
    pub(super) strays: Vec<String>,
    pub(super) audited: Audited,
    pub(super) place: String,
    /// Blobs that are not intact.
    pub(super) unsound: Vec<String>,
    /// Blobs that cannot be read now.
    pub(super) unread: Vec<String>,
    /// Number of objects after which it stops.
    pub(super) stop_after: Option<usize>,
    pub(super) looked: usize,
}

impl AuditWatch for Watch {
    fn go_on(&mut self, bytes: u64) -> bool {
        self.looked += usize::from(bytes == 0);
        self.stop_after.is_none_or(|most| self.looked <= most)
    }

    fn is_sound(&mut self, name: &BlobName) -> Option<bool> {
        let name = name.to_string();
        if self.unread.contains(&name) { None } else { Some(!self.unsound.contains(&name)) }
    }

    fn found(&mut self, finding: &AuditFinding) {
        self.found.push(finding.clone());
    }

    fn is_back(&mut self, name: &BlobName) {
        self.back.push(name.to_string());
    }

    fn stray(&mut self, name: &BlobName, _: u64) {
        self.strays.push(name.to_string());
    }

    fn told(&mut self, audited: &Audited, place: &str) {
        (self.audited, self.place) = (*audited, place.to_owned());
    }
}

impl Watch {
    /// Findings so far: name, flaw and outcome.
    pub(super) fn findings(&self) -> Vec<(String, Flaw, Outcome)> {
        self.found.iter().map(|one| (one.name.to_string(), one.flaw.clone(), one.outcome)).collect()
    }
}

impl Process {
    pub(super) fn audit(&self) -> Watch {
        self.audit_with(&[])
    }

    /// Audits a bucket without checksums, in which these objects are not intact.
    fn audit_with(&self, unsound: &[String]) -> Watch {
        let mut watch = Watch { unsound: unsound.to_vec(), ..Watch::default() };
        let ended = self.copies.audit("", Audited::default(), None, &mut watch).unwrap();
        assert_eq!(ended, AuditEnd::Done);
        watch
    }
}

/// A process that has copied containers 1 to 9, and a point.
fn copied(world: &World) -> Process {
    let process = world.start();
    for number in 1..=9 {
        put(&process.volume, &container(number), &content(number));
    }
    put(&process.volume, "points/n/v/b.1", b"point");
    process.finish();
    process
}

impl World {
    fn replace(&self, blob: &str, bytes: &[u8]) {
        self.stored.remove(&name(blob)).unwrap();
        put(&self.stored, blob, bytes);
    }
}

#[test]
fn what_is_as_it_should_be_costs_listings_only() {
    let world = World::new();
    let process = copied(&world);
    let first = process.audit();
    assert_eq!(first.findings(), []);
    // Ten and the mark; the lease is not a copy.
    assert_eq!((first.audited.objects, first.audited.strangers, first.audited.strays), (11, 0, 0));
    assert_eq!(first.audited.asked, 11, "each once after it was copied");
    let (opened, listed) = (world.bucket.count(OpKind::Open), world.bucket.count(OpKind::List));
    let again = process.audit();
    assert_eq!((again.audited.objects, again.audited.asked), (11, 0));
    assert_eq!(world.bucket.count(OpKind::List) - listed, 3, "four objects a page");
    // The lease.
    assert!(world.bucket.count(OpKind::Open) - opened <= 2);
}

/// (T13)
#[test]
fn what_lies_here_is_copied_again() {
    let world = World::new();
    let process = copied(&world);
    process.audit();
    world.stored.remove(&name(&container(2))).unwrap();
    world.replace(&container(4), &content(4)[..100]);
    world.replace(&container(6), &content(5));
    world.stored.remove(&name("points/n/v/b.1")).unwrap();
    let found = process.audit();
    assert_eq!(
        found.findings(),
        [
            (container(2), Flaw::Missing, Outcome::CopiedAgain),
            (container(4), Flaw::Length { there: 100 }, Outcome::CopiedAgain),
            (container(6), Flaw::Content, Outcome::CopiedAgain),
            ("points/n/v/b.1".to_owned(), Flaw::Missing, Outcome::CopiedAgain),
        ]
    );
    assert_eq!(process.finish(), 4);
    for number in [2, 4, 6] {
        assert_eq!(world.stored.get(&name(&container(number))).unwrap(), content(number), "{number}");
    }
    assert_eq!(process.audit().findings(), []);
    assert_eq!(world.record().flaws_count().unwrap(), 0);
}

/// (T13) It would replace the last intact copy, if the object is one.
#[test]
fn what_is_damaged_here_is_not_copied_again() {
    for has_sum in [true, false] {
        let world = World::new();
        let process = copied(&world);
        process.audit();
        if !has_sum {
            rusqlite::Connection::open(world.folder.path().join("tiers.db"))
                .unwrap()
                .execute("UPDATE objects SET sum = NULL", [])
                .unwrap();
        }
        world.replace(&container(3), &content(4));
        world.local.remove(&name(&container(3))).unwrap();
        put(&world.local, &container(3), &content(5));
        let mut watch = Watch { unsound: vec![container(3)], ..Watch::default() };
        process.copies.audit("", Audited::default(), None, &mut watch).unwrap();
        assert_eq!(watch.findings(), [(container(3), Flaw::Content, Outcome::DamagedHere)]);
        process.finish();
        assert_eq!(world.stored.get(&name(&container(3))).unwrap(), content(4), "{has_sum}");
    }
}

fn read(process: &Process, number: u32) -> Result<Vec<u8>, VolumeError> {
    let name = name(&container(number));
    process.volume.open(&name)?.read_vec(&name, 1000, 100)
}

/// (T14)
#[test]
fn what_lies_nowhere_else_is_damage_until_it_is_back() {
    type Spoil = fn(&World);
    let spoilt: [(Spoil, Flaw); 3] = [
        (|world| world.stored.remove(&name(&container(3))).unwrap(), Flaw::Missing),
        (|world| world.replace(&container(3), &content(3)[..2000]), Flaw::Length { there: 2000 }),
        (|world| world.replace(&container(3), &content(8)), Flaw::Content),
    ];
    for (spoil, flaw) in spoilt {
        let world = World::new();
        let process = copied(&world);
        process.audit();
        assert!(process.volume.evict(&name(&container(3)), ENDS).unwrap());
        assert_eq!(read(&process, 3).unwrap(), content(3)[1000..1100]);
        spoil(&world);
        let unsound = [container(3)];
        let found = process.audit_with(&unsound);
        assert_eq!(found.findings(), [(container(3), flaw.clone(), Outcome::Lost)]);
        assert_eq!(process.finish(), 0);
        // The ends are local, and show what is lost.
        let opened = process.volume.open(&name(&container(3))).unwrap();
        opened.read_at(0, &mut [0; 16]).unwrap();
        let error = read(&process, 3).unwrap_err();
        assert!(
            matches!(error, VolumeError::Io { .. }) && error.to_string().contains(&flaw.text()),
            "{error}"
        );
        let found = process.audit_with(&unsound);
        assert_eq!(found.findings(), [(container(3), flaw, Outcome::Lost)], "until it is put right");
        // Back, but not known to be before the bucket was asked: also after a restart.
        if world.is_there(&container(3)) {
            world.stored.remove(&name(&container(3))).unwrap();
        }
        put(&world.stored, &container(3), &content(3));
        drop(process);
        let process = world.start();
        assert!(read(&process, 3).is_err());
        let back = process.audit();
        assert_eq!((back.findings(), back.back), (vec![], vec![container(3)]));
        assert_eq!(read(&process, 3).unwrap(), content(3)[1000..1100]);
        process.volume.remove(&name(&container(3))).unwrap();
        process.finish();
        assert!(!world.is_there(&container(3)));
    }
}

/// (T14) A reader finds it before any audit.
#[test]
fn a_reader_notes_what_it_misses() {
    let world = World::new();
    let process = copied(&world);
    assert!(process.volume.evict(&name(&container(3)), ENDS).unwrap());
    world.stored.remove(&name(&container(3))).unwrap();
    let error = read(&process, 3).unwrap_err();
    assert!(error.to_string().contains("gone from the bucket"), "{error}");
    assert_eq!(world.record().flaws(9).unwrap().len(), 1);
    let opened = world.bucket.count(OpKind::Open);
    assert!(read(&process, 3).is_err());
    assert_eq!(world.bucket.count(OpKind::Open), opened, "it is not asked for again and again");
    // (G7) A removed blob is a miss.
    let world = World::new();
    let process = copied(&world);
    assert!(process.volume.evict(&name(&container(3)), ENDS).unwrap());
    let opened = process.volume.open(&name(&container(3))).unwrap();
    process.volume.remove(&name(&container(3))).unwrap();
    process.finish();
    assert!(matches!(opened.read_at(1000, &mut [0; 9]), Err(VolumeError::NotFound { .. })));
}

/// (T15)
#[test]
fn what_the_record_does_not_know_is_neither_read_nor_removed() {
    let world = World::new();
    let process = copied(&world);
    assert!(process.volume.evict(&name(&container(2)), ENDS).unwrap());
    let forget = |blob: &str| {
        let record = rusqlite::Connection::open(world.folder.path().join("tiers.db")).unwrap();
        assert_eq!(record.execute("DELETE FROM copied WHERE name = ?1", [blob]).unwrap(), 1);
    };
    for number in [1, 2] {
        forget(&container(number));
    }
    // Deleted once, by a process whose removals are lost.
    put(&world.stored, "points/n/v/deleted.1", b"point");
    put(&world.stored, &container(99), b"reclaimed");
    put(&world.stored, "photos/1", b"of others");
    let found = process.audit();
    assert_eq!(found.findings(), []);
    assert_eq!(found.strays, [container(99), "points/n/v/deleted.1".to_owned()]);
    assert_eq!((found.audited.taken_in, found.audited.strangers, found.audited.strays), (2, 1, 2));
    // One is local and equal; of the other the ends are local.
    assert_eq!(process.finish(), 1);
    assert_eq!(read(&process, 2).unwrap(), content(2)[1000..1100]);
    assert_eq!(list(&process.volume, "points").len(), 1, "what was deleted does not come back");
    assert!(world.is_there("points/n/v/deleted.1") && world.is_there(&container(99)));
    assert!(world.is_there("photos/1"));
}

/// (T3) An object due for removal is neither missing nor a stray.
#[test]
fn what_was_removed_here_is_not_missed() {
    let world = World::new();
    let process = copied(&world);
    for number in [1, 2] {
        process.volume.remove(&name(&container(number))).unwrap();
    }
    world.stored.remove(&name(&container(1))).unwrap();
    let found = process.audit();
    assert_eq!((found.findings(), found.strays), (vec![], vec![]));
}

#[test]
fn an_audit_goes_on_where_it_was() {
    let world = World::new();
    let process = copied(&world);
    world.stored.remove(&name(&container(9))).unwrap();
    let mut place = String::new();
    let mut audited = Audited::default();
    let mut found = 0;
    for round in 0.. {
        let mut watch = Watch { stop_after: Some(5), place: place.clone(), audited, ..Watch::default() };
        let ended = process.copies.audit(&place, audited, None, &mut watch).unwrap();
        found += watch.found.len();
        (place, audited) = (watch.place, watch.audited);
        if ended == AuditEnd::Done {
            assert!(round > 0);
            break;
        }
    }
    assert_eq!((audited.objects, audited.lists, found), (10, 3, 1));
}

/// (T8)
#[test]
fn another_server_s_bucket_is_not_audited() {
    let world = World::new();
    let process = copied(&world);
    world.stored.remove(&name(&container(1))).unwrap();
    world.replace("lease", b"another server's");
    let error = process.copies.audit("", Audited::default(), None, &mut Watch::default()).unwrap_err();
    assert!(matches!(error, CopyError::Leased(_)), "{error}");
    assert_eq!(world.record().flaws_count().unwrap(), 0);
}

/// An unreachable bucket fails the audit, and marks nothing.
#[test]
fn what_cannot_be_asked_is_not_called_lost() {
    for kind in [OpKind::List, OpKind::Open] {
        for at in 1..=4 {
            let world = World::new();
            let process = copied(&world);
            assert!(process.volume.evict(&name(&container(3)), ENDS).unwrap());
            world.bucket.fail_next(kind, at, Fault::Unavailable);
            let mut watch = Watch::default();
            let _ = process.copies.audit("", Audited::default(), None, &mut watch);
            assert_eq!(watch.findings(), [], "{kind:?} {at}");
            assert_eq!(world.record().flaws_count().unwrap(), 0);
        }
    }
}

/// (T13) Wherever a process ends, the next one makes the copy, and nothing stops it.
#[test]
fn a_crash_in_the_middle_of_putting_right_leaves_one_that_is_missing() {
    for (after_mutations, in_flight) in
        (0..4).flat_map(|after| [(after, InFlight::Done), (after, InFlight::Lost)])
    {
        let mut world = World::new();
        drop(copied(&world));
        world.replace(&container(4), b"cut");
        let process = world.start();
        world.bucket.crash_at(CrashPoint { after_mutations, in_flight });
        let _ = process.copies.audit("", Audited::default(), None, &mut Watch::default());
        drop(process);
        world.bucket = Arc::new(FaultyVolume::new(world.stored.clone()));
        let process = world.start();
        process.audit();
        process.finish();
        assert_eq!(world.stored.get(&name(&container(4))).unwrap(), content(4), "{after_mutations}");
    }
}
