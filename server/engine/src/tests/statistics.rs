//! Statistics of all containers, estimated from a sample.

use std::sync::Arc;

use holdfast_types::ids::ContainerClass;
use holdfast_volume::{MemoryVolume, Volume};

use super::agent::backup;
use super::{Bench, noise};
use crate::container::ContainerName;
use crate::statistics::{CHUNK_EDGES_BYTES, FACTOR_EDGES};

const MIB: usize = 1 << 20;

#[test]
fn every_region_and_chunk_is_in_its_bucket() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let nothing = engine.storage_statistics(10).unwrap();
    assert_eq!((nothing.containers, nothing.sampled_containers, nothing.chunks), (0, 0, 0));

    let incompressible = noise(1, 8 * MIB);
    // Half of every 512 bytes is the same: about a factor of two.
    let mut half = noise(2, 8 * MIB);
    half.chunks_mut(512).for_each(|piece| piece[256..].fill(b'x'));
    for (vm, disk) in [("a", &incompressible), ("b", &half)] {
        backup(&engine, vm, &[("root", disk)]).unwrap();
    }
    let found = engine.storage_statistics(10).unwrap();
    let containers: Vec<_> = engine
        .catalog()
        .all_containers()
        .map(|container| container.unwrap())
        .filter(|container| container.class == ContainerClass::Data)
        .collect();
    assert_eq!((found.containers, found.sampled_containers), (2, 2));
    assert_eq!(found.chunks, containers.iter().map(|c| c.chunk_count).sum::<u64>());
    let plain: u64 = containers.iter().map(|c| c.plain_bytes).sum();
    assert_eq!(found.region_factor.iter().map(|b| b.plain_bytes).sum::<u64>(), plain);
    assert_eq!(found.chunk_bytes.iter().map(|b| b.bytes).sum::<u64>(), plain);
    assert_eq!(found.region_factor.iter().map(|b| b.regions).sum::<u64>(), found.regions);
    assert_eq!(found.chunk_bytes.iter().map(|b| b.chunks).sum::<u64>(), found.chunks);
    assert_eq!(found.raw_regions, found.region_factor[0].regions, "noise is kept as it is");
    assert!(found.raw_regions >= 32 && found.regions - found.raw_regions >= 32, "{found:?}");
    let compressed = found.region_factor[1..].iter().enumerate();
    for (place, bucket) in compressed.filter(|(_, bucket)| bucket.regions > 0) {
        let factor = bucket.plain_bytes / bucket.stored_bytes;
        assert!((1..=4).contains(&factor) && FACTOR_EDGES[place + 1] >= 1.5, "{found:?}");
    }
    for (place, bucket) in found.chunk_bytes.iter().enumerate().filter(|(_, bucket)| bucket.chunks > 0) {
        let mean = bucket.bytes / bucket.chunks;
        assert!(mean >= u64::from(CHUNK_EDGES_BYTES[place]), "{place}: {bucket:?}");
        let end = CHUNK_EDGES_BYTES.get(place + 1).copied().unwrap_or(u32::MAX);
        assert!(mean < u64::from(end), "{place}: {bucket:?}");
    }
}

#[test]
fn a_sample_is_bounded_and_damage_is_left_out() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    for number in 0..5 {
        backup(&engine, &format!("vm-{number}"), &[("root", &noise(number, MIB))]).unwrap();
    }
    let whole = engine.storage_statistics(usize::MAX).unwrap();
    assert_eq!((whole.containers, whole.sampled_containers), (5, 5));
    let some = engine.storage_statistics(2).unwrap();
    assert_eq!((some.containers, some.sampled_containers), (5, 2));
    assert!(some.chunks < whole.chunks);
    assert_eq!(engine.storage_statistics(0).unwrap().sampled_containers, 0);

    let ids = engine.catalog().sample_containers(ContainerClass::Data, 3).unwrap().0;
    let victim = ContainerName { id: ids[1], class: ContainerClass::Data };
    volume.remove(&victim.blob()).unwrap();
    let fewer = engine.storage_statistics(usize::MAX).unwrap();
    assert_eq!((fewer.containers, fewer.sampled_containers), (5, 4));
}
