//! Quotas of namespaces, with agents that do not care for them.

use std::sync::{Arc, Barrier};
use std::thread;

use holdfast_catalog::{DetailFilter, PageRequest, Quota, Usage};
use holdfast_proto::ErrorCode;
use holdfast_types::ids::SessionId;
use holdfast_volume::MemoryVolume;

use super::agent::{backup, request, restore, send_disk, start};
use super::{Bench, namespace, noise};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::ingest::Committed;

fn usage(engine: &Engine) -> Usage {
    engine.catalog().quotas(None).unwrap()[0].usage
}

fn limit(engine: &Engine, quota: Quota) {
    engine.catalog().set_quota(namespace(engine), &quota, "test").unwrap();
}

fn stored(bytes: u64) -> Quota {
    Quota { stored_bytes: Some(bytes), ..Quota::default() }
}

fn open() -> (Bench, Engine) {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    (bench, engine)
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, EngineError>, words: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Quota, "{error}");
    assert!(error.to_string().contains(words) && error.to_string().contains("default"), "{error}");
}

/// A running backup is charged exactly the bytes that its containers take.
#[test]
fn a_backup_that_fits_exactly_is_made_and_one_byte_less_is_not_enough() {
    let disk = noise(1, 5 << 20);
    let needed = {
        let (_bench, engine) = open();
        backup(&engine, "web", &[("root", &disk)]).unwrap();
        usage(&engine).stored_bytes
    };
    let (_bench, engine) = open();
    limit(&engine, stored(needed));
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    assert_eq!(usage(&engine).stored_bytes, needed);

    let (_bench, engine) = open();
    // Recipes have an allowance, data has none.
    let rows = |engine: &Engine| {
        engine.catalog().details(&DetailFilter::default(), PageRequest::FIRST).unwrap().items
    };
    let data = {
        let (_bench, engine) = open();
        backup(&engine, "web", &[("root", &disk)]).unwrap();
        rows(&engine)[0].post_lc
    };
    limit(&engine, stored(data - 1));
    refused(backup(&engine, "web", &[("root", &disk)]), "stored bytes");
}

#[test]
fn an_unchanged_backup_works_at_the_limit_and_new_data_does_not() {
    let (_bench, engine) = open();
    let disk = noise(1, 3 << 20);
    let first = backup(&engine, "web", &[("root", &disk)]).unwrap();
    limit(&engine, stored(1));
    let second = backup(&engine, "web", &[("root", &disk)]).unwrap();
    assert_ne!(first.backup_id, second.backup_id);
    let mut changed = disk.clone();
    changed[..8].fill(7);
    refused(backup(&engine, "web", &[("root", &changed)]), "stored bytes");
    assert!(restore(&engine, &second.backup_id, "root").unwrap() == disk);
    // A VM without a restore point is refused before it sends anything.
    refused(start(&engine, request("db", &[("root", &disk)])), "stored bytes");
    limit(&engine, Quota::default());
    for id in engine.live_sessions() {
        engine.abort(id.session, "test").unwrap();
    }
    backup(&engine, "web", &[("root", &changed)]).unwrap();
}

