use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::CONTAINER_MAX_BYTES;
use holdfast_proto::region::{Codec, Decoder, RegionError};
use holdfast_types::ids::ContainerClass;
use holdfast_volume::testing::{Damage, Fault, FaultyVolume, OpKind, put};
use holdfast_volume::{LocalVolume, MemoryVolume, VolumeError};
use proptest::prelude::*;

use super::testing::{CREATED_MS, NAMESPACE, REPOSITORY, id, open, region, sample_regions, seal, writer};
use super::*;
use crate::format::container::{FIRST_REGION_OFFSET, REGION_HEADER_BYTES};

mod damage;
mod golden;
mod salvage;

/// Asserts that a container holds exactly the regions that were written.
fn assert_holds(container: &OpenContainer, regions: &[Vec<Vec<u8>>]) {
    let directory = container.directory();
    assert_eq!(directory.region_count(), regions.len());
    assert_eq!(directory.chunk_count(), regions.iter().map(Vec::len).sum::<usize>());
    let mut expected = Vec::new();
    for (number, chunks) in (0u16..).zip(regions) {
        let stored = container.read_region(number).unwrap();
        let plain = stored.decode_checked(container).unwrap();
        assert_eq!(plain, chunks.concat());
        let mut offset = 0;
        for (slot, bytes) in (0u16..).zip(chunks) {
            let fingerprint = Fingerprint::of(bytes);
            let len = u32::try_from(bytes.len()).unwrap();
            assert_eq!(directory.chunk(number, slot), Some(ChunkRef { fingerprint, offset, bytes: len }));
            offset += len;
            let place = u32::try_from(expected.len()).unwrap();
            assert_eq!(directory.number_of(number, slot), Some(place));
            assert_eq!(directory.place_of(place), Some((number, slot)));
            expected.push((fingerprint, number, slot));
            let (region, slot) = directory.locate(&fingerprint).unwrap();
            assert_eq!(directory.chunk(region, slot).unwrap().fingerprint, fingerprint);
        }
        assert_eq!(directory.chunk(number, u16::try_from(chunks.len()).unwrap()), None);
        assert_eq!(directory.number_of(number, u16::try_from(chunks.len()).unwrap()), None);
    }
    assert_eq!(directory.place_of(u32::try_from(expected.len()).unwrap()), None);
    assert_eq!(directory.iter().collect::<Vec<_>>(), expected);
    assert_eq!(directory.locate(&Fingerprint::of(b"never stored")), None);
}

#[test]
fn what_was_sealed_is_what_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let volume = LocalVolume::open(folder.path()).unwrap();
    let regions = sample_regions(1);
    let mut writer = writer(&volume, 7);
    let mut expected_bytes = writer.stored_bytes();
    for chunks in &regions {
        let region = region(&chunks.iter().map(Vec::as_slice).collect::<Vec<_>>());
        expected_bytes += u64::from(region.stored_bytes()) + 24 + 20 + 34 * chunks.len() as u64;
        writer.append(&region).unwrap();
        assert_eq!(writer.stored_bytes(), expected_bytes);
    }
    let sealed = writer.seal().unwrap();
    assert_eq!((sealed.id, sealed.namespace, sealed.class), (id(7), NAMESPACE, ContainerClass::Data));
    assert_eq!(sealed.stored_bytes, expected_bytes);

    let container = open(&volume, 7);
    assert_eq!(container.stored_bytes(), expected_bytes);
    assert_eq!((container.namespace(), container.created_ms()), (NAMESPACE, CREATED_MS));
    assert_holds(&container, &regions);
    let same: Vec<_> = sealed.directory.iter().collect();
    assert_eq!(same, container.directory().iter().collect::<Vec<_>>());
    let report = scan_container(&volume, REPOSITORY, id(7), ContainerClass::Data);
    assert_eq!((report.regions, report.sound_chunks, report.stored_bytes), (3, 6, expected_bytes));
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// (R9) A page that was read before the disk rotted proves nothing, and one that arrived altered is no damage.
#[test]
fn what_memory_says_is_neither_proof_nor_damage() {
    let volume = FaultyVolume::new(MemoryVolume::new());
    let regions = sample_regions(1);
    seal(&volume, 1, &regions);
    let name = ContainerName { id: id(1), class: ContainerClass::Data }.blob();
    let offset = u64::from(FIRST_REGION_OFFSET) + REGION_HEADER_BYTES as u64;
    let flip = Damage::FlipBit { offset, bit: 0 };
    volume.cache(&name, Some(&flip)).unwrap();
    assert_holds(&open(&volume, 1), &regions);

    volume.damage(&name, &flip).unwrap();
    let stale = || volume.cache(&name, None).unwrap();
    stale();
    let container = open(&volume, 1);
    container.read_region(0).unwrap();
    Proving::default().begin(&container);
    container.read_region(0).unwrap_err();
    stale();
    let report = scan_container(&volume, REPOSITORY, id(1), ContainerClass::Data);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
}

