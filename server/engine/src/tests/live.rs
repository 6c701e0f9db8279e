//! Activity of backups in progress, and the names in the audit log.

use std::sync::Arc;

use holdfast_catalog::PageRequest;
use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::v1;
use holdfast_types::ids::SessionId;
use holdfast_volume::MemoryVolume;
use v1::ingest_request::Kind as Request;

use super::agent::{request, send_disk, start};
use super::{Bench, noise};
use crate::{Engine, LiveDisk, LiveSession};

fn only(engine: &Engine) -> LiveSession {
    let mut live = engine.live_sessions();
    assert_eq!(live.len(), 1);
    live.remove(0)
}

#[test]
fn a_backup_is_seen_from_start_to_end() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    assert_eq!(engine.live_sessions(), []);
    // Ten bytes into its third extent, and one that is zero.
    let mut disk = noise(1, 2 * EXTENT_BYTES as usize + 10);
    disk[..EXTENT_BYTES as usize].fill(0);
    let started = start(&engine, request("web", &[("root", &disk), ("data", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let begun = only(&engine);
    assert_eq!((begun.session, begun.backup.to_string()), (session, started.backup_id));
    assert_eq!(
        (begun.namespace_name.as_str(), begun.vm.as_str(), begun.job.as_str(), begun.host.as_str()),
        ("default", "web", "nightly", "test")
    );
    assert_eq!((begun.started_ms, begun.last_seen_ms), (1_700_000_000_000, 1_700_000_000_000));
    let untouched = LiveDisk {
        name: "root".into(),
        size_bytes: disk.len() as u64,
        done_bytes: 0,
        unchanged_bytes: 0,
        dup_bytes: 0,
        new_bytes: 0,
        wire_bytes: 0,
        stored_bytes: 0,
        finished: false,
    };
    assert_eq!(begun.disks[0], untouched);
    assert_eq!(begun.disks[1], LiveDisk { name: "data".into(), ..untouched.clone() });

    bench.clock.advance_ms(7000);
    let stream = engine.open_stream(session, 0).unwrap();
    let zero = v1::Extents { zero: vec![v1::ExtentRange { first: 0, count: 1 }], ..v1::Extents::default() };
    stream.handle(Request::Extents(zero), 33).unwrap();
    let seen = only(&engine);
    assert_eq!((seen.started_ms, seen.last_seen_ms), (1_700_000_000_000, 1_700_000_007_000));
    assert_eq!(
        seen.disks[0],
        LiveDisk { done_bytes: EXTENT_BYTES.into(), wire_bytes: 33, ..untouched.clone() }
    );

    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk).unwrap();
    let root = only(&engine).disks.remove(0);
    assert!(root.finished && root.done_bytes == disk.len() as u64);
    let stream = engine.open_stream(session, 1).unwrap();
    send_disk(&engine, session, &stream, 1, &disk).unwrap();
    let data = only(&engine).disks.remove(1);
    let rows = engine.commit(session).unwrap().details;
    for (disk, row) in [root, data].iter().zip(&rows) {
        assert_eq!(
            (disk.unchanged_bytes, disk.dup_bytes, disk.new_bytes, disk.wire_bytes, disk.stored_bytes),
            (row.unchanged_bytes, row.dup_bytes, row.new_bytes, row.wire_bytes, row.post_lc + row.meta_bytes)
        );
    }
    assert!(rows[0].new_bytes > 0 && rows[1].dup_bytes > 0);
    assert_eq!(engine.live_sessions(), []);
}

#[test]
fn sessions_are_seen_in_order_until_they_end_however_they_do() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    for vm in ["c", "a", "b"] {
        start(&engine, request(vm, &[("root", &[1])])).unwrap();
        bench.clock.advance_ms(1);
    }
    let vms = || engine.live_sessions().into_iter().map(|session| session.vm).collect::<Vec<_>>();
    assert_eq!(vms(), ["c", "a", "b"]);
    engine.abort(engine.live_sessions()[1].session, "enough").unwrap();
    assert_eq!(vms(), ["c", "b"]);
    bench.clock.advance_ms(i64::from(crate::engine::LEASE_SECS) * 1000);
    assert_eq!(engine.expire_sessions(), 2);
    assert_eq!(engine.live_sessions(), []);
    let log = engine.catalog().list_audit(PageRequest::FIRST).unwrap().items;
    let said: Vec<_> = log.iter().map(|r| (r.entry.who.as_str(), r.entry.action.as_str())).collect();
    let expire = ("agent-1", "backup.expire");
    assert_eq!(said, [expire, expire, ("agent-1", "backup.abort")], "the token that began it is named");
}