/// Two sessions that would each fit send at the same time.
#[test]
fn two_backups_that_race_stay_within_the_limit() {
    let (_bench, engine) = open();
    let disks = [noise(1, 6 << 20), noise(2, 6 << 20)];
    limit(&engine, stored(9 << 20));
    let barrier = Barrier::new(2);
    let outcomes: Vec<Result<Committed, EngineError>> = thread::scope(|scope| {
        let (engine, barrier) = (&engine, &barrier);
        let run = |number: usize, disk: &'_ [u8]| {
            let started = start(engine, request(&format!("vm-{number}"), &[("root", disk)])).unwrap();
            let session: SessionId = started.session_id.parse().unwrap();
            barrier.wait();
            let stream = engine.open_stream(session, 0)?;
            let sent = send_disk(engine, session, &stream, 0, disk);
            if let Err(error) = sent {
                engine.abort(session, &error.to_string()).unwrap();
                return Err(error);
            }
            engine.commit(session)
        };
        let threads: Vec<_> =
            disks.iter().enumerate().map(|(number, disk)| scope.spawn(move || run(number, disk))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let failed: Vec<&EngineError> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(!failed.is_empty(), "12 MiB do not fit into 9");
    for error in failed {
        assert_eq!(error.code(), ErrorCode::Quota, "{error}");
    }
    assert!(usage(&engine).stored_bytes <= 9 << 20, "{:?}", usage(&engine));
    assert_eq!(engine.catalog().integrity_check().unwrap(), Vec::<String>::new());
}

#[test]
fn protected_bytes_are_those_of_the_newest_restore_points() {
    let (_bench, engine) = open();
    let disk = noise(1, 4 << 20);
    limit(&engine, Quota { protected_bytes: Some(5 << 20), ..Quota::default() });
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    assert_eq!(usage(&engine).protected_bytes, 4 << 20);
    // Any number of restore points of the same data.
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    assert_eq!(usage(&engine).protected_bytes, 4 << 20);
    // Data that the repository has counts as well: it is protected once more.
    refused(backup(&engine, "copy", &[("root", &disk)]), "protected bytes");
    engine.abort(engine.live_sessions()[0].session, "test").unwrap();
    let small = noise(2, 1 << 20);
    backup(&engine, "db", &[("root", &small)]).unwrap();
    refused(start(&engine, request("more", &[("root", &small)])), "protected bytes");
    // Zeros protect nothing.
    backup(&engine, "db", &[("root", &vec![0; 64 << 20])]).unwrap();
    assert_eq!(usage(&engine).protected_bytes, 4 << 20);
}

#[test]
fn restore_points_and_backups_a_day_are_refused_at_the_start() {
    let (bench, engine) = open();
    let disk = noise(1, 100_000);
    limit(&engine, Quota { restore_points: Some(1), sessions_per_day: Some(3), ..Quota::default() });
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    refused(start(&engine, request("web", &[("root", &disk)])), "restore points");
    assert_eq!(usage(&engine).sessions_today, 1, "what is refused is not counted");
    limit(&engine, Quota { sessions_per_day: Some(3), ..Quota::default() });
    // Sessions that end without a restore point count.
    for _ in 0..2 {
        let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
        engine.abort(started.session_id.parse().unwrap(), "test").unwrap();
    }
    refused(start(&engine, request("web", &[("root", &disk)])), "backups a day");
    assert!(engine.live_sessions().is_empty());
    bench.clock.advance_ms(86_400_000);
    backup(&engine, "web", &[("root", &disk)]).unwrap();
}

/// A client that starts and aborts over and over leaves a bounded number of rows, and every start is counted.
#[test]
fn a_flood_of_aborted_starts_leaves_few_rows() {
    const STARTS: u64 = 1200;
    let (_bench, engine) = open();
    let names: Vec<String> = (0..256).map(|disk| format!("{disk:0200}")).collect();
    let disks: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
    for number in 0..STARTS {
        // The first ones with all that a start and an abort can bring.
        let disks = if number < 20 { disks.as_slice() } else { &[("root", &b"x"[..])] };
        let started = start(&engine, request("web", disks)).unwrap();
        let session: SessionId = started.session_id.parse().unwrap();
        engine.abort(session, &format!("flood {number} {}", "y".repeat(1900))).unwrap();
        if number == 19 {
            let rows = engine.catalog().details(&DetailFilter::default(), PageRequest::FIRST).unwrap().items;
            assert_eq!(rows.len(), 20, "one a session, however many disks it names");
            assert!(rows.iter().all(|row| row.error.len() <= 500 && row.error.contains("flood")), "{rows:?}");
        }
    }
    let catalog = engine.catalog();
    let mut rows = 0;
    let mut token = String::new();
    loop {
        let page = PageRequest { size: 1000, token: &token };
        let page = catalog.details(&DetailFilter::default(), page).unwrap();
        rows += page.items.len();
        match page.next {
            Some(next) => token = next,
            None => break,
        }
    }
    assert!(rows <= holdfast_catalog::FAILED_ROWS_PER_VM_MAX as usize, "{rows} rows");
    let log = catalog.list_audit(PageRequest { size: 1000, token: "" }).unwrap().items;
    let aborts: Vec<_> = log.iter().filter(|record| record.entry.action == "backup.abort").collect();
    assert_eq!(aborts.len(), 1, "one entry of one token and VM in ten minutes");
    assert_eq!(aborts[0].count, STARTS, "no abort is lost");
    assert!(aborts[0].entry.detail.contains("flood 1199"), "{:?}", aborts[0]);
    assert_eq!(usage(&engine).sessions_today, STARTS);
    assert_eq!(catalog.integrity_check().unwrap(), Vec::<String>::new());
}
