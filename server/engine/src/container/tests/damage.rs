//! The damage matrix: every structure of a container × every kind of damage. Always an error that names the
//! container, or the right data; never wrong data, never a panic. A scan finds every damage.

use holdfast_volume::BlobName;
use holdfast_volume::testing::Damage;

use super::*;
use crate::container::ContainerName;

const SEED: u8 = 9;

fn name(number: u64) -> BlobName {
    ContainerName { id: id(number), class: ContainerClass::Data }.blob()
}

fn pristine() -> (MemoryVolume, Vec<u8>) {
    let volume = MemoryVolume::new();
    seal(&volume, 1, &sample_regions(SEED));
    let bytes = volume.get(&name(1)).unwrap().to_vec();
    (volume, bytes)
}

/// Names of the structures with their ranges in the sample container.
fn structures(bytes: &[u8]) -> Vec<(String, std::ops::Range<usize>)> {
    let volume = MemoryVolume::new();
    volume.replace(&name(1), bytes.to_vec());
    let container = open(&volume, 1);
    let mut structures = vec![("header".to_owned(), 0..64)];
    let mut end = 64;
    for region in 0..3 {
        let record = container.directory().region(region).unwrap();
        let payload = usize::try_from(record.payload_offset()).unwrap();
        end = usize::try_from(record.end()).unwrap();
        structures.push((format!("header of region {region}"), payload - 24..payload));
        structures.push((format!("payload of region {region}"), payload..end));
    }
    structures.push(("directory".to_owned(), end..bytes.len() - 32));
    structures.push(("footer".to_owned(), bytes.len() - 32..bytes.len()));
    structures
}

/// Reads all it can: what comes out must be right, what does not must say whose fault it is.
fn errors_of_reading(volume: &MemoryVolume, what: &str) -> usize {
    let named = |error: &ContainerError| {
        assert!(error.to_string().contains(name(1).as_str()), "{what}: {error}");
        assert!(error.is_damage() && error.code() == holdfast_proto::ErrorCode::Damaged, "{what}: {error}");
    };
    let container = match OpenContainer::open(volume, REPOSITORY, id(1), ContainerClass::Data) {
        Ok(container) => container,
        Err(error) => {
            named(&error);
            return 1;
        }
    };
    let mut errors = 0;
    for (number, chunks) in (0u16..).zip(sample_regions(SEED)) {
        match container.read_region(number).and_then(|stored| stored.decode_checked(&container)) {
            Ok(plain) => assert_eq!(plain, chunks.concat(), "{what}: wrong data"),
            Err(error) => {
                named(&error);
                assert_eq!(error.region(), Some(number));
                errors += 1;
            }
        }
    }
    // Reading all at once must come to the same.
    let at_once = container.read_regions(0..3).and_then(|regions| {
        regions.iter().map(|stored| stored.decode_checked(&container)).collect::<Result<Vec<_>, _>>()
    });
    assert_eq!(at_once.is_err(), errors > 0, "{what}");
    errors
}

fn findings(volume: &MemoryVolume) -> Vec<ContainerError> {
    scan_container(volume, REPOSITORY, id(1), ContainerClass::Data).findings
}

