//! Damage costs only what it concerns, and only until it is healed. Counted in look-ups, not in time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_proto::v1;
use holdfast_types::ids::{ContainerClass, ContainerId, SessionId};
use holdfast_volume::MemoryVolume;
use holdfast_volume::testing::{FaultyVolume, OpKind};

use super::agent::{backup, request, restore, send_disk, start, starter};
use super::{Bench, noise};
use crate::container::{RecentDirectories, list_containers};
use crate::engine::Engine;
use crate::ingest::StartBackup;
use crate::jobs::{Budget, Step};

const MIB: usize = 1 << 20;

fn look_ups(engine: &Engine) -> u64 {
    engine.parts().0.store.look_ups.load(Ordering::Relaxed)
}

/// Look-ups of chunks and nodes that a backup of `disk` takes.
fn cost(engine: &Engine, vm: &str, disk: &[u8]) -> u64 {
    let before = look_ups(engine);
    backup(engine, vm, &[("root", disk)]).unwrap();
    look_ups(engine) - before
}

/// The same in another namespace.
fn cost_in(engine: &Engine, namespace: &str, disk: &[u8]) -> u64 {
    let before = look_ups(engine);
    let namespace = engine.catalog().ensure_namespace(namespace).unwrap().id;
    let request = v1::StartRequest { namespace: "other".into(), ..request("vm", &[("root", disk)]) };
    let started = engine.start_backup(&StartBackup { namespace, request, starter: starter(1) }).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(engine, session, &stream, 0, disk).unwrap();
    engine.commit(session).unwrap();
    look_ups(engine) - before
}

fn first(volume: &MemoryVolume, class: ContainerClass) -> ContainerId {
    let files = list_containers(volume).unwrap().containers;
    files.into_iter().map(|(name, _)| name).find(|name| name.class == class).unwrap().id
}

/// A round of the background work that looks at damage.
fn heal(engine: &Engine) {
    assert!(matches!(engine.damage_job().step(&Budget::unlimited()).unwrap(), Step::Idle(_)));
}

/// Flips a bit of a region's payload, and takes note of it as a restore would.
fn spoil(engine: &Engine, volume: &MemoryVolume, id: ContainerId) {
    let files = list_containers(volume).unwrap().containers;
    let name = files.iter().find(|(name, _)| name.id == id).unwrap().0.blob();
    let mut bytes = volume.get(&name).unwrap().to_vec();
    bytes[3000] ^= 1;
    volume.replace(&name, bytes);
    engine.parts().0.store.note_damage(id, Some(0), "test");
}

#[test]
fn damage_costs_no_other_vm_and_no_other_namespace_anything() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let (hurt, spared, other) = (noise(1, 9 * MIB), noise(2, 9 * MIB), noise(3, 9 * MIB));
    let first_backup = backup(&engine, "hurt", &[("root", &hurt)]).unwrap();
    let victim = first(&volume, ContainerClass::Data);
    cost(&engine, "spared", &spared);
    cost_in(&engine, "other", &other);
    let sound =
        (cost(&engine, "hurt", &hurt), cost(&engine, "spared", &spared), cost_in(&engine, "other", &other));

    spoil(&engine, &volume, victim);
    assert_eq!(cost(&engine, "spared", &spared), sound.1, "another VM");
    assert_eq!(cost_in(&engine, "other", &other), sound.2, "another namespace");
    assert!(cost(&engine, "hurt", &hurt) > sound.0, "it has to look for what is lost");
    // That backup sent the lost chunks again: they were looked up, and cost nothing more.
    assert_eq!(cost(&engine, "hurt", &hurt), sound.0, "it was looked at once");

    // Damage is still known, and not a copy; but nothing is lost by it.
    assert!(!engine.catalog().damaged().unwrap()[0].healed);
    heal(&engine);
    let known = engine.catalog().damaged().unwrap();
    assert!(known.len() == 1 && known[0].healed, "{known:?}");
    assert!(restore(&engine, &first_backup.backup_id, "root").unwrap() == hurt);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = bench.open(Arc::new(volume));
    let after =
        (cost(&engine, "hurt", &hurt), cost(&engine, "spared", &spared), cost_in(&engine, "other", &other));
    assert_eq!(after, sound, "closed for good");
}