#[test]
fn neighbours_are_read_at_once() {
    let volume = FaultyVolume::new(MemoryVolume::new());
    seal(&volume, 1, &sample_regions(1));
    let container = open(&volume, 1);
    let before = volume.count(OpKind::Read);
    let stored = container.read_regions(0..3).unwrap();
    assert_eq!(volume.count(OpKind::Read) - before, 1);
    for (number, stored) in (0u16..).zip(&stored) {
        assert_eq!(stored.payload, container.read_region(number).unwrap().payload);
    }
    assert_eq!(container.read_regions(1..2).unwrap().len(), 1);
    assert!(container.read_regions(2..2).unwrap().is_empty());
    assert!(matches!(container.read_regions(2..4), Err(ContainerError::NoSuchRegion { region: 3, .. })));
    assert!(matches!(
        container.read_region(3),
        Err(ContainerError::NoSuchRegion { region: 3, count: 3, .. })
    ));
}

#[test]
fn an_empty_container_is_one() {
    let volume = MemoryVolume::new();
    seal(&volume, 1, &[]);
    assert_holds(&open(&volume, 1), &[]);
}

#[test]
fn an_unsealed_container_is_none() {
    let volume = MemoryVolume::new();
    let mut unsealed = writer(&volume, 1);
    unsealed.append(&region(&[b"lost"])).unwrap();
    drop(unsealed);
    let error = OpenContainer::open(&volume, REPOSITORY, id(1), ContainerClass::Data).unwrap_err();
    assert!(matches!(error, ContainerError::Volume(VolumeError::NotFound { .. })), "{error}");
}

/// The arithmetic of `fits` must leave room for directory and footer, to the byte.
#[test]
fn a_container_is_filled_to_its_limit_and_no_further() {
    let volume = MemoryVolume::new();
    let mut noise = vec![0; 256 << 10];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    let chunks: Vec<&[u8]> = noise.chunks(16 << 10).collect();
    let large = region(&chunks);
    let mut full = writer(&volume, 1);
    while full.fits(&large) {
        full.append(&large).unwrap();
    }
    assert!(matches!(full.append(&large), Err(ContainerError::NoRoom { .. })));
    let chunk = |len: usize| region(&[&noise[..len]]);
    let medium = chunk(64 << 10);
    while full.fits(&medium) {
        full.append(&medium).unwrap();
    }
    let room = u64::from(CONTAINER_MAX_BYTES) - full.stored_bytes() - (24 + 20 + 34);
    let room = usize::try_from(room).unwrap();
    assert!(!full.fits(&chunk(room + 1)));
    full.append(&chunk(room)).unwrap();
    let sealed = full.seal().unwrap();
    assert_eq!(sealed.stored_bytes, u64::from(CONTAINER_MAX_BYTES));
    let container = open(&volume, 1);
    assert_eq!(container.directory().chunk_count(), sealed.directory.chunk_count());
    assert!(container.memory_bytes() < 64 * container.directory().chunk_count() + 20_000);
}

#[test]
fn only_true_claims_are_verified() {
    let mut decoder = Decoder::new().unwrap();
    let claim = |payload: &[u8], codec| UnverifiedRegion {
        codec,
        plain_bytes: 10,
        fingerprints: vec![Fingerprint::of(b"hello"), Fingerprint::of(b"world")],
        lengths: vec![5, 5],
        payload: payload.to_vec().into(),
    };
    let frame = zstd_frame(b"helloworld");
    for (payload, codec) in [(b"helloworld".to_vec(), Codec::Stored), (frame, Codec::Zstd)] {
        let (verified, plain) = claim(&payload, codec).verify(&mut decoder).unwrap();
        assert_eq!(verified.payload(), &payload);
        assert_eq!(plain.unwrap(), b"helloworld"[..]);
    }
    let refused = [
        (b"helloworlx".to_vec(), Codec::Stored),
        (b"helloworld!".to_vec(), Codec::Stored),
        (b"helloworld".to_vec(), Codec::Zstd),
        (zstd_frame(b"helloworlx"), Codec::Zstd),
        (zstd_frame(&vec![0; 32 << 20]), Codec::Zstd),
    ];
    for (payload, codec) in refused {
        assert!(claim(&payload, codec).verify(&mut decoder).is_err(), "{codec:?} {payload:?}");
    }
    let lie = UnverifiedRegion { lengths: vec![4, 6], ..claim(b"helloworld", Codec::Stored) };
    assert!(matches!(lie.verify(&mut decoder), Err(RegionError::Fingerprint { index: 0, .. })));
    let mut encoder = holdfast_proto::region::Encoder::new(3).unwrap();
    assert!(VerifiedRegion::encode(&[(Fingerprint::of(b"a"), b"b")], &mut encoder).is_err());
    assert!(VerifiedRegion::encode(&[], &mut encoder).is_err());
}

