//! Rounds of reclaim beside everything that refers to what is stored: the table of ORDERING, "Reclaim", one test a row.

mod commits;
mod copies;
mod crash;
mod left;
mod matrix;
mod parents;
mod promises;
mod refused;
mod restarts;
mod room;
mod sessions;

use std::sync::Arc;

use holdfast_proto::v1;
use holdfast_types::ids::{BackupId, SessionId};
use holdfast_volume::{MemoryVolume, Volume as _};
use v1::ingest_request::Kind as Request;
use v1::ingest_response::Kind as Response;

use super::agent::{backup, request, restore, send_disk, start};
use super::{Bench, noise};
use crate::engine::Engine;
use crate::ingest::{Committed, DiskStream};
use crate::reclaim::{Control, ReclaimOptions, ReclaimReport, RoundStep};

pub(super) const MIB: usize = 1 << 20;

pub(super) struct Scene {
    pub(super) bench: Bench,
    pub(super) volume: MemoryVolume,
    pub(super) engine: Engine,
}

impl Scene {
    pub(super) fn new() -> Self {
        let (bench, volume) = (Bench::new(), MemoryVolume::new());
        let engine = bench.open(Arc::new(volume.clone()));
        Self { bench, volume, engine }
    }

    pub(super) fn reopened(self) -> Self {
        let Self { bench, volume, engine } = self;
        drop(engine);
        let engine = bench.open(Arc::new(volume.clone()));
        Self { bench, volume, engine }
    }

    pub(super) fn backup(&self, vm: &str, disk: &[u8]) -> String {
        backup(&self.engine, vm, &[("root", disk)]).unwrap().backup_id
    }

    pub(super) fn start(&self, vm: &str, disk: &[u8]) -> SessionId {
        start(&self.engine, request(vm, &[("root", disk)])).unwrap().session_id.parse().unwrap()
    }

    /// Sends all of a disk in a session.
    pub(super) fn send(&self, session: SessionId, disk: &[u8]) {
        let stream = self.engine.open_stream(session, 0).unwrap();
        send_disk(&self.engine, session, &stream, 0, disk).unwrap();
    }

    pub(super) fn commit(&self, session: SessionId) -> Committed {
        self.engine.commit(session).unwrap()
    }

    pub(super) fn restores(&self, backup: &str, disk: &[u8]) -> bool {
        restore(&self.engine, backup, "root").unwrap() == disk
    }

    /// Deletes a restore point.
    pub(super) fn delete(&self, backup: &str) {
        delete(&self.engine, backup);
    }

    pub(super) fn reclaim(&self) -> ReclaimReport {
        reclaim(&self.engine)
    }

    /// Runs a round and `at` whenever it comes to a step.
    pub(super) fn reclaim_with(&self, at: impl Fn(RoundStep) + Send + Sync) -> ReclaimReport {
        let (core, sessions) = self.engine.parts();
        let (options, control) = (ReclaimOptions::default(), Control::default());
        crate::reclaim::run_watched(core, sessions, &options, &control, &at).unwrap()
    }

    pub(super) fn containers(&self) -> u64 {
        self.engine.catalog().all_containers().count() as u64
    }

    /// Asserts that nothing is damaged, missing or without its row.
    pub(super) fn is_sound(&self) {
        let (core, _) = self.engine.parts();
        assert!(!core.store.has_damage(), "{:?}", core.store.damaged_containers());
        let report = self.engine.check(crate::CheckOptions { read_data: true }, &crate::NoProgress).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
        assert_eq!(crate::count_containers(&self.volume).unwrap() as u64, self.containers());
    }
}

pub(super) fn reclaim(engine: &Engine) -> ReclaimReport {
    engine.reclaim(&ReclaimOptions::default(), &Arc::new(Control::default())).unwrap()
}

pub(super) fn delete(engine: &Engine, backup: &str) {
    engine.delete_backups(&[backup.parse().unwrap()], "test", "not needed").unwrap();
}

/// Returns true if the server asks for a chunk.
pub(super) fn is_needed(stream: &DiskStream, chunk: holdfast_proto::Fingerprint) -> bool {
    let query = v1::Query { sequence: 1, fingerprints: chunk.as_bytes().to_vec().into() };
    let answer = stream.handle(Request::Query(query), 10).unwrap().and_then(|answer| answer.kind);
    let Some(Response::Need(need)) = answer else { panic!("no answer") };
    need.bitmap[0] & 1 == 1
}

#[test]
fn what_nothing_refers_to_goes_and_the_rest_stays() {
    let scene = Scene::new();
    let (one, other) = (noise(1, 9 * MIB), noise(2, 9 * MIB));
    let first = scene.backup("web", &one);
    let second = scene.backup("db", &other);
    let nothing = scene.reclaim();
    assert_eq!((nothing.containers, nothing.cleanable_bytes, nothing.containers_deleted), (4, 0, 0));
    scene.delete(&first);
    let options = ReclaimOptions { dry_run: true, ..ReclaimOptions::default() };
    let said = scene.engine.reclaim(&options, &Arc::new(Control::default())).unwrap();
    assert_eq!((said.freed_bytes, said.containers_deleted), (0, 0));
    let before: u64 =
        crate::container::list_containers(&scene.volume).unwrap().containers.iter().map(|c| c.1).sum();
    let done = scene.reclaim();
    let after: u64 =
        crate::container::list_containers(&scene.volume).unwrap().containers.iter().map(|c| c.1).sum();
    assert_eq!((done.containers_deleted, done.freed_bytes), (2, before - after));
    assert_eq!(said.cleanable_bytes, done.freed_bytes, "it was said before");
    assert!(scene.restores(&second, &other));
    scene.is_sound();
    let again = scene.backup("web", &one);
    assert!(scene.restores(&again, &one));
    let scene = scene.reopened();
    assert!(scene.restores(&again, &one) && scene.restores(&second, &other));
    scene.is_sound();
}
