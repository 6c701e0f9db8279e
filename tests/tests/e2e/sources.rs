//! Disks that cannot be read end in a clear error and leave no restore point.

use holdfast_tests::proxy::Proxy;
use holdfast_tests::{Agent, Disk, Ran, Server};
use tempfile::tempdir;

fn nothing_of(agent: &Agent, vm: &str) {
    assert_eq!(agent.backups(vm), Vec::<String>::new());
}

#[test]
fn disks_that_are_not_there() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let good = Disk::varied(folder.path().join("good.raw"), 1, 5 << 20);
    let missing = folder.path().join("missing.raw");
    let missing = missing.to_str().unwrap();
    agent.run(&["backup", "--vm", "vm", good.arg(), missing]).fails(1, &["missing.raw"]);
    agent.run(&["backup", "--vm", "vm", folder.path().to_str().unwrap()]).fails(1, &["directory"]);
    nothing_of(&agent, "vm");
    agent.back_up("vm", &[good.arg()]);
}

#[test]
fn two_disks_of_one_name_are_refused() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 5 << 20);
    let named = format!("root={}", disk.arg());
    let ran = agent.run(&["backup", "--vm", "vm", &named, &named]);
    assert!(matches!(ran.code, Some(1 | 2)), "{:?}", ran.code);
    assert!(ran.said().contains("root"), "{}", ran.said());
    nothing_of(&agent, "vm");
}

#[test]
fn a_disk_that_shrinks_while_it_is_read() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, FAR_BYTES);
    shrinking_backup(&server, &disk, 20 << 20).fails(1, &["disk.raw"]);
    nothing_of(&agent, "vm");
    agent.back_up("vm", &[disk.arg()]);
    assert_eq!(agent.read_back("vm"), disk.bytes());
}

/// More than an agent with one compressing thread reads ahead of what it has sent: 14 extents in buffers, and
/// some 25 MiB compressed and on their way.
pub(crate) const FAR_BYTES: usize = 160 << 20;

/// A backup of the VM "vm" whose disk is cut to `len` bytes when some of it has been sent, and most of it not
/// been read.
pub(crate) fn shrinking_backup(server: &Server, disk: &Disk, len: u64) -> Ran {
    let proxy = Proxy::holding(server.grpc(), 4 << 20);
    let agent = server.agent().through(proxy.address());
    let run = agent.start(&["backup", "--vm", "vm", disk.arg(), "--threads", "1"]);
    super::crash::wait_until_sending(server, 1 << 20);
    disk.resize(len);
    proxy.release();
    run.wait()
}
