use std::sync::Arc;

use holdfast_keys::slots::{NewSlot, SlotSecret};
use holdfast_keys::{OpenKeys, Owner as KeyOwner, Secret, SystemRandom};
use holdfast_types::clock::ManualClock;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind, passes_on_drop_cached, put, volume_suite};
use holdfast_volume::{BlobName, MemoryVolume, Owner, Volume, VolumeError};
use proptest::prelude::*;

use crate::layout::sealed_name;
use crate::{Keys, SealedVolume, read_table};

const NAME: &str = "containers/0000000/0000000001.data";
const OWNER: Owner = Owner::namespace([7; 16]);

fn repository(number: u8) -> RepositoryId {
    RepositoryId::from_bytes([number; 16])
}

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn secret() -> SlotSecret {
    SlotSecret::key_file(Secret::from_bytes(&[1; 32]))
}

fn keys(inner: &MemoryVolume, repository: RepositoryId, accepts_plain: bool) -> Arc<Keys> {
    let secret = secret();
    let slot = NewSlot::new(&secret, "a test");
    let open = OpenKeys::create(repository, &slot, accepts_plain, 0, &SystemRandom).unwrap();
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SystemRandom));
    crate::write_table(inner, open.table()).unwrap();
    Arc::new(Keys::new(open, Arc::new(inner.clone()), clock, random))
}

fn sealed(inner: &MemoryVolume) -> SealedVolume {
    SealedVolume::new(Arc::new(inner.clone()), keys(inner, repository(1), false))
}

/// Pseudorandom bytes, the same in every run.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn read(volume: &dyn Volume, text: &str) -> Result<Vec<u8>, VolumeError> {
    let blob = volume.open(&name(text))?;
    blob.read_vec(&name(text), 0, usize::try_from(blob.len()).unwrap())
}

#[test]
fn conforms() {
    volume_suite(|| Box::new(sealed(&MemoryVolume::new())));
    let accepting =
        |inner: &MemoryVolume| SealedVolume::new(Arc::new(inner.clone()), keys(inner, repository(1), true));
    volume_suite(|| Box::new(accepting(&MemoryVolume::new())));
    let inner = MemoryVolume::new();
    let below = Arc::new(FaultyVolume::new(inner.clone()));
    let keys = keys(&inner, repository(1), true);
    passes_on_drop_cached(&below, &SealedVolume::new(Arc::<FaultyVolume<_>>::clone(&below), keys));
}

/// Neither the content nor the name of a blob can be found on the volume below.
#[test]
fn what_lies_below_is_unreadable() {
    let inner = MemoryVolume::new();
    let volume = sealed(&inner);
    let text = b"a sentence that no one is to find".repeat(5000);
    for name in [NAME, "index/runs/1", "points/n/x.1"] {
        put(&volume, name, &text);
        let raw = inner.get(&sealed_name(&self::name(name)).unwrap()).unwrap().to_vec();
        assert!(raw.len() > text.len());
        assert!(!raw.windows(8).any(|window| window == b"sentence"), "{name}");
        assert!(matches!(inner.open(&self::name(name)), Err(VolumeError::NotFound { .. })));
        assert_eq!(read(&volume, name).unwrap(), text);
    }
    put(&volume, "repository", b"in the open");
    assert_eq!(inner.get(&name("repository")).unwrap(), b"in the open"[..]);
}

/// Flipping any byte of a sealed blob: a read returns what was written, or fails.
#[test]
fn every_flipped_byte_is_found() {
    let inner = MemoryVolume::new();
    let volume = sealed(&inner);
    let content = noise(9000);
    put(&volume, "index/runs/1", &content);
    let below = sealed_name(&name("index/runs/1")).unwrap();
    let raw = inner.get(&below).unwrap().to_vec();
    assert_eq!(raw.len(), 64 + 9000 + 3 * 16 + 64);
    for at in 0..raw.len() {
        let mut flipped = raw.clone();
        flipped[at] ^= 0x10;
        inner.replace(&below, flipped);
        let found = read(&volume, "index/runs/1");
        if (64..raw.len() - 64).contains(&at) {
            assert!(matches!(found, Err(VolumeError::Io { .. })), "byte {at}");
        } else {
            // One of the two headers.
            assert_eq!(found.unwrap(), content, "byte {at}");
        }
    }
}

