//! The scrub finds what rots, claims nothing it did not read, and keeps its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_catalog::ScrubPhase;
use holdfast_types::ids::{BackupId, ContainerClass};
use holdfast_volume::testing::ManualTimer;
use holdfast_volume::{BlobName, MemoryVolume, Volume as _};

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::container::{ContainerName, list_containers};
use crate::engine::Engine;
use crate::jobs::{Budget, Step, StepLimits, StopFlag};
use crate::progress::NoProgress;
use crate::scrub::{Load, ScrubFindings};

const MIB: usize = 1 << 20;
const DAY_MS: i64 = 86_400_000;

#[derive(Debug, Default)]
struct Switch(AtomicBool);

impl Load for Switch {
    fn is_busy(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn idle() -> Arc<Switch> {
    Arc::default()
}

/// One container, or one extent.
fn small() -> Budget {
    let limits = StepLimits { items: 1, bytes: u64::MAX, time: Duration::from_secs(9) };
    Budget::new(limits, Arc::new(ManualTimer::default()), StopFlag::default())
}

fn scrubbed(engine: &Engine) -> ScrubFindings {
    engine.scrub(&Budget::unlimited(), &NoProgress).unwrap()
}

fn names(volume: &MemoryVolume, class: ContainerClass) -> Vec<BlobName> {
    let all = list_containers(volume).unwrap().containers.into_iter().map(|(name, _)| name);
    all.filter(|name| name.class == class).map(ContainerName::blob).collect()
}

fn flip(volume: &MemoryVolume, name: &BlobName) {
    let mut bytes = volume.get(name).unwrap().to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    volume.replace(name, bytes);
}

#[test]
fn a_sound_repository_is_proved_and_remembered() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(1, 6 * MIB);
    let first = backup(&engine, "web", &[("root", &disk)]).unwrap();
    let second = backup(&engine, "web", &[("root", &noise(2, 5 * MIB))]).unwrap();
    bench.clock.advance_ms(DAY_MS);
    let now_ms = 1_700_000_000_000 + DAY_MS;
    let found = scrubbed(&engine);
    let containers = list_containers(&volume).unwrap().containers.len() as u64;
    assert_eq!((found.containers, found.damaged_containers), (containers, 0));
    assert_eq!((found.restore_points, found.unsound_restore_points, found.false_digests), (2, 0, 0));
    let ids: Vec<BackupId> = [&first, &second].map(|made| made.backup_id.parse().unwrap()).into();
    let check = |engine: &Engine| {
        let proofs = engine.catalog().proof_summary().unwrap();
        assert_eq!((proofs.containers_unproven, proofs.backups_unproven), (0, 0));
        assert_eq!((proofs.oldest_container_ms, proofs.oldest_backup_ms), (Some(now_ms), Some(now_ms)));
        assert_eq!(engine.catalog().proofs(&ids).unwrap(), [Some(now_ms); 2]);
        let status = engine.scrub_status().unwrap();
        assert_eq!((status.pass, status.phase, status.ended_ms), (1, ScrubPhase::Idle, Some(now_ms)));
    };
    check(&engine);
    engine.shutdown().unwrap();
    drop(engine);
    check(&bench.open(Arc::new(volume)));
}

#[test]
fn what_rots_is_found_and_the_next_backup_heals_it() {
    for (class, vanishes) in
        [(ContainerClass::Data, false), (ContainerClass::Data, true), (ContainerClass::Recipe, false)]
    {
        let bench = Bench::new();
        let volume = MemoryVolume::new();
        let engine = bench.open(Arc::new(volume.clone()));
        let disk = noise(1, 6 * MIB);
        let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
        let spared = backup(&engine, "db", &[("root", &noise(2, 5 * MIB))]).unwrap().backup_id;
        let victim = names(&volume, class).remove(0);
        if vanishes {
            volume.remove(&victim).unwrap();
        } else {
            flip(&volume, &victim);
        }
        let found = scrubbed(&engine);
        assert_eq!(found.damaged_containers, 1, "{class:?}");
        assert_eq!((found.restore_points, found.unsound_restore_points), (2, 1), "{class:?}");
        let unproven = engine.catalog().proof_summary().unwrap().containers_unproven;
        assert_eq!(unproven, 1, "{class:?}: the damaged one");
        let of = |id: &str| engine.catalog().proofs(&[id.parse().unwrap()]).unwrap()[0];
        assert!(of(&id).is_none() && of(&spared).is_some());
        backup(&engine, "web", &[("root", &disk)]).unwrap();
        assert!(restore(&engine, &id, "root").unwrap() == disk);
        let found = scrubbed(&engine);
        assert_eq!((found.restore_points, found.unsound_restore_points), (3, 0), "{class:?}");
        assert!(of(&id).is_some());
    }
}

/// Stopped after every piece, with a new process each time.
#[test]
fn the_place_is_kept_over_restarts() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let mut engine = bench.open(Arc::new(volume.clone()));
    for day in 0..3 {
        backup(&engine, "web", &[("root", &noise(day, 9 * MIB))]).unwrap();
    }
    let containers = list_containers(&volume).unwrap().containers.len() as u64;
    let (mut read, mut proved, mut steps) = (0, 0, 0);
    loop {
        let found = engine.scrub(&small(), &NoProgress).unwrap();
        read += found.containers;
        proved += found.restore_points;
        assert_eq!(found.unsound_restore_points, 0);
        steps += 1;
        assert!(steps < 60, "it begins again and again");
        let ended = engine.scrub_status().unwrap().phase == ScrubPhase::Idle;
        engine.shutdown().unwrap();
        drop(engine);
        engine = bench.open(Arc::new(volume.clone()));
        if ended {
            break;
        }
    }
    assert_eq!((read, proved), (containers, 3), "each once");
    // 9 MiB are three extents; each restore point has other ones.
    assert!(steps >= containers + 9, "{steps}");
    let proofs = engine.catalog().proof_summary().unwrap();
    assert_eq!((proofs.containers_unproven, proofs.backups_unproven), (0, 0));
}

