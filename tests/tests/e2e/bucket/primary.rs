//! Data that lives in the bucket: a backup counts only when it is there, and the local disk is a cache.

use std::path::Path;

use holdfast_bucket::Op;
use holdfast_tests::agent::Running;
use holdfast_tests::{Disk, Server, wait_for};

use super::{Site, copied, stop};

const PRIMARY: &str = "encryption = \"on\"\ns3_primary = true\ns3_move_until_free = 100\n";

/// Asserts, without waiting, that the bucket has everything that is here.
fn assert_all_there(site: &Site, data_dir: &Path) {
    let keys = site.bucket.keys();
    for name in copied(data_dir) {
        assert!(keys.contains(&format!("site/{name}")), "{name} is not in the bucket");
    }
}

/// Starts a backup while the bucket is unreachable, and waits until it is committed and its agent still waits.
fn held(site: &Site, server: &Server, vm: &str, disk: &Disk) -> Running {
    site.bucket.go_away();
    let mut run = server.agent().start(&["backup", "--vm", vm, disk.arg()]);
    wait_for("the restore point", || (server.agent().backups(vm).len() == 1).then_some(()));
    assert!(run.runs(), "it is not acknowledged");
    run
}

#[test]
fn a_backup_ends_when_the_bucket_has_it() {
    let site = Site::with(PRIMARY);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 31, 24 << 20);
    for change in 0..3 {
        disk.put(change << 20, b"changed");
        server.agent().back_up("web", &[disk.arg()]);
        assert_all_there(&site, &data_dir);
    }
    // The machine is lost right after.
    server.kill();
    let kit = {
        let (status, page) = site.maintain(&data_dir, "key", &["export-kit"]);
        assert!(status.success(), "{page}");
        let server = site.start(&data_dir);
        site.wait_up_to_date(&data_dir);
        server.kill();
        let path = site.path("kit.txt");
        std::fs::write(&path, page).unwrap();
        path
    };
    let new = site.path("new");
    let (status, said) = site.recover(&new, &kit);
    assert!(status.success(), "{said}");
    let server = site.start(&new);
    assert_eq!(server.agent().backups("web").len(), 3);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    stop(server);
}

#[test]
fn a_backup_waits_for_a_bucket_that_is_away() {
    let site = Site::with(PRIMARY);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 32, 8 << 20);
    let run = held(&site, &server, "web", &disk);
    assert_eq!(server.agent().read_back("web"), disk.bytes(), "it can be restored meanwhile");
    site.bucket.heal();
    run.wait().ok();
    assert_all_there(&site, &data_dir);
    assert_eq!(server.agent().backups("web").len(), 1);
    stop(server);
}

/// An agent without an answer asks the next server, and makes no second restore point.
#[test]
fn a_server_killed_before_the_bucket_has_it_answers_after_its_restart() {
    let site = Site::with(PRIMARY);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let (address, disk) = (server.grpc().to_owned(), Disk::of_noise(site.path("disk.raw"), 33, 8 << 20));
    let mut run = held(&site, &server, "web", &disk);
    server.kill();
    let config = ["--config", site.config.to_str().unwrap()];
    // Another test may have taken the port in the meantime.
    let server =
        wait_for("the port", || Server::options().args(&config).grpc(&address).try_start(&data_dir).ok());
    site.wait_for_failure(&data_dir, "no answer came");
    assert!(run.runs(), "it is not acknowledged");
    site.bucket.heal();
    run.wait().ok();
    assert_all_there(&site, &data_dir);
    assert_eq!(server.agent().backups("web").len(), 1);
    stop(server);
}

/// Data is moved from the volume to the bucket as space is needed, whatever its age.
#[test]
fn the_local_disk_is_a_cache() {
    let site = Site::with(PRIMARY);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 34, 24 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    server.agent().run(&["reclaim"]).ok();
    assert!(copied(&data_dir).iter().all(|name| !name.contains(".data")), "{:?}", copied(&data_dir));
    let read = site.bucket.count(Op::Get);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    assert!(site.bucket.count(Op::Get) > read, "it comes from there");
    disk.put(5 << 20, b"changed");
    server.agent().back_up("web", &[disk.arg()]);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    stop(server);
}
