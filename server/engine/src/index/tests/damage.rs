//! Every section of every file, damaged: always an error that names the file, never a silent miss.

use holdfast_volume::BlobName;
use holdfast_volume::testing::Damage;

use super::*;

/// An index of wide and shard runs, and its directories.
fn made() -> (MemoryVolume, Directories) {
    let volume = MemoryVolume::new();
    let directories = directories(40, 60);
    let index = open(&volume, IndexOptions { write_buffer_bytes: 1 << 20, ..tiny() });
    for &number in directories.keys() {
        insert(&index, &directories, number).unwrap();
        if number.is_multiple_of(7) {
            index.checkpoint().unwrap();
        }
    }
    index.checkpoint().unwrap();
    assert!(index.stats().runs > 64 && index.stats().depth > 1, "{:?}", index.stats());
    (volume, directories)
}

fn damaged(volume: &MemoryVolume, name: &BlobName, damage: &Damage) -> MemoryVolume {
    let copy = volume.snapshot();
    let mut bytes = copy.get(name).unwrap().to_vec();
    damage.apply(&mut bytes);
    copy.replace(name, bytes);
    copy
}

fn reopen(volume: &MemoryVolume) -> Result<Index, IndexError> {
    Index::open(Arc::new(volume.clone()), REPOSITORY, tiny())
}

fn names(volume: &MemoryVolume, kind: &str) -> Vec<BlobName> {
    let all = holdfast_volume::testing::list(volume, "index");
    all.into_iter().map(|entry| entry.name).filter(|name| name.as_str().contains(kind)).collect()
}

#[test]
fn a_flipped_bit_anywhere_in_a_run_is_noticed() {
    let (volume, directories) = made();
    let runs = names(&volume, "run-");
    for name in [runs.first().unwrap(), runs.last().unwrap()] {
        let len = volume.get(name).unwrap().len() as u64;
        for offset in (0..len).step_by(211).chain(len - 64..len) {
            let copy = damaged(&volume, name, &Damage::FlipBit { offset, bit: (offset % 8) as u8 });
            let error = match reopen(&copy) {
                Err(error) => error,
                Ok(index) => {
                    let error = index.verify().expect_err("a flipped bit");
                    assert!(!index.is_whole());
                    assert_lookups_are_right_or_fail(&index, &directories);
                    error
                }
            };
            assert!(error.needs_rebuild(), "{offset}: {error}");
            assert!(error.to_string().contains(name.as_str()), "{offset}: {error}");
        }
    }
}

fn assert_lookups_are_right_or_fail(index: &Index, directories: &Directories) {
    for (key, location) in directories.values().flatten() {
        match index.get(key, |_| true) {
            Ok(found) => assert_eq!(found, Some(*location)),
            Err(error) => assert!(matches!(error, IndexError::DamagedPage { .. }), "{error}"),
        }
    }
}

#[test]
fn cut_swapped_and_missing_runs_are_noticed_and_nothing_is_removed() {
    let (volume, _) = made();
    let runs = names(&volume, "run-");
    let (first, last) = (runs.first().unwrap(), runs.last().unwrap());
    let other = volume.get(last).unwrap().to_vec();
    let len = volume.get(first).unwrap().len() as u64;
    let damages = [
        Damage::Truncate { len: 0 },
        Damage::Truncate { len: 63 },
        Damage::Truncate { len: len - 1 },
        Damage::Truncate { len: len - 4096 },
        Damage::Extend { tail: vec![0; 4096] },
        Damage::Replace { bytes: other },
        Damage::Zero { offset: 0, len },
    ];
    for damage in damages {
        let copy = damaged(&volume, first, &damage);
        let before = names(&copy, "");
        let error = reopen(&copy).unwrap_err();
        assert!(error.needs_rebuild() && error.to_string().contains(first.as_str()), "{damage:?}: {error}");
        assert_eq!(names(&copy, ""), before);
    }
    let copy = volume.snapshot();
    copy.remove(first).unwrap();
    let error = reopen(&copy).unwrap_err();
    assert!(matches!(&error, IndexError::Missing { blob } if blob == first), "{error}");
}

#[test]
fn two_pages_of_one_run_swapped_are_noticed() {
    let (volume, _) = made();
    let wide = names(&volume, "run-").pop().unwrap();
    let mut bytes = volume.get(&wide).unwrap().to_vec();
    assert!(bytes.len() > 3 * 4096);
    let (left, right) = bytes.split_at_mut(8192);
    left[4096..].swap_with_slice(&mut right[..4096]);
    volume.replace(&wide, bytes);
    let error = reopen(&volume).unwrap().verify().unwrap_err();
    assert!(matches!(error, IndexError::DamagedPage { page: 0, .. }), "{error}");
}

