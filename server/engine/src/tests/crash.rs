//! Power fails after every single write operation of a scripted life; whatever was committed is there after.

use std::sync::Arc;

use holdfast_volume::MemoryVolume;
use holdfast_volume::testing::{CrashPoint, Fault, FaultyVolume, InFlight, OpKind};

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::check::CheckOptions;
use crate::jobs::NoProgress;

const MIB: usize = 1 << 20;

/// Outcomes of the write during which power fails: lost or done, or both with `HOLDFAST_SLOW_TESTS`. Which one follows
/// from the write's number, without a period: writes have one.
pub(super) fn outcomes(after: u64) -> &'static [InFlight] {
    const LOST_AND_DONE: [InFlight; 2] = [InFlight::Lost, InFlight::Done];
    if std::env::var_os("HOLDFAST_SLOW_TESTS").is_some() {
        &LOST_AND_DONE
    } else if after.count_ones().is_multiple_of(2) {
        &LOST_AND_DONE[..1]
    } else {
        &LOST_AND_DONE[1..]
    }
}

/// Three backups with a restart of the index's state in between; returns what was committed.
fn live(engine: &crate::Engine) -> Vec<(String, Vec<u8>)> {
    let mut disk = noise(1, 6 * MIB);
    let mut committed = Vec::new();
    for day in 0..3u64 {
        let at = usize::try_from(day).unwrap() * MIB;
        disk[at..at + 50_000].copy_from_slice(&noise(day + 10, 50_000));
        match backup(engine, "web", &[("root", &disk)]) {
            Ok(done) => committed.push((done.backup_id, disk.clone())),
            Err(_) => break,
        }
        if day == 1 && engine.core_index_checkpoint().is_err() {
            break;
        }
    }
    committed
}

#[test]
fn nothing_committed_is_lost_wherever_power_fails() {
    let operations = {
        let bench = Bench::new();
        let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
        let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
        assert_eq!(live(&engine).len(), 3);
        volume.mutations()
    };
    assert!(operations > 20, "{operations} operations are too few to mean anything");
    for after in 0..=operations {
        for &in_flight in outcomes(after) {
            crash_once(after, in_flight);
        }
    }
}

fn crash_once(after: u64, in_flight: InFlight) {
    let bench = Bench::new();
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    volume.crash_at(CrashPoint { after_mutations: after, in_flight });
    let committed = match bench.try_open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume)) {
        Ok(engine) => live(&engine),
        Err(_) => Vec::new(),
    };
    let engine = bench.open(volume.survivor());
    for (id, disk) in &committed {
        assert!(restore(&engine, id, "root").unwrap() == *disk, "crash after {after}, {in_flight:?}");
    }
    let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
    assert!(report.is_sound(), "crash after {after}, {in_flight:?}: {:?}", report.problems);
    // (P1) One that was not acknowledged may exist, if it is whole: its point was sealed, and the start entered it.
    let entered = engine.opened().entered_points;
    assert!(entered <= 1, "crash after {after}, {in_flight:?}: {entered} were entered");
    assert_eq!(report.backups, committed.len() as u64 + entered, "half a backup, crash after {after}");
    assert_eq!(report.points, report.backups, "crash after {after}, {in_flight:?}");
    let disk = noise(99, 2 * MIB);
    let next = backup(&engine, "web", &[("root", &disk)]).unwrap();
    assert!(restore(&engine, &next.backup_id, "root").unwrap() == disk);
}

/// A life of clean stops and starts; returns what was committed.
fn live_with_stops(bench: &Bench, volume: &Arc<FaultyVolume<MemoryVolume>>) -> Vec<(String, Vec<u8>)> {
    let mut disk = noise(1, 2 * MIB);
    let mut committed = Vec::new();
    for day in 0..3u64 {
        let Ok(engine) = bench.try_open(Arc::<FaultyVolume<MemoryVolume>>::clone(volume)) else { break };
        disk[..50_000].copy_from_slice(&noise(day + 10, 50_000));
        match backup(&engine, "web", &[("root", &disk)]) {
            Ok(done) => committed.push((done.backup_id, disk.clone())),
            Err(_) => break,
        }
        if engine.shutdown().is_err() {
            break;
        }
    }
    committed
}

