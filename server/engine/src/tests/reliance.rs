//! (R5) Damage found between the acceptance of an extent and the commit: what relies on it is not committed.

use std::sync::Arc;

use holdfast_catalog::{DetailFilter, PageRequest, RowStatus};
use holdfast_proto::ErrorCode;
use holdfast_types::ids::{ContainerClass, ContainerId, SessionId};
use holdfast_volume::MemoryVolume;

use super::agent::{backup, request, restore, send_disk, start};
use super::{Bench, noise};
use crate::container::list_containers;
use crate::engine::Engine;

const MIB: usize = 1 << 20;

/// An engine with one backup each of "web" and "db", which share nothing.
struct Scene {
    _bench: Bench,
    volume: MemoryVolume,
    engine: Engine,
    web: Vec<u8>,
    db: Vec<u8>,
    /// Containers of web, then of db.
    containers: [Vec<(ContainerId, ContainerClass)>; 2],
}

impl Scene {
    /// `restarted`: the process knows nothing of where what it stored lies.
    fn new(restarted: bool) -> Self {
        let (bench, volume) = (Bench::new(), MemoryVolume::new());
        let (web, db) = (noise(1, 9 * MIB), noise(2, 9 * MIB));
        let mut engine = bench.open(Arc::new(volume.clone()));
        backup(&engine, "web", &[("root", &web)]).unwrap();
        let all = |volume: &MemoryVolume| -> Vec<(ContainerId, ContainerClass)> {
            let files = list_containers(volume).unwrap().containers;
            files.into_iter().map(|(name, _)| (name.id, name.class)).collect()
        };
        let of_web = all(&volume);
        backup(&engine, "db", &[("root", &db)]).unwrap();
        let of_db = all(&volume).into_iter().filter(|one| !of_web.contains(one)).collect();
        if restarted {
            engine.shutdown().unwrap();
            drop(engine);
            engine = bench.open(Arc::new(volume.clone()));
        }
        Self { _bench: bench, volume, engine, web, db, containers: [of_web, of_db] }
    }

    /// A container of `of` (0: web, 1: db).
    fn container(&self, of: usize, class: ContainerClass) -> ContainerId {
        self.containers[of].iter().find(|(_, other)| *other == class).unwrap().0
    }

    /// A backup of `vm` that has only to be committed.
    fn finished(&self, vm: &str, disk: &[u8]) -> SessionId {
        let started = start(&self.engine, request(vm, &[("root", disk)])).unwrap();
        let session = started.session_id.parse().unwrap();
        let stream = self.engine.open_stream(session, 0).unwrap();
        send_disk(&self.engine, session, &stream, 0, disk).unwrap();
        session
    }

    /// Notes damage, as a restore that meets it does.
    fn note(&self, container: ContainerId) {
        self.engine.parts().0.store.note_damage(container, None, "test");
    }
}

/// Damages a container before the commit: of the first or the second VM, and so relied on by the backup or not.
fn damaged_before_the_commit(class: ContainerClass, restarted: bool) {
    // Unchanged, from its own parent; found, in another VM's containers; and spared.
    for (vm, of, hit) in [("web", 0, true), ("new", 0, true), ("web", 1, false), ("new", 1, false)] {
        let scene = Scene::new(restarted);
        let session = scene.finished(vm, &scene.web);
        scene.note(scene.container(of, class));
        let committed = scene.engine.commit(session);
        let at = format!("{vm}, containers of {of}, {class:?}, restarted: {restarted}");
        if !hit {
            committed.expect(&at);
            continue;
        }
        let error = committed.expect_err(&at);
        assert_eq!(error.code(), ErrorCode::SessionGone, "{at}: {error}");
        assert!(error.to_string().contains("start the backup again"), "{at}: {error}");
        assert!(!scene.engine.is_live(session), "{at}: it is in no one's way");
        let rows = scene.engine.catalog().details(&DetailFilter::default(), PageRequest::default());
        let failed = rows.unwrap().items.into_iter().find(|row| row.status == RowStatus::Failed);
        assert!(failed.is_some_and(|row| row.error.contains("found damaged")), "{at}");
        let again = backup(&scene.engine, vm, &[("root", &scene.web)]).unwrap();
        assert!(again.details[0].new_bytes > 0 || class == ContainerClass::Recipe, "{at}: sent again");
        // The bytes are really gone.
        let names = list_containers(&scene.volume).unwrap().containers;
        let lost = names.iter().find(|(name, _)| name.id == scene.container(of, class)).unwrap().0;
        holdfast_volume::Volume::remove(&scene.volume, &lost.blob()).unwrap();
        assert!(restore(&scene.engine, &again.backup_id, "root").unwrap() == scene.web, "{at}");
    }
}

#[test]
fn data_found_damaged_before_the_commit() {
    damaged_before_the_commit(ContainerClass::Data, false);
    damaged_before_the_commit(ContainerClass::Data, true);
}

#[test]
fn recipes_found_damaged_before_the_commit() {
    damaged_before_the_commit(ContainerClass::Recipe, false);
    damaged_before_the_commit(ContainerClass::Recipe, true);
}

#[test]
fn what_has_another_copy_is_committed() {
    let scene = Scene::new(false);
    let session = scene.finished("web", &scene.web);
    scene.note(scene.container(0, ContainerClass::Data));
    // Another VM brings the same data again, and its recipe nodes are the same.
    backup(&scene.engine, "copy", &[("root", &scene.web)]).unwrap();
    let done = scene.engine.commit(session).unwrap();
    assert!(restore(&scene.engine, &done.backup_id, "root").unwrap() == scene.web);
    // Where the copy lies counts from now on: it is what the next backup relies on.
    let session = scene.finished("web", &scene.web);
    let files = list_containers(&scene.volume).unwrap().containers;
    let copy =
        files.iter().filter(|(name, _)| name.class == ContainerClass::Data).max_by_key(|(name, _)| name.id);
    scene.note(copy.unwrap().0.id);
    assert_eq!(scene.engine.commit(session).unwrap_err().code(), ErrorCode::SessionGone);
    assert!(backup(&scene.engine, "db", &[("root", &scene.db)]).is_ok());
}
