//! Files of a newer Holdfast are "unsupported", never "corrupt", and are unchanged.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crc_fast::{CrcAlgorithm, checksum};
use holdfast_tests::repository::{Class, containers_of};
use holdfast_tests::server::maintain;
use holdfast_tests::{Disk, Server};
use tempfile::tempdir;

const EXIT_UNSUPPORTED: Option<i32> = Some(7);

/// Asserts that the message names the version found and what to do, and does not call it damage.
fn says_unsupported(said: &str, version: &str) {
    let said = said.to_lowercase();
    assert!(said.contains(version) && said.contains("use "), "{said}");
    assert!(!said.contains("corrupt") && !said.contains("damaged"), "{said}");
}

#[test]
fn a_newer_catalog_stops_the_start() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    Server::start(&data_dir).stop();
    let catalog = data_dir.join("catalog.db");
    assert!(!data_dir.join("catalog.db-wal").exists(), "a clean stop leaves everything in the database");
    let before = fs::read(&catalog).unwrap();
    // The SQLite file format keeps `user_version` at byte 60, big-endian.
    let file = File::options().write(true).open(&catalog).unwrap();
    file.write_all_at(&9999u32.to_be_bytes(), 60).unwrap();
    let newer = fs::read(&catalog).unwrap();
    let (status, said) = Server::options().try_start(&data_dir).unwrap_err();
    assert_eq!(status.code(), EXIT_UNSUPPORTED, "{said}");
    says_unsupported(&said, "version 9999");
    assert_eq!(fs::read(&catalog).unwrap(), newer, "a catalog of a newer version must not be changed");
    // With the known version restored it works again.
    fs::write(&catalog, before).unwrap();
    Server::start(&data_dir).agent().run(&["list"]).ok();
}

#[test]
fn a_newer_container_is_unsupported() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 8 << 20);
    server.agent().back_up("vm", &[disk.arg()]);
    server.stop();
    let container = containers_of(&data_dir, Class::Data).remove(0);
    let file = File::options().read(true).write(true).open(&container.path).unwrap();
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).unwrap();
    header[4] += 2;
    let crc = u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, &header[..60])).unwrap();
    header[60..].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&header, 0).unwrap();

    for args in [&["--read-data"][..], &[]] {
        let (status, said) = maintain(&data_dir, "check", args);
        assert_eq!(status.code(), EXIT_UNSUPPORTED, "{said}");
        says_unsupported(&said, "version 3");
    }
    let server = Server::start(&data_dir);
    server.agent().run(&["verify", "latest", "--vm", "vm"]).fails(7, &["version 3"]);
}

#[test]
fn a_repository_of_something_else_is_not_touched() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    fs::create_dir(&data_dir).unwrap();
    fs::write(data_dir.join("catalog.db"), b"this is no database").unwrap();
    let (status, said) = Server::options().try_start(&data_dir).unwrap_err();
    assert!(!status.success());
    assert!(said.contains("catalog") && said.contains(data_dir.to_str().unwrap()), "{said}");
    assert_eq!(fs::read(data_dir.join("catalog.db")).unwrap(), b"this is no database");
}
