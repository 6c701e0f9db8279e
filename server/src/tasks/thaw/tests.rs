//! Thaws of a bucket that does what the test says. Nothing waits for real time.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use holdfast_engine::clock::{Clock as _, ManualClock};
use holdfast_tiers::{Record, Remote, TieredVolume};
use holdfast_volume::testing::{ManualTimer, put};
use holdfast_volume::{
    BlobChecksum, BlobName, Ends, MemoryVolume, RemoteLook, RemoteVolume, Thawed, Timer, Volume,
};

use super::*;
use crate::jobs::Throttle;

const CLASS: &str = "GLACIER";
const MINUTE_MS: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE_MS;

/// Behaviour of the bucket when it is asked to thaw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It has it at the next look, for so long.
    Thaws { for_ms: i64 },
    /// It says yes, and never begins.
    Never,
    /// It begins, and never ends.
    Endless,
    /// It answers nothing.
    Away,
}

#[derive(Debug)]
struct State {
    way: Way,
    class: Vec<BlobName>,
    asked: Vec<BlobName>,
    until: Vec<(BlobName, i64)>,
    looks: u32,
}

#[derive(Debug)]
struct Bucket {
    inner: MemoryVolume,
    clock: Arc<ManualClock>,
    /// Time that passes with each look.
    step_ms: i64,
    state: Mutex<State>,
}

impl Bucket {
    fn answer(&self) -> Result<(), VolumeError> {
        let away =
            || VolumeError::Unavailable { action: "ask", name: "it".to_owned(), source: "away".into() };
        if self.state.lock().way == Way::Away { Err(away()) } else { Ok(()) }
    }
}

impl Volume for Bucket {
    holdfast_volume::pass_on!(create_for, open, list, remove, discard_unfinished, space, handles_outlive_removal to inner);
}

impl RemoteVolume for Bucket {
    holdfast_volume::pass_on!(stat, list_objects, remove_all, tagged, sign_with to inner);

    fn look(&self, name: &BlobName) -> Result<RemoteLook, VolumeError> {
        self.answer()?;
        let len = self.stat(name)?.len;
        self.clock.advance_ms(self.step_ms);
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        state.looks += 1;
        let until = state.until.iter().rev().find(|(of, until)| of == name && *until > now_ms);
        let thawed = match (until, state.way) {
            (Some((_, until)), _) => Thawed::Until(*until),
            (None, Way::Endless) if state.asked.contains(name) => Thawed::UnderWay,
            _ => Thawed::No,
        };
        let class = state.class.contains(name).then(|| CLASS.to_owned());
        // The same content whatever is asked.
        let checksum = Some(BlobChecksum::Crc32c(1));
        Ok(RemoteLook {
            len,
            checksum,
            tag: Some("tag".to_owned()),
            class,
            thawed,
            version: None,
            retained: None,
        })
    }

    fn set_class(&self, name: &BlobName, _: &str, _: &str) -> Result<(), VolumeError> {
        self.state.lock().class.push(name.clone());
        Ok(())
    }

    fn ask_thaw(&self, name: &BlobName, _: u32, _: &str) -> Result<(), VolumeError> {
        self.answer()?;
        let mut state = self.state.lock();
        state.asked.push(name.clone());
        if let Way::Thaws { for_ms } = state.way {
            state.until.push((name.clone(), self.clock.now_ms() + for_ms));
        }
        Ok(())
    }
}

/// Stops a task in one of its naps.
#[derive(Debug, Default)]
struct Naps {
    timer: ManualTimer,
    /// After so many more.
    stops: Mutex<Option<(Arc<Control>, u32)>>,
}

impl Timer for Naps {
    fn now(&self) -> Duration {
        self.timer.now()
    }

    fn sleep(&self, time: Duration) {
        self.timer.sleep(time);
        if let Some((control, left)) = &mut *self.stops.lock() {
            *left = left.checked_sub(1).expect("it naps after it was stopped");
            if *left == 0 {
                control.stop();
            }
        }
    }
}

struct Site {
    _folder: tempfile::TempDir,
    bucket: Arc<Bucket>,
    archive: Archive,
    control: Arc<Control>,
    naps: Arc<Naps>,
    parts: Vec<Part>,
}

