//! A damaged container is named, harms nothing else, and the next backup heals what it can.

use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_proto::region::Encoder;
use holdfast_proto::v1;
use holdfast_types::ids::{ContainerClass, SessionId};
use holdfast_volume::{BlobName, MemoryVolume, Volume as _};
use v1::ingest_request::Kind as Request;

use super::agent::{backup, region, request, restore, start};
use super::{Bench, noise};
use crate::check::CheckOptions;
use crate::container::{ContainerName, list_containers};
use crate::jobs::NoProgress;

const MIB: usize = 1 << 20;

fn containers(volume: &MemoryVolume, class: ContainerClass) -> Vec<BlobName> {
    let all = list_containers(volume).unwrap().containers.into_iter().map(|(name, _)| name);
    all.filter(|name| name.class == class).map(ContainerName::blob).collect()
}

fn damage(volume: &MemoryVolume, name: &BlobName, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = volume.get(name).unwrap().to_vec();
    change(&mut bytes);
    volume.replace(name, bytes);
}

/// One VM that will be hit and one that will not; then the damage; then what must still hold.
fn hit(class: ContainerClass, change: impl Fn(&mut Vec<u8>)) {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let (hit, spared) = (noise(1, 6 * MIB), noise(2, 6 * MIB));
    let (hit_id, spared_id) = {
        let engine = bench.open(Arc::new(volume.clone()));
        let hit = backup(&engine, "hit", &[("root", &hit)]).unwrap().backup_id;
        let victim = containers(&volume, class).remove(0);
        let spared = backup(&engine, "spared", &[("root", &spared)]).unwrap().backup_id;
        engine.shutdown().unwrap();
        damage(&volume, &victim, &change);
        (hit, spared)
    };
    let engine = bench.open(Arc::new(volume));
    let error = restore(&engine, &hit_id, "root").unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Damaged, "{error}");
    assert!(error.to_string().contains("root") && error.to_string().contains(&hit_id), "{error}");
    assert!(restore(&engine, &spared_id, "root").unwrap() == spared);

    let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
    assert!(report.problems.iter().any(|problem| problem.object.contains("container")), "{report:?}");
    assert!(report.problems.iter().any(|problem| problem.object.contains("\"hit\"")), "{report:?}");
    assert!(!report.problems.iter().any(|problem| problem.object.contains("\"spared\"")), "{report:?}");

    let healed = backup(&engine, "hit", &[("root", &hit)]).unwrap();
    assert!(restore(&engine, &healed.backup_id, "root").unwrap() == hit, "the next backup works");
    assert!(restore(&engine, &hit_id, "root").unwrap() == hit, "and heals the one before");
    assert!(engine.catalog().all_containers().count() > 4);
}

/// Damage that every backup that needed the chunks has healed is reported, and is no damage any more.
#[test]
fn a_check_of_healed_damage_is_sound_and_names_it() {
    let lost = |change: &dyn Fn(&MemoryVolume, &BlobName)| {
        let (bench, volume) = (Bench::new(), MemoryVolume::new());
        let disk = noise(1, 6 * MIB);
        let engine = bench.open(Arc::new(volume.clone()));
        let id = backup(&engine, "hit", &[("root", &disk)]).unwrap().backup_id;
        let victim = containers(&volume, ContainerClass::Data).remove(0);
        engine.shutdown().unwrap();
        drop(engine);
        change(&volume, &victim);
        let engine = bench.open(Arc::new(volume.clone()));
        let check = || engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
        let report = check();
        assert!(!report.is_sound() && report.healed.is_empty(), "{report:?}");
        assert!(report.problems.iter().any(|problem| problem.object.contains("container")), "{report:?}");
        backup(&engine, "hit", &[("root", &disk)]).unwrap();
        assert!(restore(&engine, &id, "root").unwrap() == disk);
        let report = check();
        assert!(report.is_sound(), "{:?}", report.problems);
        assert!(report.healed.iter().all(|healed| healed.object.contains("container")), "{report:?}");
        assert!(!report.healed.is_empty());
        engine.repair(&NoProgress).unwrap();
        let dropped = engine.drop_lost_rows(&NoProgress).unwrap();
        let report = check();
        assert!(report.is_sound() && restore(&engine, &id, "root").unwrap() == disk, "{report:?}");
        (dropped, report.healed.len())
    };
    let flip = |volume: &MemoryVolume, name: &BlobName| {
        damage(volume, name, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
        });
    };
    let (dropped, left) = lost(&flip);
    assert_eq!((dropped.dropped, left), (0, 1), "its other regions are in use");
    let (dropped, left) = lost(&|volume, name| volume.remove(name).unwrap());
    assert_eq!((dropped.dropped, left), (1, 0));
}

#[test]
fn a_flipped_bit_in_data() {
    hit(ContainerClass::Data, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
    });
}

#[test]
fn a_truncated_data_container() {
    hit(ContainerClass::Data, |bytes| bytes.truncate(bytes.len() / 2));
}

