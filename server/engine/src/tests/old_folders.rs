//! Points in folders of earlier versions, which show names, go where they belong.

use std::sync::Arc;

use holdfast_volume::testing::{CrashPoint, FaultyVolume, InFlight, put};
use holdfast_volume::{BlobName, MemoryVolume, Volume, list_all};

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::check::CheckOptions;
use crate::engine::Engine;
use crate::jobs::NoProgress;
use crate::jobs::{Budget, JobError, Step};
use crate::points::folder;

const SHOWN: [&str; 2] = ["points/default-1c2d/web-1-3c4d", "points/default-1c2d/web-1-other"];

fn points(volume: &dyn Volume) -> Vec<BlobName> {
    list_all(volume, &folder()).map(|entry| entry.unwrap().name).collect()
}

/// Restore points with their bytes, in the folders of an earlier version.
fn of_an_earlier_version(bench: &Bench) -> (MemoryVolume, Vec<(String, Vec<u8>)>) {
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    let made = (1..4).map(|seed| {
        let disk = noise(seed, 100_000);
        (backup(&engine, "web-1", &[("root", &disk)]).unwrap().backup_id, disk)
    });
    let made = made.collect();
    engine.shutdown().unwrap();
    for (number, name) in points(&volume).into_iter().enumerate() {
        let bytes = volume.get(&name).unwrap();
        let last = name.as_str().rsplit('/').next().unwrap();
        put(&volume, &format!("{}/{last}", SHOWN[number % 2]), &bytes);
        volume.remove(&name).unwrap();
    }
    (volume, made)
}

fn run(engine: &Engine) -> Result<(), JobError> {
    let job = engine.old_point_folders_job();
    while job.step(&Budget::unlimited())? != Step::Finished {}
    Ok(())
}

fn is_moved(engine: &Engine, volume: &dyn Volume, made: &[(String, Vec<u8>)]) {
    let names = points(volume);
    assert_eq!(names.len(), made.len(), "{names:?}");
    assert!(names.iter().all(|name| !name.as_str().contains("web-1") && !name.as_str().contains("default")));
    for (id, disk) in made {
        assert!(restore(engine, id, "root").unwrap() == *disk);
    }
    let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!((report.backups, report.points), (made.len() as u64, made.len() as u64));
}

/// Copies a catalog, so that each crash begins with the same.
fn copy(bench: &Bench) -> Bench {
    let other = Bench::new();
    for entry in std::fs::read_dir(bench.folder.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), other.folder.path().join(entry.file_name())).unwrap();
    }
    other
}

/// (L5) Wherever a crash comes.
#[test]
fn points_leave_folders_that_show_names() {
    let bench = Bench::new();
    let (volume, made) = of_an_earlier_version(&bench);
    let mut crashes = 0;
    for after_mutations in 0.. {
        let mut has_crashed = false;
        for in_flight in [InFlight::Lost, InFlight::Done] {
            let bench = copy(&bench);
            let faulty = Arc::new(FaultyVolume::new(volume.snapshot()));
            let engine = bench.open(Arc::clone(&faulty) as Arc<dyn Volume>);
            let begun = faulty.mutations();
            faulty.crash_at(CrashPoint { after_mutations: begun + after_mutations, in_flight });
            let ran = run(&engine);
            has_crashed |= faulty.has_crashed();
            assert_eq!(ran.is_err(), faulty.has_crashed(), "{ran:?}");
            drop(engine);
            let volume = faulty.survivor();
            let engine = bench.open(Arc::clone(&volume) as Arc<dyn Volume>);
            run(&engine).unwrap();
            is_moved(&engine, &*volume, &made);
        }
        if !has_crashed {
            crashes = after_mutations;
            break;
        }
    }
    assert!(crashes >= 3 * 2, "each point is sealed and its old one removed: {crashes}");
}

/// Points that the catalog does not know stay.
#[test]
fn foreign_points_stay_where_they_are() {
    let bench = Bench::new();
    let (volume, made) = of_an_earlier_version(&bench);
    let engine = bench.open(Arc::new(volume.clone()));
    let foreign = format!("{}/01hf000000000000000000000z.1", SHOWN[0]);
    put(&volume, &foreign, b"of no one");
    run(&engine).unwrap();
    let left: Vec<_> = points(&volume).into_iter().filter(|name| name.as_str().contains("web")).collect();
    assert_eq!(left.iter().map(BlobName::as_str).collect::<Vec<_>>(), [foreign.as_str()]);
    volume.remove(&left[0]).unwrap();
    is_moved(&engine, &volume, &made);
}
