//! Audits whose requests get outdated answers, or none.

use holdfast_volume::Ends;
use parking_lot::Mutex;

use super::audit::Watch;
use super::classed::Classed;
use super::*;
use crate::{Audited, Flaw, Outcome};

struct Site {
    world: World,
    bucket: Arc<Classed>,
}

const BYTES: [u8; 4000] = [7; 4000];

fn one() -> BlobName {
    name(&container(1))
}

impl Site {
    /// Starts a process that has copied container 1. `is_moved`: and removed the local copy.
    fn new(is_moved: bool) -> (Self, Process) {
        let world = World::new();
        let inner = Arc::clone(&world.bucket);
        let site =
            Self { bucket: Arc::new(Classed { inner, classes: Mutex::default(), meeting: None }), world };
        let process = site.start();
        put(&process.volume, &container(1), &BYTES);
        process.finish();
        process.audit();
        assert!(!is_moved || process.volume.evict(&one(), Ends { head: 16, tail: 100 }).unwrap());
        (site, process)
    }

    fn start(&self) -> Process {
        let clock = Arc::<ManualClock>::clone(&self.world.clock);
        let (local, remote) = (Arc::new(self.world.local.clone()), Remote::plain(&self.bucket));
        let volume = TieredVolume::new(local, remote, self.world.record(), NAMES, clock);
        let copies = volume.copies(NonZeroUsize::MIN, "here").unwrap();
        Process { volume, copies }
    }

    fn flaw(&self) -> Option<Flaw> {
        self.world.record().flaw(&one()).unwrap()
    }
}

/// (T13) (T14) An outdated listing removes nothing, and reports nothing as lost.
#[test]
fn what_a_listing_says_is_asked_for_once_more() {
    for is_moved in [false, true] {
        for listed in [None, Some(100)] {
            let (site, process) = Site::new(is_moved);
            site.bucket.classes.lock().listed.insert(one(), listed);
            let removed = site.world.bucket.count(OpKind::Remove);
            let found = process.audit();
            assert_eq!(found.findings(), [], "{is_moved} {listed:?}");
            assert_eq!((site.flaw(), site.world.bucket.count(OpKind::Remove)), (None, removed));
        }
    }
}

/// (T14) A lost object counts again once it was verified, not because something is there.
#[test]
fn what_is_not_known_to_be_back_stays_lost() {
    let (site, process) = Site::new(true);
    site.world.stored.remove(&one()).unwrap();
    let lost = process.audit().findings();
    assert_eq!(lost, [(container(1), Flaw::Missing, Outcome::Lost)]);
    // Other content, which an outdated listing leaves out.
    put(&site.world.stored, &container(1), &[8; 4000]);
    site.bucket.classes.lock().listed.insert(one(), None);
    let found = process.audit();
    assert_eq!((found.back, site.flaw()), (vec![], Some(Flaw::Missing)));
    // And gone again by the time of the check.
    site.bucket.classes.lock().listed.clear();
    site.bucket.classes.lock().gone_once_listed = Some(one());
    let found = process.audit();
    assert_eq!((found.back, site.flaw()), (vec![], Some(Flaw::Missing)));
    put(&site.world.stored, &container(1), &BYTES);
    assert_eq!(process.audit().back, [container(1)]);
    assert_eq!(site.flaw(), None);
}

/// (T14) An object that cannot be read now is neither damaged nor intact: its recorded state stays.
#[test]
fn what_cannot_be_read_now_is_no_finding() {
    for was_lost in [false, true] {
        let world = World::new();
        let process = world.start();
        put(&process.volume, &container(1), &BYTES);
        process.finish();
        process.audit();
        assert!(process.volume.evict(&one(), Ends { head: 16, tail: 100 }).unwrap());
        world.stored.remove(&one()).unwrap();
        if was_lost {
            assert_eq!(process.audit().findings().len(), 1);
        }
        put(&world.stored, &container(1), &[8; 4000]);
        let mut watch = Watch { unread: vec![container(1)], ..Watch::default() };
        process.copies.audit("", Audited::default(), None, &mut watch).unwrap();
        assert_eq!((watch.findings(), watch.back), (vec![], vec![]), "{was_lost}");
        let flaw = world.record().flaw(&one()).unwrap();
        assert_eq!(flaw, was_lost.then_some(Flaw::Missing));
        let mut watch = Watch { unsound: vec![container(1)], ..Watch::default() };
        process.copies.audit("", Audited::default(), None, &mut watch).unwrap();
        assert_eq!(watch.findings(), [(container(1), Flaw::Content, Outcome::Lost)], "{was_lost}");
    }
}

/// (T15) Ends of another container prove nothing about the object.
#[test]
fn a_container_of_another_length_is_not_taken_in() {
    let (site, process) = Site::new(true);
    let record = rusqlite::Connection::open(site.world.folder.path().join("tiers.db")).unwrap();
    record.execute("DELETE FROM copied WHERE name = ?1", [container(1)]).unwrap();
    site.world.stored.remove(&one()).unwrap();
    put(&site.world.stored, &container(1), &[7; 3999]);
    let found = process.audit();
    assert_eq!((found.strays, found.audited.taken_in), (vec![container(1)], 0));
    site.world.stored.remove(&one()).unwrap();
    put(&site.world.stored, &container(1), &BYTES);
    assert_eq!(process.audit().audited.taken_in, 1);
}
