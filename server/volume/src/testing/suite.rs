//! The contract of every volume as one suite of checks, which makes the documentation in `volume.rs` executable. The
//! tests of each implementation and each decorator run it; other crates reach it with the feature `testing`.

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::{FaultyVolume, list, put};
use crate::{Blob, BlobEntry, BlobName, MemoryVolume, Volume, VolumeError, list_all};

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn content(blob: &Arc<dyn Blob>) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(blob.len()).unwrap()];
    blob.read_at(0, &mut bytes).unwrap();
    bytes
}

type Check = fn(&dyn Volume);

/// Runs every check on a fresh, empty volume from `make`.
pub fn volume_suite(make: impl Fn() -> Box<dyn Volume>) {
    let checks: [(&str, Check); 14] = [
        ("round trip", round_trip),
        ("many appends", many_appends),
        ("empty blob", empty_blob),
        ("unsealed is invisible", unsealed_is_invisible),
        ("nothing is replaced", nothing_is_replaced),
        ("reads out of range", reads_out_of_range),
        ("listing", listing),
        ("listing in pages", listing_in_pages),
        ("listing while things change", listing_while_things_change),
        ("removal", removal),
        ("a name used again", a_name_used_again),
        ("overlapping reads", overlapping_reads),
        ("unfinished blobs", unfinished_blobs),
        ("many threads", many_threads),
    ];
    for (check, run) in checks {
        let volume = make();
        println!("{check} on {volume:?}");
        run(&*volume);
    }
}

/// Checks that `volume`, around `below`, passes [`Blob::drop_cached`] on, so that later reads come from storage.
pub fn passes_on_drop_cached(below: &FaultyVolume<MemoryVolume>, volume: &dyn Volume) {
    put(volume, "containers/a", b"hello");
    let blob = volume.open(&name("containers/a")).unwrap();
    for entry in list(below, "containers") {
        below.cache(&entry.name, None).unwrap();
    }
    assert!(below.has_cached());
    blob.drop_cached();
    assert!(!below.has_cached());
}

fn round_trip(volume: &dyn Volume) {
    put(volume, "a/b/c.data", b"hello");
    let blob = volume.open(&name("a/b/c.data")).unwrap();
    assert_eq!((blob.len(), blob.is_empty()), (5, false));
    assert_eq!(content(&blob), b"hello");
    assert_eq!(blob.read_vec(&name("a/b/c.data"), 1, 3).unwrap(), b"ell");
    if let Some(space) = volume.space().unwrap() {
        assert!(space.free_bytes <= space.total_bytes);
    }
}

/// Sizes around every buffer an implementation may have.
fn many_appends(volume: &dyn Volume) {
    let mut writer = volume.create(&name("big")).unwrap();
    let mut expected = Vec::new();
    for (index, len) in
        [0, 1, 4095, 1 << 20, (1 << 20) - 1, (1 << 20) + 1, 3 << 20, 7, 65_536].iter().enumerate()
    {
        let piece = vec![u8::try_from(index).unwrap() + 1; *len];
        writer.append(&piece).unwrap();
        expected.extend_from_slice(&piece);
        assert_eq!(writer.len(), expected.len() as u64);
    }
    writer.seal().unwrap();
    assert!(content(&volume.open(&name("big")).unwrap()) == expected);
}

fn empty_blob(volume: &dyn Volume) {
    let writer = volume.create(&name("empty")).unwrap();
    assert!(writer.is_empty());
    writer.seal().unwrap();
    let blob = volume.open(&name("empty")).unwrap();
    assert!(blob.is_empty());
    blob.read_at(0, &mut []).unwrap();
    assert!(blob.read_at(0, &mut [0]).is_err());
}

fn unsealed_is_invisible(volume: &dyn Volume) {
    let mut writer = volume.create(&name("x/y")).unwrap();
    writer.append(b"abc").unwrap();
    assert!(matches!(volume.open(&name("x/y")), Err(VolumeError::NotFound { .. })));
    assert_eq!(list(volume, "x"), []);
    drop(writer);
    assert!(matches!(volume.open(&name("x/y")), Err(VolumeError::NotFound { .. })));
    assert_eq!(volume.discard_unfinished().unwrap(), 0, "dropping discards");
    put(volume, "x/y", b"second try");
}