/// Regions that compress well come out as frames.
fn zstd_frame(plain: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(plain, 3).unwrap()
}

#[test]
fn failures_of_the_volume_pass_through() {
    for (kind, fault) in [
        (OpKind::Create, Fault::Io),
        (OpKind::Append, Fault::Full),
        (OpKind::Seal, Fault::NotDurable { applied: false }),
    ] {
        let volume = FaultyVolume::new(MemoryVolume::new());
        volume.fail_next(kind, 1, fault);
        let class = ContainerClass::Data;
        let result = ContainerWriter::create(&volume, REPOSITORY, NAMESPACE, id(1), class, 0)
            .and_then(|mut writer| writer.append(&region(&[b"x"])).map(|_| writer))
            .and_then(ContainerWriter::seal);
        let error = result.unwrap_err();
        assert!(matches!(error, ContainerError::Volume(_)), "{error}");
        assert!(!error.is_damage());
        assert!(list_containers(&volume).unwrap().containers.is_empty());
    }
}

/// (R9)
#[test]
fn a_read_that_fails_its_check_is_read_once_more() {
    let volume = FaultyVolume::new(MemoryVolume::new());
    let class = ContainerClass::Data;
    let mut writer = ContainerWriter::create(&volume, REPOSITORY, NAMESPACE, id(1), class, 0).unwrap();
    writer.append(&region(&[&[7; 4000], &[9; 5000]])).unwrap();
    writer.seal().unwrap();
    // Header, tail, region.
    for (fault, nth) in
        [Fault::Torn, Fault::Io].into_iter().flat_map(|fault| (1..=3).map(move |nth| (fault, nth)))
    {
        volume.fail_next(OpKind::Read, nth, fault);
        let container = OpenContainer::open(&volume, REPOSITORY, id(1), class).unwrap();
        container.read_region(0).unwrap().decode_checked(&container).unwrap();
        volume.fail_next(OpKind::Read, nth, fault);
        let report = scan_container(&volume, REPOSITORY, id(1), class);
        assert!(report.findings.is_empty(), "read {nth}: {:?}", report.findings);
        volume.heal();
    }
    // Twice is damage.
    volume.fail_next(OpKind::Read, 1, Fault::Torn);
    volume.fail_next(OpKind::Read, 2, Fault::Torn);
    assert!(OpenContainer::open(&volume, REPOSITORY, id(1), class).unwrap_err().is_damage());
}

/// A cache over a volume that counts its operations.
fn cache(limits: CacheLimits) -> (Arc<FaultyVolume<MemoryVolume>>, ContainerCache) {
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    let cache = ContainerCache::new(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume), REPOSITORY, limits);
    (volume, cache)
}

const DATA: ContainerClass = ContainerClass::Data;

#[test]
fn the_cache_opens_once_and_forgets_the_least_recently_used() {
    let (volume, cache) = cache(CacheLimits { memory_bytes: usize::MAX, containers: 2 });
    for number in 1..=3u8 {
        seal(&*volume, number.into(), &sample_regions(number));
    }
    let get = |number| cache.get(id(number), DATA).unwrap().id();
    let opens = || volume.count(OpKind::Open);
    assert_eq!((get(1), get(2), get(1)), (id(1), id(2), id(1)));
    assert_eq!(opens(), 2);
    get(3); // pushes 2 out
    get(1);
    assert_eq!((opens(), cache.held().0), (3, 2));
    get(2);
    assert_eq!(opens(), 4);
    cache.remove(id(2));
    get(2);
    assert_eq!(opens(), 5);
    assert!(matches!(
        cache.get(id(1), ContainerClass::Recipe),
        Err(ContainerError::Volume(VolumeError::NotFound { .. }))
    ));
}

#[test]
fn the_cache_keeps_to_its_memory_and_counts_right() {
    let (volume, cache) = cache(CacheLimits { memory_bytes: 3000, containers: 100 });
    for number in 1..=20u8 {
        seal(&*volume, number.into(), &sample_regions(number));
        cache.get(id(number.into()), DATA).unwrap();
        assert!(cache.held().1 <= 3000);
    }
    let one = open(&*volume, 1).memory_bytes();
    let (held, bytes) = cache.held();
    assert_eq!(bytes, held * one);
    assert_eq!(held, 3000 / one);
    (1..=20).for_each(|number| cache.remove(id(number)));
    assert_eq!(cache.held(), (0, 0));
}

