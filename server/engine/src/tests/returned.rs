//! Bytes that were away or spoilt and are back: what they hold counts again.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_catalog::ContainerState;
use holdfast_proto::ErrorCode;
use holdfast_types::ids::ContainerClass;
use holdfast_volume::{BlobName, MemoryVolume, Volume};

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::check::{CheckOptions, CheckReport};
use crate::container::{ContainerName, OpenContainer, list_containers};
use crate::engine::Engine;
use crate::jobs::NoProgress;
use crate::store::LOOK_AGAIN_MS;

const MIB: usize = 1 << 20;

fn names(volume: &MemoryVolume) -> Vec<ContainerName> {
    list_containers(volume).unwrap().containers.into_iter().map(|(name, _)| name).collect()
}

fn first(volume: &MemoryVolume, class: ContainerClass) -> ContainerName {
    names(volume).into_iter().find(|name| name.class == class).unwrap()
}

fn take_away(volume: &MemoryVolume, name: &BlobName) -> Bytes {
    let bytes = volume.get(name).unwrap();
    volume.remove(name).unwrap();
    bytes
}

fn flip(volume: &MemoryVolume, name: &BlobName, at: usize) {
    let mut bytes = volume.get(name).unwrap().to_vec();
    bytes[at] ^= 4;
    volume.replace(name, bytes);
}

fn check(engine: &Engine, read_data: bool) -> CheckReport {
    engine.check(CheckOptions { read_data }, &NoProgress).unwrap()
}

/// Asserts that no damage is found, and none is remembered.
fn assert_sound(engine: &Engine, ids: &[(String, Vec<u8>)]) {
    let report = check(engine, true);
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(engine.catalog().damaged().unwrap(), []);
    for (id, disk) in ids {
        assert!(restore(engine, id, "root").unwrap() == *disk, "backup {id}");
    }
}

/// Two VMs, each with containers of its own.
fn two_backups(engine: &Engine) -> Vec<(String, Vec<u8>)> {
    let one = |vm: &str, seed| {
        let disk = noise(seed, 3 * MIB);
        (backup(engine, vm, &[("root", &disk)]).unwrap().backup_id, disk)
    };
    vec![one("web", 1), one("db", 2)]
}

#[test]
fn each_container_that_was_away_counts_again() {
    for clean in [true, false] {
        let (bench, volume) = (Bench::new(), MemoryVolume::new());
        let engine = bench.open(Arc::new(volume.clone()));
        let ids = two_backups(&engine);
        engine.shutdown().unwrap();
        drop(engine);
        for name in names(&volume) {
            let bytes = take_away(&volume, &name.blob());
            let engine = bench.open(Arc::new(volume.clone()));
            engine.audit(&NoProgress).unwrap();
            assert!(!check(&engine, false).is_sound());
            assert_eq!(engine.catalog().damaged().unwrap().len(), 1, "{name:?} is away");
            if clean {
                engine.shutdown().unwrap();
            }
            drop(engine);
            volume.replace(&name.blob(), bytes);
            let engine = bench.open(Arc::new(volume.clone()));
            // Before anything is read or checked, which would look again as well.
            let state = engine.catalog().container(name.id).unwrap().unwrap().state;
            assert_eq!(state, ContainerState::Live);
            assert_sound(&engine, &ids);
            engine.shutdown().unwrap();
        }
    }
}

#[test]
fn a_container_that_is_back_counts_without_a_restart() {
    for class in [ContainerClass::Data, ContainerClass::Recipe] {
        let (bench, volume) = (Bench::new(), MemoryVolume::new());
        let engine = bench.open(Arc::new(volume.clone()));
        let ids = two_backups(&engine);
        engine.shutdown().unwrap();
        drop(engine);
        let engine = bench.open(Arc::new(volume.clone()));
        let name = first(&volume, class);
        let bytes = take_away(&volume, &name.blob());
        assert_eq!(restore(&engine, &ids[0].0, "root").unwrap_err().code(), ErrorCode::Damaged);
        assert_eq!(engine.catalog().damaged().unwrap().len(), 1);
        volume.replace(&name.blob(), bytes);
        assert_eq!(restore(&engine, &ids[0].0, "root").unwrap_err().code(), ErrorCode::Damaged, "not yet");
        bench.clock.advance_ms(LOOK_AGAIN_MS);
        assert_sound(&engine, &ids);
    }
}