fn nothing_is_replaced(volume: &dyn Volume) {
    let mut early = volume.create(&name("x")).unwrap();
    early.append(b"early").unwrap();
    put(volume, "x", b"first");
    let late = volume.create(&name("x")).and_then(|mut late| {
        late.append(b"late")?;
        late.seal()
    });
    assert!(matches!(late, Err(VolumeError::Exists { .. })), "{late:?}");
    assert!(matches!(early.seal(), Err(VolumeError::Exists { .. })), "the first to seal wins");
    assert_eq!(content(&volume.open(&name("x")).unwrap()), b"first");
    assert_eq!(volume.discard_unfinished().unwrap(), 0);
}

fn reads_out_of_range(volume: &dyn Volume) {
    put(volume, "x", b"0123456789");
    let blob = volume.open(&name("x")).unwrap();
    blob.read_at(10, &mut []).unwrap();
    for (offset, len) in [(0u64, 11usize), (10, 1), (11, 0), (5, 6), (u64::MAX, 1), (u64::MAX, 0)] {
        let error = blob.read_at(offset, &mut vec![0; len]).unwrap_err();
        assert!(matches!(error, VolumeError::OutOfRange { len: 10, .. }), "{offset}+{len}: {error}");
        assert!(error.to_string().contains('x'));
    }
    assert!(blob.read_vec(&name("x"), 0, usize::MAX).is_err(), "refused before it is allocated");
}

fn listing(volume: &dyn Volume) {
    for (blob, len) in [("c/2/b", 2), ("c/10/a", 1), ("c/2/a", 3), ("c2/x", 4), ("d", 5)] {
        put(volume, blob, &vec![0; len]);
    }
    let found = |prefix: &str| -> Vec<(String, u64)> {
        list(volume, prefix).into_iter().map(|BlobEntry { name, len }| (name.to_string(), len)).collect()
    };
    let expected = [("c/10/a", 1), ("c/2/a", 3), ("c/2/b", 2)];
    assert_eq!(found("c"), expected.map(|(blob, len)| (blob.to_owned(), len)));
    assert_eq!(found("c/2").len(), 2);
    assert_eq!(found("d"), [], "a blob is no folder");
    assert_eq!(found("nothing/here"), []);
}

fn limit(entries: usize) -> NonZeroUsize {
    NonZeroUsize::new(entries).unwrap()
}

/// Folders and blobs whose names differ in characters below and above the slash: the order is that of the
/// whole names' bytes, however a volume stores them.
fn listing_in_pages(volume: &dyn Volume) {
    let mut all =
        ["p/a-b", "p/a.b/x", "p/a/0", "p/a/b/c", "p/a/b0", "p/a0/x", "p/a_/x", "p/b", "p/b-/x", "p/z/z"];
    for blob in all.iter().rev() {
        put(volume, blob, b"1");
    }
    put(volume, "p-/before", b"1");
    put(volume, "p0/after", b"1");
    all.sort_unstable();
    let folder = name("p");
    for size in 1..=all.len() + 1 {
        let walk = list_all(volume, &folder).in_pages_of(limit(size));
        let found: Vec<String> = walk.map(|entry| entry.unwrap().name.to_string()).collect();
        assert_eq!(found, all, "in pages of {size}");
        let page = volume.list(&folder, None, limit(size)).unwrap();
        assert!(page.entries.len() <= size);
        assert!(page.more || page.entries.len() == all.len(), "pages of {size} say too early that they end");
    }
    // After any name, also one that is no blob, that is a folder, or that is outside.
    for after in
        ["o", "p", "p-/before", "p/a", "p/a-b", "p/a/b", "p/a/b/zz", "p/b", "p/z/z", "p/zz", "p0/after"]
    {
        let expected: Vec<&str> = all.iter().copied().filter(|blob| *blob > after).collect();
        let page = volume.list(&folder, Some(&name(after)), limit(100)).unwrap();
        let found: Vec<&str> = page.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert!(expected.starts_with(&found), "after {after}: {found:?}");
        assert!(page.more || found.len() == expected.len(), "after {after}: {found:?}");
    }
    let page = volume.list(&folder, Some(&name("p/z/z")), limit(1)).unwrap();
    assert!(page.entries.is_empty() && !page.more, "{page:?}");
}

