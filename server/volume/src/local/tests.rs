use std::io::IoSliceMut;
use std::os::unix::fs::PermissionsExt as _;

use rustix::io::{Errno, ReadWriteFlags};

use super::*;
use crate::BlobEntry;
use crate::testing::{list, put, volume_suite};

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

/// A volume in a temporary folder that is removed with it.
#[derive(Debug)]
struct InTempFolder(LocalVolume, #[expect(dead_code, reason = "removed on drop")] tempfile::TempDir);

impl Volume for InTempFolder {
    crate::pass_on!(create_for, open, list, remove, discard_unfinished, space, handles_outlive_removal to 0);
}

#[test]
fn conforms() {
    volume_suite(|| {
        let folder = tempfile::tempdir().unwrap();
        Box::new(InTempFolder(LocalVolume::open(folder.path().join("deep/root")).unwrap(), folder))
    });
}

/// (R9) On systems where the kernel tells whether a read would go to the disk.
#[test]
fn a_blob_that_is_dropped_is_read_from_the_disk() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let volume = LocalVolume::open(folder.path()).unwrap();
    put(&volume, "a", &[7; 1 << 16]);
    let blob = volume.open(&name("a")).unwrap();
    blob.read_at(0, &mut [0; 1 << 16]).unwrap();
    let file = File::open(folder.path().join("a")).unwrap();
    let at_hand = || {
        let mut buffer = [0; 1 << 16];
        rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut buffer)], 0, ReadWriteFlags::NOWAIT)
    };
    if at_hand() != Ok(1 << 16) {
        return;
    }
    blob.drop_cached();
    assert_eq!(at_hand(), Err(Errno::AGAIN));
}

#[test]
fn blobs_survive_reopening_and_unfinished_ones_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let volume = LocalVolume::open(folder.path()).unwrap();
    put(&volume, "containers/0/a", b"whole");
    let mut unfinished = volume.create(&name("containers/0/b")).unwrap();
    unfinished.append(&vec![1; 2 * WRITE_BUFFER_BYTES]).unwrap();
    std::mem::forget(unfinished); // as a killed process would

    let volume = LocalVolume::open(folder.path()).unwrap();
    assert_eq!(volume.discard_unfinished().unwrap(), 1);
    assert_eq!(volume.discard_unfinished().unwrap(), 0);
    let found = list(&volume, "containers");
    assert_eq!(found, [BlobEntry { name: name("containers/0/a"), len: 5 }]);
    assert_eq!(std::fs::read(folder.path().join("containers/0/a")).unwrap(), b"whole");
}

/// A repository being created writes before it discards, and in a container every process has id 1.
#[test]
fn what_a_process_of_the_same_number_left_is_in_no_ones_way() {
    let folder = tempfile::tempdir().unwrap();
    let volume = LocalVolume::open(folder.path()).unwrap();
    for number in 0..3 {
        let left = folder.path().join(TEMP_FOLDER).join(format!("{}-{number}", std::process::id()));
        std::fs::write(left, b"half").unwrap();
    }
    put(&volume, "a/b", b"whole");
    assert_eq!(volume.open(&name("a/b")).unwrap().len(), 5);
    assert_eq!(volume.discard_unfinished().unwrap(), 3);
}

#[test]
fn no_other_user_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    put(&LocalVolume::open(&root).unwrap(), "x/y", b"secret");
    let mode = |path: &str| root.join(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode(TEMP_FOLDER), mode("x"), mode("x/y")), (0o700, 0o700, 0o700, 0o600));
}

#[test]
fn foreign_files_are_no_blobs() {
    let folder = tempfile::tempdir().unwrap();
    let volume = LocalVolume::open(folder.path()).unwrap();
    put(&volume, "x/y", b"1");
    std::fs::write(folder.path().join("x/README~"), b"").unwrap();
    std::fs::write(folder.path().join("x/.y.swp"), b"").unwrap();
    std::os::unix::fs::symlink("y", folder.path().join("x/z")).unwrap();
    assert_eq!(list(&volume, "x"), [BlobEntry { name: name("x/y"), len: 1 }]);
}

#[test]
fn a_file_cut_while_open_is_out_of_range() {
    let folder = tempfile::tempdir().unwrap();
    let volume = LocalVolume::open(folder.path()).unwrap();
    put(&volume, "x", &[7; 100]);
    let blob = volume.open(&name("x")).unwrap();
    File::options().write(true).open(folder.path().join("x")).unwrap().set_len(10).unwrap();
    let error = blob.read_at(5, &mut [0; 20]).unwrap_err();
    assert!(matches!(error, VolumeError::OutOfRange { len: 10, offset: 5, wanted: 20, .. }), "{error}");
}

