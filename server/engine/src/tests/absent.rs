//! A start without the volume, with another one, or with half of it ruins nothing.

use std::sync::Arc;

use holdfast_proto::ErrorCode;
use holdfast_volume::{BlobName, MemoryVolume, Volume, list_all};

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::check::CheckOptions;
use crate::container::list_containers;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::health::Work;
use crate::jobs::NoProgress;

fn mark() -> BlobName {
    BlobName::new("repository").unwrap()
}

fn disk(seed: u64) -> Vec<u8> {
    noise(seed, 100_000)
}

/// `count` VMs, each backed up into a container of data and one of recipes.
fn stored(bench: &Bench, volume: &MemoryVolume, count: u64) -> Vec<String> {
    let engine = bench.open(Arc::new(volume.clone()));
    let ids = (0..count)
        .map(|seed| backup(&engine, &format!("vm{seed}"), &[("root", &disk(seed))]).unwrap().backup_id)
        .collect();
    engine.shutdown().unwrap();
    ids
}

fn assert_all_restore(engine: &Engine, ids: &[String]) {
    for (seed, id) in (0..).zip(ids) {
        assert!(restore(engine, id, "root").unwrap() == disk(seed), "backup {id}");
    }
    let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(engine.catalog().damaged().unwrap(), []);
}

/// Takes all containers away, half-way through the list of them at most.
fn without(volume: &MemoryVolume, keep: usize) -> MemoryVolume {
    let less = volume.snapshot();
    for (name, _) in list_containers(volume).unwrap().containers.into_iter().skip(keep) {
        less.remove(&name.blob()).unwrap();
    }
    less
}

/// A volume of which copies lie far away: whatever is asked for is found there, also while nothing is mounted here.
#[derive(Debug)]
struct WithFar {
    inner: MemoryVolume,
    local: MemoryVolume,
}

impl Volume for WithFar {
    fn here(&self) -> Option<Arc<dyn Volume>> {
        Some(Arc::new(self.local.clone()))
    }

    holdfast_volume::pass_on!(create_for, open, list, remove, discard_unfinished, space, handles_outlive_removal to inner);
}

/// (S3) The mark and the containers are in the bucket: that says nothing of the file system.
#[test]
fn copies_far_away_do_not_stand_for_the_volume() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let ids = stored(&bench, &volume, 2);
    let (before, empty) = (volume.snapshot(), MemoryVolume::new());
    let far = || Arc::new(WithFar { inner: volume.clone(), local: empty.clone() });
    let error = bench.try_open(far()).unwrap_err();
    assert!(error.to_string().contains("is the file system mounted"), "{error}");
    assert_eq!(
        list_all(&volume, &BlobName::new("index").unwrap()).count(),
        list_all(&before, &BlobName::new("index").unwrap()).count()
    );
    // Its mark alone makes it this volume: what lies in it may lie far away.
    empty.replace(&mark(), volume.get(&mark()).unwrap());
    let engine = bench.open(far());
    assert!(engine.opened().clean, "the mark of the clean stop was left");
    assert_all_restore(&engine, &ids);
    assert_eq!(engine.not_ready(), []);
    empty.remove(&mark()).unwrap();
    let reasons = engine.not_ready();
    assert!(reasons.iter().any(|one| one.obstacle == crate::Obstacle::VolumeAbsent), "{reasons:?}");
}

#[test]
fn a_start_without_the_volume_is_refused_and_changes_nothing() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let ids = stored(&bench, &volume, 2);
    let mut parts = bench.parts(Arc::new(MemoryVolume::new())).unwrap();
    parts.options.location = "/data/blobs".to_owned();
    let error = Engine::assemble(parts).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Damaged);
    for part in ["/data/blobs/repository is missing", "is the file system mounted?", "--accept-loss"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let engine = bench.open(Arc::new(volume));
    assert!(engine.opened().clean, "not even the mark of the clean stop was taken");
    assert_all_restore(&engine, &ids);
}