#[test]
fn a_flipped_bit_anywhere_in_the_manifest_is_noticed() {
    let (volume, _) = made();
    let name = names(&volume, "manifest-").pop().unwrap();
    for offset in 0..volume.get(&name).unwrap().len() as u64 {
        let copy = damaged(&volume, &name, &Damage::FlipBit { offset, bit: (offset % 8) as u8 });
        let error = reopen(&copy).unwrap_err();
        assert!(error.needs_rebuild() && error.to_string().contains(name.as_str()), "{offset}: {error}");
    }
}

#[test]
fn an_older_manifest_stands_in_for_a_damaged_one() {
    let volume = MemoryVolume::new();
    let index = open(&volume, tiny());
    index.insert_container(container(1), [(key(1), location(1, 0))]).unwrap();
    index.checkpoint().unwrap();
    let older = names(&volume, "manifest-").pop().unwrap();
    let bytes = volume.get(&older).unwrap();
    index.insert_container(container(2), [(key(2), location(2, 0))]).unwrap();
    index.checkpoint().unwrap();
    drop(index);
    // As after a crash between writing a manifest and removing the one before it.
    volume.replace(&older, bytes);
    let newer = names(&volume, "manifest-").pop().unwrap();
    let copy = damaged(&volume, &newer, &Damage::FlipBit { offset: 100, bit: 0 });
    let index = open(&copy, tiny());
    assert_eq!(index.covered(), [container(1)]);
    index.insert_container(container(2), [(key(2), location(2, 0))]).unwrap();
    index.checkpoint().unwrap();
    drop(index);
    assert_eq!(open(&copy, tiny()).covered(), [1, 2].map(container));
    assert_eq!(open(&volume, tiny()).covered(), [1, 2].map(container), "undamaged, the newer one counts");
}

#[test]
fn rebuilding_after_damage_finds_everything_again() {
    let (volume, directories) = made();
    let name = names(&volume, "manifest-").pop().unwrap();
    let copy = damaged(&volume, &name, &Damage::Truncate { len: 10 });
    assert!(reopen(&copy).unwrap_err().needs_rebuild());
    Index::discard(&copy).unwrap();
    assert_eq!(names(&copy, ""), []);
    let index = reopen(&copy).unwrap();
    assert_eq!(index.covered(), []);
    replay(&index, &directories);
    assert_all_found(&index, &directories);
}

#[test]
fn newer_versions_and_other_repositories_are_not_damage() {
    let (volume, _) = made();
    for kind in ["run-", "manifest-"] {
        let name = names(&volume, kind).pop().unwrap();
        let copy = volume.snapshot();
        let mut bytes = copy.get(&name).unwrap().to_vec();
        bytes[4] = 2;
        let end = if kind == "run-" { 4096 } else { 128 };
        let crc = crate::format::crc32c(&bytes[..end - 4]);
        bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
        copy.replace(&name, bytes);
        let before = names(&copy, "");
        let error = reopen(&copy).unwrap_err();
        assert!(matches!(error, IndexError::Unsupported { .. }), "{error}");
        assert!(!error.needs_rebuild());
        assert_eq!(names(&copy, ""), before);
    }
    let other = RepositoryId(Ulid(8));
    let error = Index::open(Arc::new(volume), other, tiny()).unwrap_err();
    assert!(matches!(error, IndexError::OtherRepository { .. }) && !error.needs_rebuild(), "{error}");
}

/// No look-up has met the page before: the merge is the first to read it.
#[test]
fn a_merge_that_meets_a_bad_page_goes_on_without_that_run() {
    let (volume, directories) = (MemoryVolume::new(), directories(60, 16));
    let index = open(&volume, tiny());
    for number in 1..=10 {
        insert(&index, &directories, number).unwrap();
    }
    index.checkpoint().unwrap();
    drop(index);
    let blobs = holdfast_volume::testing::list(&volume, "index").into_iter().map(|blob| blob.name);
    for name in blobs.filter(|name| name.as_str().contains("run-")) {
        let mut bytes = volume.get(&name).unwrap().to_vec();
        bytes[4096 + 40] ^= 1;
        volume.replace(&name, bytes);
    }
    let index = open(&volume, tiny());
    for number in 11..=60 {
        insert(&index, &directories, number).unwrap();
        index.checkpoint().unwrap();
    }
    assert!(!index.is_whole(), "a merge met it");
    assert!((11..=60).all(|number| index.is_covered(container(number))));
}
