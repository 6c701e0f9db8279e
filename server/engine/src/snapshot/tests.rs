//! Snapshots that are whole, and everything else.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_catalog::AuditEntry;
use holdfast_proto::ErrorCode;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::testing::FaultyVolume;
use holdfast_volume::{BlobWriter, MemoryVolume, Owner};
use ulid::Ulid;

use super::*;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::format::snapshot::{FOOTER_BYTES, HEADER_BYTES, SnapshotFooter};
use crate::jobs::{Budget, Step, StepLimits, StopFlag};
use crate::tests::{Bench, agent::backup, noise};

const HEADER: SnapshotHeader =
    SnapshotHeader { number: 3, repository: RepositoryId(Ulid(9)), created_ms: 5, last_commit: 6 };

fn sealed(volume: &MemoryVolume, plain: &[u8]) -> BlobName {
    let name = name(HEADER.number);
    seal_snapshot(volume, &name, &HEADER, &mut &*plain, &mut |_| Ok(())).unwrap();
    name
}

fn read_all(volume: &MemoryVolume, name: &BlobName) -> Result<Vec<u8>, EngineError> {
    let mut out = Vec::new();
    read_snapshot(volume, name, Some(HEADER.repository), &mut out).map(|_| out)
}

#[test]
fn what_is_sealed_reads_back() {
    for len in [0, 1, 4096, 3 << 20] {
        let volume = MemoryVolume::new();
        let plain = [noise(len, usize::try_from(len).unwrap()), vec![7; 5000]].concat();
        let name = sealed(&volume, &plain);
        assert!(read_all(&volume, &name).unwrap() == plain, "{len}");
        assert_eq!(read_snapshot_header(&volume, &name).unwrap(), HEADER);
    }
}

