//! A damaged container is named, harms nothing else, and the next backup heals what it can.

use std::sync::Arc;

use holdfast_catalog::CatalogWalk;
use holdfast_types::ids::ContainerClass;
use holdfast_volume::{BlobName, MemoryVolume};

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::check::CheckOptions;
use crate::container::{ContainerName, list_containers};
use crate::progress::NoProgress;

const MIB: usize = 1 << 20;

fn containers(volume: &MemoryVolume, class: ContainerClass) -> Vec<BlobName> {
    let all = list_containers(volume).unwrap().containers.into_iter().map(|(name, _)| name);
    all.filter(|name| name.class == class).map(ContainerName::blob).collect()
}

fn damage(volume: &MemoryVolume, name: &BlobName, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = volume.get(name).unwrap().to_vec();
    change(&mut bytes);
    volume.replace(name, bytes);
}

/// One VM that will be hit and one that will not; then the damage; then what must still hold.
fn hit(class: ContainerClass, change: impl Fn(&mut Vec<u8>)) {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let (hit, spared) = (noise(1, 6 * MIB), noise(2, 6 * MIB));
    let (hit_id, spared_id) = {
        let engine = bench.open(Arc::new(volume.clone()));
        let hit = backup(&engine, "hit", &[("root", &hit)]).unwrap().backup_id;
        let victim = containers(&volume, class).remove(0);
        let spared = backup(&engine, "spared", &[("root", &spared)]).unwrap().backup_id;
        engine.shutdown().unwrap();
        damage(&volume, &victim, &change);
        (hit, spared)
    };
    let engine = bench.open(Arc::new(volume));
    let error = restore(&engine, &hit_id, "root").unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Damaged, "{error}");
    assert!(error.to_string().contains("root") && error.to_string().contains(&hit_id), "{error}");
    assert!(restore(&engine, &spared_id, "root").unwrap() == spared);

    let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
    assert!(report.problems.iter().any(|problem| problem.object.contains("container")), "{report:?}");
    assert!(report.problems.iter().any(|problem| problem.object.contains("\"hit\"")), "{report:?}");
    assert!(!report.problems.iter().any(|problem| problem.object.contains("\"spared\"")), "{report:?}");

    let healed = backup(&engine, "hit", &[("root", &hit)]).unwrap();
    assert!(restore(&engine, &healed.backup_id, "root").unwrap() == hit, "the next backup works");
    assert!(restore(&engine, &hit_id, "root").unwrap() == hit, "and heals the one before");
    assert!(engine.catalog().all_containers().count() > 4);
}

#[test]
fn a_flipped_bit_in_data() {
    hit(ContainerClass::Data, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
    });
}

#[test]
fn a_truncated_data_container() {
    hit(ContainerClass::Data, |bytes| bytes.truncate(bytes.len() / 2));
}

#[test]
fn a_damaged_directory() {
    hit(ContainerClass::Data, |bytes| {
        let place = bytes.len() - 100;
        bytes[place] ^= 1;
    });
}

#[test]
fn an_emptied_container() {
    hit(ContainerClass::Data, Vec::clear);
}

#[test]
fn a_damaged_recipe() {
    hit(ContainerClass::Recipe, |bytes| {
        let middle = bytes.len() / 3;
        bytes[middle] ^= 4;
    });
}

#[test]
fn a_truncated_recipe_container() {
    hit(ContainerClass::Recipe, |bytes| bytes.truncate(70));
}

#[test]
fn a_lost_or_spoilt_index_is_rebuilt() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let disk = noise(1, 6 * MIB);
    let id = {
        let engine = bench.open(Arc::new(volume.clone()));
        let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
        engine.shutdown().unwrap();
        id
    };
    let index = holdfast_volume::testing::list(&volume, "index");
    assert!(index.len() > 1, "shutdown wrote runs and a manifest");
    for victim in index {
        let spoilt = volume.snapshot();
        damage(&spoilt, &victim.name, |bytes| bytes.truncate(bytes.len() / 2));
        let engine = bench.open(Arc::new(spoilt));
        assert!(restore(&engine, &id, "root").unwrap() == disk, "{} spoilt", victim.name);
    }
}
