//! Rules of ORDERING that no other test would miss.

use std::sync::Arc;

use holdfast_catalog::CatalogWalk;
use holdfast_proto::{ErrorCode, Fingerprint};
use holdfast_types::ids::{ContainerClass, ContainerId, Location};
use holdfast_volume::testing::FaultyVolume;
use holdfast_volume::{MemoryVolume, Volume};

use super::agent::{backup, request, restore, start};
use super::{Bench, namespace, noise};
use crate::container::{ContainerName, RecentDirectories, list_containers};
use crate::core::NUMBERS_PER_RESERVATION;
use crate::engine::Engine;

/// Numbers are reserved a number at a time; what is used beyond that must be known to the catalog, too (W8).
#[test]
fn container_numbers_come_from_the_catalog_however_many_are_used() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    for day in 0..u64::from(NUMBERS_PER_RESERVATION) {
        backup(&engine, "web", &[("root", &noise(day, 20_000))]).unwrap();
    }
    let used: Vec<ContainerId> = engine.catalog().all_containers().map(|record| record.unwrap().id).collect();
    assert!(used.len() > NUMBERS_PER_RESERVATION as usize, "{} containers are too few", used.len());
    let next = engine.catalog().reserve_container_numbers(1).unwrap().start;
    assert!(used.iter().all(|id| id.get() < next), "the catalog would hand out {next} again: {used:?}");
}

/// The volume still has room, but what is left of it is kept (W10).
#[test]
fn a_backup_leaves_the_reserve_free() {
    const RESERVE_BYTES: u64 = 1 << 20;
    let bench = Bench::new();
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    let mut parts = bench.parts(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume)).unwrap();
    parts.options.reserve_bytes = Some(RESERVE_BYTES);
    let engine = Engine::assemble(parts).unwrap();
    volume.limit_capacity(RESERVE_BYTES + 200_000);
    let disk = noise(1, 400_000);
    let good = backup(&engine, "web", &[("root", &disk)]).unwrap();
    let space = volume.space().unwrap().unwrap();
    assert!(space.free_bytes > RESERVE_BYTES / 2 && space.free_bytes < RESERVE_BYTES, "{space:?}");
    let error = start(&engine, request("db", &[("root", &disk)])).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Full, "{error}");
    assert!(restore(&engine, &good.backup_id, "root").unwrap() == disk, "what is there can be read");
    volume.limit_capacity(4 * RESERVE_BYTES);
    backup(&engine, "db", &[("root", &disk)]).unwrap();
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
