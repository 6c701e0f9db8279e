//! Blobs that a start looks at, after a clean stop and after a crash.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_proto::Fingerprint;
use holdfast_proto::region::Encoder;
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId};
use holdfast_volume::testing::{FaultyVolume, ManualTimer, OpKind};
use holdfast_volume::{Blob, BlobName, MemoryVolume, Timer, Volume, VolumeError};
use parking_lot::{Condvar, Mutex};

use super::agent::{backup, restore};
use super::{Bench, namespace, noise};
use crate::container::{ContainerWriter, VerifiedRegion, list_containers};
use crate::engine::Engine;
use crate::index::IndexOptions;
use crate::jobs::NoProgress;
use crate::jobs::{Budget, Step, StepLimits, StopFlag};
use crate::store::OnLoss;

const MIB: usize = 1 << 20;

fn faulty(volume: &MemoryVolume) -> Arc<FaultyVolume<MemoryVolume>> {
    Arc::new(FaultyVolume::new(volume.clone()))
}

/// (W8) A catalog from before containers were made, which are gone by now: as long as the index knows their numbers, none of
/// them is used again, or what is in the new one would not be found after a crash.
#[test]
fn numbers_that_the_index_knows_are_passed_by() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let database = bench.folder.path().join("catalog.db");
    let open = || bench.open(Arc::new(volume.clone()));
    open().shutdown().unwrap();
    let old = std::fs::read(&database).unwrap();
    let engine = open();
    let dead = backup(&engine, "web", &[("root", &noise(1, 2 * MIB))]).unwrap().backup_id;
    // Its index covers them from now on.
    engine.shutdown().unwrap();
    drop(engine);
    let engine = open();
    let last = engine.catalog().all_containers().map(|row| row.unwrap().id).max().unwrap();
    super::reclaim::delete(&engine, &dead);
    super::reclaim::reclaim(&engine);
    drop(engine);
    assert_eq!(list_containers(&volume).unwrap().containers.len(), 0);
    for file in ["catalog.db-wal", "catalog.db-shm"] {
        let _ = std::fs::remove_file(bench.folder.path().join(file));
    }
    std::fs::write(&database, old).unwrap();
    let engine = open();
    assert!(engine.parts().0.store.index.is_covered(last), "the index was not written since");
    let disk = noise(2, 2 * MIB);
    let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    let first = engine.catalog().all_containers().map(|row| row.unwrap().id).min().unwrap();
    assert!(first > last, "{first} is not above {last}");
    // Killed: what was sealed since is indexed by the next start.
    drop(engine);
    assert!(restore(&open(), &id, "root").unwrap() == disk);
}

#[test]
fn after_a_clean_stop_no_container_is_looked_for() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let disk = noise(1, 2 * MIB);
    let engine = bench.open(Arc::new(volume.clone()));
    let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    engine.audit(&NoProgress).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let watched = faulty(&volume);
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&watched));
    assert!(engine.opened().clean && engine.audit_finished());
    assert_eq!(watched.count(OpKind::List), 2, "the folders of the index and of generations");
    assert!(restore(&engine, &id, "root").unwrap() == disk);
    drop(engine);
    assert!(!bench.open(Arc::new(volume)).opened().clean, "the mark counts once");
}

#[test]
fn a_mark_beside_another_catalog_does_not_count() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    backup(&engine, "web", &[("root", &noise(1, 2 * MIB))]).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let database = bench.folder.path().join("catalog.db");
    let copy = std::fs::read(&database).unwrap();
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(2, 2 * MIB);
    backup(&engine, "db", &[("root", &disk)]).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    for file in ["catalog.db-wal", "catalog.db-shm"] {
        let _ = std::fs::remove_file(bench.folder.path().join(file));
    }
    std::fs::write(&database, copy).unwrap();
    let engine = bench.open(Arc::new(volume.clone()));
    assert!(!engine.opened().clean);
    engine.audit(&NoProgress).unwrap();
    let rows = engine.catalog().all_containers().count();
    assert_eq!(rows, list_containers(&volume).unwrap().containers.len(), "all are adopted");
    let next = backup(&engine, "db", &[("root", &noise(3, 2 * MIB))]).unwrap();
    assert!(
        restore(&engine, &next.backup_id, "root").unwrap() == noise(3, 2 * MIB),
        "no number is used twice"
    );
}

