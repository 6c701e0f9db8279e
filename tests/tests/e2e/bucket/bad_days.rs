//! A bucket that is unreachable, slow, read-only or misbehaving, and machines that fail: backups are unaffected, the
//! trouble is reported, and copies catch up.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_bucket::{BUCKET, Fault, Op, SECRET_KEY};
use holdfast_tests::proxy::Proxy;
use holdfast_tests::repository::files;
use holdfast_tests::{Disk, wait_for};

use super::{Site, stop};

/// Makes a fault last until the bucket is healed.
const ALWAYS: usize = usize::MAX;

#[test]
fn backups_and_restores_go_on_while_the_bucket_is_away() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 3, 12 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(1);
    site.bucket.go_away();
    disk.put(0, b"while it is away");
    server.agent().back_up("web", &[disk.arg()]);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    let failure = site.wait_for_failure(&data_dir, "no answer came");
    assert!(failure.contains(site.bucket.endpoint()), "{failure}");
    // Neither a restart nor a kill loses waiting copies.
    stop(server);
    let server = site.start(&data_dir);
    disk.put(1 << 20, b"and after a restart");
    server.agent().back_up("web", &[disk.arg()]);
    server.kill();
    site.bucket.heal();
    let server = site.start(&data_dir);
    site.wait_for_points(3);
    let status = site.wait_up_to_date(&data_dir);
    assert_eq!(status["location"], format!("s3://{BUCKET}/site at {}", site.bucket.endpoint()));
    stop(server);
    site.assert_same(&data_dir);
}

/// Lost answers and refusals cost time and requests, never a second copy.
#[test]
fn nothing_is_sent_twice() {
    let site = Site::new();
    let data_dir = site.path("repository");
    site.bucket.fail(Op::Put, "containers/", 1, Fault::LoseAnswer);
    site.bucket.fail(Op::Put, "containers/", 6, Fault::Refuse(503, "SlowDown"));
    site.bucket.fail(Op::Put, "points/", 1, Fault::LoseAnswer);
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 5, 40 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(1);
    site.wait_up_to_date(&data_dir);
    stop(server);
    site.assert_same(&data_dir);
    // One for each object, and the six that were refused.
    assert_eq!(site.bucket.requests(Op::Put, "/containers/"), site.copies("containers").len() + 6);
    assert_eq!(site.bucket.requests(Op::Put, "/points/"), site.copies("points").len());
}

/// A backup in progress when the bucket becomes unreachable ends like any other; the rest is copied later.
#[test]
fn a_bucket_that_goes_in_mid_backup_neither_ends_nor_holds_it() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 11, 72 << 20);
    // More than a container, and less than the disk.
    let wire = Proxy::holding(server.grpc(), 56 << 20);
    let agent = server.agent().through(wire.address());
    std::thread::scope(|scope| {
        let backup = scope.spawn(|| agent.back_up("web", &[disk.arg()]));
        wait_for("the first containers to be copied", || {
            (!site.copies("containers").is_empty()).then_some(())
        });
        site.bucket.go_away();
        wire.release();
        backup.join().unwrap();
    });
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    assert!(site.copies("points").is_empty());
    site.wait_for_failure(&data_dir, "no answer came");
    site.bucket.heal();
    site.wait_up_to_date(&data_dir);
    stop(server);
    site.assert_same(&data_dir);
}

/// A bucket that accepts requests and does not answer delays copies, and nothing else: neither backups nor a shutdown.
#[test]
fn a_bucket_that_does_not_answer_holds_nothing_up() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    site.bucket.fail(Op::Put, "containers/", ALWAYS, Fault::HoldAnswer);
    let disk = Disk::of_noise(site.path("disk.raw"), 12, 8 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    wait_for("a request that is not answered", || (!site.copies("containers").is_empty()).then_some(()));
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    stop(server);
    site.bucket.heal();
    let server = site.start(&data_dir);
    site.wait_up_to_date(&data_dir);
    stop(server);
    site.assert_same(&data_dir);
}

/// A power failure after a PUT was carried out and before its answer: the next process asks, and sends nothing again.
#[test]
fn a_copy_that_was_made_before_power_went_is_not_sent_again() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    site.bucket.fail(Op::Put, "containers/", ALWAYS, Fault::HoldAnswer);
    let disk = Disk::of_noise(site.path("disk.raw"), 13, 8 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    wait_for("a copy without an answer", || (!site.copies("containers").is_empty()).then_some(()));
    server.kill();
    site.bucket.heal();
    let server = site.start(&data_dir);
    site.wait_up_to_date(&data_dir);
    stop(server);
    site.assert_same(&data_dir);
    assert_eq!(site.bucket.requests(Op::Put, "/containers/"), site.copies("containers").len());
}

/// Expired credentials are reported, and new ones in the file take effect without a restart.
#[test]
fn credentials_that_end_are_replaced_while_the_server_runs() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 14, 8 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(1);
    site.bucket.fail(Op::Any, "", ALWAYS, Fault::Refuse(400, "ExpiredToken"));
    disk.put(0, b"changed");
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_failure(&data_dir, "the credentials");
    site.set_secret("that of yesterday");
    site.bucket.heal();
    site.wait_for_failure(&data_dir, "access was refused");
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    site.set_secret(SECRET_KEY);
    site.wait_for_points(2);
    stop(server);
    site.assert_same(&data_dir);
}

/// A read-only bucket: copies and removals wait, and blobs lost here are read from it.
#[test]
fn a_bucket_that_became_read_only_is_still_read() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 15, 8 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    stop(server);
    for path in data_containers(&data_dir) {
        fs::remove_file(path).unwrap();
    }
    site.bucket.fail(Op::Put, "", ALWAYS, Fault::Refuse(403, "AccessDenied"));
    site.bucket.fail(Op::Delete, "", ALWAYS, Fault::Refuse(403, "AccessDenied"));
    let server = site.start(&data_dir);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    disk.put(0, b"changed");
    server.agent().back_up("web", &[disk.arg()]);
    let failure = site.wait_for_failure(&data_dir, "s3:PutObject");
    assert!(failure.contains("access was refused"), "{failure}");
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    site.bucket.heal();
    site.wait_for_points(2);
    stop(server);
    site.assert_same(&data_dir);
}

/// A foreign lifecycle rule archived an object that is lost here: the error explains it, and it is not damage.
#[test]
fn an_object_that_was_archived_is_explained() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 16, 8 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    stop(server);
    for path in data_containers(&data_dir) {
        let name = path.strip_prefix(data_dir.join("blobs")).unwrap().to_str().unwrap().to_owned();
        site.bucket.archive(&format!("site/{name}"));
        fs::remove_file(path).unwrap();
    }
    let server = site.start(&data_dir);
    let ran = server.agent().run(&["restore", "latest", "--vm", "web", "--to", "-"]);
    assert_eq!(ran.code, Some(10), "{}", ran.said());
    assert!(ran.said().contains("archive (Glacier)"), "{}", ran.said());
    stop(server);
}

fn data_containers(data_dir: &Path) -> Vec<PathBuf> {
    let all = files(&data_dir.join("blobs/containers"));
    all.into_iter().filter(|path| path.to_string_lossy().contains(".data")).collect()
}