#[test]
fn what_is_cut_off_or_continued_is_found() {
    let inner = MemoryVolume::new();
    let volume = sealed(&inner);
    for len in [0, 1, 65_535, 65_536, 65_537, 3 << 16] {
        let text = format!("points/{len}");
        put(&volume, &text, &noise(len));
        let below = sealed_name(&name(&text)).unwrap();
        let raw = inner.get(&below).unwrap().to_vec();
        // Cut at a page boundary, with the header behind it: as if it had been written so.
        let mut cut: Vec<u8> = raw[..64 + 65_552.min(raw.len() - 128 - 1)].to_vec();
        cut.extend_from_slice(&raw[raw.len() - 64..]);
        inner.replace(&below, cut);
        let first = volume.open(&name(&text)).and_then(|blob| blob.read_at(0, &mut [0; 1]));
        let empty = volume.open(&name(&text)).map(|blob| blob.len());
        assert!(first.is_err() && !matches!(empty, Ok(0)), "{len}");
    }
}

/// Swapping pages, blobs, owners or repositories is detected.
#[test]
fn what_is_swapped_is_found() {
    let inner = MemoryVolume::new();
    let volume = sealed(&inner);
    let below = |text: &str| sealed_name(&name(text)).unwrap();
    put(&volume, "index/1", &noise(3 * 4096));
    put(&volume, "index/2", &noise(3 * 4096));
    let (one, two) =
        (inner.get(&below("index/1")).unwrap().to_vec(), inner.get(&below("index/2")).unwrap().to_vec());
    assert_ne!(one[64..], two[64..], "equal blobs look different");

    let mut pages = one.clone();
    pages[64..64 + 2 * 4112].rotate_left(4112);
    inner.replace(&below("index/1"), pages);
    assert!(matches!(read(&volume, "index/1"), Err(VolumeError::Io { .. })), "pages");

    inner.replace(&below("index/1"), two.clone());
    assert!(matches!(read(&volume, "index/1"), Err(VolumeError::Io { .. })), "blobs");

    let elsewhere = MemoryVolume::new();
    let other = SealedVolume::new(Arc::new(elsewhere.clone()), keys(&elsewhere, repository(2), false));
    put(&other, "index/2", &noise(3 * 4096));
    inner.replace(&below("index/2"), elsewhere.get(&below("index/2")).unwrap());
    let unknown = read(&volume, "index/2").unwrap_err();
    assert!(unknown.is_unreadable_now() && unknown.to_string().contains("key"), "{unknown}");
}

/// Once everything is sealed, plain blobs are not accepted.
#[test]
fn a_plain_blob_passes_for_a_sealed_one_only_where_it_may() {
    let inner = MemoryVolume::new();
    let volume = sealed(&inner);
    put(&inner, NAME, b"forged");
    assert!(matches!(volume.open(&name(NAME)), Err(VolumeError::NotFound { .. })));
    assert!(matches!(volume.remove(&name(NAME)), Err(VolumeError::NotFound { .. })));
    assert!(holdfast_volume::testing::list(&volume, "containers").is_empty());

    let older = MemoryVolume::new();
    put(&older, NAME, b"written before");
    let keys = keys(&older, repository(1), true);
    let volume = SealedVolume::new(Arc::new(older.clone()), Arc::clone(&keys));
    put(&volume, "containers/0000000/0000000002.data", b"written after");
    assert_eq!(read(&volume, NAME).unwrap(), b"written before");
    assert_eq!(holdfast_volume::testing::list(&volume, "containers").len(), 2);
    keys.change(|keys, now_ms, _| {
        keys.refuse_plain(now_ms).map_err(|error| crate::KeysError::Key(error.into()))
    })
    .unwrap();
    assert!(volume.open(&name(NAME)).is_err());
}

