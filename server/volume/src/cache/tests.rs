use super::*;
use crate::MemoryVolume;
use crate::testing::{Damage, Fault, FaultyVolume, OpKind, put, volume_suite};

type Faulty = FaultyVolume<MemoryVolume>;

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn limits(capacity_bytes: u64, block_bytes: usize) -> CacheLimits {
    CacheLimits { capacity_bytes, block_bytes: NonZeroUsize::new(block_bytes).unwrap() }
}

fn cached(limits: CacheLimits) -> (Arc<Faulty>, CacheVolume) {
    let faulty = Arc::new(Faulty::new(MemoryVolume::new()));
    let volume = CacheVolume::new(Arc::<Faulty>::clone(&faulty), limits);
    (faulty, volume)
}

fn read(blob: &dyn Blob, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blob.read_at(offset, &mut bytes).unwrap();
    bytes
}

/// One that holds everything, one that evicts all the time, one whose blocks never fit, one that is off.
#[test]
fn conforms() {
    for limits in [limits(64 << 20, 4096), limits(8 << 10, 7), limits(4 << 10, 8 << 10), limits(0, 1)] {
        volume_suite(|| Box::new(cached(limits).1));
    }
}

#[test]
fn what_was_read_is_not_read_again_whichever_handle_asks() {
    let (faulty, volume) = cached(limits(1 << 20, 10));
    let bytes: Vec<u8> = (0..95).collect();
    put(&volume, "x", &bytes);
    let blob = volume.open(&name("x")).unwrap();
    assert_eq!(read(&*blob, 15, 10), bytes[15..25]);
    assert_eq!(faulty.count(OpKind::Read), 1, "two neighbouring blocks are one read");
    assert_eq!(read(&*blob, 10, 20), bytes[10..30]);
    assert_eq!(faulty.count(OpKind::Read), 1);
    assert_eq!(read(&*blob, 0, 95), bytes);
    assert_eq!(faulty.count(OpKind::Read), 3, "what is missing before and after what is known");
    drop(blob);
    assert_eq!(read(&*volume.open(&name("x")).unwrap(), 93, 2), bytes[93..95]);
    assert_eq!(faulty.count(OpKind::Read), 3, "blocks outlive handles");
}

#[test]
fn the_least_recently_used_block_leaves_first_and_memory_is_bounded() {
    // Room for three blocks of 1,000 bytes and their bookkeeping.
    let (faulty, volume) = cached(limits(6000, 1000));
    put(&volume, "x", &[7; 10_000]);
    let blob = volume.open(&name("x")).unwrap();
    let is_known = |block: u64| {
        let before = faulty.count(OpKind::Read);
        read(&*blob, block * 1000, 1);
        faulty.count(OpKind::Read) == before
    };
    for block in 0..3 {
        assert!(!is_known(block));
    }
    assert!(is_known(0), "and used again");
    assert!(!is_known(3), "takes the place of 1");
    assert!(volume.held_bytes() <= 6000 && volume.held_bytes() >= 3000);
    assert!(is_known(2) && is_known(0) && is_known(3) && !is_known(1));
}

#[test]
fn a_removal_frees_memory_and_its_handles_are_not_remembered_any_more() {
    let (faulty, volume) = cached(limits(1 << 20, 10));
    put(&volume, "x", &[1; 30]);
    put(&volume, "y", &[2; 30]);
    let (old, other) = (volume.open(&name("x")).unwrap(), volume.open(&name("y")).unwrap());
    read(&*other, 0, 30);
    let held = volume.held_bytes();
    read(&*old, 0, 30);
    volume.remove(&name("x")).unwrap();
    assert_eq!(volume.held_bytes(), held, "the other blob's blocks stay");
    assert_eq!(read(&*old, 0, 30), [1; 30]);
    assert_eq!(volume.held_bytes(), held);
    put(&volume, "x", &[3; 30]);
    let new = volume.open(&name("x")).unwrap();
    assert_eq!((read(&*old, 0, 30), read(&*new, 0, 30)), (vec![1; 30], vec![3; 30]));
    faulty.fail_next(OpKind::Remove, 1, Fault::Io);
    volume.remove(&name("x")).unwrap_err();
    assert_eq!(volume.held_bytes(), held, "a removal that failed may have happened");
    assert_eq!(read(&*volume.open(&name("x")).unwrap(), 0, 30), [3; 30]);
    assert!(volume.held_bytes() > held, "remembered again");
}

