//! Copies are made once, equal the originals, and suffice to recover a server.

use std::fs;
use std::path::PathBuf;

use holdfast_bucket::{BUCKET, Op, TestBucket};
use holdfast_tests::repository::files;
use holdfast_tests::{Disk, Server};

use super::{Site, stop};

#[test]
fn a_blank_machine_comes_back_from_the_bucket_and_a_printed_page() {
    let site = Site::new();
    let (data_dir, new) = (site.path("repository"), site.path("new"));
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 7, 40 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    let late = Disk::of_noise(site.path("late.raw"), 8, 6 << 20);
    server.agent().back_up("mail", &[late.arg()]);
    site.wait_for_points(2);
    server.kill();
    let page = site.export_kit(&data_dir, "kit.txt");
    site.assert_same(&data_dir);
    // The machine is lost.
    fs::remove_dir_all(&data_dir).unwrap();

    let from = format!("s3://{BUCKET}/site");
    // Nothing works without the kit.
    let (status, said) = site.maintain(&new, "recover", &["--from", &from]);
    assert_eq!(status.code(), Some(4), "{said}");
    let lists = site.bucket.count(Op::List);
    let (status, said) = site.recover(&new, &page);
    assert!(status.success(), "{said}");
    assert!(said.contains("tier take-over"), "{said}");
    assert!(said.contains("requests: ") && said.contains("data is read from there"), "{said}");
    assert!(site.bucket.count(Op::List) - lists <= 8, "listed once");
    let data = files(&new.join("blobs/containers"));
    assert!(data.iter().all(|path| !path.to_string_lossy().contains(".data")), "data stays there: {data:?}");

    let server = site.start(&new);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    assert_eq!(server.agent().read_back("mail"), late.bytes());
    // Backups continue here and, once the old machine was declared lost, copies too.
    let old = site.status(&new)["other_writer"].as_str().unwrap().to_owned();
    let (status, said) = site.maintain(&new, "tier", &["take-over", "--from", &old]);
    assert!(status.success(), "{said}");
    late.put(1 << 20, b"changed");
    server.agent().back_up("mail", &[late.arg()]);
    site.wait_for_points(3);
    assert_eq!(server.agent().read_back("mail"), late.bytes());
    stop(server);
    site.assert_same(&new);
}

/// As in the container image: the system's certificates decide which object stores are trusted, unless the settings do.
#[test]
fn a_bucket_over_https_is_reached_if_its_certificate_is_trusted() {
    let bucket = TestBucket::start_with_tls();
    let ca = bucket.ca().to_owned();
    let site = Site::of(bucket, "encryption = \"on\"\n");
    let data_dir = site.path("repository");
    let roots = site.path("ca.pem");
    fs::write(&roots, ca).unwrap();
    let disk = Disk::of_noise(site.path("disk.raw"), 10, 4 << 20);

    let server = site.start(&data_dir);
    server.agent().back_up("web", &[disk.arg()]);
    let said = site.wait_for_failure(&data_dir, "certificate");
    assert!(said.contains("invalid peer certificate") && said.contains("s3_ca"), "{said}");
    assert_eq!(site.bucket.keys(), [""; 0]);
    stop(server);

    let options = Server::options().args(&["--config", site.config.to_str().unwrap()]);
    let server = options.env("SSL_CERT_FILE", roots.to_str().unwrap()).start(&data_dir);
    site.wait_up_to_date(&data_dir);
    stop(server);
    site.assert_exact(&data_dir);

    let late = Disk::of_noise(site.path("late.raw"), 11, 4 << 20);
    site.configure(&format!("encryption = \"on\"\ns3_ca = {roots:?}\n"));
    let server = site.start(&data_dir);
    server.agent().back_up("late", &[late.arg()]);
    site.wait_up_to_date(&data_dir);
    stop(server);
    site.assert_exact(&data_dir);
}

/// A file lost here is read from the bucket.
#[test]
fn what_is_lost_here_is_read_from_there() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 9, 8 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(1);
    stop(server);
    let lost: Vec<PathBuf> = files(&data_dir.join("blobs/containers"));
    for path in &lost {
        fs::remove_file(path).unwrap();
    }
    let server = site.start(&data_dir);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    stop(server);
}