/// The position of a walk is a name, not a count: removals behind it move nothing.
fn listing_while_things_change(volume: &dyn Volume) {
    for number in 0..6 {
        put(volume, &format!("w/{number}"), b"1");
    }
    let folder = name("w");
    let mut walk = list_all(volume, &folder).in_pages_of(limit(1));
    let mut next = || walk.next().map(|entry| entry.unwrap().name.to_string());
    assert_eq!((next().as_deref(), next().as_deref()), (Some("w/0"), Some("w/1")));
    volume.remove(&name("w/0")).unwrap();
    volume.remove(&name("w/1")).unwrap();
    volume.remove(&name("w/3")).unwrap();
    put(volume, "w/4a", b"1");
    let mut seen = vec![next(), next(), next(), next(), next()];
    seen.retain(|found| found.as_deref() != Some("w/3") && found.as_deref() != Some("w/4a"));
    seen.truncate(3);
    assert_eq!(seen, ["w/2", "w/4", "w/5"].map(|blob| Some(blob.to_owned())));
}

fn removal(volume: &dyn Volume) {
    put(volume, "x/y", b"still here");
    let blob = volume.open(&name("x/y")).unwrap();
    volume.remove(&name("x/y")).unwrap();
    assert!(matches!(volume.open(&name("x/y")), Err(VolumeError::NotFound { .. })));
    assert!(matches!(volume.remove(&name("x/y")), Err(VolumeError::NotFound { .. })));
    assert!(matches!(volume.remove(&name("never/was")), Err(VolumeError::NotFound { .. })));
    assert_eq!(list(volume, "x"), []);
    let mut bytes = [0; 10];
    match blob.read_at(0, &mut bytes) {
        Ok(()) => assert_eq!(&bytes, b"still here"),
        Err(error) => {
            assert!(!volume.handles_outlive_removal(), "{error}");
            assert!(matches!(error, VolumeError::NotFound { .. }), "{error}");
        }
    }
    put(volume, "x/y", b"again");
    assert!(matches!(volume.open(&name("x")), Err(VolumeError::NotFound { .. })), "a folder is no blob");
}

/// A handle never returns bytes of another blob that had or has the name.
fn a_name_used_again(volume: &dyn Volume) {
    for (round, bytes) in [b"first".as_slice(), b"then", b"finally"].into_iter().enumerate() {
        put(volume, "n/x", bytes);
        let (early, late) = (volume.open(&name("n/x")).unwrap(), volume.open(&name("n/x")).unwrap());
        for _ in 0..2 {
            assert_eq!(content(&early), bytes, "round {round}");
            assert_eq!(content(&late), bytes, "round {round}");
        }
        volume.remove(&name("n/x")).unwrap();
        let mut old = vec![0; bytes.len()];
        assert!(early.read_at(0, &mut old).is_err() || old == bytes, "round {round}");
    }
}

/// Ranges of every size at every offset, twice, so that cached bytes are read as well.
fn overlapping_reads(volume: &dyn Volume) {
    let bytes: Vec<u8> = (0..40).collect();
    put(volume, "r", &bytes);
    let blob = volume.open(&name("r")).unwrap();
    for _ in 0..2 {
        for start in 0..=bytes.len() {
            for end in start..=bytes.len() {
                let found = blob.read_vec(&name("r"), start as u64, end - start).unwrap();
                assert_eq!(found, bytes[start..end], "{start}..{end}");
            }
        }
    }
}

fn unfinished_blobs(volume: &dyn Volume) {
    put(volume, "x/sealed", b"1");
    for number in 0..3 {
        let mut writer = volume.create(&name(&format!("x/{number}"))).unwrap();
        writer.append(b"lost").unwrap();
        std::mem::forget(writer); // as a killed process would
    }
    assert!(volume.discard_unfinished().unwrap() <= 3);
    assert_eq!(volume.discard_unfinished().unwrap(), 0);
    assert_eq!(list(volume, "x").len(), 1);
    put(volume, "x/0", b"2");
}

fn many_threads(volume: &dyn Volume) {
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for number in 0..5 {
                    let blob = format!("t/{number}/{thread}");
                    put(volume, &blob, &vec![thread; 100_000]);
                    assert_eq!(content(&volume.open(&name(&blob)).unwrap()), vec![thread; 100_000]);
                }
            });
        }
    });
    assert_eq!(list(volume, "t").len(), 20);
}