/// (K1) An owner's key is durable on the volume before anything is sealed with it; a start finds it there.
#[test]
fn keys_are_durable_before_they_are_used() {
    let inner = MemoryVolume::new();
    let volume = sealed(&inner);
    let begun = volume.create_for(&name(NAME), OWNER).unwrap();
    let table = read_table(&inner).unwrap().unwrap();
    let owner = KeyOwner::from_bytes(OWNER.to_bytes());
    assert!(table.data_keys().any(|key| key.owner == owner));
    assert_eq!(table_blobs(&inner).len(), 2, "the older table is gone, and its second blob");
    let mut begun = begun;
    begun.append(b"sealed").unwrap();
    begun.seal().unwrap();

    let (open, _) = table.unlock(&secret()).unwrap();
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SystemRandom));
    let again = Keys::new(open, Arc::new(inner.clone()), clock, random);
    let again = SealedVolume::new(Arc::new(inner.clone()), Arc::new(again));
    assert_eq!(read(&again, NAME).unwrap(), b"sealed");
}

/// (K1) Nothing is written with a key that is in no table.
#[test]
fn a_key_that_could_not_be_made_durable_is_not_used() {
    let inner = MemoryVolume::new();
    let faulty = Arc::new(FaultyVolume::new(inner.clone()));
    let slot_secret = secret();
    let slot = NewSlot::new(&slot_secret, "a test");
    let open = OpenKeys::create(repository(1), &slot, false, 0, &SystemRandom).unwrap();
    crate::write_table(&inner, open.table()).unwrap();
    let on = || Arc::<FaultyVolume<MemoryVolume>>::clone(&faulty);
    let keys = Keys::new(open, on(), Arc::new(ManualClock::default()), Arc::new(SystemRandom));
    let volume = SealedVolume::new(on(), Arc::new(keys));

    faulty.fail_next(OpKind::Seal, 1, Fault::Io);
    drop(volume.create_for(&name(NAME), OWNER).unwrap_err());
    let mut blob = volume.create_for(&name(NAME), OWNER).unwrap();
    blob.append(b"sealed").unwrap();
    blob.seal().unwrap();

    let (open, _) = read_table(&inner).unwrap().unwrap().unlock(&secret()).unwrap();
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SystemRandom));
    let again = Keys::new(open, Arc::new(inner.clone()), clock, random);
    let again = SealedVolume::new(Arc::new(inner), Arc::new(again));
    assert_eq!(read(&again, NAME).unwrap(), b"sealed");
}

fn table_blobs(inner: &MemoryVolume) -> Vec<BlobName> {
    holdfast_volume::testing::list(inner, "keys").into_iter().map(|entry| entry.name).collect()
}

/// (K8) Readers do not notice one damaged or missing blob, and both are rewritten while the keys are in memory.
#[test]
fn a_table_that_is_damaged_or_deleted_is_written_anew() {
    let inner = MemoryVolume::new();
    let keys = keys(&inner, repository(1), false);
    assert_eq!(keys.mend().unwrap().len(), 1, "the second blob follows");
    let (table, blobs) = (read_table(&inner).unwrap().unwrap(), table_blobs(&inner));
    assert_eq!((blobs.len(), keys.mend().unwrap().len()), (2, 0));
    for hurt in [&blobs[..1], &blobs[1..], &blobs[..]] {
        for damaged in [true, false] {
            for name in hurt {
                let mut bytes = read(&inner, name.as_str()).unwrap();
                inner.remove(name).unwrap();
                if damaged {
                    bytes[100] ^= 1;
                    put(&inner, name.as_str(), &bytes);
                }
            }
            if hurt.len() == 1 {
                assert_eq!(read_table(&inner).unwrap().unwrap(), table);
            }
            assert_eq!(keys.mend().unwrap().len(), hurt.len());
            assert_eq!((table_blobs(&inner), keys.mend().unwrap().len()), (blobs.clone(), 0));
            assert_eq!(read(&inner, blobs[0].as_str()).unwrap(), read(&inner, blobs[1].as_str()).unwrap());
        }
    }
}

