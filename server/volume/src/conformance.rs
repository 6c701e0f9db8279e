//! What every volume must do, as one suite of checks. Each implementation's tests run it; other
//! crates reach it with the feature `testing`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a suite of tests, whatever crate runs it")]
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a failed check panics")]

use std::sync::Arc;

use super::{Blob, BlobEntry, BlobName, Volume, VolumeError};

/// Seals a blob of `bytes`.
pub fn put(volume: &dyn Volume, name: &str, bytes: &[u8]) {
    let mut writer = volume.create(&BlobName::new(name).unwrap()).unwrap();
    writer.append(bytes).unwrap();
    writer.seal().unwrap();
}

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
    let checks: [(&str, Check); 10] = [
        ("round trip", round_trip),
        ("many appends", many_appends),
        ("empty blob", empty_blob),
        ("unsealed is invisible", unsealed_is_invisible),
        ("nothing is replaced", nothing_is_replaced),
        ("reads out of range", reads_out_of_range),
        ("listing", listing),
        ("removal", removal),
        ("unfinished blobs", unfinished_blobs),
        ("many threads", many_threads),
    ];
    for (check, run) in checks {
        let volume = make();
        println!("{check} on {volume:?}");
        run(&*volume);
    }
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
    assert_eq!(volume.list(&name("x")).unwrap(), []);
    drop(writer);
    assert!(matches!(volume.open(&name("x/y")), Err(VolumeError::NotFound { .. })));
    assert_eq!(volume.discard_unfinished().unwrap(), 0, "dropping discards");
    put(volume, "x/y", b"second try");
}

fn nothing_is_replaced(volume: &dyn Volume) {
    let mut early = volume.create(&name("x")).unwrap();
    early.append(b"early").unwrap();
    put(volume, "x", b"first");
    assert!(matches!(volume.create(&name("x")), Err(VolumeError::Exists { .. })));
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
    let list = |prefix: &str| -> Vec<(String, u64)> {
        let entries = volume.list(&name(prefix)).unwrap();
        entries.into_iter().map(|BlobEntry { name, len }| (name.to_string(), len)).collect()
    };
    let expected = [("c/10/a", 1), ("c/2/a", 3), ("c/2/b", 2)];
    assert_eq!(list("c"), expected.map(|(blob, len)| (blob.to_owned(), len)));
    assert_eq!(list("c/2").len(), 2);
    assert_eq!(list("d"), [], "a blob is no folder");
    assert_eq!(list("nothing/here"), []);
}

fn removal(volume: &dyn Volume) {
    put(volume, "x/y", b"still here");
    let blob = volume.open(&name("x/y")).unwrap();
    volume.remove(&name("x/y")).unwrap();
    assert!(matches!(volume.open(&name("x/y")), Err(VolumeError::NotFound { .. })));
    assert!(matches!(volume.remove(&name("x/y")), Err(VolumeError::NotFound { .. })));
    assert!(matches!(volume.remove(&name("never/was")), Err(VolumeError::NotFound { .. })));
    assert_eq!(volume.list(&name("x")).unwrap(), []);
    assert_eq!(content(&blob), b"still here", "an open handle outlives the name");
    put(volume, "x/y", b"again");
    assert!(matches!(volume.open(&name("x")), Err(VolumeError::NotFound { .. })), "a folder is no blob");
}

fn unfinished_blobs(volume: &dyn Volume) {
    put(volume, "x/sealed", b"1");
    for number in 0..3 {
        let mut writer = volume.create(&name(&format!("x/{number}"))).unwrap();
        writer.append(b"lost").unwrap();
        std::mem::forget(writer); // as a killed process would
    }
    assert_eq!(volume.discard_unfinished().unwrap(), 3);
    assert_eq!(volume.discard_unfinished().unwrap(), 0);
    assert_eq!(volume.list(&name("x")).unwrap().len(), 1);
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
    assert_eq!(volume.list(&name("t")).unwrap().len(), 20);
}
