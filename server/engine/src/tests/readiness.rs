//! Reasons for which backups are not accepted, each met as in practice, and gone with its cause.

use std::sync::Arc;

use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};
use holdfast_volume::{BlobName, MemoryVolume, Volume};

use super::agent::backup;
use super::{Bench, noise};
use crate::health::Health;
use crate::{Engine, Obstacle};

struct Scene {
    volume: Arc<FaultyVolume<MemoryVolume>>,
    catalog: Arc<holdfast_catalog::Catalog>,
    engine: Engine,
    _bench: Bench,
}

fn scene() -> Scene {
    let bench = Bench::new();
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    volume.limit_capacity(200 << 20);
    let health = Arc::<Health>::default();
    let catalog = Arc::new(bench.catalog(&health).unwrap());
    let data: Arc<dyn Volume> = Arc::<FaultyVolume<MemoryVolume>>::clone(&volume);
    let mut parts = bench.parts_with(data, Arc::<holdfast_catalog::Catalog>::clone(&catalog), health);
    parts.options.reserve_bytes = Some(20 << 20);
    let engine = Engine::assemble(parts).unwrap();
    backup(&engine, "web", &[("root", &noise(1, 1 << 20))]).unwrap();
    assert_eq!(engine.not_ready(), []);
    Scene { volume, catalog, engine, _bench: bench }
}

impl Scene {
    fn obstacles(&self) -> Vec<Obstacle> {
        self.engine.not_ready().iter().map(|found| found.obstacle).collect()
    }
}

#[test]
fn full_until_there_is_room() {
    let scene = scene();
    scene.volume.limit_capacity(50 << 20);
    assert_eq!(scene.obstacles(), [Obstacle::Full]);
    assert!(scene.engine.not_ready()[0].reason.contains("keeps 20 MiB"));
    scene.volume.limit_capacity(200 << 20);
    assert_eq!(scene.obstacles(), []);
}

#[test]
fn a_volume_that_takes_no_writes() {
    let scene = scene();
    scene.volume.fail_next(OpKind::Create, 1, Fault::Io);
    assert_eq!(scene.obstacles(), [Obstacle::VolumeReadOnly]);
    assert_eq!(scene.obstacles(), [], "looking latched nothing");
}

#[test]
fn a_volume_that_is_not_there() {
    let scene = scene();
    scene.volume.remove(&BlobName::new("repository").unwrap()).unwrap();
    assert_eq!(scene.obstacles(), [Obstacle::VolumeAbsent]);
    assert!(scene.engine.not_ready()[0].reason.contains("mounted"));
}

#[test]
fn a_catalog_that_takes_no_changes() {
    let scene = scene();
    scene.catalog.refuse_changes(true);
    assert_eq!(scene.obstacles(), [Obstacle::Catalog]);
    scene.catalog.refuse_changes(false);
    assert_eq!(scene.obstacles(), []);
}

#[test]
fn work_that_has_stopped() {
    let scene = scene();
    scene.volume.fail_next(OpKind::Seal, 1, Fault::NotDurable { applied: false });
    backup(&scene.engine, "db", &[("root", &noise(2, 1 << 20))]).unwrap_err();
    assert!(scene.obstacles().contains(&Obstacle::Stopped), "{:?}", scene.engine.not_ready());
}

#[test]
fn a_damaged_index_until_it_is_reported_sound() {
    let scene = scene();
    let (core, _) = scene.engine.parts();
    core.health.report(Obstacle::IndexDamaged, Some("page 3 is damaged".to_owned()));
    assert_eq!(scene.obstacles(), [Obstacle::IndexDamaged]);
    core.health.report(Obstacle::IndexDamaged, None);
    assert_eq!(scene.obstacles(), []);
}
