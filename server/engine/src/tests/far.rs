//! Copies that the bucket lost, and has again.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_types::ids::{ContainerClass, ContainerId};
use holdfast_volume::{Blob, BlobName, Ends, MemoryVolume, Space, Volume, VolumeError};
use parking_lot::Mutex;

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::container::{ContainerName, list_containers};
use crate::engine::Engine;

const MIB: usize = 1 << 20;

/// A volume whose data containers lie far away but for their ends, and may be lost there.
#[derive(Debug, Clone, Default)]
struct Far {
    inner: MemoryVolume,
    moved: Arc<Mutex<BTreeSet<BlobName>>>,
    lost: Arc<Mutex<BTreeSet<BlobName>>>,
}

/// More than the directory of a container of these tests.
const TAIL_BYTES: u64 = 128 << 10;

#[derive(Debug)]
struct FarBlob {
    name: BlobName,
    inner: Arc<dyn Blob>,
    lost: Arc<Mutex<BTreeSet<BlobName>>>,
}

impl Blob for FarBlob {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let is_here = offset + (buffer.len() as u64) <= 64 || offset >= self.len() - TAIL_BYTES;
        if !is_here && self.lost.lock().contains(&self.name) {
            let source = "it is gone from the bucket".into();
            return Err(VolumeError::Io { action: "read", name: self.name.to_string(), source });
        }
        self.inner.read_at(offset, buffer)
    }

    fn is_at_hand(&self) -> bool {
        false
    }

    fn drop_cached(&self) {
        self.inner.drop_cached();
    }
}

impl Volume for Far {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let inner = self.inner.open(name)?;
        if !self.moved.lock().contains(name) {
            return Ok(inner);
        }
        Ok(Arc::new(FarBlob { name: name.clone(), inner, lost: Arc::clone(&self.lost) }))
    }

    fn evict(&self, _: &BlobName, _: Ends) -> Result<bool, VolumeError> {
        Ok(false)
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        self.inner.space()
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, handles_outlive_removal to inner);
}

struct Scene {
    bench: Bench,
    volume: Far,
    engine: Engine,
    web: Vec<u8>,
}

impl Scene {
    /// Two VMs with a container each, in that order.
    fn new() -> Self {
        let (bench, volume) = (Bench::new(), Far::default());
        let engine = bench.open(Arc::new(volume.clone()));
        let web = noise(1, 4 * MIB);
        backup(&engine, "web", &[("root", &web)]).unwrap();
        backup(&engine, "db", &[("root", &noise(2, 4 * MIB))]).unwrap();
        Self { bench, volume, engine, web }
    }

    fn data(&self) -> Vec<(ContainerId, BlobName)> {
        let all = list_containers(&self.volume.inner).unwrap().containers.into_iter();
        let data = all.map(|(name, _)| name).filter(|name| name.class == ContainerClass::Data);
        data.map(|name| (name.id, ContainerName::blob(name))).collect()
    }

    /// The first VM's container lies far away and is lost there.
    fn lose(&self) -> ContainerId {
        let (id, name) = self.data().remove(0);
        self.volume.moved.lock().insert(name.clone());
        self.volume.lost.lock().insert(name);
        assert!(self.engine.note_unreadable(id, "gone").unwrap());
        id
    }

    fn lacking(&self) -> Vec<String> {
        let disks = self.engine.name_damage(10).unwrap();
        disks.into_iter().map(|disk| disk.vm).collect()
    }
}

/// (T14)
#[test]
fn a_directory_alone_makes_no_container_sound() {
    let scene = Scene::new();
    let id = scene.lose();
    assert_eq!(scene.lacking(), ["web"]);
    assert!(!scene.engine.look_again(id).unwrap(), "its directory can be read, and nothing else");
    assert_eq!(scene.engine.is_container_sound(id).unwrap(), Some(false));
    // A restart looks at it again.
    let Scene { bench, volume, engine, web } = scene;
    engine.shutdown().unwrap();
    drop(engine);
    let engine = bench.open(Arc::new(volume.clone()));
    let scene = Scene { bench, volume, engine, web };
    assert_eq!(scene.lacking(), ["web"]);
    scene.volume.lost.lock().clear();
    assert!(scene.engine.look_again(id).unwrap());
    assert_eq!(scene.engine.is_container_sound(id).unwrap(), Some(true));
    assert_eq!(scene.lacking(), Vec::<String>::new());
}

/// Its directory says what is lost, so that the next backup heals it.
#[test]
fn what_is_lost_far_away_is_sent_again() {
    let scene = Scene::new();
    scene.lose();
    assert_eq!(scene.lacking(), ["web"]);
    let sent = backup(&scene.engine, "web", &[("root", &scene.web)]).unwrap();
    assert_eq!(scene.lacking(), Vec::<String>::new());
    for id in scene.engine.catalog().all_backup_ids() {
        let record = scene.engine.catalog().backup(id.unwrap()).unwrap().unwrap();
        if record.vm == "web" {
            assert_eq!(restore(&scene.engine, &record.id.to_string(), "root").unwrap(), scene.web);
        }
    }
    assert_eq!(restore(&scene.engine, &sent.backup_id, "root").unwrap(), scene.web);
}

#[test]
fn restore_points_are_named_by_the_containers_they_need() {
    let scene = Scene::new();
    let changed = [&scene.web[..2 * MIB], &noise(3, 2 * MIB)[..]].concat();
    backup(&scene.engine, "web", &[("root", &changed)]).unwrap();
    let data = scene.data();
    assert_eq!(data.len(), 3);
    let wanted: BTreeSet<ContainerId> = data.iter().map(|(id, _)| *id).collect();
    let found = scene.engine.points_needing(&wanted, &mut |_| true).unwrap();
    let vms = |id: &ContainerId| -> Vec<&str> { found[id].iter().map(|point| point.vm.as_str()).collect() };
    assert_eq!(
        (vms(&data[0].0), vms(&data[1].0), vms(&data[2].0)),
        (vec!["web", "web"], vec!["db"], vec!["web"])
    );
    assert!(found[&data[0].0][0].started_ms <= found[&data[0].0][1].started_ms);
    // Recipes, too; and it can be stopped.
    let all = list_containers(&scene.volume.inner).unwrap().containers;
    let recipes: BTreeSet<ContainerId> = all
        .into_iter()
        .filter(|(name, _)| name.class == ContainerClass::Recipe)
        .map(|(name, _)| name.id)
        .collect();
    let found = scene.engine.points_needing(&recipes, &mut |_| true).unwrap();
    assert_eq!(found.len(), 3, "each backup wrote its own");
    assert!(scene.engine.points_needing(&wanted, &mut |_| false).is_err());
    for (id, blob) in data {
        assert_eq!(Engine::container_in(&blob), Some(id));
    }
}
