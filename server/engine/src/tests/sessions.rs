//! Leases, resuming, one backup of a VM at a time, idempotent ends.

use std::sync::Arc;

use holdfast_catalog::{DetailFilter, PageRequest};
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::v1;
use holdfast_types::ids::SessionId;
use holdfast_volume::MemoryVolume;
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};
use v1::ingest_request::Kind as Request;

use super::agent::{backup, request, restore, send_disk, start};
use super::{Bench, noise};
use crate::error::EngineError;
use crate::ingest::DiskStream;

#[test]
fn one_backup_of_a_vm_at_a_time() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 100_000);
    let first = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let error = start(&engine, request("web", &[("root", &disk)])).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Busy, "{error}");
    assert!(error.to_string().contains(&first.session_id), "{error}");
    start(&engine, request("db", &[("root", &disk)])).expect("another VM may");

    let mut take_over = request("web", &[("root", &disk)]);
    take_over.take_over = true;
    let second = start(&engine, take_over).unwrap();
    let session: SessionId = second.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk).unwrap();
    let first: SessionId = first.session_id.parse().unwrap();
    assert!(engine.open_stream(first, 0).is_err());
    assert!(engine.commit(first).is_err());
    engine.commit(session).unwrap();
}

#[test]
fn two_agents_with_the_same_new_data() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 6 << 20);
    std::thread::scope(|scope| {
        for vm in ["a", "b", "c"] {
            let (engine, disk) = (&engine, &disk);
            scope.spawn(move || backup(engine, vm, &[("root", disk)]).unwrap());
        }
    });
    for vm in ["a", "b", "c"] {
        let latest = engine.catalog().latest_backup(super::namespace(&engine), vm).unwrap().unwrap();
        assert!(restore(&engine, &latest.id.to_string(), "root").unwrap() == disk);
    }
}

#[test]
fn a_stream_opened_again_goes_on() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 3 * EXTENT_BYTES as usize);
    let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let first = engine.open_stream(session, 0).unwrap();
    let error = send_disk(&engine, session, &first, 0, &disk[..2 * EXTENT_BYTES as usize]);
    assert!(error.is_err(), "finishing early is refused, and the session cannot be used any more");

    engine.abort(session, "test").unwrap();
    let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let first = engine.open_stream(session, 0).unwrap();
    let zero = vec![v1::ExtentRange { first: 1, count: 1 }];
    first.handle(Request::Extents(v1::Extents { zero, ..v1::Extents::default() }), 1).unwrap();
    let second = engine.open_stream(session, 0).unwrap();
    let accepted = second.opened().unwrap().accepted;
    assert_eq!(accepted, [v1::ExtentRange { first: 1, count: 1 }]);
    assert!(first.idle().is_err(), "the old stream is superseded");
    send_disk(&engine, session, &second, 0, &disk).unwrap();
    let done = engine.commit(session).unwrap();
    let mut expected = disk;
    expected[EXTENT_BYTES as usize..2 * EXTENT_BYTES as usize].fill(0);
    assert!(restore(&engine, &done.backup_id, "root").unwrap() == expected);
}

#[test]
fn a_silent_session_expires_and_leaves_its_details() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 3 << 20);
    let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk).unwrap();
    bench.clock.advance_ms(60_000);
    engine.keep_alive(session).unwrap();
    bench.clock.advance_ms(100_000);
    assert_eq!(engine.expire_sessions(), 0, "a heartbeat renews the lease");
    bench.clock.advance_ms(60_000);
    assert_eq!(engine.expire_sessions(), 1);
    let error = engine.commit(session).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::SessionGone, "{error}");
    let rows = engine.catalog().details(&DetailFilter::default(), PageRequest::default()).unwrap().items;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].status, holdfast_catalog::RowStatus::Expired);
    assert!(rows[0].error.contains("no heartbeat") && rows[0].post_lc > 3 << 20, "{rows:?}");
    assert!(engine.catalog().latest_backup(super::namespace(&engine), "web").unwrap().is_none());
    let row = backup(&engine, "web", &[("root", &disk)]).unwrap().details.remove(0);
    assert_eq!((row.dup_bytes, row.new_bytes), (3 << 20, 0), "what it had sent serves the next backup");
}

