//! Thawed copies kept here: read instead of the bucket, and never instead of the right data.

use holdfast_types::clock::Clock as _;
use holdfast_volume::testing::{CrashPoint, InFlight};
use holdfast_volume::{Ends, Thawed};
use parking_lot::Mutex;

use super::classed::Classed;
use super::*;
use crate::prices::Thaw;
use crate::{Archive, Flaw, ThawCacheLimits, ThawCacheTotals, Thawing};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// More than one piece under a checksum.
const LEN: usize = 600_000;

/// Length of a kept copy: the container, three checksums and three numbers.
const FILE_LEN: u64 = LEN as u64 + 6 * 8;

struct Site {
    world: World,
    bucket: Arc<Classed>,
    folder: MemoryVolume,
    limits: ThawCacheLimits,
}

fn content(number: u32) -> Vec<u8> {
    (0..u32::try_from(LEN).unwrap()).map(|at| u8::try_from((at / 7 + number) % 251).unwrap()).collect()
}

fn one() -> BlobName {
    name(&container(1))
}

impl Site {
    /// Archives containers 1 to 4, thawed for a day.
    fn new(limits: ThawCacheLimits) -> (Self, Process) {
        let world = World::new();
        let inner = Arc::clone(&world.bucket);
        let bucket = Arc::new(Classed { inner, classes: Mutex::default(), meeting: None });
        let site = Self { world, bucket, folder: MemoryVolume::new(), limits };
        let process = site.start();
        for number in 1..=4 {
            put(&process.volume, &container(number), &content(number));
        }
        process.finish();
        for number in 1..=4 {
            let name = name(&container(number));
            assert!(process.volume.evict(&name, Ends { head: 16, tail: 100 }).unwrap());
            assert!(process.volume.freeze(&name).unwrap());
            process.volume.archive().ask(&name, 1, Thaw::Bulk).unwrap();
        }
        site.thaw_until(site.world.clock.now_ms() + DAY_MS);
        for number in 1..=4 {
            let looked = process.volume.archive().look(&name(&container(number))).unwrap();
            assert_eq!(looked, Thawing::Readable);
        }
        (site, process)
    }

    fn with_room() -> (Self, Process) {
        Self::new(ThawCacheLimits { bytes: 1 << 30, days: 7 })
    }

    fn start(&self) -> Process {
        self.start_with(Ok(Arc::new(self.folder.clone())))
    }

    fn start_with(&self, folder: Result<Arc<dyn Volume>, VolumeError>) -> Process {
        let clock = Arc::<ManualClock>::clone(&self.world.clock);
        let local = Arc::new(self.world.local.clone());
        let volume = TieredVolume::new(local, Remote::plain(&self.bucket), self.world.record(), NAMES, clock)
            .archiving_to("DEEP_ARCHIVE")
            .keeping_thawed(folder, self.limits)
            .unwrap();
        let copies = volume.copies(NonZeroUsize::MIN, "here").unwrap();
        Process { volume, copies }
    }

    fn thaw_until(&self, until_ms: i64) {
        let mut classes = self.bucket.classes.lock();
        for number in 1..=4 {
            classes.thawed.insert(name(&container(number)), Thawed::Until(until_ms));
        }
    }

    /// Lets the thawed copies in the bucket expire.
    fn end_thaws(&self) {
        self.bucket.classes.lock().thawed.clear();
        self.world.clock.advance_ms(2 * DAY_MS);
    }

    fn is_kept(&self, number: u32) -> bool {
        self.folder.get(&name(&container(number))).is_some()
    }

    /// Number of reads of objects so far.
    fn read(&self) -> u64 {
        self.world.bucket.count(OpKind::Read)
    }
}

fn keep(process: &Process, number: u32) -> bool {
    let archive = process.volume.archive();
    archive.keep(&name(&container(number)), archive.now_ms()).unwrap()
}

fn known(archive: &Archive, number: u32) -> Thawing {
    archive.known(&name(&container(number))).unwrap().unwrap().1
}

fn restore(process: &Process, number: u32) -> Result<Vec<u8>, VolumeError> {
    let name = name(&container(number));
    process.volume.open(&name)?.read_vec(&name, 0, LEN)
}