#[test]
fn the_volume_of_another_repository_is_refused() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let (other, foreign) = (Bench::new(), MemoryVolume::new());
    stored(&bench, &volume, 1);
    stored(&other, &foreign, 1);
    let error = bench.try_open(Arc::new(foreign.clone())).unwrap_err().to_string();
    assert!(error.contains("belongs to repository") && error.contains("mounted"), "{error}");
    foreign.remove(&mark()).unwrap();
    let error = bench.try_open(Arc::new(foreign.clone())).unwrap_err().to_string();
    assert!(error.contains("does not hold the containers"), "{error}");
    let new = Bench::new();
    assert!(new.try_open(Arc::new(foreign.clone())).is_err(), "a new catalog does not take it over either");
    assert!(foreign.get(&mark()).is_none());
}

#[test]
fn a_volume_with_containers_is_marked_again() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let ids = stored(&bench, &volume, 2);
    let bytes = volume.get(&mark()).unwrap();
    volume.remove(&mark()).unwrap();
    drop(bench.open(Arc::new(volume.clone())));
    assert_eq!(volume.get(&mark()).unwrap(), bytes);
    volume.replace(&mark(), &b"spoilt"[..]);
    let engine = bench.open(Arc::new(volume.clone()));
    assert_eq!(volume.get(&mark()).unwrap(), bytes);
    assert_all_restore(&engine, &ids);
}

#[test]
fn many_missing_containers_are_absent_not_damaged() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let ids = stored(&bench, &volume, 20);
    let half = without(&volume, 2);
    // Spoils the mark of the clean stop, so that the audit runs.
    half.replace(&BlobName::new("index/clean-stop").unwrap(), &b"spoilt"[..]);
    for by_check in [true, false] {
        let engine = bench.open(Arc::new(half.snapshot()));
        if by_check {
            let report = engine.check(CheckOptions::default(), &NoProgress).unwrap();
            assert!(report.problems.iter().any(|problem| problem.object == "volume"), "{report:?}");
            assert!(report.problems.iter().any(|problem| problem.what.contains("mounted")), "{report:?}");
        } else {
            engine.audit(&NoProgress).unwrap();
            for id in &ids {
                let _ = restore(&engine, id, "root");
            }
        }
        assert!(engine.catalog().damaged().unwrap().len() <= 16);
        assert!(engine.stopped().iter().any(|stopped| stopped.work == Work::Writing));
        let error = backup(&engine, "vm3", &[("root", &disk(3))]).unwrap_err();
        assert!(
            matches!(error, EngineError::ReadOnly(_)) && error.to_string().contains("mounted"),
            "{error}"
        );
        assert!(restore(&engine, &ids[0], "root").unwrap() == disk(0), "what is there is read");
        drop(engine);
        let engine = bench.open(Arc::new(volume.clone()));
        assert_all_restore(&engine, &ids);
        backup(&engine, "vm3", &[("root", &disk(3))]).unwrap();
    }
}

#[test]
fn a_volume_that_goes_away_while_the_server_runs_stops_writing() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let ids = stored(&bench, &volume, 20);
    let engine = bench.open(Arc::new(volume.clone()));
    let kept = volume.snapshot();
    for (name, _) in list_containers(&volume).unwrap().containers {
        volume.remove(&name.blob()).unwrap();
    }
    for id in &ids {
        restore(&engine, id, "root").unwrap_err();
    }
    assert!(engine.read_only_reason().unwrap().contains("mounted"));
    drop(engine);
    assert_all_restore(&bench.open(Arc::new(kept)), &ids);
}

#[test]
fn loss_that_is_accepted_is_damage_and_heals() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    stored(&bench, &volume, 20);
    let empty = MemoryVolume::new();
    let mut parts = bench.parts(Arc::new(empty.clone())).unwrap();
    parts.options.on_loss = crate::OnLoss::Accept;
    let engine = Engine::assemble(parts).unwrap();
    assert!(!engine.check(CheckOptions::default(), &NoProgress).unwrap().is_sound());
    assert_eq!(engine.catalog().damaged().unwrap().len(), 40);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = bench.open(Arc::new(empty));
    let id = backup(&engine, "vm3", &[("root", &disk(3))]).unwrap().backup_id;
    assert!(restore(&engine, &id, "root").unwrap() == disk(3));
}