#[test]
fn after_a_restart_open_damage_is_looked_for_once() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let (hurt, spared, other) = (noise(1, 9 * MIB), noise(2, 9 * MIB), noise(3, 9 * MIB));
    backup(&engine, "hurt", &[("root", &hurt)]).unwrap();
    let victim = first(&volume, ContainerClass::Data);
    cost(&engine, "spared", &spared);
    cost_in(&engine, "other", &other);
    let sound = (cost(&engine, "spared", &spared), cost_in(&engine, "other", &other));
    spoil(&engine, &volume, victim);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = bench.open(Arc::new(volume));
    assert_eq!(cost_in(&engine, "other", &other), sound.1, "another namespace");
    assert!(cost(&engine, "spared", &spared) > sound.0, "where its chunks lie is not known yet");
    assert_eq!(cost(&engine, "spared", &spared), sound.0, "it is known now");
    heal(&engine);
    assert!(!engine.catalog().damaged().unwrap()[0].healed, "no one has sent it again");
}

#[test]
fn bytes_that_are_sound_again_close_the_damage() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(1, 9 * MIB);
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    let sound = cost(&engine, "web", &disk);
    let victim = first(&volume, ContainerClass::Data);
    // Said to be damaged, and is not.
    engine.parts().0.store.note_damage(victim, Some(0), "test");
    assert_eq!(engine.catalog().damaged().unwrap().len(), 1);
    heal(&engine);
    assert_eq!(engine.catalog().damaged().unwrap(), []);
    assert_eq!(cost(&engine, "web", &disk), sound);
}

#[test]
fn the_copy_that_healed_damage_is_watched_in_its_turn() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(1, 9 * MIB);
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    let victim = first(&volume, ContainerClass::Data);
    spoil(&engine, &volume, victim);
    // Another VM has the same data: what it brings heals web's, of which the process knows only where it was.
    backup(&engine, "copy", &[("root", &disk)]).unwrap();
    heal(&engine);
    assert!(engine.catalog().damaged().unwrap()[0].healed);
    let files = list_containers(&volume).unwrap().containers;
    let data = files.iter().map(|(name, _)| name).filter(|name| name.class == ContainerClass::Data);
    let copy = data.map(|name| name.id).max().unwrap();
    spoil(&engine, &volume, copy);
    let again = backup(&engine, "web", &[("root", &disk)]).unwrap();
    assert!(again.details[0].new_bytes > 0, "both copies are lost, so it was sent a third time");
    assert!(restore(&engine, &again.backup_id, "root").unwrap() == disk);
}

/// Data of web lies in D, which has rotted; another VM's backup, of another recipe, brought it again in H.
struct Healed {
    bench: Bench,
    volume: MemoryVolume,
    engine: Engine,
    web: Vec<u8>,
    copy: ContainerId,
}

impl Healed {
    fn new() -> Self {
        let (bench, volume) = (Bench::new(), MemoryVolume::new());
        let engine = bench.open(Arc::new(volume.clone()));
        let web = noise(1, 9 * MIB);
        backup(&engine, "web", &[("root", &web)]).unwrap();
        spoil(&engine, &volume, first(&volume, ContainerClass::Data));
        let mut other = web.clone();
        other[9 * MIB - 1] ^= 1;
        backup(&engine, "copy", &[("root", &other)]).unwrap();
        heal(&engine);
        assert!(engine.catalog().damaged().unwrap()[0].healed);
        let files = list_containers(&volume).unwrap().containers;
        let data = files.iter().map(|(name, _)| name).filter(|name| name.class == ContainerClass::Data);
        let copy = data.map(|name| name.id).max().unwrap();
        Self { bench, volume, engine, web, copy }
    }