#[test]
fn a_failed_load_is_tried_again_and_leaves_nothing() {
    let (volume, cache) = cache(CacheLimits::default());
    seal(&*volume, 1, &sample_regions(1));
    volume.fail_next(OpKind::Read, 1, Fault::NotReadableNow);
    assert!(!cache.get(id(1), DATA).unwrap_err().is_damage());
    assert_eq!(cache.held(), (0, 0));
    cache.get(id(1), DATA).unwrap();
}

#[test]
fn what_fails_twice_is_damage() {
    let (volume, cache) = cache(CacheLimits::default());
    seal(&*volume, 1, &sample_regions(1));
    for kind in [OpKind::Open, OpKind::Read] {
        volume.fail_next(kind, 1, Fault::Io);
        cache.get(id(1), DATA).unwrap();
        cache.remove(id(1));
        volume.fail_next(kind, 1, Fault::Io);
        volume.fail_next(kind, 2, Fault::Io);
        let error = cache.get(id(1), DATA).unwrap_err();
        assert!(error.is_damage() && error.code() == holdfast_proto::ErrorCode::Damaged, "{error}");
        assert!(error.to_string().starts_with("containers/"), "{error}");
    }
}

#[test]
fn threads_share_one_load() {
    let (volume, cache) = cache(CacheLimits::default());
    seal(&*volume, 1, &sample_regions(1));
    let start = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                cache.get(id(1), DATA).unwrap();
            });
        }
    });
    assert_eq!(volume.count(OpKind::Open), 1);
}

#[test]
fn recent_directories_answer_for_neighbours() {
    let volume = MemoryVolume::new();
    let mut recent = RecentDirectories::default();
    for number in 1..=17u8 {
        seal(&volume, number.into(), &sample_regions(number));
        recent.push(open(&volume, number.into()));
    }
    let chunk_of = |number: u8| Fingerprint::of(&vec![number; 300]);
    assert!(recent.find(&chunk_of(1)).is_none(), "the seventeenth pushed it out");
    let (container, region, slot) = recent.find(&chunk_of(2)).unwrap();
    assert_eq!((container.id(), region, slot), (id(2), 2, 0));
    seal(&volume, 18, &sample_regions(18));
    recent.push(open(&volume, 18));
    assert!(recent.find(&chunk_of(2)).is_some(), "a hit keeps it");
    assert!(recent.find(&chunk_of(3)).is_none());
    recent.forget(id(2));
    assert!(recent.find(&chunk_of(2)).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_container_round_trips(
        regions in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(0u8..4, 1..2000), 1..20), 0..12)
    ) {
        let volume = MemoryVolume::new();
        seal(&volume, 1, &regions);
        assert_holds(&open(&volume, 1), &regions);
        let report = scan_container(&volume, REPOSITORY, id(1), ContainerClass::Data);
        prop_assert!(report.findings.is_empty());
    }
}

fn name(number: u64, class: ContainerClass) -> ContainerName {
    ContainerName { id: ContainerId::new(number).unwrap(), class }
}

#[test]
fn names_round_trip() {
    let text = name(0x12345, ContainerClass::Recipe).blob().to_string();
    assert_eq!(text, "containers/0000012/0000012345.recipe");
    for number in [0, 1, 4095, 4096, (1 << ContainerId::BITS) - 1] {
        for class in [ContainerClass::Data, ContainerClass::Recipe] {
            let name = name(number, class);
            assert_eq!(ContainerName::parse(&name.blob()), Some(name));
        }
    }
}

#[test]
fn what_is_nearly_a_name_is_a_stray() {
    let volume = MemoryVolume::new();
    let strays = [
        "containers/0000000/0000000001.dat",
        "containers/0000000/0000001000.data",
        "containers/0000000/00000000fg.data",
        "containers/0000000/1.data",
        "containers/0000000/x/0000000001.data",
    ];
    for stray in strays {
        put(&volume, stray, b"");
    }
    put(&volume, "containers/0000001/0000001000.recipe", b"12");
    put(&volume, "containers/0000000/0000000fff.data", b"1");
    let listing = list_containers(&volume).unwrap();
    let expected = [(name(0xfff, ContainerClass::Data), 1), (name(0x1000, ContainerClass::Recipe), 2)];
    assert_eq!(listing.containers, expected);
    assert_eq!(listing.strays.len(), strays.len());
}
