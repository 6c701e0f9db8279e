//! Damage to a container's header, directory or footer: restores read past it, new backups do not rely on it, and a
//! repair writes it anew.

use std::sync::Arc;

use holdfast_catalog::ContainerState;
use holdfast_types::ids::{ContainerClass, SessionId};
use holdfast_volume::testing::{FaultyVolume, OpKind};
use holdfast_volume::{BlobName, MemoryVolume, Volume as _};

use super::agent::{backup, request, restore, restore_past_damage, send_disk, starter};
use super::{Bench, namespace, noise};
use crate::check::CheckOptions;
use crate::container::{ContainerName, list_containers};
use crate::engine::Engine;
use crate::ingest::StartBackup;
use crate::jobs::NoProgress;

const MIB: usize = 1 << 20;

/// Data with runs of zeros, so that chunks end where no cut is found again, and an extent that is not full.
fn disk() -> Vec<u8> {
    let mut disk = noise(11, 9 * MIB + 12_345);
    for start in [100_000, MIB, 3 * MIB + 500, 5 * MIB] {
        disk[start..start + 80_000].fill(0);
    }
    disk
}

struct Scene {
    bench: Bench,
    volume: MemoryVolume,
    disk: Vec<u8>,
    id: String,
    victim: BlobName,
    sound: Vec<u8>,
}

impl Scene {
    fn new(class: ContainerClass) -> Self {
        let (bench, volume, disk) = (Bench::new(), MemoryVolume::new(), disk());
        let engine = bench.open(Arc::new(volume.clone()));
        let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
        engine.shutdown().unwrap();
        let all = list_containers(&volume).unwrap().containers.into_iter().map(|(name, _)| name);
        let victim = all.filter(|name| name.class == class).map(ContainerName::blob).next().unwrap();
        let sound = volume.get(&victim).unwrap().to_vec();
        Self { bench, volume, disk, id, victim, sound }
    }

    fn spoil(&self, change: impl Fn(&mut Vec<u8>)) {
        let mut bytes = self.sound.clone();
        change(&mut bytes);
        self.volume.replace(&self.victim, bytes);
    }

    fn open(&self) -> Engine {
        self.bench.open(Arc::new(self.volume.clone()))
    }
}

