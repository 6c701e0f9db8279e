//! The scrub finds what rots, claims nothing it did not read, and keeps its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_catalog::ScrubPhase;
use holdfast_types::clock::Clock as _;
use holdfast_types::ids::{BackupId, ContainerClass};
use holdfast_volume::testing::{Fault, FaultyVolume, ManualTimer, OpKind};
use holdfast_volume::{BlobName, MemoryVolume, Volume as _};

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::container::{ContainerName, list_containers};
use crate::engine::Engine;
use crate::jobs::NoProgress;
use crate::jobs::{Budget, Job, Step, StepLimits, StopFlag};
use crate::scrub::{Load, ScrubFindings, ScrubStatus, ScrubWatch};

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

/// The failure is distinguished from damage, and the pass goes on without the restore point.
#[test]
fn a_restore_point_that_cannot_be_read_now_is_neither_sound_nor_damaged() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let made = backup(&engine, "web", &[("root", &noise(1, 6 * MIB))]).unwrap();
    let id: BackupId = made.backup_id.parse().unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let faulty = Arc::new(FaultyVolume::new(volume));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&faulty));
    while engine.scrub_status().unwrap().phase != ScrubPhase::RestorePoints {
        engine.scrub(&small(), &NoProgress).unwrap();
    }
    for kind in [OpKind::Open, OpKind::Read] {
        (1..1000).for_each(|nth| faulty.fail_next(kind, nth, Fault::NotReadableNow));
    }
    let before = engine.scrub_status().unwrap().found;
    while engine.scrub(&Budget::unlimited(), &NoProgress).is_err() {}
    faulty.heal();
    let found = engine.scrub_status().unwrap().found;
    assert_eq!((before.unclear, found.unclear), (0, 1));
    assert_eq!((found.restore_points, found.unsound_restore_points), (1, 0));
    assert_eq!(engine.catalog().proofs(&[id]).unwrap(), [None]);
    assert_eq!(engine.catalog().damaged().unwrap(), []);
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
    let unproven = |engine: &Engine| engine.catalog().proof_summary().unwrap().containers_unproven;
    assert_eq!(unproven(&engine), engine.catalog().proof_summary().unwrap().containers, "in memory");
    drop(engine);
    let engine = bench.open(Arc::new(volume));
    let state = engine.catalog().scrub_state().unwrap();
    assert_eq!((state.phase, state.container), (ScrubPhase::Containers, 0));
    scrubbed(&engine);
    assert_eq!(unproven(&engine), 0);
}

/// Containers that were never read count as old as they are.
#[test]
fn the_oldest_proof_is_that_of_what_was_never_read() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let oldest = |engine: &Engine| {
        let proofs = engine.catalog().proof_summary().unwrap();
        (proofs.oldest_container_ms, proofs.oldest_backup_ms)
    };
    assert_eq!(oldest(&engine), (None, None), "an empty repository");
    backup(&engine, "web", &[("root", &noise(1, 6 * MIB))]).unwrap();
    let made = bench.clock.now_ms();
    bench.clock.advance_ms(40 * DAY_MS);
    backup(&engine, "web", &[("root", &noise(2, 6 * MIB))]).unwrap();
    let (container, backup) = oldest(&engine);
    assert!(container.unwrap() <= made && backup.unwrap() <= made, "not the younger, and not nothing");
    scrubbed(&engine);
    assert_eq!(oldest(&engine), (Some(made + 40 * DAY_MS), Some(made + 40 * DAY_MS)));
}

#[derive(Default)]
struct Watch {
    /// Charges until it says to stop.
    left: Option<u32>,
    news: Vec<String>,
    found: ScrubFindings,
    passes: Vec<u64>,
}

impl ScrubWatch for Watch {
    fn charge(&mut self, _bytes: u64) -> bool {
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.left != Some(0)
    }

    fn told(&mut self, status: &ScrubStatus, found: ScrubFindings, news: Vec<String>) {
        assert!(status.done <= status.total || status.phase == ScrubPhase::Idle, "{status:?}");
        self.found = found;
        self.news.extend(news);
        self.passes.push(status.pass);
    }
}

