//! History of a disk's extents, compared with a plain list of their contents.

use std::sync::Arc;

use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::region::Encoder;
use holdfast_proto::{ErrorCode, Fingerprint, v1};
use holdfast_types::ids::{BackupId, SessionId};
use holdfast_volume::MemoryVolume;
use v1::ingest_request::Kind as Request;

use super::agent::{region, request, start};
use super::{Bench, namespace, noise};
use crate::extent_history::{PAGE_READS_MAX, history};
use crate::format::recipe::PAGE_EXTENTS;
use crate::{Engine, ExtentHistory, HISTORY_DEPTH_MAX};

/// Contents of each extent of a disk: 0 for zeros, otherwise a number that stands for its content.
type Disk = Vec<u8>;

/// Backs up a disk of which only the list is there. Each extent is one small chunk, then zeros.
fn back_up(engine: &Engine, name: &str, disk: &Disk) -> BackupId {
    let mut request = request("web", &[(name, &[])]);
    request.disks[0].size_bytes = disk.len() as u64 * u64::from(EXTENT_BYTES);
    let started = start(engine, request).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let mut encoder = Encoder::new(1).unwrap();
    for (index, &content) in (0..).zip(disk) {
        let mut message = v1::Extents::default();
        if content == 0 {
            message.zero.push(v1::ExtentRange { first: index, count: 1 });
        } else {
            let chunk = noise(content.into(), 9000);
            let chunk_name = Fingerprint::of(&chunk);
            stream.handle(Request::Region(region(&[(chunk_name, &chunk)], &mut encoder)), 0).unwrap();
            message.chunked.push(v1::ChunkedExtent {
                index,
                digest: Fingerprint::UNKNOWN.as_bytes().to_vec().into(),
                fingerprints: [*chunk_name.as_bytes(), [0; 32]].concat().into(),
                lengths: vec![9000, EXTENT_BYTES - 9000],
            });
        }
        stream.handle(Request::Extents(message), 0).unwrap();
    }
    stream
        .handle(Request::Finish(v1::FinishStream { read_bytes: 0, ..v1::FinishStream::default() }), 0)
        .unwrap();
    engine.commit(session).unwrap().backup_id.parse().unwrap()
}

/// The answer for the last of these disks, from the lists.
fn model(disks: &[Disk], depth: usize) -> ExtentHistory {
    let (now, past) = disks.split_last().unwrap();
    let past: Vec<&Disk> = past.iter().rev().take(depth).collect();
    let at = |disk: &Disk, extent: usize| disk.get(extent).copied().unwrap_or(0);
    let mut history = ExtentHistory {
        total: now.len() as u64,
        compared: now.len() as u64,
        compared_backups: past.len() as u64,
        ..ExtentHistory::default()
    };
    for (extent, &content) in now.iter().enumerate() {
        let was = at(past[0], extent);
        if content == was {
            continue;
        }
        history.changed += 1;
        history.newly_written += u64::from(was == 0);
        history.traced += u64::from(was != 0);
        let steady = past.windows(2).all(|pair| at(pair[0], extent) == at(pair[1], extent));
        history.changed_first_time += u64::from(was != 0 && steady);
    }
    history
}

/// Three pages and a bit, with changes of each kind on different pages, one of them never touched.
fn pasts() -> Vec<Disk> {
    let mut disk: Disk = vec![0; 1600];
    disk[..40].fill(1);
    disk[600..640].fill(2);
    disk[1100..1130].fill(3);
    let mut disks = vec![disk.clone()];
    // Some extents change every time, some once.
    for round in 0u8..5 {
        disk[10..15].fill(10 + round);
        disk[usize::from(600 + u16::from(round))] = 20;
        disks.push(disk.clone());
    }
    // Grown, zeros written, data zeroed, old data changed for the first time.
    disk.resize(1700, 0);
    disk[5..20].fill(30);
    disk[30] = 0;
    disk[600..620].fill(31);
    disk[1500..1510].fill(32);
    disk[1650] = 33;
    disks.push(disk.clone());
    // Shrunk to within the second page.
    disk.truncate(605);
    disk[603] = 40;
    disks.push(disk.clone());
    disks.push(disk);
    disks
}