#[test]
fn an_emptied_container() {
    hit(ContainerClass::Data, Vec::clear);
}

#[test]
fn a_damaged_recipe() {
    hit(ContainerClass::Recipe, |bytes| {
        let middle = bytes.len() / 3;
        bytes[middle] ^= 4;
    });
}

#[test]
fn a_truncated_recipe_container() {
    hit(ContainerClass::Recipe, |bytes| bytes.truncate(70));
}

#[test]
fn a_lost_or_spoilt_index_is_rebuilt() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let disk = noise(1, 6 * MIB);
    let id = {
        let engine = bench.open(Arc::new(volume.clone()));
        let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
        engine.shutdown().unwrap();
        id
    };
    let index = holdfast_volume::testing::list(&volume, "index");
    assert!(index.len() > 1, "shutdown wrote runs and a manifest");
    for victim in index {
        let spoilt = volume.snapshot();
        damage(&spoilt, &victim.name, |bytes| bytes.truncate(bytes.len() / 2));
        let engine = bench.open(Arc::new(spoilt));
        assert!(restore(&engine, &id, "root").unwrap() == disk, "{} spoilt", victim.name);
    }
}

/// Marks the one data container as damaged, as a restore that met the damage would.
fn note_damage(engine: &crate::Engine, volume: &MemoryVolume) {
    let all = list_containers(volume).unwrap().containers;
    let data: Vec<_> = all.iter().filter(|(name, _)| name.class == ContainerClass::Data).collect();
    engine.parts().0.store.note_damage(data[0].0.id, None, "test");
}

fn extents(change: impl FnOnce(&mut v1::Extents)) -> Request {
    let mut message = v1::Extents::default();
    change(&mut message);
    Request::Extents(message)
}

fn chunked(fingerprint: Fingerprint, bytes: u32) -> v1::ChunkedExtent {
    v1::ChunkedExtent {
        index: 0,
        digest: vec![1; 32].into(),
        fingerprints: fingerprint.as_bytes().to_vec().into(),
        lengths: vec![bytes],
    }
}

#[test]
fn damage_found_after_the_digests_were_given_is_not_taken_over() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(1, 100_000);
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    let started = start(&engine, request("web", &[("root", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let block = engine.parent_digests(session, 0, 0).unwrap().unwrap();
    assert_eq!(block.digests.as_ref(), Fingerprint::of(&disk).as_bytes());
    note_damage(&engine, &volume);
    let stream = engine.open_stream(session, 0).unwrap();
    let unchanged = extents(|m| m.unchanged.push(v1::ExtentRange { first: 0, count: 1 }));
    let error = stream.handle(unchanged, 1).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::SessionGone, "{error}");
    assert!(error.to_string().contains("extent 0") && error.to_string().contains("start the backup again"));
    engine.abort(session, "test").unwrap();
    let healed = backup(&engine, "web", &[("root", &disk)]).unwrap();
    assert!(restore(&engine, &healed.backup_id, "root").unwrap() == disk);
    let again = backup(&engine, "web", &[("root", &disk)]).unwrap();
    assert_eq!(again.details[0].unchanged_bytes, 100_000, "sound again, though damage is still known");
}

#[test]
fn damage_found_after_a_chunk_was_said_to_be_there_is_not_relied_on() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(1, 5000);
    let name = Fingerprint::of(&disk);
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    let started = start(&engine, request("db", &[("root", &disk)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let query = v1::Query { sequence: 1, fingerprints: name.as_bytes().to_vec().into() };
    stream.handle(Request::Query(query), 1).unwrap();
    note_damage(&engine, &volume);
    let error = stream.handle(extents(|m| m.chunked.push(chunked(name, 5000))), 1).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::SessionGone, "{error}");
    assert!(error.to_string().contains(&name.to_string()), "{error}");
}

#[test]
fn damage_found_in_a_streams_own_container_is_not_relied_on() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    let first = noise(1, 5000);
    let started = start(&engine, request("web", &[("root", &first)])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let mut encoder = Encoder::new(3).unwrap();
    let mut send = |bytes: &[u8]| {
        let chunks: Vec<_> = bytes.chunks(64 << 10).map(|chunk| (Fingerprint::of(chunk), chunk)).collect();
        stream.handle(Request::Region(region(&chunks, &mut encoder)), 1).unwrap();
    };
    send(&first);
    // Fills the container the first chunk is in, so that it is sealed.
    for seed in 2..140 {
        send(&noise(seed, 256 << 10));
    }
    while list_containers(&volume).unwrap().containers.is_empty() {
        std::thread::yield_now();
        stream.idle().unwrap();
    }
    note_damage(&engine, &volume);
    let message = extents(|m| m.chunked.push(chunked(Fingerprint::of(&first), 5000)));
    let error = stream.handle(message, 1).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::SessionGone, "{error}");
}
