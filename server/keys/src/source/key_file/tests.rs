use std::sync::Barrier;

use super::*;
use crate::secret::SystemRandom;
use crate::secret::testing::{Broken, Counting};

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The checksum was computed by another implementation of CRC-32C.
#[test]
fn golden_line() {
    let secret = Secret::random(&Counting::from(0)).unwrap();
    let expected =
        "holdfast-key-1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 85340886\n";
    assert_eq!(String::from_utf8_lossy(&line(&secret)), expected);
    assert_eq!(parse(expected.as_bytes()), Some(secret));
}

#[test]
fn a_key_file_is_its_owners_alone_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repository.key");
    let made = create(&path, &SystemRandom).unwrap();
    assert_eq!(read(&path).unwrap(), made);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(names(folder.path()), ["repository.key"], "no temporary file stays");
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert!(matches!(read(&path), Err(KeyFileError::Mode { mode: found, .. }) if found == mode));
    }
    fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    assert_eq!(read(&path).unwrap(), made);
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    for path in [&pipe, folder.path()] {
        assert!(matches!(read(path), Err(KeyFileError::NoFile { .. })), "{}", path.display());
    }
}

#[test]
fn a_key_file_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repository.key");
    let made = create(&path, &SystemRandom).unwrap();
    assert!(matches!(create(&path, &SystemRandom), Err(KeyFileError::Exists { .. })));
    assert_eq!(read(&path).unwrap(), made);
    assert_eq!(names(folder.path()), ["repository.key"]);
    let missing = folder.path().join("missing/repository.key");
    assert!(matches!(create(&missing, &SystemRandom), Err(KeyFileError::Io { .. })));
    assert!(matches!(read(&missing), Err(KeyFileError::Missing { .. })));
    assert!(matches!(create(&path, &Broken), Err(KeyFileError::Random(_))));
}

#[test]
fn of_many_that_make_a_key_file_one_does() {
    const MAKERS: usize = 16;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repository.key");
    let together = Barrier::new(MAKERS);
    let results: Vec<_> = std::thread::scope(|scope| {
        let make = || {
            together.wait();
            let made = create(&path, &SystemRandom);
            // Whichever thread created it, it is complete as soon as it exists.
            (made, read(&path).unwrap())
        };
        let makers: Vec<_> = (0..MAKERS).map(|_| scope.spawn(make)).collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect()
    });
    let made: Vec<_> = results.iter().filter_map(|(made, _)| made.as_ref().ok()).collect();
    assert_eq!(made.len(), 1);
    assert!(results.iter().all(|(_, read)| read == made[0]));
    assert_eq!(names(folder.path()), ["repository.key"]);
}

#[test]
fn every_changed_byte_and_every_cut_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repository.key");
    create(&path, &SystemRandom).unwrap();
    let good = fs::read(&path).unwrap();
    let damaged = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        matches!(read(&path), Err(KeyFileError::Damaged { .. }))
    };
    for place in 0..good.len() - 1 {
        let mut bad = good.clone();
        bad[place] ^= 0x01;
        assert!(damaged(&bad), "byte {place}");
        assert!(damaged(&good[..place]), "cut at {place}");
    }
    assert!(damaged(&[&good[..], b"x"].concat()));
    assert!(damaged(&vec![b'0'; 1 << 20]));
    assert!(!damaged(&good[..good.len() - 1]), "an editor may take the line feed away");
}