type Spoil = (&'static str, fn(&mut Vec<u8>));

/// Damage to all parts but the regions; offsets from the end reach footer and directory.
const SPOILS: [Spoil; 7] = [
    ("a bit of the header", |bytes| bytes[33] ^= 2),
    ("all of the header", |bytes| bytes[..64].fill(0xAB)),
    ("a bit of a fingerprint", |bytes| flip_from_end(bytes, 60)),
    ("a bit of the checksum", |bytes| flip_from_end(bytes, 36)),
    ("a bit of the footer", |bytes| flip_from_end(bytes, 10)),
    ("the footer cut off", |bytes| bytes.truncate(bytes.len() - 32)),
    ("a byte too many", |bytes| bytes.push(0)),
];

fn flip_from_end(bytes: &mut [u8], from_end: usize) {
    let place = bytes.len() - from_end;
    bytes[place] ^= 0x10;
}

#[test]
fn nothing_is_lost_outside_the_regions() {
    for class in [ContainerClass::Data, ContainerClass::Recipe] {
        let scene = Scene::new(class);
        for (what, change) in SPOILS {
            scene.spoil(change);
            let engine = scene.open();
            let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
            let named = |word: &str| report.problems.iter().any(|problem| problem.object.contains(word));
            assert!(named("container") && !named("web"), "{class:?}, {what}: {report:?}");
            assert!(restore(&engine, &scene.id, "root").unwrap() == scene.disk, "{class:?}, {what}");
            assert!(restore_past_damage(&engine, &scene.id, "root").unwrap().1.is_empty());
            let id = scene.id.parse().unwrap();
            let range = engine.read_range(namespace(&engine), id, "root", 0, scene.disk.len() as u64);
            range.unwrap().for_each(|answer| drop(answer.unwrap()));
            engine.shutdown().unwrap();
            // Reversible: with the bytes back, nothing is wrong.
            scene.volume.replace(&scene.victim, scene.sound.clone());
            let report = scene.open().check(CheckOptions { read_data: true }, &NoProgress).unwrap();
            assert!(report.is_sound(), "{class:?}, {what}: {report:?}");
        }
    }
}

#[test]
fn a_recipe_container_without_directory_is_walked_node_by_node() {
    let scene = Scene::new(ContainerClass::Recipe);
    // Directory and footer gone: nodes say how long they are.
    let directory = scene.sound.windows(4).position(|bytes| bytes == b"HFDR").unwrap();
    scene.spoil(|bytes| bytes.truncate(directory));
    assert!(restore(&scene.open(), &scene.id, "root").unwrap() == scene.disk);
}

#[test]
fn without_any_directory_most_chunks_are_cut_again() {
    let scene = Scene::new(ContainerClass::Data);
    let directory = scene.sound.windows(4).rposition(|bytes| bytes == b"HFDR").unwrap();
    scene.spoil(|bytes| bytes.truncate(directory));
    let (image, bad) = restore_past_damage(&scene.open(), &scene.id, "root").unwrap();
    let lost: usize = bad.iter().map(|range| range.len).sum();
    assert!(lost < scene.disk.len() / 4, "{lost} bytes lost");
    let mut expected = scene.disk.clone();
    bad.iter().for_each(|range| expected[range.offset..][..range.len].fill(0));
    assert!(image == expected, "never a wrong byte");
}

#[test]
fn what_is_salvaged_is_no_copy_for_a_backup() {
    let scene = Scene::new(ContainerClass::Data);
    scene.spoil(|bytes| bytes[33] ^= 2);
    let engine = scene.open();
    assert!(restore(&engine, &scene.id, "root").unwrap() == scene.disk);
    // (A7) Stored again, in a sound container, under the name of another VM.
    let healed = backup(&engine, "copy", &[("root", &scene.disk)]).unwrap();
    assert!(healed.details[0].new_bytes > 0, "{:?}", healed.details);
}

#[test]
fn a_repair_writes_it_anew_and_takes_the_damaged_file_away() {
    for class in [ContainerClass::Data, ContainerClass::Recipe] {
        for (what, change) in SPOILS {
            let scene = Scene::new(class);
            scene.spoil(change);
            let engine = scene.open();
            engine.check(CheckOptions::default(), &NoProgress).unwrap();
            let repaired = engine.repair(&NoProgress).unwrap();
            assert_eq!(repaired.len(), 1, "{class:?}, {what}");
            assert!(
                repaired[0].complete && repaired[0].rewritten == repaired[0].chunks,
                "{what}: {repaired:?}"
            );
            assert!(scene.volume.get(&scene.victim).is_none(), "{what}");
            let states = engine.catalog().all_containers().map(|found| found.unwrap().state);
            assert_eq!(states.filter(|state| *state != ContainerState::Live).count(), 0);
            engine.shutdown().unwrap();
            for round in 0..2 {
                let engine = scene.open();
                let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
                assert!(report.is_sound(), "{class:?}, {what}: {report:?}");
                assert!(restore(&engine, &scene.id, "root").unwrap() == scene.disk);
                assert_eq!(engine.repair(&NoProgress).unwrap(), [], "there is nothing left to do");
                // It is a copy again.
                let copy = backup(&engine, &format!("copy-{round}"), &[("root", &scene.disk)]).unwrap();
                assert_eq!(copy.details[0].new_bytes, 0, "{class:?}, {what}");
                engine.shutdown().unwrap();
            }
        }
    }
}

/// The other copy went bad since, and nothing has read it yet.
#[test]
fn a_repair_removes_no_file_for_a_copy_that_cannot_be_read() {
    let scene = Scene::new(ContainerClass::Data);
    let victim = ContainerName::parse(&scene.victim).unwrap();
    scene.spoil(|bytes| bytes[33] ^= 2);
    let engine = scene.open();
    backup(&engine, "copy", &[("root", &scene.disk)]).unwrap();
    engine.shutdown().unwrap();
    let all = list_containers(&scene.volume).unwrap().containers;
    for (name, _) in all.into_iter().filter(|(name, _)| name.class == victim.class && name.id > victim.id) {
        let mut bytes = scene.volume.get(&name.blob()).unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        scene.volume.replace(&name.blob(), bytes);
    }
    let engine = scene.open();
    let repaired = engine.repair(&NoProgress).unwrap();
    assert!(repaired[0].complete && repaired[0].rewritten > 0, "{repaired:?}");
    assert!(restore(&engine, &scene.id, "root").unwrap() == scene.disk);
}

#[test]
fn a_repair_keeps_a_file_of_which_something_is_lost() {
    let scene = Scene::new(ContainerClass::Data);
    scene.spoil(|bytes| {
        bytes[33] ^= 2;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        flip_from_end(bytes, 10);
    });
    let engine = scene.open();
    engine.check(CheckOptions::default(), &NoProgress).unwrap();
    let repaired = engine.repair(&NoProgress).unwrap();
    assert!(!repaired[0].complete && repaired[0].rewritten > 0, "{repaired:?}");
    assert!(scene.volume.get(&scene.victim).is_some());
    let (image, bad) = restore_past_damage(&engine, &scene.id, "root").unwrap();
    let lost: usize = bad.iter().map(|range| range.len).sum();
    assert!(lost > 0 && lost <= 256 << 10 && image != scene.disk);
    let again = &engine.repair(&NoProgress).unwrap()[0];
    assert!(again.rewritten == 0 && again.into.is_empty(), "nothing is written twice: {again:?}");
}

/// The directory is zeroed, as by a lost write: what is cut again has other names than what was stored, so that all of it
/// having copies says nothing.
#[test]
fn a_repair_keeps_a_file_of_which_chunks_were_only_guessed() {
    let scene = Scene::new(ContainerClass::Data);
    let directory = scene.sound.windows(4).rposition(|bytes| bytes == b"HFDR").unwrap();
    scene.spoil(|bytes| bytes[directory..].fill(0));
    let engine = scene.open();
    engine.check(CheckOptions::default(), &NoProgress).unwrap();
    for _ in 0..2 {
        let repaired = engine.repair(&NoProgress).unwrap();
        assert!(!repaired[0].complete, "{repaired:?}");
    }
    assert!(scene.volume.get(&scene.victim).is_some());
    assert!(!engine.check(CheckOptions::default(), &NoProgress).unwrap().is_sound());
    // The next backup sends what is lost.
    let again = backup(&engine, "web", &[("root", &scene.disk)]).unwrap();
    assert!(again.details[0].new_bytes > 0, "{:?}", again.details);
    assert!(restore(&engine, &scene.id, "root").unwrap() == scene.disk);
    assert!(restore(&engine, &again.backup_id, "root").unwrap() == scene.disk);
}

/// Nodes say themselves how long they are, and the region's header how many there are.
#[test]
fn a_recipe_container_without_directory_is_written_anew() {
    let scene = Scene::new(ContainerClass::Recipe);
    let directory = scene.sound.windows(4).rposition(|bytes| bytes == b"HFDR").unwrap();
    scene.spoil(|bytes| bytes[directory..].fill(0));
    let engine = scene.open();
    engine.check(CheckOptions::default(), &NoProgress).unwrap();
    let repaired = engine.repair(&NoProgress).unwrap();
    assert!(repaired[0].complete, "{repaired:?}");
    assert!(restore(&engine, &scene.id, "root").unwrap() == scene.disk);
}

const VMS: u64 = 70;

/// Makes backups of `VMS` VMs with a container of their own each, whose headers are all spoilt; where `indexed`, the
/// index still has their entries.
fn many_without_header(indexed: bool) -> (Bench, MemoryVolume, Vec<String>) {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let one = |vm| backup(&engine, &format!("vm-{vm}"), &[("root", &noise(vm, 300_000))]).unwrap().backup_id;
    let ids = (0..VMS).map(one).collect();
    engine.shutdown().unwrap();
    drop(engine);
    for (name, _) in list_containers(&volume).unwrap().containers {
        if name.class == ContainerClass::Data {
            let mut bytes = volume.get(&name.blob()).unwrap().to_vec();
            bytes[33] ^= 2;
            volume.replace(&name.blob(), bytes);
        }
    }
    if !indexed {
        for entry in holdfast_volume::testing::list(&volume, "index") {
            volume.remove(&entry.name).unwrap();
        }
    }
    (bench, volume, ids)
}

/// A look-up among many damaged containers reads one of them, once.
#[test]
fn damaged_containers_are_not_read_again_for_each_chunk() {
    for (indexed, restored) in [(true, 70), (false, 64)] {
        let (bench, volume, ids) = many_without_header(indexed);
        let counted = Arc::new(FaultyVolume::new(volume));
        let engine = bench.open(Arc::<FaultyVolume<_>>::clone(&counted));
        engine.check(CheckOptions::default(), &NoProgress).unwrap();
        let before = counted.count(OpKind::Open);
        for (id, vm) in ids.iter().rev().zip((0..VMS).rev()).take(restored) {
            assert!(restore(&engine, id, "root").unwrap() == noise(vm, 300_000), "{indexed}: {vm}");
        }
        let opened = counted.count(OpKind::Open) - before;
        assert!(opened <= 6 * VMS, "{indexed}: {opened} files opened for {restored} disks");
    }
}

/// However many of another namespace are damaged, those of one's own are asked.
#[test]
fn damage_of_others_does_not_hide_what_is_left() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(1, 300_000);
    let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    let berlin = engine.catalog().ensure_namespace("berlin").unwrap().id;
    for vm in 0..VMS {
        let disk = noise(100 + vm, 5000);
        let request = request(&format!("vm-{vm}"), &[("root", &disk)]);
        let asked = StartBackup { namespace: berlin, request, starter: starter(1) };
        let session: SessionId = engine.start_backup(&asked).unwrap().session_id.parse().unwrap();
        let stream = engine.open_stream(session, 0).unwrap();
        send_disk(&engine, session, &stream, 0, &disk).unwrap();
        engine.commit(session).unwrap();
    }
    engine.shutdown().unwrap();
    drop(engine);
    for (name, _) in list_containers(&volume).unwrap().containers {
        if name.class == ContainerClass::Data {
            let mut bytes = volume.get(&name.blob()).unwrap().to_vec();
            bytes[33] ^= 2;
            volume.replace(&name.blob(), bytes);
        }
    }
    for entry in holdfast_volume::testing::list(&volume, "index") {
        volume.remove(&entry.name).unwrap();
    }
    let engine = bench.open(Arc::new(volume));
    assert!(restore(&engine, &id, "root").unwrap() == disk);
}