#[test]
fn a_file_that_is_back_with_other_bytes_does_not_count() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let ids = two_backups(&engine);
    engine.shutdown().unwrap();
    drop(engine);
    let name = first(&volume, ContainerClass::Data).blob();
    let bytes = volume.get(&name).unwrap();
    volume.replace(&name, bytes.slice(..bytes.len() / 2));
    drop(bench.open(Arc::new(volume.clone())));
    let engine = bench.open(Arc::new(volume.clone()));
    engine.audit(&NoProgress).unwrap();
    assert_eq!(engine.catalog().damaged().unwrap().len(), 1);
    bench.clock.advance_ms(LOOK_AGAIN_MS);
    assert_eq!(restore(&engine, &ids[0].0, "root").unwrap_err().code(), ErrorCode::Damaged);
    assert_eq!(engine.catalog().damaged().unwrap().len(), 1);
}

#[test]
fn a_repaired_region_counts_again() {
    for restart in [true, false] {
        let (bench, volume) = (Bench::new(), MemoryVolume::new());
        let engine = bench.open(Arc::new(volume.clone()));
        let ids = two_backups(&engine);
        engine.shutdown().unwrap();
        drop(engine);
        let mut engine = bench.open(Arc::new(volume.clone()));
        let name = first(&volume, ContainerClass::Data).blob();
        let middle = volume.get(&name).unwrap().len() / 2;
        flip(&volume, &name, middle);
        restore(&engine, &ids[0].0, "root").unwrap_err();
        let damaged = engine.catalog().damaged().unwrap();
        assert!(damaged.len() == 1 && damaged[0].region.is_some(), "{damaged:?}");
        bench.clock.advance_ms(LOOK_AGAIN_MS);
        restore(&engine, &ids[0].0, "root").unwrap_err();
        assert_eq!(engine.catalog().damaged().unwrap(), damaged, "looked at again, and still damaged");
        flip(&volume, &name, middle);
        bench.clock.advance_ms(LOOK_AGAIN_MS);
        if restart {
            drop(engine);
            engine = bench.open(Arc::new(volume.clone()));
            assert_eq!(engine.catalog().damaged().unwrap(), [], "the start looks");
        } else {
            assert!(restore(&engine, &ids[0].0, "root").unwrap() == ids[0].1, "the access looks");
        }
        assert_sound(&engine, &ids);
    }
}

#[test]
fn of_two_damaged_regions_the_repaired_one_counts_again() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    two_backups(&engine);
    let name = first(&volume, ContainerClass::Data);
    let repository = engine.repository_id();
    let open = OpenContainer::open(&volume, repository, name.id, name.class).unwrap();
    let place = |region| usize::try_from(open.directory().region(region).unwrap().payload_offset()).unwrap();
    for region in [1, 2] {
        flip(&volume, &name.blob(), place(region));
    }
    assert!(!check(&engine, true).is_sound());
    assert_eq!(engine.catalog().damaged().unwrap().len(), 2);
    flip(&volume, &name.blob(), place(1));
    assert!(!check(&engine, false).is_sound());
    let damaged = engine.catalog().damaged().unwrap();
    assert_eq!(damaged.iter().map(|damage| damage.region).collect::<Vec<_>>(), [Some(2)]);
}

#[test]
fn a_spoilt_region_header_is_reported_but_takes_nothing_away() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let ids = two_backups(&engine);
    let name = first(&volume, ContainerClass::Data);
    // The first region's header lies behind the container's.
    flip(&volume, &name.blob(), 64 + 9);
    let report = check(&engine, true);
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert_eq!(engine.catalog().damaged().unwrap(), [], "no chunk is lost by it");
    assert!(restore(&engine, &ids[0].0, "root").unwrap() == ids[0].1);
}

/// A crash as soon as one of two things known of a container was found sound again forgets no other.
#[test]
fn what_is_still_damaged_is_known_after_a_crash_in_a_look() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let ids = two_backups(&engine);
    let victim = first(&volume, ContainerClass::Data);
    let sound = volume.get(&victim.blob()).unwrap();
    let place = {
        let (core, _) = engine.parts();
        let open = core.store.containers.get(victim.id, victim.class).unwrap();
        core.store.note_damage(victim.id, Some(1), "passes");
        open.directory().region(0).unwrap().payload_offset()
    };
    flip(&volume, &victim.blob(), usize::try_from(place).unwrap() + 7);
    let (core, _) = engine.parts();
    core.store.note_damage(victim.id, Some(0), "stays");
    // Nothing of it was taken away and written again: the time it was found is the same.
    let catalog = bench.catalog(&Arc::default()).unwrap();
    bench.clock.advance_ms(7);
    core.store.look_again(victim.id).unwrap();
    let regions = |catalog: &holdfast_catalog::Catalog| -> Vec<(Option<u16>, i64)> {
        catalog.damaged().unwrap().into_iter().map(|one| (one.region, one.found_ms)).collect()
    };
    assert_eq!(regions(&catalog), [(Some(0), 1_700_000_000_000)]);
    drop((catalog, engine));
    volume.replace(&victim.blob(), sound);
    assert_sound(&bench.open(Arc::new(volume)), &ids);
}
