//! Agents that lie. Each lie is named, and nothing else is harmed.

use std::sync::Arc;

use holdfast_catalog::{AuditEntry, DetailFilter, PageRequest};
use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::region::Encoder;
use holdfast_proto::{ErrorCode, Fingerprint, v1};
use holdfast_types::ids::SessionId;
use holdfast_volume::MemoryVolume;
use v1::ingest_request::Kind as Request;

use super::agent::{backup, region, request, restore, send_disk, start, start_as, starter};
use super::{Bench, noise};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::ingest::{DiskStream, Starter};

fn open(engine: &Engine, size: usize) -> (SessionId, DiskStream) {
    let disk = vec![0; size];
    let started = start(engine, request("evil", &[("root", &disk)])).unwrap();
    let session = started.session_id.parse().unwrap();
    (session, engine.open_stream(session, 0).unwrap())
}

fn good_region(bytes: &[u8]) -> v1::Region {
    region(&[(Fingerprint::of(bytes), bytes)], &mut Encoder::new(3).unwrap())
}

fn chunked(index: u64, fingerprint: Fingerprint, bytes: u32) -> Request {
    let extent = v1::ChunkedExtent {
        index,
        digest: vec![1; 32].into(),
        fingerprints: fingerprint.as_bytes().to_vec().into(),
        lengths: vec![bytes],
    };
    Request::Extents(v1::Extents { chunked: vec![extent], ..v1::Extents::default() })
}

/// Sends messages until one is refused; regions are verified at the latest when the stream is finished.
fn refusal(size: usize, messages: impl IntoIterator<Item = Request>) -> EngineError {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 3 << 20);
    let innocent = backup(&engine, "innocent", &[("root", &disk)]).unwrap();
    let (session, stream) = open(&engine, size);
    let finish = Request::Finish(v1::FinishStream { read_bytes: 0, ..v1::FinishStream::default() });
    let refused = messages.into_iter().chain([finish]).find_map(|message| stream.handle(message, 1).err());
    let error = refused.expect("every lie is refused");
    assert!(error.to_string().contains("root"), "names the disk: {error}");
    let commit = engine.commit(session).unwrap_err();
    assert_eq!(commit.code(), ErrorCode::Invalid, "{commit}");
    engine.abort(session, "test").unwrap();
    assert!(restore(&engine, &innocent.backup_id, "root").unwrap() == disk);
    backup(&engine, "evil", &[("root", &disk)]).expect("the next, honest backup works");
    error
}

