//! A catalog that fails stops what depends on it, whichever call met the failure.

use std::sync::Arc;

use holdfast_catalog::Catalog;
use holdfast_catalog::testing::InjectedFailure;
use holdfast_proto::ErrorCode;
use holdfast_types::ids::SessionId;
use holdfast_volume::MemoryVolume;

use super::agent::{backup, request, restore, send_disk, start};
use super::{Bench, noise};
use crate::engine::Engine;
use crate::health::{Health, Work};

/// An engine, and its catalog as the server's own calls (tokens, audit, logins) reach it.
fn open(bench: &Bench, volume: &Arc<MemoryVolume>) -> (Engine, Arc<Catalog>) {
    let health = Arc::<Health>::default();
    let catalog = Arc::new(bench.catalog(&health).unwrap());
    let shared: Arc<Catalog> = Arc::<Catalog>::clone(&catalog);
    let parts = bench.parts_with(Arc::<MemoryVolume>::clone(volume), shared, health);
    (Engine::assemble(parts).unwrap(), catalog)
}

fn stopped(engine: &Engine) -> Vec<Work> {
    engine.stopped().iter().map(|stopped| stopped.work).collect()
}

#[test]
fn an_io_error_in_any_change_of_the_catalog_stops_writing() {
    let bench = Bench::new();
    let volume = Arc::new(MemoryVolume::new());
    let (engine, catalog) = open(&bench, &volume);
    let disk = noise(1, 100_000);
    let made = backup(&engine, "web", &[("root", &disk)]).unwrap();
    let [finished, begun] = ["db", "mail"].map(|vm| {
        let started = start(&engine, request(vm, &[("root", &disk)])).unwrap();
        let session: SessionId = started.session_id.parse().unwrap();
        (session, engine.open_stream(session, 0).unwrap())
    });
    let other = noise(2, 100_000);
    send_disk(&engine, finished.0, &finished.1, 0, &disk).unwrap();

    let error = catalog.fail_a_change(InjectedFailure::Io);
    assert_eq!(stopped(&engine), [Work::Writing, Work::Catalog]);
    assert!(engine.stopped().iter().all(|stopped| stopped.reason == error.to_string()));
    for refused in [
        engine.commit(finished.0).unwrap_err(),
        send_disk(&engine, begun.0, &begun.1, 0, &other).unwrap_err(),
        start(&engine, request("new", &[("root", &disk)])).unwrap_err(),
    ] {
        assert_eq!(refused.code(), ErrorCode::ReadOnly, "{refused}");
    }
    let refused = engine.catalog().reserve_container_numbers(1).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ReadOnly, "{refused}");
    assert!(restore(&engine, &made.backup_id, "root").unwrap() == disk, "reading goes on");
    engine.shutdown().expect("the stop is not clean, but it is orderly");
    drop(engine);
    drop(catalog);
    let (engine, _catalog) = open(&bench, &volume);
    assert_eq!(stopped(&engine), []);
    assert!(!engine.opened().clean);
}

#[test]
fn a_full_or_busy_catalog_stops_nothing() {
    let bench = Bench::new();
    let (engine, catalog) = open(&bench, &Arc::new(MemoryVolume::new()));
    for failure in [InjectedFailure::Full, InjectedFailure::Busy] {
        catalog.fail_a_change(failure);
        assert_eq!(stopped(&engine), [], "{failure:?}");
    }
    backup(&engine, "web", &[("root", &noise(1, 100_000))]).unwrap();
}
