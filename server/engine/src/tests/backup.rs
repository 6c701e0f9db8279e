//! Backups restore to the same bytes, and cost exactly the bytes of their compression details.

use std::sync::Arc;

use holdfast_types::ids::ContainerClass;
use holdfast_volume::MemoryVolume;
use proptest::prelude::*;

use super::agent::{backup, restore};
use super::{Bench, namespace, noise};
use crate::check::CheckOptions;
use crate::jobs::NoProgress;

const MIB: usize = 1 << 20;

#[test]
fn disks_of_any_shape_come_back() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let mut mixed = noise(1, 9 * MIB + 77);
    mixed[MIB..3 * MIB].fill(0);
    mixed[4 * MIB..8 * MIB].fill(0);
    let zeros = vec![0; 13 * MIB];
    let disks: [(&str, &[u8]); 4] = [("mixed", &mixed), ("zeros", &zeros), ("empty", &[]), ("byte", &[7])];
    let done = backup(&engine, "web", &disks).unwrap();
    for (name, bytes) in disks {
        assert!(restore(&engine, &done.backup_id, name).unwrap() == bytes, "disk {name}");
    }
    let by_name = |name| done.details.iter().find(|row| row.disk == name).unwrap();
    assert_eq!((by_name("zeros").bytes, by_name("zeros").post_lc, by_name("zeros").meta_bytes), (0, 0, 0));
    assert_eq!(by_name("byte").bytes, 1);
    assert_eq!(by_name("mixed").bytes, (9 * MIB + 77 - 6 * MIB) as u64);
}

#[test]
fn regions_travel_together_in_messages_of_bounded_size() {
    use holdfast_proto::v1::read_disk_response::Kind;
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(3, 20 * MIB);
    let done = backup(&engine, "web", &[("root", &disk)]).unwrap();
    let id = done.backup_id.parse().unwrap();
    let (mut messages, mut regions) = (0, 0);
    for message in engine.read_disk(namespace(&engine), id, "root", 0, 0).unwrap() {
        let Kind::Regions(batch) = message.unwrap().kind.unwrap() else { continue };
        let bytes: usize = batch.regions.iter().map(|region| region.payload.len()).sum();
        assert!((1..=MIB).contains(&bytes), "{bytes} bytes in one message");
        messages += 1;
        regions += batch.regions.len();
    }
    assert!(regions >= 80, "20 MiB in regions of at most 256 KiB, {regions} came");
    assert!(messages <= regions / 3 + 2, "{messages} messages for {regions} regions");
}

#[test]
fn an_unchanged_disk_costs_no_data_and_a_change_costs_little() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let mut disk = noise(1, 20 * MIB);
    let first = backup(&engine, "web", &[("root", &disk)]).unwrap();
    let again = backup(&engine, "web", &[("root", &disk)]).unwrap();
    let row = &again.details[0];
    assert_eq!((row.unchanged_bytes, row.dup_bytes, row.new_bytes), (20 * MIB as u64, 0, 0));
    assert_eq!((row.post_lc, row.meta_bytes), (0, 0), "even the recipe is the parent's");

    disk[6 * MIB] ^= 1;
    let changed = backup(&engine, "web", &[("root", &disk)]).unwrap();
    let row = &changed.details[0];
    assert_eq!(row.unchanged_bytes, 16 * MIB as u64);
    assert!(row.new_bytes > 0 && row.new_bytes < 200_000, "{} new bytes", row.new_bytes);
    assert!(restore(&engine, &changed.backup_id, "root").unwrap() == disk);
    disk[6 * MIB] ^= 1;
    assert!(restore(&engine, &first.backup_id, "root").unwrap() == disk, "older backups stay as they were");
}

#[test]
fn machines_share_and_namespaces_do_not() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(3, 8 * MIB);
    backup(&engine, "a", &[("root", &disk)]).unwrap();
    let row = backup(&engine, "b", &[("root", &disk)]).unwrap().details.remove(0);
    assert_eq!((row.dup_bytes, row.new_bytes), (8 * MIB as u64, 0));

    let other = engine.catalog().ensure_namespace("other").unwrap().id;
    let mut request = super::agent::request("c", &[("root", &disk)]);
    request.namespace = "other".into();
    let start = crate::ingest::StartBackup { namespace: other, request, starter: super::agent::starter(2) };
    let session = engine.start_backup(&start).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    super::agent::send_disk(&engine, session, &stream, 0, &disk).unwrap();
    let done = engine.commit(session).unwrap();
    assert_eq!(done.details[0].new_bytes, 8 * MIB as u64, "another namespace's chunks are not offered");
    let id = done.backup_id.parse().unwrap();
    assert!(engine.read_disk(namespace(&engine), id, "root", 0, 0).is_err(), "nor can its backups be read");
}

