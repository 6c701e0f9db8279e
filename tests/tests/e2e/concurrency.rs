//! Several agents at once.

use holdfast_tests::proxy::Proxy;
use holdfast_tests::repository::{Class, container_bytes};
use holdfast_tests::{Disk, Server};
use tempfile::tempdir;

#[test]
fn two_vms_with_the_same_new_data_at_once() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 48 << 20);
    let runs = ["one", "two", "three"].map(|vm| agent.start(&["backup", "--vm", vm, disk.arg()]));
    for run in runs {
        run.wait().ok();
    }
    for vm in ["one", "two", "three"] {
        assert_eq!(agent.read_back(vm), disk.bytes(), "{vm}");
    }
    let rows = agent.report();
    let stored: u64 = rows.iter().map(|row| row.number("post_lc")).sum();
    assert_eq!(stored, container_bytes(server.data_dir(), Class::Data), "laws hold under concurrency too");
    // A run that begins now finds all of it, even if it was stored several times.
    agent.back_up("four", &[disk.arg()]);
    assert_eq!(agent.report()[3].number("new_bytes"), 0);
}

#[test]
fn one_backup_of_a_vm_at_a_time() {
    let folder = tempdir().unwrap();
    // A delayed agent is not a dead one.
    let server = Server::options().arg("--lease-secs=3600").start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 40 << 20);
    let proxy = Proxy::holding(server.grpc(), 4 << 20);
    let first = agent.through(proxy.address()).start(&["backup", "--vm", "vm", disk.arg()]);
    super::crash::wait_until_sending(&server, 1 << 20);
    agent.run(&["backup", "--vm", "vm", disk.arg()]).fails(6, &["vm"]);
    // Another VM is not delayed.
    agent.back_up("other", &[disk.arg()]);
    proxy.release();
    first.wait().ok();
    assert_eq!(agent.backups("vm").len(), 1);
    assert_eq!(agent.read_back("vm"), disk.bytes());
    agent.back_up("vm", &[disk.arg()]);
}

#[test]
fn restores_and_backups_side_by_side() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 32 << 20);
    let other = Disk::of_noise(folder.path().join("other.raw"), 2, 32 << 20);
    agent.back_up("vm", &[disk.arg()]);
    let backup = agent.start(&["backup", "--vm", "other", other.arg()]);
    let targets = ["a", "b"].map(|name| folder.path().join(name));
    let restores = targets
        .clone()
        .map(|to| agent.start(&["restore", "latest", "--vm", "vm", "--to", to.to_str().unwrap()]));
    for run in restores.into_iter().chain([backup]) {
        run.wait().ok();
    }
    for to in &targets {
        disk.assert_same(to);
    }
    assert_eq!(agent.read_back("other"), other.bytes());
}