/// A kill loses the last minute's proofs, which are read again; it claims nothing.
#[test]
fn a_kill_claims_nothing_that_was_not_written() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    backup(&engine, "web", &[("root", &noise(1, 6 * MIB))]).unwrap();
    let job = engine.scrub_job(30, idle());
    job.step(&small()).unwrap();
    assert!(engine.catalog().proof_summary().unwrap().oldest_container_ms.is_none(), "in memory");
    drop(engine);
    let engine = bench.open(Arc::new(volume));
    let state = engine.catalog().scrub_state().unwrap();
    assert_eq!((state.phase, state.container), (ScrubPhase::Containers, 0));
    scrubbed(&engine);
    assert_eq!(engine.catalog().proof_summary().unwrap().containers_unproven, 0);
}

#[test]
fn it_rests_while_others_need_the_disk_and_between_passes() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    backup(&engine, "web", &[("root", &noise(1, 6 * MIB))]).unwrap();
    let load = idle();
    let job = engine.scrub_job(30, Arc::<Switch>::clone(&load));
    load.0.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(matches!(job.step(&Budget::unlimited()).unwrap(), Step::Idle(_)));
    }
    assert_eq!(engine.scrub_status().unwrap().found.containers, 0, "busy");
    load.0.store(false, Ordering::Relaxed);
    // Ahead of its time, so it rests, but not for long.
    let Step::Idle(rest) = job.step(&small()).unwrap() else { panic!("it is ahead") };
    assert!(rest <= Duration::from_secs(60), "{rest:?}");
    while engine.scrub_status().unwrap().phase != ScrubPhase::Idle {
        job.step(&Budget::unlimited()).unwrap();
    }
    let passes = |expected: u64| {
        job.step(&Budget::unlimited()).unwrap();
        assert_eq!(engine.scrub_status().unwrap().pass, expected);
    };
    passes(1);
    bench.clock.advance_ms(29 * DAY_MS);
    passes(1);
    bench.clock.advance_ms(DAY_MS);
    passes(2);
    assert_eq!(engine.scrub_job(0, idle()).step(&Budget::unlimited()).unwrap(), Step::Finished, "off");
}

/// A container that is deleted between two looks is a miss.
#[test]
fn a_container_that_is_deleted_meanwhile_is_no_damage() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    backup(&engine, "web", &[("root", &noise(1, 6 * MIB))]).unwrap();
    let victim = list_containers(&volume).unwrap().containers[0].0;
    let store = &engine.parts().0.store;
    store.leftovers.note_gone(victim.id);
    volume.remove(&victim.blob()).unwrap();
    let found = scrubbed(&engine);
    assert_eq!((found.damaged_containers, found.containers), (0, 1));
    assert_eq!(engine.catalog().damaged().unwrap(), []);
}