#[test]
fn the_audit_finds_what_a_start_after_a_crash_does_not_look_at() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    backup(&engine, "web", &[("root", &noise(1, 2 * MIB))]).unwrap();
    engine.core_index_checkpoint().unwrap();
    drop(engine);
    let lost = list_containers(&volume).unwrap().containers[0].0.blob();
    volume.remove(&lost).unwrap();
    let engine = bench.open(Arc::new(volume));
    assert_eq!(engine.opened().damaged_containers, 0);
    assert!(!engine.audit_finished());
    assert_eq!(engine.audit(&NoProgress).unwrap().damaged_containers, 1);
    assert_eq!(engine.catalog().damaged().unwrap().len(), 1);
    assert!(engine.audit_finished());
}

#[test]
fn an_audit_not_finished_goes_on_after_a_clean_stop() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    backup(&engine, "web", &[("root", &noise(1, MIB))]).unwrap();
    drop(engine);
    bench.open(Arc::new(volume.clone())).shutdown().unwrap();
    let engine = bench.open(Arc::new(volume));
    assert!(engine.opened().clean);
    assert!(!engine.audit_finished(), "the stop did not forget it");
}

#[test]
fn a_step_of_the_audit_ends_between_two_pieces_and_the_next_start_goes_on_there() {
    const ROWS: u64 = 200;
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let namespace = namespace(&engine);
    let rows: Vec<ContainerRecord> = (1..=ROWS).map(|number| row(number, namespace)).collect();
    engine.catalog().add_containers(&rows).unwrap();
    engine.core_index_cover(rows.iter().map(|row| row.id));
    engine.core_index_checkpoint().unwrap();
    drop(engine);

    let timer: Arc<dyn Timer> = Arc::new(ManualTimer::default());
    let one = StepLimits { items: 1, ..StepLimits::DEFAULT };
    let budget = |limits, stop| Budget::new(limits, Arc::clone(&timer), stop);
    let damaged = |engine: &Engine| engine.catalog().damaged().unwrap().len();
    // Without this, so many missing containers are taken for an absent volume.
    let open = || {
        let mut parts = bench.parts(Arc::new(volume.clone())).unwrap();
        parts.options.on_loss = OnLoss::Accept;
        Engine::assemble(parts).unwrap()
    };
    let engine = open();
    let audit = engine.audit_job();
    assert_eq!(audit.step(&budget(one, StopFlag::default())).unwrap(), Step::More);
    assert_eq!((audit.resume_point(), damaged(&engine)), (Some(64), 63), "numbers begin at 1");
    engine.shutdown().unwrap();
    assert!(audit.step(&Budget::unlimited()).is_err(), "the mark of the stop names its place");
    drop((engine, audit));

    let engine = open();
    assert!(engine.opened().clean);
    let audit = engine.audit_job();
    assert_eq!(audit.resume_point(), Some(64));
    let stop = StopFlag::default();
    stop.set();
    assert_eq!(audit.step(&budget(StepLimits::DEFAULT, stop)).unwrap(), Step::More);
    assert_eq!((audit.resume_point(), damaged(&engine)), (Some(128), 127));
    assert_eq!(audit.step(&budget(StepLimits::DEFAULT, StopFlag::default())).unwrap(), Step::Finished);
    assert_eq!((audit.resume_point(), damaged(&engine)), (None, 200));
    let progress = audit.progress().unwrap();
    assert!(progress.done == progress.total && progress.total > ROWS, "{progress:?}");
}

fn row(number: u64, namespace: NamespaceId) -> ContainerRecord {
    ContainerRecord {
        id: ContainerId::new(number).unwrap(),
        class: ContainerClass::Data,
        namespace,
        stored_bytes: 32 << 20,
        plain_bytes: 64 << 20,
        chunk_count: 2048,
        created_ms: 1,
        run: None,
        state: ContainerState::Live,
    }
}

