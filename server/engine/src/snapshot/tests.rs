//! Snapshots that are whole, and everything else.

use std::sync::Arc;
use std::time::Duration;

use holdfast_catalog::AuditEntry;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::MemoryVolume;
use ulid::Ulid;

use super::*;
use crate::error::EngineError;
use crate::format::snapshot::{FOOTER_BYTES, HEADER_BYTES, SnapshotFooter};
use crate::jobs::{Budget, Step};
use crate::tests::{Bench, agent::backup, noise};

const HEADER: SnapshotHeader =
    SnapshotHeader { number: 3, repository: RepositoryId(Ulid(9)), created_ms: 5, last_commit: 6 };

fn sealed(volume: &MemoryVolume, plain: &[u8]) -> BlobName {
    let name = name(HEADER.number);
    seal_snapshot(volume, &name, &HEADER, &mut &*plain).unwrap();
    name
}

fn read_all(volume: &MemoryVolume, name: &BlobName) -> Result<Vec<u8>, EngineError> {
    let mut out = Vec::new();
    read_snapshot(volume, name, Some(HEADER.repository), &mut out).map(|_| out)
}

#[test]
fn what_is_sealed_reads_back() {
    for len in [0, 1, 4096, 3 << 20] {
        let volume = MemoryVolume::new();
        let plain = [noise(len, usize::try_from(len).unwrap()), vec![7; 5000]].concat();
        let name = sealed(&volume, &plain);
        assert!(read_all(&volume, &name).unwrap() == plain, "{len}");
        assert_eq!(read_snapshot_header(&volume, &name).unwrap(), HEADER);
    }
}

