//! (W12) Sealed containers are known to the catalog while their backup is in progress.

use std::sync::Arc;

use holdfast_proto::region::Encoder;
use holdfast_proto::{Fingerprint, v1};
use holdfast_types::ids::SessionId;
use holdfast_volume::MemoryVolume;
use holdfast_volume::testing::{FaultyVolume, OpKind};
use v1::ingest_request::Kind as Request;

use super::agent::{backup, region, request, restore, send_disk, start};
use super::{Bench, noise};
use crate::container::list_containers;
use crate::engine::Engine;
use crate::jobs::NoProgress;

/// Sends chunks until `containers` are sealed; the session goes on.
fn send_until_sealed(engine: &Engine, volume: &MemoryVolume, containers: usize) -> SessionId {
    let started = start(engine, request("first-full", &[("root", &vec![0; 4 << 20])])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let mut encoder = Encoder::new(1).unwrap();
    let mut seed = 1000;
    while list_containers(volume).unwrap().containers.len() < containers {
        // Compresses well, but each region is as long as it can be, so few bytes fill a container's directory.
        for _ in 0..64 {
            seed += 1;
            let bytes = noise(seed, 256 << 10);
            let chunks: Vec<_> =
                bytes.chunks(64 << 10).map(|chunk| (Fingerprint::of(chunk), chunk)).collect();
            stream.handle(Request::Region(region(&chunks, &mut encoder)), 1).unwrap();
        }
    }
    session
}

#[test]
fn a_kill_in_a_long_first_backup_leaves_few_containers_to_look_for() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    send_until_sealed(&engine, &volume, 3);
    // A batch is due after ten seconds, with the next container.
    bench.clock.advance_ms(10_000);
    let sealed = list_containers(&volume).unwrap().containers.len();
    send_more(&engine, &volume, sealed + 1);
    // Written by the thread that sealed it.
    while engine.catalog().sealed_containers().unwrap() < 3 {
        std::thread::yield_now();
    }
    engine.core_index_checkpoint().unwrap();
    drop(engine);

    let files = list_containers(&volume).unwrap().containers.len();
    let watched = Arc::new(FaultyVolume::new(volume.clone()));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&watched));
    let lists = watched.count(OpKind::List);
    assert_eq!(
        lists, 5,
        "the index, generations, the points, the last folder with numbers handed out, and the one after it"
    );
    assert!(engine.catalog().all_containers().count() >= 3, "what was noted is known");
    engine.audit(&NoProgress).unwrap();
    assert_eq!(engine.catalog().all_containers().count(), files, "all are known in the end");
    assert!(
        engine.catalog().settled_containers().unwrap() > files as u64,
        "and need not be looked for again"
    );
}

fn send_more(engine: &Engine, volume: &MemoryVolume, containers: usize) {
    let session = engine.live_sessions()[0].session;
    let stream = engine.open_stream(session, 0).unwrap();
    let mut encoder = Encoder::new(1).unwrap();
    let mut seed = 5000;
    while list_containers(volume).unwrap().containers.len() < containers {
        seed += 1;
        let bytes = noise(seed, 256 << 10);
        let chunks: Vec<_> = bytes.chunks(64 << 10).map(|chunk| (Fingerprint::of(chunk), chunk)).collect();
        stream.handle(Request::Region(region(&chunks, &mut encoder)), 1).unwrap();
    }
}

#[test]
fn a_backup_whose_containers_were_known_before_it_is_committed_owns_them() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume));
    let disk = noise(1, 70 << 20);
    let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk).unwrap();
    // All are recorded before the commit.
    bench.clock.advance_ms(10_000);
    backup(&engine, "db", &[("root", &noise(2, 100_000))]).unwrap();
    assert!(engine.catalog().sealed_containers().unwrap() >= 3);
    let done = engine.commit(session).unwrap();
    assert_eq!(engine.catalog().sealed_containers().unwrap(), 0);
    let rows = engine.catalog().all_containers().map(Result::unwrap);
    let run = started.run_id.parse().unwrap();
    let bytes: u64 = rows.filter(|row| row.run == Some(run)).map(|row| row.stored_bytes).sum();
    assert_eq!(bytes, done.details[0].post_lc + done.details[0].meta_bytes);
    assert!(restore(&engine, &done.backup_id, "root").unwrap() == disk);
}