#[test]
fn setting_the_clock_neither_ends_a_session_nor_keeps_it_alive() {
    const DAY_MS: i64 = 86_400_000;
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 100_000);
    let session = |vm: &str| -> SessionId {
        start(&engine, request(vm, &[("root", &disk)])).unwrap().session_id.parse().unwrap()
    };
    let forward = session("forward");
    bench.clock.set_by_ms(365 * DAY_MS);
    assert_eq!(engine.expire_sessions(), 0, "a year forward");
    let stream = engine.open_stream(forward, 0).unwrap();
    send_disk(&engine, forward, &stream, 0, &disk).unwrap();
    bench.clock.set_by_ms(-366 * DAY_MS);
    engine.commit(forward).expect("a backup that ends before it began is a backup");
    let silent = session("silent");
    bench.clock.set_by_ms(-DAY_MS);
    bench.clock.advance_ms(119_000);
    assert_eq!(engine.expire_sessions(), 0);
    assert!(engine.is_live(silent));
    bench.clock.advance_ms(2_000);
    assert_eq!(engine.expire_sessions(), 1, "a day back, and silent for longer than the lease");
}

#[test]
fn a_session_that_failed_is_in_no_ones_way() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 100_000);
    let fail = || -> SessionId {
        let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
        let session = started.session_id.parse().unwrap();
        let stream = engine.open_stream(session, 0).unwrap();
        let past_the_end = vec![v1::ExtentRange { first: 7, count: 1 }];
        let message = v1::Extents { zero: past_the_end, ..v1::Extents::default() };
        stream.handle(Request::Extents(message), 1).unwrap_err();
        session
    };
    let ended = fail();
    assert!(engine.end_failed(ended).unwrap());
    assert!(!engine.end_failed(ended).unwrap(), "once");
    assert_eq!(engine.live_sessions(), []);
    let left = fail();
    assert!(engine.is_live(left));
    backup(&engine, "web", &[("root", &disk)]).expect("the next takes its place");
    assert!(!engine.is_live(left));
    let rows = engine.catalog().details(&DetailFilter::default(), PageRequest::default()).unwrap().items;
    let failed: Vec<_> =
        rows.iter().filter(|row| row.status == holdfast_catalog::RowStatus::Failed).collect();
    assert_eq!(failed.len(), 2);
    assert!(failed.iter().all(|row| row.error.contains("extents 7 + 1")), "{failed:?}");
    let sound = start(&engine, request("web", &[("root", &disk)])).unwrap();
    assert!(!engine.end_failed(sound.session_id.parse().unwrap()).unwrap());
    let error = start(&engine, request("web", &[("root", &disk)])).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Busy, "one that has not failed stays");
}

#[test]
fn heartbeats_alone_do_not_keep_a_session() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 9 << 20);
    let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let minutes = |count| {
        for _ in 0..count {
            bench.clock.advance_ms(60_000);
            engine.keep_alive(session)?;
            stream.handle(v1::ingest_request::Kind::Query(v1::Query::default()), 5)?;
            engine.expire_sessions();
        }
        engine.keep_alive(session)
    };
    minutes(59).unwrap();
    let zero = vec![v1::ExtentRange { first: 0, count: 1 }];
    let extents = v1::Extents { zero, ..v1::Extents::default() };
    stream.handle(v1::ingest_request::Kind::Extents(extents), 20).unwrap();
    minutes(59).expect("an extent is progress");
    assert!(minutes(1).is_err(), "an hour of heartbeats and empty queries is no progress");
    let rows = engine.catalog().details(&DetailFilter::default(), PageRequest::default()).unwrap().items;
    assert_eq!(rows.len(), 1);
    assert!(rows[0].error.contains("no progress for 3600 s"), "{rows:?}");
}