fn refused_with(error: &EngineError, words: &str) {
    assert_eq!(error.code(), ErrorCode::Invalid, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn bytes_that_do_not_match_their_fingerprint() {
    let mut lie = good_region(b"some bytes");
    lie.fingerprints = Fingerprint::of(b"other bytes").as_bytes().to_vec().into();
    let extent = chunked(0, Fingerprint::of(b"other bytes"), 10);
    refused_with(&refusal(10, [Request::Region(lie), extent]), "hashes to");
}

#[test]
fn lengths_that_lie() {
    let mut lie = good_region(b"some bytes");
    lie.lengths = vec![11];
    refused_with(&refusal(10, [Request::Region(lie)]), "long together");
    let mut lie = good_region(b"some bytes");
    lie.plain_bytes = 9;
    lie.lengths = vec![9];
    refused_with(&refusal(10, [Request::Region(lie)]), "decodes to");
    let mut lie = good_region(b"some bytes");
    lie.lengths = vec![5, 5];
    refused_with(&refusal(10, [Request::Region(lie)]), "1 fingerprints but 2 lengths");
}

/// (I5)
#[test]
fn a_region_with_a_chunk_twice() {
    let (one, other) = (noise(1, 100), noise(2, 100));
    let chunks = [&one, &other, &one].map(|bytes| (Fingerprint::of(bytes), &bytes[..]));
    let region = super::agent::region(&chunks, &mut Encoder::new(3).unwrap());
    let error = refusal(300, [Request::Region(region)]);
    refused_with(&error, "twice");
    assert!(error.to_string().contains(&Fingerprint::of(&one).to_string()), "names the chunk: {error}");
}

#[test]
fn a_decompression_bomb() {
    let zeros = vec![0u8; 256 << 10];
    let mut lie = good_region(&noise(1, 100));
    let frame = Encoder::new(19).unwrap().encode(&zeros).unwrap();
    assert!(frame.payload.len() < 200, "a small frame for much");
    lie.payload = frame.payload.into();
    lie.codec = 1;
    refused_with(&refusal(10, [Request::Region(lie)]), "decodes to");
}

#[test]
fn a_chunk_never_uploaded() {
    let error = refusal(10, [chunked(0, Fingerprint::of(b"never sent"), 10)]);
    refused_with(&error, "was never uploaded");
    assert!(
        error.to_string().contains(&Fingerprint::of(b"never sent").to_string()),
        "names the chunk: {error}"
    );
    assert!(error.to_string().contains("extent 0"), "names the extent: {error}");
}

#[test]
fn a_chunk_under_another_length() {
    let region = Request::Region(good_region(b"some bytes"));
    refused_with(
        &refusal(9, [region, chunked(0, Fingerprint::of(b"some bytes"), 9)]),
        "10 bytes long, not 9",
    );
}

#[test]
fn extents_past_the_disk_or_twice() {
    let bytes = b"some bytes";
    let region = || Request::Region(good_region(bytes));
    let name = Fingerprint::of(bytes);
    refused_with(&refusal(10, [region(), chunked(1, name, 10)]), "past the end");
    refused_with(&refusal(10, [region(), chunked(0, name, 10), chunked(0, name, 10)]), "sent twice");
    for (first, count) in [(0, 3), (2, 1), (u64::MAX, 2), (1, u64::MAX)] {
        let zero = vec![v1::ExtentRange { first, count }];
        let message = Request::Extents(v1::Extents { zero, ..v1::Extents::default() });
        refused_with(&refusal(2 * EXTENT_BYTES as usize, [message]), "past the end");
    }
}

#[test]
fn extents_that_do_not_add_up_or_are_missing() {
    let region = Request::Region(good_region(b"some bytes"));
    let error = refusal(11, [region, chunked(0, Fingerprint::of(b"some bytes"), 10)]);
    refused_with(&error, "10 bytes long together, the extent 11");
    refused_with(&refusal(EXTENT_BYTES as usize * 3, []), "3 extents of the disk were never sent");
}

#[test]
fn a_claim_of_bytes_read_that_would_overflow() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let bytes = noise(1, 10_000);
    for claim in [u64::MAX, i64::MAX as u64 + 1, i64::MAX as u64] {
        let (session, stream) = open(&engine, bytes.len());
        stream.handle(Request::Region(good_region(&bytes)), 1).unwrap();
        stream.handle(chunked(0, Fingerprint::of(&bytes), 10_000), 1).unwrap();
        let finish = Request::Finish(v1::FinishStream { read_bytes: claim, ..v1::FinishStream::default() });
        let error = stream.handle(finish, 1).unwrap_err();
        refused_with(&error, "bytes are said to have been read of a disk of 10000 bytes");
        assert!(
            error.to_string().contains("root") && error.to_string().contains(&claim.to_string()),
            "{error}"
        );
        engine.commit(session).unwrap_err();
        engine.abort(session, "caught").expect("the session ends with a record of it");
        let filter = DetailFilter { vm: Some("evil".into()), ..DetailFilter::default() };
        let row = engine.catalog().details(&filter, PageRequest::default()).unwrap().items.pop().unwrap();
        assert_eq!((row.read_bytes, row.error.contains("said to have been read")), (0, true), "{row:?}");
    }
    let (_, stream) = open(&engine, 10);
    let ask = || Request::Query(v1::Query::default());
    stream.handle(ask(), i64::MAX as u64).unwrap();
    refused_with(&stream.handle(ask(), 1).unwrap_err(), "too many to count");
}

#[test]
fn unchanged_without_a_parent() {
    let unchanged = vec![v1::ExtentRange { first: 0, count: 1 }];
    let message = Request::Extents(v1::Extents { unchanged, ..v1::Extents::default() });
    refused_with(&refusal(10, [message]), "no parent");
}

#[test]
fn oversize_and_ragged_lists() {
    let query = |bytes| Request::Query(v1::Query { sequence: 1, fingerprints: vec![1; bytes].into() });
    refused_with(&refusal(10, [query(33)]), "no multiple of 32");
    refused_with(&refusal(10, [query(32 * 1025)]), "the limit is 1024");
}

fn audited(engine: &Engine, action: &str) -> Vec<AuditEntry> {
    let log = engine.catalog().list_audit(PageRequest::default()).unwrap().items;
    log.into_iter().map(|record| record.entry).filter(|entry| entry.action == action).collect()
}

#[test]
fn a_session_of_another_token() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 100_000);
    let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    engine.check_starter(session, starter(1).token).expect("its own");
    let error = engine.check_starter(session, starter(2).token).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Forbidden, "{error}");
    let told = error.to_string();
    assert!(!told.contains("agent-1") && !told.contains("web"), "says no more than it must: {told}");

    let busy = start_as(&engine, request("web", &[("root", &disk)]), starter(2)).unwrap_err();
    assert_eq!(busy.code(), ErrorCode::Busy, "{busy}");
    let told = busy.to_string();
    assert!(told.contains("web") && !told.contains(&started.session_id), "not the session's id: {told}");
    assert!(!told.contains("agent-1"), "{told}");
    let own = start(&engine, request("web", &[("root", &disk)])).unwrap_err();
    assert!(own.to_string().contains(&started.session_id), "its own token may know: {own}");
}