#[test]
fn no_changed_byte_and_no_cut_is_believed() {
    let volume = MemoryVolume::new();
    let name = sealed(&volume, &noise(1, 3000));
    let bytes = volume.get(&name).unwrap().to_vec();
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        volume.replace(&name, changed);
        match read_all(&volume, &name) {
            // Such as the size of zstd's window: what came out is what went in.
            Ok(out) => assert!(out == noise(1, 3000), "byte {at}"),
            Err(error) => {
                assert!(matches!(error, EngineError::Damaged(_)), "byte {at}: {error:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > bytes.len() - 8, "{refused} of {}", bytes.len());
    for len in (0..bytes.len()).step_by(7) {
        volume.replace(&name, bytes[..len].to_vec());
        assert!(matches!(read_all(&volume, &name), Err(EngineError::Damaged(_))), "{len} bytes");
    }
}

#[test]
fn no_room_for_what_is_read_is_no_damage() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let volume = MemoryVolume::new();
    let name = sealed(&volume, b"catalog");
    assert_eq!(read_snapshot(&volume, &name, None, &mut Full).unwrap_err().code(), ErrorCode::Full);
}

#[test]
fn one_of_another_repository_is_refused() {
    let volume = MemoryVolume::new();
    let name = sealed(&volume, b"catalog");
    let mut out = Vec::new();
    let error = read_snapshot(&volume, &name, Some(RepositoryId(Ulid(8))), &mut out).unwrap_err();
    assert!(matches!(error, EngineError::Damaged(_)) && out.is_empty(), "{error}");
    read_snapshot(&volume, &name, None, &mut out).unwrap();
}

/// A frame of 1 GiB of zeros is 32 KiB long: what it may write is what the footer says, and not a byte more.
#[test]
fn a_frame_that_goes_on_writes_no_more_than_was_said() {
    let volume = MemoryVolume::new();
    let name = sealed(&volume, &vec![0; 64 << 20]);
    let bytes = volume.get(&name).unwrap().to_vec();
    let body = &bytes[HEADER_BYTES..bytes.len() - FOOTER_BYTES];
    let stored_bytes = body.len() as u64;
    let footer = SnapshotFooter { plain_bytes: 1000, stored_bytes, digest: [0; 32] };
    volume.replace(&name, [&HEADER.encode(), body, &footer.encode()].concat());
    let mut out = Vec::new();
    let refused = read_snapshot(&volume, &name, None, &mut out);
    assert!(matches!(refused, Err(EngineError::Damaged(_))), "{refused:?}");
    assert!(out.len() <= 1000, "{} bytes", out.len());
}

#[test]
fn the_last_few_are_kept_and_nothing_new_makes_no_other() {
    let bench = Bench::new();
    let volume = std::sync::Arc::new(MemoryVolume::new());
    let engine = bench.open(std::sync::Arc::<MemoryVolume>::clone(&volume));
    for n in 0..KEPT as u64 + 3 {
        backup(&engine, "web", &[("root", &noise(n, 5000))]).unwrap();
        assert!(engine.snapshot().unwrap().is_some());
        assert_eq!(engine.snapshot().unwrap(), None, "nothing has changed");
    }
    let numbers: Vec<u64> = list_snapshots(&*volume).unwrap().into_iter().map(|(number, _)| number).collect();
    let last = KEPT as u64 + 3;
    assert_eq!(numbers, (last - KEPT as u64 + 1..=last).rev().collect::<Vec<_>>());
    let header = read_snapshot_header(&*volume, &name(last)).unwrap();
    assert_eq!((header.repository, header.last_commit), (engine.repository_id(), last));
}

#[test]
fn a_clean_stop_seals_what_changed() {
    let bench = Bench::new();
    let volume = std::sync::Arc::new(MemoryVolume::new());
    let newest = || list_snapshots(&*volume).unwrap().first().map(|(number, _)| *number);
    let engine = bench.open(std::sync::Arc::<MemoryVolume>::clone(&volume));
    backup(&engine, "web", &[("root", &noise(1, 5000))]).unwrap();
    engine.shutdown().unwrap();
    let first = newest().unwrap();
    let header = read_snapshot_header(&*volume, &name(first)).unwrap();
    assert_eq!(header.last_commit, 1);
    drop(engine);
    // A start and a stop without a change in between.
    let engine = bench.open(std::sync::Arc::<MemoryVolume>::clone(&volume));
    engine.shutdown().unwrap();
    assert_eq!(newest(), Some(first));
}

/// Changes that no restore point records are on the volume within a minute, and cost one snapshot however many there
/// are.
#[test]
fn tokens_are_in_a_snapshot_within_a_minute() {
    let bench = Bench::new();
    let volume = Arc::new(MemoryVolume::new());
    let engine = bench.open(Arc::<MemoryVolume>::clone(&volume));
    let numbers =
        || -> Vec<u64> { list_snapshots(&*volume).unwrap().into_iter().map(|(number, _)| number).collect() };
    let job = engine.snapshot_job();
    let look = || {
        assert_eq!(job.step(&Budget::unlimited()).unwrap(), Step::Idle(Duration::from_secs(20)));
        bench.clock.advance_ms(20_000);
    };
    backup(&engine, "web", &[("root", &noise(1, 5000))]).unwrap();
    look();
    assert_eq!(numbers(), [1], "the first of the process");
    let change = |action: &str| {
        let entry = AuditEntry {
            who: "test".into(),
            action: action.into(),
            object: "x".into(),
            detail: String::new(),
        };
        engine.catalog().audit(&entry).unwrap();
    };
    for _ in 0..4 {
        backup(&engine, "web", &[("root", &noise(1, 5000))]).unwrap();
        change("login.refuse");
        look();
    }
    assert_eq!(numbers(), [1], "restore points tell of themselves");
    for action in ["token.create", "token.revoke", "vm.owner", "namespace.quota"] {
        let before = numbers();
        change(action);
        look();
        assert_eq!(numbers(), before, "more may come");
        look();
        assert_eq!(numbers(), [before[0] + 1, 1], "{action}: in place of the one before");
        look();
        assert_eq!(numbers(), [before[0] + 1, 1], "nothing new");
    }
    // Changes that never end wait a minute at most.
    let before = numbers();
    for _ in 0..3 {
        change("token.create");
        look();
    }
    assert_eq!(numbers(), [before[0] + 1, 1]);
    look();
    // An hour's snapshot holds what the one out of turn did.
    let last = numbers()[0];
    bench.clock.advance_ms(3_600_000);
    backup(&engine, "web", &[("root", &noise(2, 5000))]).unwrap();
    look();
    assert_eq!(numbers(), [last + 1, 1]);
    change("token.create");
    look();
    look();
    assert_eq!(numbers(), [last + 2, last + 1, 1]);
    let header = read_snapshot_header(&*volume, &name(last + 2)).unwrap();
    assert_eq!(header.last_commit, engine.catalog().commits().unwrap().last);
}

fn numbers(volume: &dyn Volume) -> Vec<u64> {
    list_snapshots(volume).unwrap().into_iter().map(|(number, _)| number).collect()
}

/// A copy of the catalog never takes what the catalog itself may need.
#[test]
fn without_room_above_the_reserve_no_copy_is_made_until_there_is() {
    const RESERVE: u64 = 20 << 20;
    let bench = Bench::new();
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    let mut parts = bench.parts(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume)).unwrap();
    parts.options.reserve_bytes = Some(RESERVE);
    let engine = Engine::assemble(parts).unwrap();
    let size = engine.catalog().size_bytes().unwrap();
    volume.limit_capacity(RESERVE + size / 2);
    let job = engine.snapshot_job();
    let look = || assert!(matches!(job.step(&Budget::unlimited()).unwrap(), Step::Idle(_)));
    look();
    assert_eq!(numbers(&*volume), Vec::<u64>::new());
    assert_eq!(engine.snapshot().unwrap_err().code(), ErrorCode::Full);
    volume.limit_capacity(RESERVE + 4 * size);
    look();
    assert_eq!(numbers(&*volume), Vec::<u64>::new(), "not at every look");
    bench.clock.advance_ms(600_000);
    look();
    assert_eq!(numbers(&*volume), [1]);
    // A snapshot that is asked for, and replaces all others, may use some of the reserve.
    volume.limit_capacity(RESERVE);
    engine.renew_snapshots().unwrap();
    assert_eq!(numbers(&*volume), [2]);
}

#[test]
fn a_snapshot_gives_way_to_a_stop() {
    let bench = Bench::new();
    let volume = Arc::new(MemoryVolume::new());
    let engine = bench.open(Arc::<MemoryVolume>::clone(&volume));
    let stop = StopFlag::default();
    stop.set();
    let timer = Arc::new(holdfast_volume::testing::ManualTimer::default());
    let budget = Budget::new(StepLimits::DEFAULT, timer, stop);
    assert!(matches!(engine.snapshot_job().step(&budget).unwrap(), Step::Idle(_)));
    assert_eq!(numbers(&*volume), Vec::<u64>::new());
    engine.snapshot_job().step(&Budget::unlimited()).unwrap();
    assert_eq!(numbers(&*volume), [1], "made by a later step");
}

/// Takes no snapshots once it is told so; knows whether there was a mark of a clean stop then.
#[derive(Debug, Default)]
struct Cut {
    inner: MemoryVolume,
    is_cut: std::sync::atomic::AtomicBool,
    marked: std::sync::atomic::AtomicBool,
}

impl Volume for Cut {
    fn create_for(&self, blob: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        use std::sync::atomic::Ordering;
        if blob.as_str().starts_with("snapshots/") && self.is_cut.load(Ordering::Acquire) {
            let mark = BlobName::new("index/clean-stop").unwrap();
            self.marked.store(self.inner.get(&mark).is_some(), Ordering::Release);
            let source = "cut off".into();
            return Err(VolumeError::Unavailable { action: "create", name: blob.to_string(), source });
        }
        self.inner.create_for(blob, owner)
    }

    holdfast_volume::pass_on!(open, list, remove, discard_unfinished, space, handles_outlive_removal to inner);
}

/// A stop that is cut off in its snapshot was clean, and the next process makes the snapshot.
#[test]
fn the_snapshot_of_a_stop_comes_last_and_is_not_taken_for_granted() {
    let bench = Bench::new();
    let volume = Arc::new(Cut::default());
    let engine = bench.open(Arc::<Cut>::clone(&volume));
    backup(&engine, "web", &[("root", &noise(1, 5000))]).unwrap();
    engine.snapshot_job().step(&Budget::unlimited()).unwrap();
    assert_eq!(numbers(&*volume), [1]);
    // No restore point tells of this.
    engine.catalog().ensure_namespace("berlin").unwrap();
    volume.is_cut.store(true, std::sync::atomic::Ordering::Release);
    engine.shutdown().unwrap();
    assert!(volume.marked.load(std::sync::atomic::Ordering::Acquire), "the mark is there before");
    drop(engine);
    volume.is_cut.store(false, std::sync::atomic::Ordering::Release);
    let engine = bench.open(Arc::<Cut>::clone(&volume));
    assert!(engine.opened().clean);
    engine.snapshot_job().step(&Budget::unlimited()).unwrap();
    assert_eq!(numbers(&*volume), [2, 1]);
    engine.shutdown().unwrap();
    drop(engine);
    // This one's is there.
    let engine = bench.open(Arc::<Cut>::clone(&volume));
    let before = numbers(&*volume);
    engine.snapshot_job().step(&Budget::unlimited()).unwrap();
    assert_eq!(numbers(&*volume), before);
}