#[test]
fn time_that_the_server_makes_a_session_wait_is_no_standstill() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 9 << 20);
    let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    for _ in 0..3 * 60 {
        bench.clock.advance_ms(60_000);
        engine.keep_alive(session).unwrap();
        engine.waits_for_turn(session).unwrap();
        assert_eq!(engine.expire_sessions(), 0);
    }
    bench.clock.advance_ms(150_000);
    engine.waits_for_turn(session).unwrap();
    assert_eq!(engine.expire_sessions(), 1, "waiting is no heartbeat: the agent may be gone");
    assert!(engine.waits_for_turn(session).is_err());
}

#[test]
fn an_open_stream_without_messages_does_not_renew_the_lease() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let started = start(&engine, request("web", &[("root", &noise(1, 3 << 20))])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    bench.clock.advance_ms(100_000);
    stream.idle().unwrap();
    bench.clock.advance_ms(100_000);
    assert_eq!(engine.expire_sessions(), 1);
}

#[test]
fn ends_can_be_repeated() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 100_000);
    let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    assert!(engine.commit(session).is_err(), "nothing was sent yet");
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk).unwrap();
    let once = engine.commit(session).unwrap();
    assert_eq!(engine.commit(session).unwrap(), once);
    engine.abort(session, "too late").unwrap();
    assert!(restore(&engine, &once.backup_id, "root").unwrap() == disk);
}

#[test]
fn requests_that_make_no_sense() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk: &[u8] = &[1];
    let mut huge = request("web", &[("root", disk)]);
    huge.disks[0].size_bytes = u64::MAX;
    for (request, words) in [
        (request("", &[("root", disk)]), "VM name is empty"),
        (request("web", &[]), "1 to 256 disks"),
        (request("web", &[("a", disk), ("a", disk)]), "two disks"),
        (request("web", &[("a\n", disk)]), "control character"),
        (huge, "the limit is"),
    ] {
        let error = start(&engine, request).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn shutdown_ends_sessions_and_lets_none_start() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(1, 100_000);
    start(&engine, request("web", &[("root", &disk)])).unwrap();
    engine.shutdown().unwrap();
    let error = start(&engine, request("db", &[("root", &disk)])).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Unavailable);
    drop(engine);
    let engine = bench.open(Arc::new(volume));
    backup(&engine, "web", &[("root", &disk)]).unwrap();
}

#[test]
fn a_stream_cannot_be_opened_beside_the_end() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let started = start(&engine, request("web", &[("root", &[1])])).unwrap();
    let id: SessionId = started.session_id.parse().unwrap();
    let (core, sessions) = engine.parts();
    // The one who opens has looked the session up; then it ends.
    let session = sessions.get(id).unwrap();
    engine.abort(id, "test").unwrap();
    let error = DiskStream::open(Arc::clone(core), session, 0).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::SessionGone, "{error}");
}

#[test]
fn a_run_of_another_job_is_refused_at_the_start() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 10_000);
    let in_run = |vm: &str, job: &str, run: &str| {
        let request = request(vm, &[("root", &disk)]);
        start(&engine, v1::StartRequest { job: job.into(), run_id: run.into(), ..request })
    };
    let live = in_run("web", "nightly", "").unwrap().run_id;
    let error = in_run("db", "weekly", &live).unwrap_err();
    assert!(error.to_string().contains("is not of job \"weekly\""), "a run in progress: {error}");
    engine.abort(engine.live_sessions()[0].session, "test").unwrap();
    assert_eq!(engine.live_sessions(), []);
    in_run("db", "nightly", &live).expect("another VM of that job may join it");
    let id = engine.live_sessions()[0].session;
    engine.abort(id, "test").unwrap();
    // (P9) A run that is known brings its job.
    in_run("db", "weekly", &live).unwrap();
}