#[test]
fn nothing_is_lost_wherever_power_fails_in_a_clean_stop_or_a_start() {
    let operations = {
        let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
        assert_eq!(live_with_stops(&bench, &volume).len(), 3);
        assert!(bench.open(volume.survivor()).opened().clean);
        volume.mutations()
    };
    for after in 0..=operations {
        for &in_flight in outcomes(after) {
            let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
            volume.crash_at(CrashPoint { after_mutations: after, in_flight });
            let committed = live_with_stops(&bench, &volume);
            let at = format!("crash after {after}, {in_flight:?}");
            let engine = bench.open(volume.survivor());
            for (id, disk) in &committed {
                assert!(restore(&engine, id, "root").unwrap() == *disk, "{at}");
            }
            let found = engine.audit(&NoProgress).unwrap();
            assert_eq!(found.damaged_containers, 0, "{at}");
            let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
            assert!(report.is_sound(), "{at}: {:?}", report.problems);
            assert_eq!(
                report.containers,
                crate::count_containers(&*volume.survivor()).unwrap() as u64,
                "{at}"
            );
            let disk = noise(99, 2 * MIB);
            let next = backup(&engine, "web", &[("root", &disk)]).unwrap();
            assert!(restore(&engine, &next.backup_id, "root").unwrap() == disk, "{at}");
        }
    }
}

#[test]
fn a_failed_fsync_ends_writing_and_not_reading() {
    let bench = Bench::new();
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let disk = noise(1, 2 * MIB);
    let good = backup(&engine, "web", &[("root", &disk)]).unwrap();
    volume.fail_next(OpKind::Seal, 1, Fault::NotDurable { applied: false });
    let error = backup(&engine, "db", &[("root", &noise(2, 2 * MIB))]).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::ReadOnly, "{error}");
    let error = backup(&engine, "db", &[("root", &noise(3, 2 * MIB))]).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::ReadOnly, "it stays that way: {error}");
    assert!(restore(&engine, &good.backup_id, "root").unwrap() == disk);
    let engine = {
        drop(engine);
        bench.open(volume.survivor())
    };
    backup(&engine, "db", &[("root", &noise(3, 2 * MIB))]).unwrap();
}

#[test]
fn what_does_not_put_the_disk_in_doubt_does_not_end_writing() {
    let harmless = [Fault::Unavailable, Fault::OutcomeUnknown { applied: true }];
    for (kind, fault) in [OpKind::Create, OpKind::Append, OpKind::Seal]
        .into_iter()
        .flat_map(|kind| harmless.map(|fault| (kind, fault)))
    {
        let bench = Bench::new();
        let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
        let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
        volume.fail_next(kind, 1, fault);
        let error = backup(&engine, "web", &[("root", &noise(1, 2 * MIB))]).unwrap_err();
        assert_ne!(error.code(), holdfast_proto::ErrorCode::ReadOnly, "{kind:?} {fault:?}: {error}");
        bench.clock.advance_ms(200_000);
        engine.expire_sessions();
        let disk = noise(2, 2 * MIB);
        let next = backup(&engine, "web", &[("root", &disk)]).unwrap();
        assert!(restore(&engine, &next.backup_id, "root").unwrap() == disk, "{kind:?} {fault:?}");
    }
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let bench = Bench::new();
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let disk = noise(1, 2 * MIB);
    let good = backup(&engine, "web", &[("root", &disk)]).unwrap();
    volume.limit_capacity(5 << 20);
    let big = noise(2, 12 * MIB);
    let error = backup(&engine, "db", &[("root", &big)]).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Full, "{error}");
    assert!(restore(&engine, &good.backup_id, "root").unwrap() == disk, "what is there can be read");
    volume.heal();
    let next = backup(&engine, "db", &[("root", &big)]).unwrap();
    assert!(restore(&engine, &next.backup_id, "root").unwrap() == big);
}

#[test]
fn a_failed_index_flush_ends_writing_and_not_reading() {
    let bench = Bench::new();
    let (data, index) = (MemoryVolume::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let mut parts = bench.parts(Arc::new(data)).unwrap();
    parts.index = Arc::<FaultyVolume<MemoryVolume>>::clone(&index);
    let engine = crate::Engine::assemble(parts).unwrap();
    let disk = noise(1, 2 * MIB);
    let good = backup(&engine, "web", &[("root", &disk)]).unwrap();
    index.fail_next(OpKind::Seal, 1, Fault::NotDurable { applied: false });
    engine.core_index_checkpoint().unwrap_err();
    let stopped: Vec<crate::Work> = engine.stopped().into_iter().map(|stopped| stopped.work).collect();
    assert_eq!(stopped, [crate::Work::Writing, crate::Work::IndexMaintenance]);
    let error = backup(&engine, "db", &[("root", &noise(2, 2 * MIB))]).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::ReadOnly, "{error}");
    assert!(restore(&engine, &good.backup_id, "root").unwrap() == disk);
}
