//! Rules of ORDERING that no other test would miss.

use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, Location};
use holdfast_volume::MemoryVolume;

use super::agent::{backup, request, restore, send_disk, start};
use super::{Bench, namespace, noise};
use crate::container::{ContainerName, RecentDirectories, list_containers};
use crate::core::NUMBERS_PER_RESERVATION;

/// Numbers are reserved many at a time; the catalog must know of those used beyond the first of them before any
/// container is in it (W8).
#[test]
fn container_numbers_come_from_the_catalog_however_many_are_used() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    for day in 0..u64::from(NUMBERS_PER_RESERVATION) / 2 {
        backup(&engine, "web", &[("root", &noise(day, 20_000))]).unwrap();
    }
    let disk = noise(1000, 20_000);
    let started = start(&engine, request("db", &[("root", &disk)])).unwrap();
    let session = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk).unwrap();
    let containers = list_containers(&volume).unwrap().containers;
    let used = containers.iter().map(|(name, _)| name.id.get()).max().unwrap();
    assert!(used >= u64::from(NUMBERS_PER_RESERVATION), "the first {used} are too few");
    let next = engine.catalog().reserve_container_numbers(1).unwrap().start;
    assert!(used < next, "container {used} is there, and the catalog would hand out {next}");
}

/// Keys of the index are hashes, and its entries may be of containers that were deleted: an entry that leads to another
/// chunk is no answer (I3).
#[test]
fn an_answer_of_the_index_is_compared_with_the_directory() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    backup(&engine, "web", &[("root", &noise(1, 100_000))]).unwrap();
    let mut containers = engine.catalog().all_containers().map(Result::unwrap);
    let data = containers.find(|record| record.class == ContainerClass::Data).unwrap().id;
    let store = &engine.parts().0.store;
    let domain = store.domain(namespace(&engine));
    let absent = Fingerprint::of(b"never stored");
    let key = domain.key(ContainerClass::Data).of(&absent);
    let elsewhere = Location { container: data, region: 0, slot: 0 };
    store.index.insert_container(data, [(key, elsewhere)]).unwrap();
    let found =
        store.find(&domain, ContainerClass::Data, &absent, &mut RecentDirectories::default()).unwrap();
    assert!(found.is_none(), "{found:?}");
}

/// Otherwise the next process would offer digests of what is lost (R4).
#[test]
fn damage_is_known_after_a_restart() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    {
        let engine = bench.open(Arc::new(volume.clone()));
        let done = backup(&engine, "web", &[("root", &noise(1, 400_000))]).unwrap();
        let all = list_containers(&volume).unwrap().containers;
        let (data, _) = all.into_iter().find(|(name, _)| name.class == ContainerClass::Data).unwrap();
        let name = ContainerName::blob(data);
        let mut bytes = volume.get(&name).unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        volume.replace(&name, bytes);
        restore(&engine, &done.backup_id, "root").unwrap_err();
        assert!(engine.parts().0.store.has_damage());
    }
    let engine = bench.open(Arc::new(volume));
    assert!(engine.parts().0.store.has_damage(), "{:?}", engine.catalog().damaged());
}
