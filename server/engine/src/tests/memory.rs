//! Bounds of memory: of all backups in progress together, and of the index.

use std::sync::Arc;

use holdfast_proto::limits::DISK_MAX_BYTES;
use holdfast_proto::{ErrorCode, v1};
use holdfast_types::ids::SessionId;
use holdfast_volume::MemoryVolume;
use v1::ingest_request::Kind as Request;

use super::agent::{backup, request, start};
use super::in_flight::agent as flight;
use super::{Bench, noise};
use crate::error::EngineError;
use crate::{Engine, MemoryBounds};

/// Describes as many ranges of zeros, with gaps between them, as are taken.
fn scatter(engine: &Engine, vm: &str) -> Result<(), EngineError> {
    let mut wanted = request(vm, &[("root", b"x")]);
    wanted.disks[0].size_bytes = DISK_MAX_BYTES;
    let session: SessionId = start(engine, wanted).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    for part in 0..8 {
        let zero = (0..1000).map(|n| v1::ExtentRange { first: (part * 1000 + n) * 2, count: 1 }).collect();
        let message = v1::Extents { unchanged: Vec::new(), zero, chunked: Vec::new() };
        stream.handle(Request::Extents(message), 10)?;
    }
    Ok(())
}

#[test]
fn backups_in_progress_share_one_bound() {
    let bench = Bench::new();
    let mut parts = bench.parts(Arc::new(MemoryVolume::new())).unwrap();
    // Two of 400 KB each.
    parts.options.memory = MemoryBounds { sessions_bytes: 1 << 20, ..MemoryBounds::default() };
    let engine = Engine::assemble(parts).unwrap();
    scatter(&engine, "one").unwrap();
    scatter(&engine, "two").unwrap();
    let error = scatter(&engine, "three").unwrap_err();
    assert_eq!(error.code(), ErrorCode::Limit, "{error}");
    assert!(error.to_string().contains("1024 KiB"), "{error}");
    // A refused message holds no memory, and a session that ends gives its memory back.
    let (core, _) = engine.parts();
    assert!(core.session_memory.used_bytes() < 900_000, "{}", core.session_memory.used_bytes());
    bench.clock.advance_ms(200_000);
    assert_eq!(engine.expire_sessions(), 3);
    assert_eq!(core.session_memory.used_bytes(), 0);
    scatter(&engine, "four").unwrap();
}

/// (D3) Every third chunk of another VM's disk is found.
#[test]
fn what_a_backup_holds_counts_too() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = |every: usize| -> Vec<Vec<u64>> {
        (0..8).map(|extent| (extent * 400..(extent + 1) * 400).step_by(every).collect()).collect()
    };
    flight::Agent::start(&engine, "web", &disk(1)).until(&flight::Next::Done);
    let used = || engine.parts().0.session_memory.used_bytes();
    // A finished stream keeps its holds, beside some bytes an extent.
    let finished = |vm: &str, every: usize| {
        let mut agent = flight::Agent::start(&engine, vm, &disk(every));
        agent.until(&flight::Next::Commit);
        let used = used();
        agent.until(&flight::Next::Done);
        used
    };
    let (few, third) = (finished("few", 400), finished("third", 3));
    assert!(third > few + 8 * 100 * 2, "{third} bytes for 1,072 chunks, {few} for 8");
    assert_eq!(used(), 0);
}

#[test]
fn an_index_that_does_not_fit_is_refused_before_it_is_read() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    backup(&engine, "web", &[("root", &noise(1, 4 << 20))]).unwrap();
    engine.shutdown().unwrap();
    drop(engine);
    let open = |index_resident_bytes| {
        let mut parts = bench.parts(Arc::new(volume.clone())).unwrap();
        parts.options.memory = MemoryBounds { index_resident_bytes, ..MemoryBounds::default() };
        Engine::assemble(parts)
    };
    let error = open(100).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Limit, "{error}");
    assert!(error.to_string().contains("more memory"), "{error}");
    open(1 << 20).unwrap();
}