/// A pass that someone asked for begins anew, is stopped in the middle of containers, and goes on after a restart.
#[test]
fn a_pass_that_is_asked_for_reads_everything_and_goes_on_where_it_was() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let mut engine = bench.open(Arc::new(volume.clone()));
    for day in 0..3 {
        backup(&engine, "web", &[("root", &noise(day, 9 * MIB))]).unwrap();
    }
    flip(&volume, &names(&volume, ContainerClass::Data)[1]);
    let containers = list_containers(&volume).unwrap().containers.len() as u64;
    // The background has come some way: that is no part of it.
    engine.scrub_job(30, idle()).step(&small()).unwrap();
    let (mut pass, mut found, mut news, mut attempts) = (None, ScrubFindings::default(), Vec::new(), 0);
    loop {
        // More charges than a container has regions, or none would ever be read to its end.
        let mut watch = Watch { left: Some(60), ..Watch::default() };
        let ended = engine.scrub_pass(pass, &mut watch).unwrap();
        pass = watch.passes.last().copied().or(pass);
        found.containers += watch.found.containers;
        found.damaged_containers += watch.found.damaged_containers;
        found.restore_points += watch.found.restore_points;
        news.extend(watch.news);
        attempts += 1;
        assert!(attempts < 100, "it begins again and again");
        engine.shutdown().unwrap();
        drop(engine);
        engine = bench.open(Arc::new(volume.clone()));
        if ended {
            break;
        }
    }
    assert!(attempts > 3, "{attempts}");
    assert_eq!(pass, Some(2));
    assert_eq!((found.containers, found.damaged_containers, found.restore_points), (containers, 1, 3));
    assert!(news.iter().any(|news| news.contains("is damaged")), "{news:?}");
    // Another has ended it meanwhile, or begun the next: there is nothing left to do.
    let mut late = Watch::default();
    assert!(engine.scrub_pass(Some(2), &mut late).unwrap() && engine.scrub_pass(Some(1), &mut late).unwrap());
    assert!(late.passes.is_empty(), "{:?}", late.passes);
    assert!(engine.scrub_pass(None, &mut late).unwrap());
    assert_eq!((late.passes.first(), late.found.containers), (Some(&3), containers));
}

/// While someone works on a pass, the background job has nothing to do with it; afterwards it goes on with what is left.
#[test]
fn a_pass_has_one_worker_at_a_time() {
    struct Meanwhile<'a>(&'a dyn Job, Vec<Step>);
    impl ScrubWatch for Meanwhile<'_> {
        fn charge(&mut self, _bytes: u64) -> bool {
            self.1.push(self.0.step(&Budget::unlimited()).unwrap());
            self.1.len() < 5
        }

        fn told(&mut self, _status: &ScrubStatus, _found: ScrubFindings, _news: Vec<String>) {}
    }
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    backup(&engine, "web", &[("root", &noise(1, 6 * MIB))]).unwrap();
    let job = engine.scrub_job(30, idle());
    let mut watch = Meanwhile(&*job, Vec::new());
    assert!(!engine.scrub_pass(None, &mut watch).unwrap());
    assert!(watch.1.iter().all(|step| matches!(step, Step::Idle(_))), "{:?}", watch.1);
    assert_eq!(engine.scrub_status().unwrap().found.containers, 0);
    while engine.scrub_status().unwrap().phase != ScrubPhase::Idle {
        job.step(&Budget::unlimited()).unwrap();
    }
    assert_eq!(engine.scrub_status().unwrap().pass, 1, "the pass that was begun");
    assert_eq!(engine.catalog().proof_summary().unwrap().containers_unproven, 0);
}

/// (V4) A server that is never idle is scrubbed all the same, later than in time and never in a hurry.
#[test]
fn what_is_late_is_read_beside_others() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    for day in 0..4 {
        backup(&engine, "web", &[("root", &noise(day, 6 * MIB))]).unwrap();
    }
    let load = idle();
    load.0.store(true, Ordering::Relaxed);
    let job = engine.scrub_job(30, Arc::<Switch>::clone(&load));
    let read = |budget: &Budget| {
        let before = engine.scrub_status().unwrap().found;
        assert!(matches!(job.step(budget).unwrap(), Step::Idle(rest) if !rest.is_zero()));
        let now = engine.scrub_status().unwrap().found;
        now.containers - before.containers + now.restore_points - before.restore_points
    };
    for _ in 0..3 {
        assert_eq!(read(&Budget::unlimited()), 0, "in time");
        bench.clock.advance_ms(DAY_MS);
    }
    assert_eq!(read(&Budget::unlimited()), 0, "a tenth of the month is not late");
    bench.clock.advance_ms(DAY_MS);
    assert_eq!(read(&Budget::unlimited()), 1, "late: one piece, whatever the budget");
    assert_eq!(read(&Budget::unlimited()), 0, "it has caught up");
    for _ in 0..60 {
        bench.clock.advance_ms(DAY_MS);
        read(&Budget::unlimited());
        if engine.scrub_status().unwrap().phase == ScrubPhase::Idle {
            break;
        }
    }
    let proofs = engine.catalog().proof_summary().unwrap();
    assert_eq!((proofs.containers_unproven, proofs.backups_unproven), (0, 0), "all the way round");
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
