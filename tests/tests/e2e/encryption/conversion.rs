//! A repository created without encryption is encrypted while it is in use.

use holdfast_tests::disk::{assert_same, noise};
use holdfast_tests::server::maintain;
use holdfast_tests::web::get;
use holdfast_tests::{Server, tasks, wait_for};
use serde_json::json;

use super::{
    NAMESPACE, Scene, VM, found, nothing_lies_in_the_open, read_back, secrets, stop, wait_until_converted,
};

fn older_backup(server: &Server) -> String {
    let list = server.agent().run(&["list", "--namespace", NAMESPACE, "--vm", VM, "--json"]).ok().summary();
    list["backups"][1]["backup"].as_str().unwrap().to_owned()
}

#[test]
fn an_existing_repository_is_encrypted_while_it_is_used() {
    let scene = Scene::new(&[]);
    let (status, said) = maintain(&scene.data_dir, "key", &["status"]);
    assert!(!status.success() && said.contains("not encrypted"), "{said}");
    let before = scene.disk.bytes();
    scene.disk.put(0, &noise(10, 2 << 20));
    scene.add(&[]);
    // Killed at any point.
    for wanted in [1, 3, 5] {
        let server = Server::options().arg("--encrypt").start(&scene.data_dir);
        wait_for("some of it to be encrypted", || {
            let status = scene.status();
            let encrypted = status["encrypted_files"].as_u64().unwrap();
            (encrypted >= wanted || status["plain_files"] == 0).then_some(())
        });
        server.kill();
    }
    // Setting it once is enough.
    let server = Server::start(&scene.data_dir);
    assert_same(&scene.disk.bytes(), &read_back(&server, "latest"));
    wait_until_converted(&scene);
    assert_same(&before, &read_back(&server, &older_backup(&server)));
    let metrics = get(&server, "/metrics", &server.admin_token()).text();
    assert!(metrics.contains("holdfast_encryption_complete 1"), "{metrics}");
    tasks::run(&server, "reclaim", &json!({ "live_share_pct": 100 }));
    assert_same(&scene.disk.bytes(), &read_back(&server, "latest"));
    stop(server);
    nothing_lies_in_the_open(&scene);
    assert_eq!(found(&scene, &secrets()), Vec::<&str>::new());
    let (status, said) = maintain(&scene.data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
    scene.disk.put(0, &noise(11, 1 << 20));
    scene.add(&[]);
    // It cannot be switched off again.
    let server = Server::options().arg("--encrypt=off").start(&scene.data_dir);
    assert!(server.stderr().contains("stays so"), "{}", server.stderr());
    assert_same(&scene.disk.bytes(), &read_back(&server, "latest"));
    stop(server);
}