/// `/dev/full` answers every write with ENOSPC, as a full disk does.
#[test]
fn a_full_disk_is_full_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let volume = LocalVolume::open(folder.path()).unwrap();
    let temp = folder.path().join(TEMP_FOLDER).join(format!("{}-0", std::process::id()));
    let writer = |big: bool| {
        // `create_new` would refuse the link, so the file is swapped for the device behind the writer.
        let mut writer = LocalWriter {
            name: name("x"),
            target: folder.path().join("x"),
            temp: TempFile::over(File::options().write(true).open("/dev/full").unwrap(), temp.clone()),
            folders: Arc::clone(&volume.folders),
            buffer: Vec::new(),
            written_bytes: 0,
            failed: false,
        };
        std::fs::write(&temp, b"").unwrap();
        let result = writer.append(&vec![1; if big { WRITE_BUFFER_BYTES } else { 1 }]);
        (writer, result)
    };
    let (mut large, result) = writer(true);
    assert!(matches!(result, Err(VolumeError::Full { .. })), "{result:?}");
    assert!(large.append(&vec![1; WRITE_BUFFER_BYTES]).is_err());
    assert!(Box::new(large).seal().is_err(), "a writer that failed must not seal");
    assert!(!temp.exists());

    let (small, result) = writer(false);
    result.unwrap();
    let result = Box::new(small).seal();
    assert!(matches!(result, Err(VolumeError::Full { .. })), "{result:?}");
    assert!(!temp.exists());
    assert!(volume.open(&name("x")).is_err());
}

/// A pipe cannot be flushed: `fdatasync` fails, which must be distinguished from a plain I/O error.
#[test]
fn a_failed_flush_is_not_durable() {
    let folder = tempfile::tempdir().unwrap();
    let volume = LocalVolume::open(folder.path()).unwrap();
    let (_reader, pipe) = std::io::pipe().unwrap();
    let temp = TempFile::over(File::from(std::os::fd::OwnedFd::from(pipe)), folder.path().join("t"));
    let error = temp.publish(&folder.path().join("x"), &volume.folders).unwrap_err();
    assert!(matches!(error, PublishError::Flush(_)), "{error:?}");
}

#[test]
fn writers_in_a_new_folder_do_not_collide() {
    let folder = tempfile::tempdir().unwrap();
    let volume = LocalVolume::open(folder.path()).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let volume = &volume;
            scope.spawn(move || put(volume, &format!("a/b/c/{number}"), &[number; 1000]));
        }
    });
    assert_eq!(list(&volume, "a").len(), 8);
    assert_eq!(std::fs::read_dir(folder.path().join(TEMP_FOLDER)).unwrap().count(), 0);
}

#[test]
fn a_file_that_may_not_be_read_is_there_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let volume = LocalVolume::open(folder.path()).unwrap();
    put(&volume, "x", b"1");
    let path = folder.path().join("x");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser may read everything.
    if File::open(&path).is_err() {
        let error = volume.open(&name("x")).unwrap_err();
        assert!(error.is_unreadable_now() && !error.poisons_writes(), "{error:?}");
    }
}

/// Only folders that are empty and abandoned are removed: one in use is there for its next blob.
#[test]
fn empty_folders_go_when_they_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let volume = LocalVolume::open(folder.path()).unwrap();
    for blob in ["points/old/a/x", "points/old/b/x", "points/new/c/x", "points/older/d/x"] {
        put(&volume, blob, b"x");
    }
    for blob in ["points/old/a/x", "points/new/c/x", "points/older/d/x"] {
        volume.remove(&name(blob)).unwrap();
    }
    let is_left = |folder: &BlobName| folder.as_str().contains("old");
    volume.remove_empty_folders(&name("points"), &is_left).unwrap();
    let is_there = |path: &str| folder.path().join(path).exists();
    assert!(!is_there("points/old/a") && is_there("points/old/b/x") && is_there("points/new/c"));
    assert!(!is_there("points/older"));
    // A removed folder is created again, durably.
    put(&volume, "points/older/d/x", b"y");
    assert!(is_there("points/older/d/x"));
    volume.remove_empty_folders(&name("absent"), &is_left).unwrap();
}