impl Site {
    /// Three containers in an archive.
    fn new(way: Way, step_ms: i64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_763_700_000_000));
        let state = State { way, class: Vec::new(), asked: Vec::new(), until: Vec::new(), looks: 0 };
        let bucket = Arc::new(Bucket {
            inner: MemoryVolume::new(),
            clock: Arc::clone(&clock),
            step_ms,
            state: Mutex::new(state),
        });
        let record = Arc::new(Record::open_or_create(&folder.path().join("tiers.db"), "s3://here").unwrap());
        let local = Arc::new(MemoryVolume::new());
        put(&*local, "repository", b"this one");
        let dyn_clock = Arc::<ManualClock>::clone(&clock);
        let volume = TieredVolume::new(
            local,
            Remote::plain(&bucket),
            record,
            crate::repository::names(true),
            dyn_clock,
        )
        .archiving_to(CLASS);
        let copies = volume.copies(NonZeroUsize::MIN, "here").unwrap();
        let name = |number: u32| BlobName::new(format!("containers/0000000/{number:010}.data")).unwrap();
        let names: Vec<BlobName> = (1..=3).map(name).collect();
        for name in &names {
            put(&volume, name.as_str(), &[7; 1000]);
        }
        while copies.work(&|| false).unwrap().more {}
        bucket.state.lock().way = Way::Never;
        for name in &names {
            assert!(volume.evict(name, Ends { head: 16, tail: 16 }).unwrap());
            assert!(volume.freeze(name).unwrap());
        }
        (bucket.state.lock().way, bucket.state.lock().looks) = (way, 0);
        let part = |name| Part { name, len: 1000, class: CLASS.to_owned(), thawing: Thawing::Cold };
        let naps = Arc::<Naps>::default();
        let control = Control::new(clock, Arc::<Naps>::clone(&naps), Throttle::NONE);
        let parts = names.into_iter().map(part).collect();
        Self { _folder: folder, bucket, archive: volume.archive(), control: Arc::new(control), naps, parts }
    }

    fn thaw(&self) -> Result<Figures, WorkError> {
        let mut figures = Figures { objects: self.parts.len() as u64, ..Figures::default() };
        let wanted = Wanted { days: 1, speed: Thaw::Bulk };
        let (archive, control, failing) = (&self.archive, &*self.control, Duration::ZERO);
        let begun_ms = archive.now_ms();
        Attempt { archive, control, figures: &mut figures, wanted, begun_ms, failing }.run(&self.parts)?;
        Ok(figures)
    }

    /// Why it ends.
    fn failure(&self) -> String {
        match self.thaw() {
            Err(WorkError::Failed(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn asked(&self) -> usize {
        self.bucket.state.lock().asked.len()
    }
}

/// Neither a restore point nor a tenant can take all places, and there is one that works at once for another.
#[test]
fn what_places_are_shared_by_is_in_the_options() {
    let options = Options {
        backup: "a".to_owned(),
        disks: Vec::new(),
        speed: "bulk".to_owned(),
        days: 1,
        namespace: "b".to_owned(),
    };
    let text = serde_json::to_value(&options).unwrap();
    for Share { option, unfinished_max, .. } in SHARES {
        assert!(text[option].is_string(), "{option}");
        assert!(unfinished_max < AT_ONCE && AT_ONCE < UNFINISHED_MAX, "{option}");
    }
}

#[test]
fn each_object_is_asked_for_once_and_waited_for() {
    let site = Site::new(Way::Thaws { for_ms: DAY }, MINUTE_MS);
    let figures = site.thaw().unwrap();
    assert_eq!((figures.asked_objects, figures.asked_bytes, figures.readable_objects), (3, 3000, 3));
    assert_eq!(site.asked(), 3);
    // A later attempt, or another restore.
    assert_eq!(site.thaw().unwrap().asked_objects, 0);
    assert_eq!(site.asked(), 3);
}

/// It is not asked, and paid, for ever.
#[test]
fn a_bucket_that_never_thaws_ends_the_task() {
    let site = Site::new(Way::Never, MINUTE_MS);
    let failure = site.failure();
    assert!(
        failure.contains("asked for 3 times") && failure.contains(site.parts[0].name.as_str()),
        "{failure}"
    );
    assert_eq!(site.asked(), 3 + 3, "once each, then the first one until it is given up");
    let looks = site.bucket.state.lock().looks;
    assert!(looks < 100, "{looks} looks");
}

#[test]
fn a_thaw_that_never_ends_is_given_up() {
    let site = Site::new(Way::Endless, DAY / 2);
    let failure = site.failure();
    assert!(failure.contains("days ago") && failure.contains("does not have it thawed"), "{failure}");
    assert_eq!(site.asked(), 3);
}

#[test]
fn a_bucket_that_is_away_for_a_day_ends_the_task() {
    let site = Site::new(Way::Away, 0);
    let failure = site.failure();
    assert!(failure.contains("away"), "{failure}");
    assert_eq!(site.asked(), 0);
}

/// The first one ends while the others are waited for.
#[test]
fn what_ended_meanwhile_is_asked_for_again_and_not_for_ever() {
    // Three looks, of ten minutes each, before the last can be read.
    let site = Site::new(Way::Thaws { for_ms: 15 * MINUTE_MS }, 10 * MINUTE_MS);
    let failure = site.failure();
    assert!(failure.contains("thaw it for more days"), "{failure}");
    assert!(site.asked() <= 3 + 3 * 3 * 3, "{}", site.asked());
}

/// A pause may last for days, and others look up, too.
#[test]
fn a_pause_ends_a_look_that_others_wait_for() {
    let site = Site::new(Way::Never, 0);
    let control = &site.control;
    let (ended, is_ended) = mpsc::channel();
    let looks = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Should it wait for that within the look, it ends all the same.
            let in_time = is_ended.recv_timeout(Duration::from_secs(600));
            control.pause(false);
            assert!(in_time.is_ok(), "the pause was waited for within the look");
        });
        let found = between_pauses(control, |go_on| {
            if looks.fetch_add(1, Ordering::Relaxed) > 0 {
                return Ok(go_on().then_some(7));
            }
            control.pause(true);
            let goes_on = go_on();
            let _ = ended.send(());
            Ok(goes_on.then_some(0))
        });
        assert_eq!((found.unwrap(), looks.load(Ordering::Relaxed)), (7, 2));
    });
    control.stop();
    assert!(matches!(between_pauses(control, |_| Ok(Some(1))), Err(WorkError::Stopped)));
}

/// It waits for what was asked for: that is cut short, and nothing is looked at or asked for any more.
#[test]
fn one_that_is_cancelled_while_it_waits_ends_at_once() {
    let site = Site::new(Way::Endless, 0);
    // In the second wait for the first object, of two seconds.
    *site.naps.stops.lock() = Some((Arc::clone(&site.control), 30));
    assert!(matches!(site.thaw(), Err(WorkError::Stopped)));
    assert_eq!((site.asked(), site.bucket.state.lock().looks), (3, 3 + 2));
}

#[test]
fn one_that_is_cancelled_asks_for_nothing_more() {
    let site = Site::new(Way::Endless, MINUTE_MS);
    site.control.stop();
    assert!(matches!(site.thaw(), Err(WorkError::Stopped)));
    assert_eq!(site.asked(), 0);
}
