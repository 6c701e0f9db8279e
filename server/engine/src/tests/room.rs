//! A volume that fills up: the reserve is kept, and a backup that failed does not block others.

use std::sync::Arc;

use holdfast_catalog::{Catalog, ContainerState};
use holdfast_proto::{ErrorCode, Fingerprint, v1};
use holdfast_types::ids::SessionId;
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};
use holdfast_volume::{MemoryVolume, Volume};
use v1::ingest_request::Kind as Request;
use v1::ingest_response::Kind as Response;

use super::agent::{backup, request, restore, send_disk, start};
use super::{Bench, noise};
use crate::Engine;

const MIB: usize = 1 << 20;
const RESERVE: u64 = 20 << 20;

type Small = Arc<FaultyVolume<MemoryVolume>>;

fn small(capacity: u64) -> Small {
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    volume.limit_capacity(capacity);
    volume
}

fn open(bench: &Bench, volume: &Small) -> Engine {
    let mut parts = bench.parts(Arc::<FaultyVolume<MemoryVolume>>::clone(volume)).unwrap();
    parts.options.reserve_bytes = Some(RESERVE);
    Engine::assemble(parts).unwrap()
}

fn free(volume: &Small) -> u64 {
    volume.space().unwrap().unwrap().free_bytes
}

/// Sends all of a disk, and leaves the session open.
fn send(engine: &Engine, vm: &str, disk: &[u8]) -> SessionId {
    let session = start(engine, request(vm, &[("root", disk)])).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(engine, session, &stream, 0, disk).unwrap();
    session
}

/// A backup that does not fit, and whose agent gives up properly.
fn fail(engine: &Engine, vm: &str, disk: &[u8]) {
    let session: SessionId =
        start(engine, request(vm, &[("root", disk)])).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let error = send_disk(engine, session, &stream, 0, disk).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Full, "{error}");
    engine.abort(session, "no room").unwrap();
}

#[test]
fn twelve_backups_at_once_leave_the_reserve_whole() {
    let (bench, volume) = (Bench::new(), small(120 << 20));
    let engine = open(&bench, &volume);
    let steady = noise(99, 9 * MIB);
    backup(&engine, "steady", &[("root", &steady)]).unwrap();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let agents: Vec<_> = (0..12)
            .map(|number| {
                let engine = &engine;
                scope.spawn(move || {
                    backup(engine, &format!("vm-{number}"), &[("root", &noise(number, 14 * MIB))])
                })
            })
            .collect();
        agents.into_iter().map(|agent| agent.join().unwrap()).collect()
    });
    let refused = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    assert!(refused.clone().count() > 0, "they do not all fit");
    assert!(refused.clone().all(|error| error.code() == ErrorCode::Full), "{outcomes:?}");
    assert!(free(&volume) >= RESERVE, "{} of {RESERVE} are left", free(&volume));
    // As full as it gets: and a backup in which nothing changed works all the same.
    for _ in 0..3 {
        let done = backup(&engine, "steady", &[("root", &steady)]).unwrap();
        assert!(restore(&engine, &done.backup_id, "root").unwrap() == steady);
    }
}

#[test]
fn what_a_failed_backup_left_makes_room_for_the_next() {
    let (bench, volume) = (Bench::new(), small(120 << 20));
    let engine = open(&bench, &volume);
    let (mut tried, disk) = (0, noise(2, 50 * MIB));
    // Each leaves a container or two; without their deletion the last would find no room.
    while tried < 3 {
        fail(&engine, &format!("large-{tried}"), &noise(1000 + tried, 120 * MIB));
        tried += 1;
    }
    let done = backup(&engine, "small", &[("root", &disk)]).unwrap();
    assert!(restore(&engine, &done.backup_id, "root").unwrap() == disk);
    let (core, _) = engine.parts();
    let records = core.catalog.containers(None, 1000).unwrap();
    assert!(records.iter().all(|record| record.state == ContainerState::Live), "{records:?}");
    drop(engine);
    // Nothing the restore point needs went with it, and nothing is taken for lost.
    let engine = open(&bench, &volume);
    engine.audit(&crate::NoProgress).unwrap();
    assert!(restore(&engine, &done.backup_id, "root").unwrap() == disk);
    let report = engine.check(crate::CheckOptions::default(), &crate::NoProgress).unwrap();
    assert_eq!(report.problems.len(), 0, "{report:?}");
}

/// A session that was told *not needed* keeps what it was told of.
#[test]
fn what_another_session_found_is_not_deleted() {
    let (bench, volume) = (Bench::new(), small(140 << 20));
    let engine = open(&bench, &volume);
    let shared = noise(7, 40 * MIB);
    let first = send(&engine, "first", &shared);
    let second: SessionId =
        start(&engine, request("second", &[("root", &shared)])).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(second, 0).unwrap();
    send_disk(&engine, second, &stream, 0, &shared).unwrap();
    engine.abort(first, "gave up").unwrap();
    fail(&engine, "large", &noise(8, 160 * MIB));
    let done = engine.commit(second).unwrap();
    fail(&engine, "larger", &noise(9, 160 * MIB));
    assert!(restore(&engine, &done.backup_id, "root").unwrap() == shared);
    assert_eq!(done.details[0].new_bytes, 0, "all of it was found in what the first had sent");
}

