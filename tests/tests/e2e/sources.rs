//! Disks that cannot be read end in a clear error and leave no restore point.

use holdfast_tests::{Agent, Disk, Server, wait_for};
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
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 64 << 20);
    let slow = agent.start(&["backup", "--vm", "vm", disk.arg(), "--limit-upload", "8M"]);
    wait_for("data to arrive", || server_has_data(&server).then_some(()));
    disk.resize(20 << 20);
    slow.wait().fails(1, &["disk.raw"]);
    nothing_of(&agent, "vm");
    agent.back_up("vm", &[disk.arg()]);
    assert_eq!(agent.read_back("vm"), disk.bytes());
}

fn server_has_data(server: &Server) -> bool {
    let files = holdfast_tests::repository::files(&server.data_dir().join("blobs"));
    files.iter().any(|file| std::fs::metadata(file).is_ok_and(|file| file.len() > 1 << 20))
}
