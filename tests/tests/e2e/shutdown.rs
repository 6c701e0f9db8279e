//! The server stops cleanly on request.

use holdfast_tests::proxy::Proxy;
use holdfast_tests::server::maintain;
use holdfast_tests::{Disk, Server};
use tempfile::tempdir;

#[test]
fn an_idle_server_stops_with_success() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 5 << 20);
    server.agent().back_up("vm", &[disk.arg()]);
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    assert_eq!(Server::start(&data_dir).agent().read_back("vm"), disk.bytes());
}

#[test]
fn backups_under_way_are_ended_and_say_so() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 64 << 20);
    let agent = server.agent();
    let proxy = Proxy::holding(server.grpc(), 4 << 20);
    let run = agent.through(proxy.address()).start(&["backup", "--vm", "vm", disk.arg()]);
    super::crash::wait_until_sending(&server, 1 << 20);
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    // Started again elsewhere: the agent, which knows only the old address, gives up in the end.
    drop(run);
    let server = Server::start(&data_dir);
    assert!(server.agent().backups("vm").is_empty());
    let statuses: Vec<_> = server.agent().report().iter().map(|row| row.text("status").to_owned()).collect();
    assert!(statuses.iter().all(|status| status != "done"), "{statuses:?}");
    server.agent().back_up("vm", &[disk.arg()]);
    server.stop();
    let (status, said) = maintain(&data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
}

#[test]
fn what_is_no_repository_cannot_be_maintained() {
    let folder = tempdir().unwrap();
    let nothing = folder.path().join("nothing");
    for command in ["check", "rebuild-index"] {
        let (status, said) = maintain(&nothing, command, &[]);
        assert!(!status.success(), "{command}: {said}");
        assert!(said.contains("nothing"), "{command}: {said}");
        assert!(!nothing.exists(), "{command} makes no repository");
    }
}

#[test]
fn a_configuration_file_with_an_unknown_key_is_refused() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("server.toml");
    std::fs::write(&file, "lease_seconds = 5\n").unwrap();
    let options = Server::options().arg("--config").arg(file.to_str().unwrap());
    let (status, said) = options.try_start(&folder.path().join("repository")).unwrap_err();
    assert!(!status.success());
    assert!(said.contains("lease_seconds") && said.contains("server.toml"), "{said}");
}