#[test]
fn extents_are_compared_with_their_past() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disks = pasts();
    let mut seen = ExtentHistory::default();
    for count in 1..=disks.len() {
        let backup = back_up(&engine, "root", &disks[count - 1]);
        for depth in [1, 2, 5, HISTORY_DEPTH_MAX, usize::MAX] {
            let found = engine.extent_history(namespace(&engine), backup, "root", depth).unwrap();
            let found = found.map(|found| ExtentHistory { before_ms: 0, ..found });
            let expected = (count > 1).then(|| model(&disks[..count], depth.min(HISTORY_DEPTH_MAX)));
            assert_eq!(found, expected, "backup {count}, depth {depth}");
            let found = found.unwrap_or_default();
            seen.changed = seen.changed.max(found.changed);
            seen.changed_first_time = seen.changed_first_time.max(found.changed_first_time);
            seen.newly_written = seen.newly_written.max(found.newly_written);
        }
    }
    assert!(seen.changed > 40 && seen.changed_first_time > 15 && seen.newly_written > 10, "{seen:?}");
}

#[test]
fn only_earlier_restore_points_with_the_disk_count() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let own = namespace(&engine);
    let (one, two) = (vec![1, 1, 0], vec![1, 2, 0]);
    let first = back_up(&engine, "root", &one);
    back_up(&engine, "other", &two);
    let last = back_up(&engine, "root", &two);
    let expected = model(&[one.clone(), two], 1);
    let began = engine.catalog().backup(first).unwrap().unwrap().started_ms;
    let expected = ExtentHistory { before_ms: began, ..expected };
    assert_eq!(engine.extent_history(own, last, "root", 5).unwrap(), Some(expected));
    assert_eq!(engine.extent_history(own, first, "root", 5).unwrap(), None);
    assert_eq!(engine.extent_history(own, last, "root", 0).unwrap(), None);
    // The one before has no such disk, and further back no one asked to look.
    assert_eq!(engine.extent_history(own, last, "root", 1).unwrap(), None);

    let elsewhere = engine.catalog().ensure_namespace("elsewhere").unwrap().id;
    for error in [
        engine.extent_history(elsewhere, last, "root", 5).unwrap_err(),
        engine.extent_history(own, BackupId(ulid::Ulid(1)), "root", 5).unwrap_err(),
        engine.extent_history(own, last, "swap", 5).unwrap_err(),
    ] {
        assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
    }
}

#[test]
fn of_too_many_changes_a_fair_share_is_compared() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    // Eight pages; all of the first two is overwritten, and a little of each of the others.
    let mut disk: Disk = vec![0; 8 * PAGE_EXTENTS];
    let used = |page: usize| page * PAGE_EXTENTS..page * PAGE_EXTENTS + if page < 2 { 40 } else { 4 };
    for round in 1..=6 {
        for page in 0..8 {
            // The short pages change each time.
            let content = if page < 2 && round < 6 { 9 } else { round };
            disk[used(page)].fill(content);
        }
        back_up(&engine, "root", &disk);
    }
    let last = engine.catalog().latest_backup(namespace(&engine), "web").unwrap().unwrap().id;
    let compared = |reads| {
        let found = history(engine.core(), (namespace(&engine), last), "root", 5, reads).unwrap().unwrap();
        (found.compared, found.changed, found.traced, found.changed_first_time)
    };
    let page = PAGE_EXTENTS as u64;
    assert_eq!(compared(PAGE_READS_MAX), (8 * page, 104, 104, 80));
    // Every second page is compared, then the one of which most was overwritten is looked through.
    assert_eq!(compared(16), (4 * page, 52, 48, 40));
    assert_eq!(compared(8), (2 * page, 44, 40, 40));
    // For the last bit of a budget one page is compared, so that there is an answer.
    assert_eq!(compared(0), (page, 40, 40, 40));
}