/// (T16) A second restore in the same week costs nothing, and its quote says so.
#[test]
fn what_was_thawed_once_is_read_here() {
    let (site, process) = Site::with_room();
    assert!(keep(&process, 1));
    assert!(site.is_kept(1));
    let read = site.read();
    assert!(keep(&process, 1), "once");
    site.end_thaws();
    let archive = process.volume.archive();
    assert_eq!((known(&archive, 1), known(&archive, 2)), (Thawing::Readable, Thawing::Cold));
    assert_eq!(archive.ask(&one(), 1, Thaw::Bulk).unwrap(), Thawing::Readable);
    assert!(process.volume.open(&one()).unwrap().cold().unwrap().is_readable);
    assert!(!process.volume.open(&one()).unwrap().is_at_hand(), "it is no copy");
    assert_eq!(restore(&process, 1).unwrap(), content(1));
    let opened = process.volume.open(&one()).unwrap();
    for (offset, len) in [(17, 1), (262_140, 9), (262_144, 262_144), (300_000, 250_000)] {
        let bytes = opened.read_vec(&one(), offset, len).unwrap();
        let from = usize::try_from(offset).unwrap();
        assert_eq!(bytes, content(1)[from..from + len], "{offset}");
    }
    assert_eq!(site.read(), read, "nothing was asked for");
    assert!(restore(&process, 2).unwrap_err().is_archived());
    // The next process reads it, too, until it expires.
    drop(process);
    let process = site.start();
    assert_eq!(process.volume.archive().kept(), Some(ThawCacheTotals { containers: 1, bytes: FILE_LEN }));
    assert_eq!(restore(&process, 1).unwrap(), content(1));
    site.world.clock.advance_ms(5 * DAY_MS);
    assert_eq!(known(&process.volume.archive(), 1), Thawing::Cold);
    assert!(restore(&process, 1).unwrap_err().is_archived());
    process.volume.archive().trim_kept().unwrap();
    assert!(!site.is_kept(1));
}

/// A copy that expires within a day is requested again, and then kept anew: no restore that counted on it fails
/// in the middle.
#[test]
fn a_copy_that_is_about_to_expire_is_thawed_again() {
    for (days, enough_ms) in [(7, DAY_MS), (1, DAY_MS / 2)] {
        let (site, process) = Site::new(ThawCacheLimits { bytes: 1 << 30, days });
        assert!(keep(&process, 1));
        let archive = process.volume.archive();
        site.world.clock.advance_ms(i64::from(days) * DAY_MS - enough_ms - 1);
        site.bucket.classes.lock().thawed.clear();
        site.world.record().note_thawed(&one(), None).unwrap();
        assert_eq!(known(&archive, 1), Thawing::Readable);
        assert_eq!(archive.look(&one()).unwrap(), Thawing::Readable);
        site.world.clock.advance_ms(1);
        assert_eq!((known(&archive, 1), archive.look(&one()).unwrap()), (Thawing::Cold, Thawing::Cold));
        assert_eq!(restore(&process, 1).unwrap(), content(1), "what reads it now still finds it");
        assert_eq!(archive.ask(&one(), 1, Thaw::Bulk).unwrap(), Thawing::Cold, "asked for");
        site.thaw_until(site.world.clock.now_ms() + DAY_MS);
        assert_eq!(archive.look(&one()).unwrap(), Thawing::Readable);
        let read = site.read();
        assert!(keep(&process, 1) && site.read() > read, "fetched anew");
        site.world.clock.advance_ms(enough_ms);
        site.bucket.classes.lock().thawed.clear();
        assert_eq!(restore(&process, 1).unwrap(), content(1));
    }
}

/// CRC-64/NVME, bit by bit.
fn crc_64_nvme(bytes: &[u8]) -> u64 {
    !bytes.iter().fold(u64::MAX, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| {
            if sum & 1 == 1 { (sum >> 1) ^ 0x9A6C_9329_AC4B_C9B5 } else { sum >> 1 }
        })
    })
}

/// The bytes behind a container, with checksums of another implementation.
#[test]
fn a_kept_copy_has_these_bytes() {
    let (site, process) = Site::with_room();
    assert!(keep(&process, 1));
    let file = site.folder.get(&one()).unwrap();
    assert_eq!(file.len() as u64, FILE_LEN);
    let (content_there, behind) = file.split_at(LEN);
    assert_eq!(content_there, content(1));
    let number = |at: usize| u64::from_le_bytes(behind[at..at + 8].try_into().unwrap());
    assert_eq!(number(24), u64::try_from(site.world.clock.now_ms() + 7 * DAY_MS).unwrap());
    assert_eq!(number(32), LEN as u64);
    assert_eq!(crc_64_nvme(b"123456789"), 0xAE8B_1486_0A79_9888);
    for (at, piece) in (0..).zip(content(1).chunks(256 << 10)) {
        assert_eq!(number(at * 8), crc_64_nvme(piece), "{at}");
    }
    let told = [one().as_str().as_bytes(), &behind[..40]].concat();
    assert_eq!((number(40), behind.len()), (crc_64_nvme(&told), 48));
}