#[test]
fn a_session_tells_what_it_relies_on() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let (disk, other) = (noise(1, 100_000), noise(2, 100_000));
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    backup(&engine, "db", &[("root", &other)]).unwrap();
    let all = |engine: &crate::Engine| -> std::collections::BTreeSet<u64> {
        holdfast_catalog::Catalog::all_containers(engine.catalog()).map(|r| r.unwrap().id.get()).collect()
    };
    let before = all(&engine);
    assert_eq!(before.len(), 4, "data and recipe of two backups");
    let parent = engine.catalog().latest_backup(super::namespace(&engine), "web").unwrap().unwrap();

    let started = start(&engine, request("web", &[("root", &other)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let (_, sessions) = engine.parts();
    let live = sessions.get(session).unwrap();
    assert_eq!(live.relies_on().roots, [parent.disks[0].root], "whose extents it may take over");
    assert!(live.relies_on().containers.is_empty());
    let stream = engine.open_stream(session, 0).unwrap();
    let bytes = b"new";
    let region = super::agent::region(
        &[(Fingerprint::of(bytes), bytes.as_slice())],
        &mut holdfast_proto::region::Encoder::new(3).unwrap(),
    );
    stream.handle(Request::Region(region), 1).unwrap();
    send_disk(&engine, session, &stream, 0, &other).unwrap();
    let relied: std::collections::BTreeSet<u64> = live.relies_on().containers.iter().collect();
    engine.commit(session).unwrap();
    let own: Vec<u64> = all(&engine).difference(&before).copied().collect();
    assert!(!own.is_empty() && own.iter().all(|id| relied.contains(id)), "{own:?} {relied:?}");
    let found: Vec<u64> = before.intersection(&relied).copied().collect();
    let db = engine.catalog().latest_backup(super::namespace(&engine), "db").unwrap().unwrap();
    let rows = holdfast_catalog::Catalog::all_containers(engine.catalog());
    let of_db: Vec<u64> =
        rows.map(Result::unwrap).filter(|row| row.run == Some(db.run)).map(|row| row.id.get()).collect();
    assert_eq!(found, of_db, "the chunks and nodes it need not store again");
}

#[test]
fn what_was_sealed_is_counted_also_when_a_seal_fails() {
    let bench = Bench::new();
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let disk = noise(1, 70 << 20);
    let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    volume.fail_next(OpKind::Seal, 1, Fault::Full);
    send_disk(&engine, session, &stream, 0, &disk).unwrap_err();
    engine.abort(session, "test").unwrap();
    let rows = engine.catalog().details(&DetailFilter::default(), PageRequest::default()).unwrap().items;
    let sealed = crate::container::list_containers(&*volume).unwrap().containers;
    let bytes: u64 = sealed.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(rows[0].post_lc + rows[0].meta_bytes, bytes, "each sealed container is counted: {sealed:?}");
}

#[test]
fn a_stream_that_is_busy_holds_up_no_other_session() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 100_000);
    let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let id: SessionId = started.session_id.parse().unwrap();
    let (_, sessions) = engine.parts();
    let busy = sessions.get(id).unwrap();
    let held = busy.hold_disk(0);
    // All on this thread: whatever waited for that stream would wait for ever.
    backup(&engine, "db", &[("root", &disk)]).expect("starts, sends and commits");
    assert_eq!(engine.live_sessions().len(), 1);
    engine.keep_alive(id).unwrap();
    assert!(start(&engine, request("web", &[("root", &disk)])).is_err());
    assert_eq!(engine.expire_sessions(), 0);
    let aborted = start(&engine, request("mail", &[("root", &disk)])).unwrap();
    engine.abort(aborted.session_id.parse().unwrap(), "test").unwrap();
    drop(held);
}