#[test]
fn a_take_over_by_those_who_may_not() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 100_000);
    let over = || v1::StartRequest { take_over: true, ..request("web", &[("root", &disk)]) };
    let started = start(&engine, over()).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let error = start_as(&engine, over(), starter(2)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Forbidden, "{error}");
    let told = error.to_string();
    assert!(!told.contains(&started.session_id) && !told.contains("agent-1"), "{told}");
    assert_eq!(audited(&engine, "backup.take-over"), []);
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk).unwrap();
    engine.commit(session).expect("the session was not touched");
}

#[test]
fn a_take_over_is_audited_with_both_names() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 100_000);
    let over = || v1::StartRequest { take_over: true, ..request("web", &[("root", &disk)]) };
    let first = start(&engine, over()).unwrap().session_id;
    let second = start(&engine, over()).expect("a crashed agent's own token").session_id;
    let operator = Starter { may_take_over: true, ..starter(3) };
    start_as(&engine, over(), operator).expect("a token with the right to");

    let entries = audited(&engine, "backup.take-over");
    let named: Vec<_> = entries.iter().map(|entry| (entry.who.as_str(), entry.object.as_str())).collect();
    assert_eq!(named, [("agent-3", second.as_str()), ("agent-1", first.as_str())], "newest first");
    for name in ["agent-3", "agent-1", &starter(3).token.to_string(), &starter(1).token.to_string()] {
        assert!(entries[0].detail.contains(name), "{name}: {entries:?}");
    }
    let ended = &audited(&engine, "backup.abort")[0];
    assert_eq!((ended.who.as_str(), ended.object.as_str()), ("agent-3", second.as_str()), "who did it");
    assert!(ended.detail.contains("agent-1"), "{ended:?}");
}

#[test]
fn names_ids_and_texts_that_deceive() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk: &[u8] = &[1];
    let good = || request("web", &[("root", disk)]);
    for evil in ["a\u{202e}b", "a\u{2066}b", "a\u{200f}b", "a\u{1b}[2Jb"] {
        for bad in [
            request(evil, &[("root", disk)]),
            request("web", &[(evil, disk)]),
            v1::StartRequest { job: evil.into(), ..good() },
        ] {
            let error = start(&engine, bad).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Invalid, "{error}");
            assert!(!error.to_string().contains(evil), "shown escaped: {error}");
        }
    }
    let long = v1::StartRequest { run_id: "x".repeat(5 << 20), ..good() };
    let error = start(&engine, long).unwrap_err().to_string();
    assert!(error.len() < 200 && error.contains("xxx"), "{} bytes", error.len());

    let host = "h\u{202e}\n".repeat(1 << 20);
    let started = start(&engine, v1::StartRequest { client_host: host, ..good() }).unwrap();
    let shown = engine.live_sessions().remove(0).host;
    assert!(shown.len() <= 200 && shown.starts_with("h\\u{202e}\\nh"), "{shown}");
    engine.abort(started.session_id.parse().unwrap(), "all\u{202e} is\nwell").unwrap();
    let row =
        engine.catalog().details(&DetailFilter::default(), PageRequest::default()).unwrap().items.remove(0);
    assert_eq!(row.error, "all\\u{202e} is\\nwell");
    let entry = audited(&engine, "backup.abort").remove(0);
    assert!(!entry.detail.contains(char::is_control) && !entry.detail.contains('\u{202e}'), "{entry:?}");
}