/// (T16) A flipped bit is not returned, and costs nothing but a request.
#[test]
fn a_damaged_copy_is_not_believed() {
    for at in [0, 5000, 262_143, 262_144, LEN - 1, LEN, LEN + 20, LEN + 30, LEN + 40] {
        let (site, process) = Site::with_room();
        assert!(keep(&process, 1));
        let mut bytes = site.folder.get(&one()).unwrap().to_vec();
        bytes[at] ^= 4;
        site.folder.replace(&one(), bytes);
        assert_eq!(restore(&process, 1).unwrap(), content(1), "{at}");
        assert!(!site.is_kept(1), "{at}");
        site.end_thaws();
        assert!(restore(&process, 1).is_err(), "{at}");
    }
    // Of another container, truncated, or of a later start.
    let (site, process) = Site::with_room();
    assert!(keep(&process, 1) && keep(&process, 2) && keep(&process, 3));
    let of_two = site.folder.get(&name(&container(2))).unwrap().to_vec();
    site.folder.replace(&one(), of_two.clone());
    site.folder.replace(&name(&container(2)), of_two[..LEN].to_vec());
    site.folder.replace(&name(&container(3)), Vec::<u8>::new());
    let process = {
        drop(process);
        site.start()
    };
    assert_eq!(process.volume.archive().kept().unwrap().containers, 0);
    for number in 1..=3 {
        assert_eq!(restore(&process, number).unwrap(), content(number));
        assert!(!site.is_kept(number));
    }
}

/// (T16) A fetched copy must be what was once sent.
#[test]
fn another_content_is_not_kept() {
    let (site, process) = Site::with_room();
    site.world.stored.remove(&one()).unwrap();
    put(&site.world.stored, &container(1), &content(9));
    let archive = process.volume.archive();
    let error = archive.keep(&one(), archive.now_ms()).unwrap_err();
    assert!(matches!(error, VolumeError::BadAnswer { .. }), "{error}");
    assert!(!site.is_kept(1));
}

/// (T16) Nor one whose checksum is unknown: its record is of an earlier version, or was rebuilt from a listing.
#[test]
fn what_has_no_checksum_is_not_kept() {
    let (site, process) = Site::with_room();
    let record = site.world.record();
    record.add(&one(), LEN as u64).unwrap();
    assert_eq!(record.sum(&one()).unwrap(), None);
    assert!(!keep(&process, 1) && !site.is_kept(1));
    assert_eq!(restore(&process, 1).unwrap(), content(1), "read in the bucket");
}

/// (T16) An object lost by the bucket is lost, although a copy is kept for a while: a backup must send it again.
#[test]
fn a_kept_copy_hides_no_loss() {
    let (site, process) = Site::with_room();
    assert!(keep(&process, 1));
    site.world.record().note_flaw(&one(), Some(&Flaw::Missing), 0).unwrap();
    assert!(matches!(restore(&process, 1), Err(VolumeError::Io { .. })));
    assert!(!keep(&process, 1) || site.is_kept(1));
}

/// (T16) A folder that cannot be used costs requests. Copies removed meanwhile are still in it: a new container of the
/// name would be another.
#[test]
fn a_server_starts_without_it_and_does_not_believe_it_later() {
    let (site, process) = Site::with_room();
    assert!(keep(&process, 1) && keep(&process, 2));
    drop(process);
    let faulty = || {
        let folder = FaultyVolume::new(site.folder.clone());
        folder.crash_at(CrashPoint { after_mutations: 0, in_flight: InFlight::Lost });
        folder.remove(&one()).unwrap_err();
        Arc::new(folder) as Arc<dyn Volume>
    };
    let away = || VolumeError::Io { action: "open", name: "thawed".to_owned(), source: "away".into() };
    for folder in [Err(away()), Ok(faulty())] {
        let process = site.start_with(folder);
        assert_eq!(process.volume.archive().kept(), None);
        assert!(!keep(&process, 1));
        assert_eq!(restore(&process, 1).unwrap(), content(1), "read in the bucket");
    }
    // It is removed, and its name is reused.
    let process = site.start_with(Err(away()));
    process.volume.remove(&one()).unwrap();
    assert!(site.is_kept(1));
    drop(process);
    let process = site.start();
    assert!(!site.is_kept(1) && !site.is_kept(2));
    assert_eq!(process.volume.archive().kept().unwrap().containers, 0);
    // From then on it is trusted again.
    assert!(keep(&process, 2));
    drop(process);
    assert_eq!(site.start().volume.archive().kept().unwrap().containers, 1);
}