fn check(bytes: &[u8], what: &str, damage: &Damage, expect_read_error: bool) {
    let volume = MemoryVolume::new();
    let mut damaged = bytes.to_vec();
    damage.apply(&mut damaged);
    assert_ne!(damaged, bytes, "{what}: nothing was damaged");
    volume.replace(&name(1), damaged);
    let errors = errors_of_reading(&volume, what);
    // A region's header is a copy of its record in the directory, and reading does without.
    assert_eq!(errors > 0, expect_read_error, "{what}");
    let found = findings(&volume);
    assert!(!found.is_empty(), "{what}: the scan saw nothing");
    for finding in &found {
        assert!(finding.to_string().contains(name(1).as_str()), "{what}: {finding}");
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let (_, bytes) = pristine();
    for (structure, range) in structures(&bytes) {
        for offset in range {
            for bit in 0..8 {
                let what = format!("bit {bit} of byte {offset} in the {structure}");
                let damage = Damage::FlipBit { offset: offset as u64, bit };
                check(&bytes, &what, &damage, !structure.starts_with("header of region"));
            }
        }
    }
}

#[test]
fn every_truncation_is_found() {
    let (_, bytes) = pristine();
    for len in 0..bytes.len() {
        check(&bytes, &format!("cut to {len} bytes"), &Damage::Truncate { len: len as u64 }, true);
    }
}

#[test]
fn zeroed_ranges_and_structures_are_found() {
    let (_, bytes) = pristine();
    for (structure, range) in structures(&bytes) {
        let (offset, len) = (range.start as u64, range.len() as u64);
        let readable = structure.starts_with("header of region");
        check(&bytes, &format!("zeroed {structure}"), &Damage::Zero { offset, len }, !readable);
    }
    for offset in (0..bytes.len()).step_by(16) {
        let damage = Damage::Zero { offset: offset as u64, len: 512 };
        check(&bytes, &format!("512 zeros at {offset}"), &damage, true);
    }
}

#[test]
fn anything_behind_the_end_is_found() {
    let (_, bytes) = pristine();
    for tail in [vec![0], vec![0; 32], vec![0; 4096], bytes[bytes.len() - 32..].to_vec(), bytes.clone()] {
        let what = format!("{} bytes more", tail.len());
        check(&bytes, &what, &Damage::Extend { tail }, true);
    }
}

#[test]
fn parts_of_other_containers_are_found() {
    let (_, bytes) = pristine();
    let other = MemoryVolume::new();
    seal(&other, 2, &sample_regions(SEED));
    seal(&other, 1, &sample_regions(SEED + 1));
    let same_content = other.get(&name(2)).unwrap().to_vec();
    let same_name = other.get(&name(1)).unwrap().to_vec();
    check(&bytes, "another container's file", &Damage::Replace { bytes: same_content.clone() }, true);
    for (structure, range) in structures(&bytes) {
        for (whose, donor) in [("a twin's", &same_content), ("a namesake's", &same_name)] {
            let mut mixed = bytes.clone();
            let Some(part) = donor.get(range.clone()) else { continue };
            mixed[range.clone()].copy_from_slice(part);
            if mixed == bytes {
                continue;
            }
            let readable =
                structure.starts_with("header of region") || (structure == "header" && donor == &same_name);
            check(&bytes, &format!("{whose} {structure}"), &Damage::Replace { bytes: mixed }, !readable);
        }
    }
}

#[test]
fn a_container_of_another_repository_class_or_name_is_refused() {
    let (volume, bytes) = pristine();
    let elsewhere = holdfast_types::ids::RepositoryId::from_bytes([1; 16]);
    let error = OpenContainer::open(&volume, elsewhere, id(1), ContainerClass::Data).unwrap_err();
    assert!(error.to_string().contains("repository"), "{error}");
    let recipe = ContainerName { id: id(1), class: ContainerClass::Recipe };
    volume.replace(&recipe.blob(), bytes.clone());
    let error = OpenContainer::open(&volume, REPOSITORY, id(1), ContainerClass::Recipe).unwrap_err();
    assert!(error.to_string().contains("class"), "{error}");
    volume.replace(&name(3), bytes);
    let error = OpenContainer::open(&volume, REPOSITORY, id(3), ContainerClass::Data).unwrap_err();
    assert!(error.to_string().contains("container 0000000001"), "{error}");
}

#[test]
fn a_newer_container_is_unsupported_not_damaged() {
    let (volume, mut bytes) = pristine();
    bytes[4] = 3;
    let crc = crate::format::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    bytes.truncate(70); // whatever a newer version looks like behind its header
    volume.replace(&name(1), bytes);
    let error = OpenContainer::open(&volume, REPOSITORY, id(1), ContainerClass::Data).unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Unsupported, "{error}");
    assert!(!error.is_damage());
    assert!(
        error.to_string().contains(name(1).as_str()) && error.to_string().contains("version 3"),
        "{error}"
    );
    let found = findings(&volume);
    assert_eq!(found.len(), 1);
    assert!(!found[0].is_damage());
}

/// A checksum proves that bytes are what was written, not that a sane build wrote them.
#[test]
fn a_valid_payload_under_a_wrong_fingerprint_is_found() {
    let (volume, mut bytes) = pristine();
    let (_, directory) = structures(&bytes).into_iter().find(|(name, _)| name == "directory").unwrap();
    let crc_at = directory.end - 8;
    bytes[crc_at - 1] ^= 1; // the last chunk's fingerprint
    let crc = crate::format::crc64(&bytes[directory.start..crc_at]);
    bytes[crc_at..directory.end].copy_from_slice(&crc.to_le_bytes());
    volume.replace(&name(1), bytes);
    assert_eq!(errors_of_reading(&volume, "wrong fingerprint"), 1);
    let found = findings(&volume);
    assert!(matches!(found[..], [ContainerError::Content { region: 2, .. }]), "{found:?}");
}

#[test]
fn a_scan_reports_every_damage() {
    let (volume, mut bytes) = pristine();
    for (structure, range) in structures(&bytes) {
        if structure != "directory" && structure != "footer" {
            bytes[range.start + 1] ^= 1;
        }
    }
    volume.replace(&name(1), bytes.clone());
    let found = findings(&volume);
    assert_eq!(found.len(), 7, "{found:?}");
    let regions: Vec<_> = found.iter().map(ContainerError::region).collect();
    assert_eq!(regions, [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)]);

    let (_, mut bytes) = pristine();
    let structures = structures(&bytes);
    let offset = |wanted: &str| structures.iter().find(|(name, _)| name == wanted).unwrap().1.start;
    bytes[offset("footer")] ^= 1;
    bytes[offset("payload of region 1")] ^= 1;
    volume.replace(&name(1), bytes);
    let report = scan_container(&volume, REPOSITORY, id(1), ContainerClass::Data);
    assert_eq!((report.regions, report.findings.len()), (3, 2), "{:?}", report.findings);
}

#[test]
fn a_file_cut_after_opening_is_damage() {
    let volume = FaultyVolume::new(MemoryVolume::new());
    seal(&volume, 1, &sample_regions(SEED));
    let container = open(&volume, 1);
    volume.damage(&name(1), &Damage::Truncate { len: 100 }).unwrap();
    let error = container.read_region(1).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains(name(1).as_str()), "{error}");
    assert!(container.read_regions(0..3).unwrap_err().is_damage());
}

proptest! {
    #[test]
    fn arbitrary_files_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let volume = MemoryVolume::new();
        volume.replace(&name(1), bytes);
        prop_assert!(OpenContainer::open(&volume, REPOSITORY, id(1), ContainerClass::Data).is_err());
        prop_assert!(!findings(&volume).is_empty());
    }
}
