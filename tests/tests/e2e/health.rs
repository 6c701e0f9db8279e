//! `holdfast-server health`, as a container engine calls it.

use holdfast_tests::server::maintain;
use holdfast_tests::{Server, wait_for};
use tempfile::tempdir;

#[test]
fn only_the_server_of_this_folder_is_healthy() {
    let folder = tempdir().unwrap();
    let (mine, other) = (folder.path().join("mine"), folder.path().join("other"));
    let server = Server::start(&mine);
    let address = server.https().to_owned();
    let health = |data_dir, more: &[&str]| {
        let (status, said) = maintain(data_dir, "health", &[&["--http", &address], more].concat());
        (status.code(), said)
    };
    // A busy machine may keep a server from answering in the few seconds that a health check waits.
    let well = |more: &[&str]| {
        wait_for("the server to be well", || {
            let (code, said) = health(&mine, more);
            (code == Some(0)).then_some(said)
        })
    };
    assert!(well(&[]).contains("\"ok\""));
    well(&["--ready"]);

    // A server of another repository at this address does not count.
    Server::start(&other).stop();
    let (code, said) = health(&other, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("different certificate"), "{said}");

    server.stop();
    let (code, said) = health(&mine, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&address), "{said}");
    let (status, said) = maintain(&mine, "health", &["--http", "127.0.0.1:0"]);
    assert_eq!(status.code(), Some(2), "{said}");
}

/// Ready differs from alive: a server that accepts no backups still restores.
#[test]
fn a_full_repository_is_alive_and_not_ready() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::options().arg("--reserve=900TiB").start(&data_dir);
    let address = server.https().to_owned();
    let health = |more: &[&str]| {
        let (status, said) = maintain(&data_dir, "health", &[&["--http", &address], more].concat());
        (status.code(), said)
    };
    wait_for("the server to say that it is full", || {
        let (code, said) = health(&["--ready"]);
        (code == Some(1) && said.contains("\"full\"") && said.contains("add storage")).then_some(())
    });
    wait_for("the server to be alive", || (health(&[]).0 == Some(0)).then_some(()));
}