/// (T16) A removed container takes its copy along, before the name can be reused.
#[test]
fn it_goes_with_its_container() {
    let (site, process) = Site::with_room();
    assert!(keep(&process, 1) && keep(&process, 2));
    process.volume.remove(&one()).unwrap();
    assert!(!site.is_kept(1) && site.is_kept(2));
    assert!(matches!(restore(&process, 1), Err(VolumeError::NotFound { .. })));
    assert!(!keep(&process, 1), "it is no more");
    process.finish();
}

/// Space is limited, the oldest copy is evicted first, and the copies just fetched by a restore are not evicted for
/// the rest of it.
#[test]
fn there_is_room_for_so_much() {
    let (site, process) = Site::new(ThawCacheLimits { bytes: 2 * FILE_LEN + 100, days: 7 });
    assert!(keep(&process, 1));
    site.world.clock.advance_ms(HOUR_MS);
    let archive = process.volume.archive();
    let begun_ms = archive.now_ms();
    let keep = |number: u32| archive.keep(&name(&container(number)), begun_ms).unwrap();
    assert!(keep(2));
    site.world.clock.advance_ms(1);
    assert!(keep(3));
    assert!(!site.is_kept(1) && site.is_kept(2) && site.is_kept(3));
    assert!(!keep(4), "it would take what this restore reads");
    assert!(site.is_kept(2) && site.is_kept(3));
    // A lower limit from now on, then none.
    drop(process);
    for (bytes, left) in [(FILE_LEN + 100, 1), (0, 0)] {
        let site = Site { limits: ThawCacheLimits { bytes, days: 7 }, ..site_of(&site) };
        let process = site.start();
        assert_eq!(process.volume.archive().kept().unwrap().containers, left);
        assert_eq!(site.is_kept(3), left == 1, "the oldest goes first");
    }
}

/// Kept copies that a restore found are going to be read: they are not evicted for the rest of it, however old they
/// are.
#[test]
fn what_a_restore_counts_on_does_not_go_for_the_rest_of_it() {
    let (site, process) = Site::new(ThawCacheLimits { bytes: 2 * FILE_LEN + 100, days: 7 });
    assert!(keep(&process, 1));
    site.world.clock.advance_ms(HOUR_MS);
    assert!(keep(&process, 2));
    site.world.clock.advance_ms(HOUR_MS);
    let archive = process.volume.archive();
    let begun_ms = archive.now_ms();
    let keep = |number: u32| archive.keep(&name(&container(number)), begun_ms).unwrap();
    // It needs the older one, and one more.
    assert_eq!(known(&archive, 1), Thawing::Readable);
    assert!(keep(3));
    assert!(site.is_kept(1) && !site.is_kept(2) && site.is_kept(3));
    assert!(!keep(4) && site.is_kept(1));
    // A later one may evict it; the other was read since.
    site.world.clock.advance_ms(HOUR_MS);
    assert_eq!(restore(&process, 1).unwrap(), content(1));
    site.world.clock.advance_ms(1);
    assert!(archive.keep(&name(&container(4)), archive.now_ms()).unwrap());
    assert!(site.is_kept(1) && !site.is_kept(3) && site.is_kept(4));
}

fn site_of(site: &Site) -> Site {
    let world = World {
        folder: tempfile::tempdir().unwrap(),
        local: site.world.local.clone(),
        stored: site.world.stored.clone(),
        bucket: Arc::clone(&site.world.bucket),
        clock: Arc::clone(&site.world.clock),
    };
    Site { world, bucket: Arc::clone(&site.bucket), folder: site.folder.clone(), limits: site.limits }
}

/// (T16) After a crash a copy is complete or missing, and whatever fails here, the restore reads the bucket.
#[test]
fn a_crash_leaves_it_whole_or_not_at_all() {
    for (after_mutations, in_flight) in
        (0..6).flat_map(|after| [(after, InFlight::Done), (after, InFlight::Lost)])
    {
        let (site, process) = Site::with_room();
        drop(process);
        let folder = Arc::new(FaultyVolume::new(site.folder.clone()));
        let process =
            site.start_with(Ok(Arc::<FaultyVolume<MemoryVolume>>::clone(&folder) as Arc<dyn Volume>));
        folder.crash_at(CrashPoint { after_mutations, in_flight });
        let archive = process.volume.archive();
        let _ = archive.keep(&one(), archive.now_ms());
        assert_eq!(restore(&process, 1).unwrap(), content(1), "{after_mutations}");
        drop((archive, process));
        let process = site.start();
        assert_eq!(restore(&process, 1).unwrap(), content(1), "{after_mutations}");
        assert!(keep(&process, 1));
    }
}