/// A container of 64 regions; returns its bytes.
fn write_container(engine: &Engine, volume: &MemoryVolume, number: u64) -> u64 {
    let chunks: Vec<Vec<u8>> = (0..32).map(|number| noise(number, 100)).collect();
    let chunks: Vec<(Fingerprint, &[u8])> =
        chunks.iter().map(|one| (Fingerprint::of(one), &one[..])).collect();
    let region = VerifiedRegion::encode(&chunks, &mut Encoder::new(1).unwrap()).unwrap();
    let (id, class) = (ContainerId::new(number).unwrap(), ContainerClass::Data);
    let (repository, namespace) = (engine.repository_id(), namespace(engine));
    let mut writer = ContainerWriter::create(volume, repository, namespace, id, class, 1).unwrap();
    for _ in 0..64 {
        writer.append(&region).unwrap();
    }
    writer.seal().unwrap().stored_bytes
}

/// As a first full leaves it that is killed: nearly all containers have rows of no run and are in the index; the last
/// ones, which the memtable held, have full directories to be read, and the very last no row.
fn after_a_kill_in_a_first_full(bench: &Bench, volume: &MemoryVolume) {
    const IN_MEMTABLE: u64 = 1600;
    const WITHOUT_ROW: u64 = 64;
    let engine = bench.open(Arc::new(volume.clone()));
    let namespace = namespace(&engine);
    let numbers = engine.catalog().reserve_container_numbers(u32::try_from(IN_MEMTABLE).unwrap()).unwrap();
    for number in numbers.clone() {
        let stored_bytes = write_container(&engine, volume, number);
        if number < numbers.end - WITHOUT_ROW {
            let record = ContainerRecord { stored_bytes, ..row(number, namespace) };
            engine.catalog().add_containers(&[record]).unwrap();
        }
    }
    drop(engine);
    // As a server has it; other tests make do with less.
    let mut parts = bench.parts(Arc::new(volume.clone())).unwrap();
    parts.options.index = IndexOptions { new_secret: Some([7; 32]), ..IndexOptions::default() };
    let began = Instant::now();
    let engine = Engine::assemble(parts).unwrap();
    let took = began.elapsed();
    let opened = engine.opened();
    println!("ready in {took:?} after a kill in a first full, {opened:?}");
    assert_eq!((opened.adopted_containers, opened.replayed_containers), (WITHOUT_ROW, IN_MEMTABLE));
    assert!(took.as_secs() < 20, "{took:?}");
}

/// Ready in less than two seconds with a million containers. Run with `--ignored --nocapture`.
#[test]
#[ignore = "takes a minute; says how long a start takes"]
fn startup_bench() {
    const CONTAINERS: u64 = 1_000_000;
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let namespace = namespace(&engine);
    for first in (1..=CONTAINERS).step_by(1000) {
        let rows: Vec<ContainerRecord> = (first..first + 1000).map(|number| row(number, namespace)).collect();
        engine.catalog().add_containers(&rows).unwrap();
        engine.core_index_cover(rows.iter().map(|row| row.id));
    }
    engine.core_index_checkpoint().unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let watched = faulty(&volume);
    let began = Instant::now();
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&watched));
    let took = began.elapsed();
    println!("ready in {took:?} with {CONTAINERS} containers after a clean stop");
    assert!(engine.opened().clean);
    assert_eq!(watched.count(OpKind::List), 1);
    assert!(took.as_secs() < 2, "{took:?}");
    drop(engine);
    let began = Instant::now();
    let engine = bench.open(Arc::new(volume.clone()));
    println!("ready in {:?} after a crash", began.elapsed());
    assert!(!engine.opened().clean);
    drop(engine);
    after_a_kill_in_a_first_full(&bench, &volume);
    assert!(BlobName::new("index").is_some());
}

/// Reads of containers end when several are under way.
#[derive(Debug)]
struct Reading {
    /// Opens in progress, and the most at one time.
    counts: Mutex<(usize, usize)>,
    more: Condvar,
    deadline: Instant,
}

