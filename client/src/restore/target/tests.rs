#![expect(clippy::cast_possible_truncation, reason = "test disks are small")]

use super::*;
use std::os::unix::fs::MetadataExt as _;

#[test]
fn a_file_appears_only_when_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.raw");
    let partial = folder.path().join("disk.raw.holdfast-partial");
    let target = open(&path, 100 << 20, false, true).unwrap();
    target.write_at(50 << 20, b"hello").unwrap();
    target.zero(0, 50 << 20).unwrap();
    assert!(partial.exists() && !path.exists());
    target.finish().unwrap();
    drop(target);
    assert!(!partial.exists());
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((bytes.len(), &bytes[50 << 20..][..5]), (100 << 20, &b"hello"[..]));
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < 1 << 20, "it is sparse");
}

#[test]
fn an_unfinished_file_goes_away() {
    let folder = tempfile::tempdir().unwrap();
    let target = open(&folder.path().join("disk.raw"), 10, false, true).unwrap();
    target.write_at(0, b"half").unwrap();
    drop(target);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn nothing_is_overwritten_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.raw");
    let racing = open(&path, 10, false, false).unwrap();
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(open(&path, 10, false, false), Err(ClientError::Exists(_))));
    assert!(matches!(racing.finish(), Err(ClientError::Exists(_))), "it appeared meanwhile");
    drop(racing);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let forced = open(&path, 10, true, false).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"precious", "until the new one is complete");
    forced.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [0; 10]);
    assert!(matches!(open(folder.path(), 10, true, false), Err(ClientError::File { .. })));
}

#[test]
fn written_in_place_zeros_are_explicit() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![0xAA; 3 << 20]).unwrap();
    let target = DeviceTarget::open(file.path(), 3 << 20).unwrap();
    target.zero(100, (2 << 20) + 7).unwrap();
    target.write_at(0, b"x").unwrap();
    target.finish().unwrap();
    let bytes = std::fs::read(file.path()).unwrap();
    assert_eq!((bytes[0], bytes[99], bytes[100], bytes[(2 << 20) + 106]), (b'x', 0xAA, 0, 0));
    assert!(bytes[(2 << 20) + 107..].iter().all(|&byte| byte == 0xAA));
    let error = DeviceTarget::open(file.path(), 4 << 20).unwrap_err().to_string();
    assert!(error.contains("larger device"), "{error}");
}

#[test]
fn a_pipe_gets_windows_in_order() {
    let extent = u64::from(EXTENT_BYTES);
    let window = WINDOW_EXTENTS as u64 * extent;
    let pipe = PipeTarget::new(Vec::new());
    pipe.write_at(extent, b"two").unwrap();
    pipe.write_at(0, b"one").unwrap();
    pipe.window_done(0, window).unwrap();
    assert!(pipe.write_at(0, b"late").is_err() && pipe.write_at(2 * window, b"early").is_err());
    pipe.zero(window, 10).unwrap();
    pipe.write_at(window + 7, b"end").unwrap();
    pipe.window_done(window, window + 10).unwrap();
    assert!(pipe.window_done(window, window + 10).is_err());
    pipe.finish().unwrap();
    let written = pipe.state.into_inner().writer;
    assert_eq!(written.len() as u64, window + 10);
    assert_eq!((&written[..3], &written[extent as usize..][..3]), (&b"one"[..], &b"two"[..]));
    assert_eq!(&written[window as usize..], b"\0\0\0\0\0\0\0end", "what the window before held is gone");
}
