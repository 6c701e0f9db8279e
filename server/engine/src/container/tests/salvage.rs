//! Salvage of containers that cannot be opened finds everything, unless a region itself is damaged.

use std::collections::BTreeSet;

use super::*;
use crate::container::{ContainerName, Owner, salvage};

const SEED: u8 = 5;

fn name() -> holdfast_volume::BlobName {
    ContainerName { id: id(1), class: ContainerClass::Data }.blob()
}

fn owner() -> Owner {
    Owner { id: id(1), class: ContainerClass::Data, namespace: NAMESPACE, created_ms: CREATED_MS }
}

fn pristine() -> Vec<u8> {
    let volume = MemoryVolume::new();
    seal(&volume, 1, &sample_regions(SEED));
    volume.get(&name()).unwrap().to_vec()
}

/// Every chunk that is found, proved by reading it, and whether that is said to be all.
fn found(bytes: Vec<u8>) -> Option<(BTreeSet<Vec<u8>>, bool)> {
    let volume = MemoryVolume::new();
    volume.replace(&name(), bytes);
    let salvaged = salvage(&volume, REPOSITORY, owner()).ok()?;
    let open = salvaged.open;
    assert!(open.is_salvaged() && open.namespace() == NAMESPACE);
    let mut chunks = BTreeSet::new();
    for (fingerprint, region, slot) in open.directory().iter() {
        let Ok(stored) = open.read_region(region) else { continue };
        let plain = stored.decode_checked(&open).unwrap();
        let chunk = open.directory().chunk(region, slot).unwrap();
        let range = open.chunk_range(region, &chunk, plain.len()).unwrap();
        assert_eq!(Fingerprint::of(&plain[range.clone()]), fingerprint);
        chunks.insert(plain[range].to_vec());
    }
    Some((chunks, salvaged.complete))
}

fn all() -> BTreeSet<Vec<u8>> {
    sample_regions(SEED).into_iter().flatten().collect()
}

/// Ranges of the regions, headers included, and of the directory.
fn places(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let volume = MemoryVolume::new();
    volume.replace(&name(), bytes.to_vec());
    let container = open(&volume, 1);
    let record = |region| *container.directory().region(region).unwrap();
    (0..3)
        .map(|region| record(region).offset as usize..usize::try_from(record(region).end()).unwrap())
        .collect()
}

#[test]
fn a_flipped_bit_outside_the_regions_loses_nothing() {
    let bytes = pristine();
    let end = places(&bytes)[2].end;
    for offset in (0..64).chain(end..bytes.len()) {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[offset] ^= 1 << bit;
            let found = found(flipped);
            assert_eq!(found, Some((all(), true)), "bit {bit} of byte {offset} of {}", bytes.len());
        }
    }
}

#[test]
fn a_flipped_bit_in_a_region_loses_that_region_only() {
    let bytes = pristine();
    let (places, regions) = (places(&bytes), sample_regions(SEED));
    for (number, place) in places.iter().enumerate() {
        let others: BTreeSet<Vec<u8>> = regions
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number)
            .flat_map(|(_, r)| r.clone())
            .collect();
        for offset in place.clone() {
            let mut flipped = bytes.clone();
            flipped[offset] ^= 0x10;
            // Damages the footer, so that the container has to be walked.
            let footer = flipped.len() - 1;
            flipped[footer] ^= 1;
            let (chunks, complete) = found(flipped).unwrap();
            let lost = all().difference(&chunks).count();
            assert!(chunks.is_superset(&others), "byte {offset} of region {number}: {lost} chunks lost");
            assert!(!complete, "byte {offset} of region {number}");
        }
    }
}

#[test]
fn runs_of_garbage_cost_what_they_hit() {
    let bytes = pristine();
    let end = places(&bytes)[2].end;
    let garbage = |range: std::ops::Range<usize>| {
        let mut spoilt = bytes.clone();
        blake3::Hasher::new().finalize_xof().fill(&mut spoilt[range]);
        found(spoilt).unwrap()
    };
    // Header; the directory's fingerprints; footer.
    assert_eq!(garbage(0..64), (all(), true));
    assert_eq!(garbage(bytes.len() - 32 - 8 - 6 * 32..bytes.len() - 32), (all(), true));
    assert_eq!(garbage(bytes.len() - 32..bytes.len()), (all(), true));
    // All of them at once: regions are found, but only chunks that can be cut again: here those alone in a region.
    let mut spoilt = bytes.clone();
    spoilt[..64].fill(0xEE);
    spoilt.truncate(end);
    let (chunks, complete) = found(spoilt).unwrap();
    assert!(chunks.contains(&sample_regions(SEED)[2][0]) && !complete);
}

#[test]
fn another_container_and_a_newer_one_are_not_walked() {
    let bytes = pristine();
    let volume = MemoryVolume::new();
    seal(&volume, 2, &sample_regions(SEED));
    let other = ContainerName { id: id(2), class: ContainerClass::Data }.blob();
    assert_eq!(found(volume.get(&other).unwrap().to_vec()), None, "a container in another's place");
    let mut newer = bytes.clone();
    newer[4] = 9;
    let crc = crate::format::crc32c(&newer[..60]);
    newer[60..64].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(found(newer), None, "a newer version");
    assert_eq!(found(Vec::new()), Some((BTreeSet::new(), false)));
}