/// A table of a newer version is not skipped in favour of an older one, and a damaged version number is harmless.
#[test]
fn a_table_of_a_newer_version_counts() {
    let inner = MemoryVolume::new();
    let keys = keys(&inner, repository(1), false);
    keys.mend().unwrap();
    let (table, blobs) = (read_table(&inner).unwrap().unwrap(), table_blobs(&inner));
    let mut bytes = read(&inner, blobs[0].as_str()).unwrap();
    // The version follows the magic bytes, and the last ones are a checksum.
    bytes[4] = 9;
    bytes.truncate(bytes.len() - 8);
    bytes.extend_from_slice(&crc_fast::crc64_nvme(&bytes).to_le_bytes());
    for name in &blobs {
        let whole = read(&inner, name.as_str()).unwrap();
        inner.remove(name).unwrap();
        put(&inner, name.as_str(), &bytes);
        assert_eq!(read_table(&inner).unwrap().unwrap(), table);
        inner.remove(name).unwrap();
        put(&inner, name.as_str(), &whole);
    }
    let newer = format!("keys/{:020}", table.sequence() + 1);
    put(&inner, &newer, &bytes);
    let said = read_table(&inner).unwrap_err().to_string();
    assert!(said.contains("use a newer one"), "{said}");
}

#[test]
fn a_table_that_cannot_be_written_leaves_no_blob_behind() {
    let inner = MemoryVolume::new();
    let keys = keys(&inner, repository(1), false);
    // Written by another process.
    put(&inner, "keys/00000000000000000002", b"taken");
    let volume = SealedVolume::new(Arc::new(inner.clone()), keys);
    assert!(volume.create_for(&name(NAME), OWNER).is_err());
    assert!(holdfast_volume::testing::list(&inner, "containers").is_empty());
}

/// Without its owner's key a blob cannot be read; others can.
#[test]
fn a_destroyed_owner_is_unreadable() {
    let inner = MemoryVolume::new();
    let keys = keys(&inner, repository(1), false);
    let volume = SealedVolume::new(Arc::new(inner.clone()), Arc::clone(&keys));
    for (text, owner) in [("points/a", OWNER), ("points/b", Owner::namespace([8; 16]))] {
        let mut blob = volume.create_for(&name(text), owner).unwrap();
        blob.append(b"of one namespace").unwrap();
        blob.seal().unwrap();
    }
    let owner = KeyOwner::from_bytes(OWNER.to_bytes());
    keys.change(|keys, now_ms, _| keys.drop_owner(owner, now_ms).map_err(crate::KeysError::from)).unwrap();
    assert!(read(&volume, "points/a").unwrap_err().is_unreadable_now());
    assert_eq!(read(&volume, "points/b").unwrap(), b"of one namespace");
}

#[test]
fn a_locked_volume_tells_what_there_is_and_reads_nothing() {
    let inner = MemoryVolume::new();
    put(&sealed(&inner), NAME, b"five!");
    let locked = SealedVolume::locked(Arc::new(inner));
    let entries = holdfast_volume::testing::list(&locked, "containers");
    assert_eq!((entries[0].name.as_str(), entries[0].len), (NAME, 5));
    assert!(locked.open(&name(NAME)).unwrap_err().is_unreadable_now());
    assert!(locked.create(&name("points/x")).unwrap_err().is_unreadable_now());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any range of any blob, however it was appended, reads as it was written.
    #[test]
    fn any_piece_reads_as_it_was_written(
        len in 0usize..300_000,
        cut in 1usize..100_000,
        from in 0usize..300_000,
        wanted in 0usize..300_000,
        is_index: bool,
    ) {
        let inner = MemoryVolume::new();
        let volume = sealed(&inner);
        let text = if is_index { "index/x" } else { NAME };
        let content = noise(len);
        let mut blob = volume.create(&name(text)).unwrap();
        content.chunks(cut).for_each(|piece| blob.append(piece).unwrap());
        blob.seal().unwrap();
        let blob = volume.open(&name(text)).unwrap();
        prop_assert_eq!(blob.len(), len as u64);
        let (from, wanted) = (from.min(len), wanted.min(len - from.min(len)));
        let found = blob.read_vec(&name(text), from as u64, wanted).unwrap();
        prop_assert!(found == content[from..from + wanted]);
    }
}