/// (W16) The agent may have been given an empty device, or a disk under another name.
#[test]
fn a_disk_that_shrank_or_went_is_refused_until_that_is_accepted() {
    let bench = Bench::new();
    let volume = Arc::new(MemoryVolume::new());
    let engine = bench.open(Arc::<MemoryVolume>::clone(&volume));
    let disk = noise(1, 3 << 20);
    let (disk, less, none): (&[u8], &[u8], &[u8]) = (&disk, &disk[..1 << 20], &[]);
    let run = |disks: &[(&str, &[u8])], missing: &[&str], accept_change| {
        let missing_disks = missing.iter().map(|name| (*name).to_owned()).collect();
        let request = v1::StartRequest { accept_change, missing_disks, ..request("web", disks) };
        let started = start(&engine, request)?;
        let session: SessionId = started.session_id.parse().unwrap();
        for (number, (_, bytes)) in (0..).zip(disks) {
            let stream = engine.open_stream(session, number).unwrap();
            send_disk(&engine, session, &stream, number, bytes).unwrap();
        }
        let id: holdfast_types::ids::BackupId = engine.commit(session)?.backup_id.parse().unwrap();
        Ok::<_, EngineError>(engine.catalog().backup(id).unwrap().unwrap())
    };
    let latest = run(&[("root", disk), ("data", disk)], &[], false).unwrap();
    for disks in [
        &[("root", less), ("data", disk)][..],
        &[("root", none), ("data", disk)],
        &[("foo", disk), ("data", disk)],
        &[("root", disk)],
    ] {
        let error = run(disks, &[], false).unwrap_err();
        assert_eq!(error.code(), holdfast_proto::ErrorCode::Invalid);
        assert!(error.to_string().contains("--accept-change"), "{error}");
        let newest = engine.catalog().latest_backup(super::namespace(&engine), "web").unwrap();
        assert_eq!(newest.as_ref(), Some(&latest));
        let rows = engine.catalog().details(&DetailFilter::default(), PageRequest::default()).unwrap().items;
        let mut refused = rows.iter().filter(|row| row.status == holdfast_catalog::RowStatus::Failed);
        assert!(refused.any(|row| row.error.contains("root") || row.error.contains("data")));
    }
    let partial = run(&[("root", disk)], &["data"], false).unwrap();
    assert!(!partial.accepted_change, "it says that it is partial");
    run(&[("root", disk)], &[], false).unwrap_err();
    let error = run(&[("root", disk), ("data", none)], &[], false).unwrap_err();
    assert!(
        error.to_string().contains("and had"),
        "a partial restore point does not make it forgotten: {error}"
    );
    let grown = noise(2, 4 << 20);
    let more = run(&[("root", grown.as_slice()), ("data", disk), ("new", disk)], &[], true).unwrap();
    assert!(!more.accepted_change, "there was nothing to accept");
    let shrunk = run(&[("root", less), ("data", disk)], &[], true).unwrap();
    assert!(shrunk.accepted_change);
    assert!(!run(&[("root", less), ("data", disk)], &[], false).unwrap().accepted_change);
    engine.shutdown().unwrap();
    drop(engine);
    let engine = bench.open(volume);
    assert!(engine.catalog().backup(shrunk.id).unwrap().unwrap().accepted_change);
}

/// (W16) A refused backup ends no other, and does not count.
#[test]
fn a_refused_change_neither_takes_over_nor_counts() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 1 << 20);
    let disk: &[u8] = &disk;
    super::agent::backup(&engine, "web", &[("root", disk), ("data", disk)]).unwrap();
    let running = start(&engine, request("web", &[("root", disk), ("data", disk)])).unwrap();
    let error = start(
        &engine,
        v1::StartRequest { take_over: true, accept_change: false, ..request("web", &[("root", disk)]) },
    )
    .unwrap_err();
    assert!(error.to_string().contains("--accept-change"), "{error}");
    let session: SessionId = running.session_id.parse().unwrap();
    engine.keep_alive(session).unwrap();
    engine.abort(session, "done").unwrap();
}