#[test]
fn the_laws_hold_and_a_check_is_content() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let mut rows = Vec::new();
    let mut disk = noise(5, 40 * MIB);
    for day in 0..4usize {
        disk[day * 5 * MIB..day * 5 * MIB + 100_000].copy_from_slice(&noise(day as u64 + 50, 100_000));
        rows.extend(backup(&engine, "db", &[("root", &disk), ("copy", &disk[..10 * MIB])]).unwrap().details);
    }
    for row in &rows {
        assert_eq!(row.bytes, row.unchanged_bytes + row.dup_bytes + row.new_bytes);
    }
    let stored = |class| -> u64 {
        let all = engine.catalog().all_containers().map(Result::unwrap);
        all.filter(|container| container.class == class).map(|container| container.stored_bytes).sum()
    };
    assert_eq!(rows.iter().map(|row| row.post_lc).sum::<u64>(), stored(ContainerClass::Data));
    assert_eq!(rows.iter().map(|row| row.meta_bytes).sum::<u64>(), stored(ContainerClass::Recipe));
    let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!((report.backups, report.disks), (4, 8));
}

#[test]
fn ranges_read_like_the_disk() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let mut disk = noise(6, 9 * MIB + 5);
    disk[2 * MIB..7 * MIB].fill(0);
    let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id.parse().unwrap();
    let end = disk.len();
    for (offset, length) in
        [(0, 1), (4095, 8192), (2 * MIB - 1, 5 * MIB + 2), (end - 1, 100), (end, 5), (0, end)]
    {
        let mut read = Vec::new();
        for answer in engine.read_range(namespace(&engine), id, "root", offset as u64, length as u64).unwrap()
        {
            use holdfast_proto::v1::read_range_response::Kind;
            let answer = answer.unwrap();
            assert_eq!(answer.offset, (offset + read.len()) as u64);
            match answer.kind.unwrap() {
                Kind::Data(bytes) => read.extend(bytes),
                Kind::ZeroBytes(count) => read.resize(read.len() + usize::try_from(count).unwrap(), 0),
            }
        }
        assert!(read == disk[offset.min(end)..(offset + length).min(end)], "{offset} + {length}");
    }
}

#[test]
fn everything_is_there_after_a_restart() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let disk = noise(8, 12 * MIB);
    let id = {
        let engine = bench.open(Arc::new(volume.clone()));
        let done = backup(&engine, "web", &[("root", &disk)]).unwrap();
        engine.shutdown().unwrap();
        done.backup_id
    };
    let engine = bench.open(Arc::new(volume));
    assert_eq!(engine.opened().replayed_containers, 0, "shutdown made the index durable");
    assert!(restore(&engine, &id, "root").unwrap() == disk);
    let row = backup(&engine, "other", &[("root", &disk)]).unwrap().details.remove(0);
    assert_eq!(row.new_bytes, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Random edits of several VMs over random days: every backup ever made restores to what it was.
    #[test]
    fn history_is_kept(edits in proptest::collection::vec((0usize..3, 0usize..9_000_000, 1usize..400_000, any::<bool>()), 1..12)) {
        let bench = Bench::new();
        let engine = bench.open(Arc::new(MemoryVolume::new()));
        let mut disks = [noise(1, 9_000_000), noise(1, 5_000_000), vec![0; 9_000_000]];
        let mut history = Vec::new();
        for (seed, (vm, start, len, zero)) in edits.into_iter().enumerate() {
            let disk = &mut disks[vm];
            let start = start.min(disk.len());
            let end = (start + len).min(disk.len());
            let bytes = if zero { vec![0; end - start] } else { noise(seed as u64 + 9, end - start) };
            disk[start..end].copy_from_slice(&bytes);
            let done = backup(&engine, &format!("vm{vm}"), &[("root", disk)]).unwrap();
            history.push((done.backup_id, disk.clone()));
        }
        for (id, disk) in history {
            prop_assert!(restore(&engine, &id, "root").unwrap() == disk);
        }
    }
}