const AT_ONCE: usize = 4;

#[derive(Debug)]
struct Together(MemoryVolume, Arc<Reading>);

#[derive(Debug)]
struct TogetherBlob(Arc<dyn Blob>, Arc<Reading>);

impl Volume for Together {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let inner = self.0.open(name)?;
        if !name.as_str().ends_with(".data") {
            return Ok(inner);
        }
        Ok(Arc::new(TogetherBlob(inner, Arc::clone(&self.1))))
    }

    holdfast_volume::pass_on!(
        create_for, list, remove, discard_unfinished, space, handles_outlive_removal to 0
    );
}

impl Blob for TogetherBlob {
    fn drop_cached(&self) {
        self.0.drop_cached();
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let Reading { counts, more, deadline } = &*self.1;
        let mut now = counts.lock();
        now.0 += 1;
        now.1 = now.1.max(now.0);
        more.notify_all();
        while now.1 < AT_ONCE && !more.wait_until(&mut now, *deadline).timed_out() {}
        now.0 -= 1;
        drop(now);
        self.0.read_at(offset, buffer)
    }
}

/// Where they lie far away each takes as long as its requests.
#[test]
fn a_start_reads_many_directories_side_by_side() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let disks: Vec<Vec<u8>> = (0..8).map(|seed| noise(seed, MIB)).collect();
    let engine = bench.open(Arc::new(volume.clone()));
    let made: Vec<String> = (0..)
        .zip(&disks)
        .map(|(n, disk)| backup(&engine, &format!("vm{n}"), &[("root", disk)]).unwrap().backup_id)
        .collect();
    // Killed: nothing of it is in the index.
    drop(engine);
    let deadline = Instant::now() + Duration::from_secs(600);
    let reading = Arc::new(Reading { counts: Mutex::default(), more: Condvar::new(), deadline });
    let engine = bench.open(Arc::new(Together(volume, Arc::clone(&reading))));
    assert_eq!(engine.opened().replayed_containers, 16, "a recipe's and a disk's each");
    assert!(reading.counts.lock().1 >= AT_ONCE, "one after the other");
    for (id, disk) in made.iter().zip(&disks) {
        assert!(restore(&engine, id, "root").unwrap() == *disk);
    }
}

/// A volume whose blobs are all in the bucket; it counts how often data containers are asked for.
#[derive(Debug)]
struct Away(MemoryVolume, Arc<Mutex<u64>>);

#[derive(Debug)]
struct AwayBlob(Arc<dyn Blob>);

impl Volume for Away {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        // Blobs in the bucket are listed here; only opening one asks for it.
        let inner = self.0.open(name)?;
        *self.1.lock() += u64::from(name.as_str().ends_with(".data"));
        Ok(Arc::new(AwayBlob(inner)))
    }

    holdfast_volume::pass_on!(
        create_for, list, remove, discard_unfinished, space, handles_outlive_removal to 0
    );
}

impl Blob for AwayBlob {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        self.0.read_at(offset, buffer)
    }

    fn is_at_hand(&self) -> bool {
        false
    }

    fn drop_cached(&self) {
        self.0.drop_cached();
    }
}

/// A request for each number, one after the other, would be most of what a recovery takes.
#[test]
fn a_start_does_not_ask_a_place_far_away_for_one_number_after_the_other() {
    const WITHOUT_ROW: u64 = 8;
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let numbers = engine.catalog().reserve_container_numbers(u32::try_from(WITHOUT_ROW).unwrap()).unwrap();
    for number in numbers {
        write_container(&engine, &volume, number);
    }
    // Killed.
    drop(engine);
    let asked = Arc::new(Mutex::new(0));
    let engine = bench.open(Arc::new(Away(volume, Arc::clone(&asked))));
    assert_eq!(engine.opened().adopted_containers, WITHOUT_ROW);
    assert_eq!(*asked.lock(), WITHOUT_ROW + 1, "each for its directory, and one to see that it is far away");
}