    fn start(&self) -> SessionId {
        let started = start(&self.engine, request("web", &[("root", &self.web)])).unwrap();
        let session = started.session_id.parse().unwrap();
        let stream = self.engine.open_stream(session, 0).unwrap();
        send_disk(&self.engine, session, &stream, 0, &self.web).unwrap();
        session
    }

    fn lose_the_copy(&self) {
        spoil(&self.engine, &self.volume, self.copy);
    }

    fn is_sent_again(&self) {
        let again = backup(&self.engine, "web", &[("root", &self.web)]).unwrap();
        assert!(again.details[0].new_bytes > 0, "both copies are lost, so it was sent a third time");
        assert!(restore(&self.engine, &again.backup_id, "root").unwrap() == self.web);
    }
}

/// (R7) The reach that the second backup remembers is no newer than the reach it rests on.
#[test]
fn a_backup_after_a_healing_hides_no_loss_of_the_copy() {
    let healed = Healed::new();
    let between = backup(&healed.engine, "web", &[("root", &healed.web)]).unwrap();
    assert_eq!(between.details[0].unchanged_bytes, between.details[0].bytes);
    healed.lose_the_copy();
    let report = healed.engine.damage_report_job();
    while report.step(&Budget::unlimited()).unwrap() == Step::More {}
    let named = healed.engine.catalog().damaged_disks(None, None, 1000).unwrap();
    assert!(named.iter().any(|disk| disk.backup.to_string() == between.backup_id), "{named:?}");
    healed.is_sent_again();
}

/// (R7) Accepted after the healing, and lost before the commit.
#[test]
fn a_commit_after_a_healing_sees_the_loss_of_the_copy() {
    let healed = Healed::new();
    let session = healed.start();
    healed.lose_the_copy();
    let error = healed.engine.commit(session).unwrap_err();
    assert!(error.to_string().contains("start the backup again"), "{error}");
    healed.is_sent_again();
}

/// A copy that was not lost costs a walk once, when something else is found damaged; then it is known.
#[test]
fn a_copy_that_healed_damage_is_known_after_one_look() {
    let healed = Healed::new();
    let sound = cost(&healed.engine, "web", &healed.web);
    let other = noise(2, 9 * MIB);
    backup(&healed.engine, "other", &[("root", &other)]).unwrap();
    let files = list_containers(&healed.volume).unwrap().containers;
    let data = files.iter().map(|(name, _)| name).filter(|name| name.class == ContainerClass::Data);
    spoil(&healed.engine, &healed.volume, data.map(|name| name.id).max().unwrap());
    assert!(cost(&healed.engine, "web", &healed.web) > sound, "it is not known where the copy lies");
    assert_eq!(cost(&healed.engine, "web", &healed.web), sound);
    drop(healed.bench);
}

#[test]
fn a_directory_is_read_once_for_all_its_chunks() {
    let (bench, memory, index) = (Bench::new(), MemoryVolume::new(), MemoryVolume::new());
    let open = |data: Arc<dyn holdfast_volume::Volume>| {
        let mut parts = bench.parts(data).unwrap();
        parts.index = Arc::new(index.clone());
        Engine::assemble(parts).unwrap()
    };
    let engine = open(Arc::new(memory.clone()));
    backup(&engine, "web", &[("root", &noise(1, 9 * MIB))]).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let watched = Arc::new(FaultyVolume::new(memory.clone()));
    let engine = open(Arc::<FaultyVolume<MemoryVolume>>::clone(&watched));
    let id = first(&memory, ContainerClass::Data);
    let store = &engine.parts().0.store;
    let directory = store.containers.open(id, ContainerClass::Data).unwrap();
    let domain = store.domain(directory.namespace());
    let before = watched.count(OpKind::Read);
    let mut chunks = 0;
    for (name, _, _) in directory.directory().iter() {
        // Nothing of its own to remember: each is another stream.
        let mut recent = RecentDirectories::default();
        assert!(store.find(&domain, ContainerClass::Data, &name, &mut recent).unwrap().is_some());
        chunks += 1;
    }
    assert!(chunks > 400, "{chunks}");
    assert_eq!(watched.count(OpKind::Read) - before, 2, "header, and directory with footer");
}