/// The chunks of containers that were deleted are needed again.
#[test]
fn what_was_deleted_is_not_found() {
    let (bench, volume) = (Bench::new(), small(120 << 20));
    let engine = open(&bench, &volume);
    let disk = noise(7, 40 * MIB);
    let first = send(&engine, "first", &disk);
    engine.abort(first, "gave up").unwrap();
    let before = free(&volume);
    fail(&engine, "large", &noise(8, 140 * MIB));
    fail(&engine, "larger", &noise(9, 140 * MIB));
    let done = backup(&engine, "again", &[("root", &disk)]).unwrap();
    assert_eq!(done.details[0].dup_bytes, 0, "{done:?}");
    assert!(restore(&engine, &done.backup_id, "root").unwrap() == disk);
    assert!(free(&volume) <= before + (1 << 20));
}

/// The catalog takes no changes: the containers stay, and count as before.
#[test]
fn a_deletion_that_the_catalog_refuses_leaves_the_containers_as_they_were() {
    let (bench, volume) = (Bench::new(), small(140 << 20));
    let health = Arc::<crate::health::Health>::default();
    let catalog = Arc::new(bench.catalog(&health).unwrap());
    let shared: Arc<Catalog> = Arc::<Catalog>::clone(&catalog);
    let mut parts = bench.parts_with(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume), shared, health);
    parts.options.reserve_bytes = Some(RESERVE);
    let engine = Engine::assemble(parts).unwrap();
    let disk = noise(7, 40 * MIB);
    let first = send(&engine, "first", &disk);
    engine.abort(first, "gave up").unwrap();
    let ask = |vm| {
        let session: SessionId =
            start(&engine, request(vm, &[("root", &disk)])).unwrap().session_id.parse().unwrap();
        let stream = engine.open_stream(session, 0).unwrap();
        let query = v1::Query { sequence: 1, fingerprints: first_chunk(&disk).as_bytes().to_vec().into() };
        let answer = stream.handle(Request::Query(query), 10).unwrap().and_then(|answer| answer.kind);
        drop(stream);
        engine.abort(session, "only asked").unwrap();
        matches!(answer, Some(Response::Need(need)) if need.bitmap[0] & 1 == 0)
    };
    assert!(ask("before"));
    let large = noise(8, 120 * MIB);
    let session: SessionId =
        start(&engine, request("large", &[("root", &large)])).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    catalog.answer_full(true);
    let error = send_disk(&engine, session, &stream, 0, &large).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Full, "{error}");
    catalog.answer_full(false);
    assert!(ask("after"), "found as before");
    let (core, _) = engine.parts();
    assert_eq!(core.catalog.condemned_containers().unwrap(), []);
    drop(stream);
    engine.abort(session, "no room").unwrap();
    assert!(core.store.leftovers.condemn().len() >= 2, "deleted when the catalog takes it");
}

#[test]
fn a_start_finishes_a_deletion() {
    let (bench, volume) = (Bench::new(), small(120 << 20));
    let engine = open(&bench, &volume);
    let disk = noise(7, 40 * MIB);
    let first = send(&engine, "first", &disk);
    engine.abort(first, "gave up").unwrap();
    let fault = Fault::Unavailable;
    volume.fail_next(OpKind::Remove, 1, fault);
    let large = noise(8, 120 * MIB);
    let session: SessionId =
        start(&engine, request("large", &[("root", &large)])).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &large).unwrap_err();
    engine.abort(session, "no room").unwrap();
    let (core, _) = engine.parts();
    assert_ne!(core.catalog.condemned_containers().unwrap(), [], "the deletion failed half way");
    // Chunks of a half-deleted container are not found either.
    let query = v1::Query { sequence: 1, fingerprints: first_chunk(&disk).as_bytes().to_vec().into() };
    let other: SessionId =
        start(&engine, request("other", &[("root", &disk)])).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(other, 0).unwrap();
    let answer = stream.handle(Request::Query(query), 10).unwrap().and_then(|answer| answer.kind);
    assert!(matches!(answer, Some(Response::Need(need)) if need.bitmap[0] & 1 == 1));
    drop((stream, engine));

    let engine = open(&bench, &volume);
    let (core, _) = engine.parts();
    assert_eq!(core.catalog.condemned_containers().unwrap(), []);
    engine.audit(&crate::NoProgress).unwrap();
    assert!(!core.store.has_damage(), "{:?}", core.store.damaged_containers());
    let done = backup(&engine, "again", &[("root", &disk)]).unwrap();
    assert!(restore(&engine, &done.backup_id, "root").unwrap() == disk);
}

fn first_chunk(disk: &[u8]) -> Fingerprint {
    let cut = holdfast_proto::chunker::Chunker::default();
    let piece = cut.cut(&disk[..4 * MIB])[0];
    Fingerprint::of(&disk[..piece.len as usize])
}