#[test]
fn no_changed_byte_and_no_cut_is_believed() {
    let volume = MemoryVolume::new();
    let name = sealed(&volume, &noise(1, 3000));
    let bytes = volume.get(&name).unwrap().to_vec();
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        volume.replace(&name, changed);
        match read_all(&volume, &name) {
            // Such as the size of zstd's window: what came out is what went in.
            Ok(out) => assert!(out == noise(1, 3000), "byte {at}"),
            Err(error) => {
                assert!(matches!(error, EngineError::Damaged(_)), "byte {at}: {error:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > bytes.len() - 8, "{refused} of {}", bytes.len());
    for len in (0..bytes.len()).step_by(7) {
        volume.replace(&name, bytes[..len].to_vec());
        assert!(matches!(read_all(&volume, &name), Err(EngineError::Damaged(_))), "{len} bytes");
    }
}

#[test]
fn one_of_another_repository_is_refused() {
    let volume = MemoryVolume::new();
    let name = sealed(&volume, b"catalog");
    let mut out = Vec::new();
    let error = read_snapshot(&volume, &name, Some(RepositoryId(Ulid(8))), &mut out).unwrap_err();
    assert!(matches!(error, EngineError::Damaged(_)) && out.is_empty(), "{error}");
    read_snapshot(&volume, &name, None, &mut out).unwrap();
}

/// A frame of 1 GiB of zeros is 32 KiB long: what it may write is what the footer says, and not a byte more.
#[test]
fn a_frame_that_goes_on_writes_no_more_than_was_said() {
    let volume = MemoryVolume::new();
    let name = sealed(&volume, &vec![0; 64 << 20]);
    let bytes = volume.get(&name).unwrap().to_vec();
    let body = &bytes[HEADER_BYTES..bytes.len() - FOOTER_BYTES];
    let stored_bytes = body.len() as u64;
    let footer = SnapshotFooter { plain_bytes: 1000, stored_bytes, digest: [0; 32] };
    volume.replace(&name, [&HEADER.encode(), body, &footer.encode()].concat());
    let mut out = Vec::new();
    let refused = read_snapshot(&volume, &name, None, &mut out);
    assert!(matches!(refused, Err(EngineError::Damaged(_))), "{refused:?}");
    assert!(out.len() <= 1000, "{} bytes", out.len());
}

#[test]
fn the_last_few_are_kept_and_nothing_new_makes_no_other() {
    let bench = Bench::new();
    let volume = std::sync::Arc::new(MemoryVolume::new());
    let engine = bench.open(std::sync::Arc::<MemoryVolume>::clone(&volume));
    for n in 0..KEPT as u64 + 3 {
        backup(&engine, "web", &[("root", &noise(n, 5000))]).unwrap();
        assert!(engine.snapshot().unwrap().is_some());
        assert_eq!(engine.snapshot().unwrap(), None, "nothing has changed");
    }
    let numbers: Vec<u64> = list_snapshots(&*volume).unwrap().into_iter().map(|(number, _)| number).collect();
    let last = KEPT as u64 + 3;
    assert_eq!(numbers, (last - KEPT as u64 + 1..=last).rev().collect::<Vec<_>>());
    let header = read_snapshot_header(&*volume, &name(last)).unwrap();
    assert_eq!((header.repository, header.last_commit), (engine.repository_id(), last));
}

#[test]
fn a_clean_stop_seals_what_changed() {
    let bench = Bench::new();
    let volume = std::sync::Arc::new(MemoryVolume::new());
    let newest = || list_snapshots(&*volume).unwrap().first().map(|(number, _)| *number);
    let engine = bench.open(std::sync::Arc::<MemoryVolume>::clone(&volume));
    backup(&engine, "web", &[("root", &noise(1, 5000))]).unwrap();
    engine.shutdown().unwrap();
    let first = newest().unwrap();
    let header = read_snapshot_header(&*volume, &name(first)).unwrap();
    assert_eq!(header.last_commit, 1);
    drop(engine);
    // A start and a stop without a change in between.
    let engine = bench.open(std::sync::Arc::<MemoryVolume>::clone(&volume));
    engine.shutdown().unwrap();
    assert_eq!(newest(), Some(first));
}

/// What no restore point tells is on the volume within a minute, and costs one snapshot however much of it there is.
#[test]
fn tokens_are_in_a_snapshot_within_a_minute() {
    let bench = Bench::new();
    let volume = Arc::new(MemoryVolume::new());
    let engine = bench.open(Arc::<MemoryVolume>::clone(&volume));
    let numbers =
        || -> Vec<u64> { list_snapshots(&*volume).unwrap().into_iter().map(|(number, _)| number).collect() };
    let job = engine.snapshot_job();
    let look = || {
        assert_eq!(job.step(&Budget::unlimited()).unwrap(), Step::Idle(Duration::from_secs(20)));
        bench.clock.advance_ms(20_000);
    };
    backup(&engine, "web", &[("root", &noise(1, 5000))]).unwrap();
    look();
    assert_eq!(numbers(), [1], "the first of the process");
    let change = |action: &str| {
        let entry = AuditEntry {
            who: "test".into(),
            action: action.into(),
            object: "x".into(),
            detail: String::new(),
        };
        engine.catalog().audit(&entry).unwrap();
    };
    for _ in 0..4 {
        backup(&engine, "web", &[("root", &noise(1, 5000))]).unwrap();
        change("login.refuse");
        look();
    }
    assert_eq!(numbers(), [1], "restore points tell of themselves");
    for action in ["token.create", "token.revoke", "vm.owner", "namespace.quota"] {
        let before = numbers();
        change(action);
        look();
        assert_eq!(numbers(), before, "more may come");
        look();
        assert_eq!(numbers(), [before[0] + 1, 1], "{action}: in place of the one before");
        look();
        assert_eq!(numbers(), [before[0] + 1, 1], "nothing new");
    }
    // Changes that never end wait a minute at most.
    let before = numbers();
    for _ in 0..3 {
        change("token.create");
        look();
    }
    assert_eq!(numbers(), [before[0] + 1, 1]);
    look();
    // An hour's snapshot holds what the one out of turn did.
    let last = numbers()[0];
    bench.clock.advance_ms(3_600_000);
    backup(&engine, "web", &[("root", &noise(2, 5000))]).unwrap();
    look();
    assert_eq!(numbers(), [last + 1, 1]);
    change("token.create");
    look();
    look();
    assert_eq!(numbers(), [last + 2, last + 1, 1]);
    let header = read_snapshot_header(&*volume, &name(last + 2)).unwrap();
    assert_eq!(header.last_commit, engine.catalog().commits().unwrap().last);
}