#[test]
fn an_open_that_overlaps_a_removal_shares_nothing() {
    let x = name("x");
    let mut blocks = Blocks::new(1 << 20);
    let early = blocks.begin_open(&x).unwrap();
    assert!(blocks.is_current(&x, early));
    blocks.insert(early, 0, Bytes::from_static(b"old"));
    // Open begins, removal begins and ends, open ends.
    let during = blocks.begin_open(&x).unwrap();
    assert_eq!(during, early, "handles of one blob share");
    blocks.begin_removal(&x);
    assert!(!blocks.is_current(&x, during));
    assert_eq!(blocks.begin_open(&x), None, "while the removal is under way");
    blocks.begin_removal(&x);
    blocks.end_removal(&x);
    assert_eq!(blocks.begin_open(&x), None, "the other removal is under way");
    blocks.end_removal(&x);
    let late = blocks.begin_open(&x).unwrap();
    assert_ne!(late, early);
    assert!(blocks.is_current(&x, late) && !blocks.is_current(&x, early));
    assert_eq!(blocks.get(late, 0), None);
    // A read by an old handle ends now.
    blocks.insert(early, 0, Bytes::from_static(b"old"));
    assert!(!blocks.has(early, 0) && blocks.held_bytes() == 0);
    for id in [early, during, late] {
        blocks.closed(id);
    }
    assert_eq!(blocks.known_blobs(), 0);
}

/// Neighbours bring nothing twice; small reads still bring whole blocks.
#[test]
fn large_reads_bring_what_is_asked_for() {
    let counters = Arc::new(crate::VolumeCounters::default());
    let counted = crate::CountVolume::new(Arc::new(MemoryVolume::new()), Arc::clone(&counters));
    let volume = CacheVolume::new(Arc::new(counted), limits(1 << 20, 1000));
    let bytes: Vec<u8> = (0..20_500_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    put(&volume, "x", &bytes);
    let blob = volume.open(&name("x")).unwrap();
    let brought = || counters.snapshot().read.bytes;
    for (offset, len) in [(300, 6000), (6300, 6000), (12_300, 8200)] {
        assert_eq!(read(&*blob, offset, len), bytes[usize::try_from(offset).unwrap()..][..len]);
    }
    assert_eq!(brought(), 20_200);
    // What was brought whole is remembered: also the last block, which is short.
    assert_eq!(read(&*blob, 1000, 5000), bytes[1000..6000]);
    assert_eq!(read(&*blob, 20_100, 400), bytes[20_100..20_500]);
    assert_eq!(brought(), 20_200);
    // A block of which each of two had a part is brought as a whole.
    assert_eq!(read(&*blob, 6200, 200), bytes[6200..6400]);
    assert_eq!(brought(), 21_200);
}

#[test]
fn large_reads_go_past() {
    let (faulty, volume) = cached(limits(80_000, 1000));
    put(&volume, "x", &[7; 20_000]);
    let blob = volume.open(&name("x")).unwrap();
    read(&*blob, 0, 10_001);
    assert_eq!(volume.held_bytes(), 0);
    read(&*blob, 0, 10_000);
    assert!(volume.held_bytes() >= 10_000);
    assert_eq!(faulty.count(OpKind::Read), 2);
}

#[test]
fn what_is_forgotten_is_read_again() {
    let (faulty, volume) = cached(limits(1 << 20, 10));
    put(&volume, "x", &[7; 4]);
    faulty.fail_next(OpKind::Read, 1, Fault::Torn);
    let blob = volume.open(&name("x")).unwrap();
    assert_eq!(read(&*blob, 0, 4), [7, 7, 0, 0]);
    assert_eq!(read(&*blob, 0, 4), [7, 7, 0, 0], "the cache verifies nothing");
    volume.forget(&name("x"));
    assert_eq!(volume.held_bytes(), 0);
    assert_eq!(read(&*blob, 0, 4), [7; 4]);
    assert!(volume.held_bytes() > 0, "the handle still shares");
}

#[test]
fn failures_are_not_remembered_and_a_cut_blob_gives_what_it_has() {
    let (faulty, volume) = cached(limits(1 << 20, 10));
    put(&volume, "x", &[7; 30]);
    let blob = volume.open(&name("x")).unwrap();
    faulty.fail_next(OpKind::Read, 1, Fault::Unavailable);
    assert!(blob.read_at(0, &mut [0; 5]).unwrap_err().is_retryable());
    assert_eq!((volume.held_bytes(), faulty.count(OpKind::Read)), (0, 1));
    faulty.damage(&name("x"), &Damage::Truncate { len: 25 }).unwrap();
    assert_eq!(read(&*blob, 20, 5), [7; 5]);
    let error = blob.read_at(20, &mut [0; 6]).unwrap_err();
    assert!(matches!(error, VolumeError::OutOfRange { len: 25, offset: 20, wanted: 6, .. }), "{error}");
}

#[test]
fn blobs_without_handles_and_blocks_take_no_memory() {
    let (_, volume) = cached(limits(8 << 10, 100));
    for number in 0..100 {
        let blob = format!("b/{number}");
        put(&volume, &blob, &[7; 100]);
        read(&*volume.open(&name(&blob)).unwrap(), 0, 100);
        volume.open(&name(&format!("missing/{number}"))).unwrap_err();
    }
    let known = volume.cache.blocks.lock().known_blobs();
    assert!((1..=8).contains(&known), "{known} blobs in 8 KiB");
    for number in 0..100 {
        volume.forget(&name(&format!("b/{number}")));
    }
    assert_eq!(volume.cache.blocks.lock().known_blobs(), 0);
}
